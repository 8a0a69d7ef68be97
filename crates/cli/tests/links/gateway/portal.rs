//! A link behind a captive portal.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sumlink_lab::Side;
use sumlink_test_support::emulated::lan::{Lan, packets_of};
use sumlink_test_support::emulated::traffic::listen;
use sumlink_test_support::emulated::{text, until};

use super::{Helper, V4, lan, page, status, sumlink, until_active};

/// The port to which the portal's network redirects HTTP.
const PORT: u16 = 8888;
/// The page at which the user signs in.
const LOGIN: &str = "http://login.hotel.example/?from=wifi";

/// A portal on the link `wifi`: it answers HTTP in the place of any server, and drops the rest.
struct Portal {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Portal {
    fn start(lan: &Lan, answer: String) -> Self {
        let address = format!("0.0.0.0:{PORT}").parse().unwrap();
        let listener = listen(&lan.bench, address);
        listener.set_nonblocking(true).unwrap();
        let rules = format!(
            "table ip portal {{\n  chain nat {{ type nat hook prerouting priority dstnat; \
             iifname \"wifi\" tcp dport 80 redirect to :{PORT}; }}\n  chain filter {{ type filter \
             hook input priority filter; iifname \"wifi\" tcp dport {PORT} accept; iifname \
             \"wifi\" meta l4proto {{ tcp, udp }} drop; }}\n}}\n"
        );
        let rules = lan.bench.write("portal.nft", rules);
        let load = ["nft", "-f", rules.to_str().unwrap()];
        lan.bench.run(Side::Server, &load);
        let stop = Arc::<AtomicBool>::default();
        let stopping = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !stopping.load(Ordering::Relaxed) {
                let Ok((mut stream, _)) = listener.accept() else {
                    thread::sleep(Duration::from_millis(20));
                    continue;
                };
                let _ = stream.set_nonblocking(false);
                let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
                let _ = stream.read(&mut [0; 2048]);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }

    /// The user has signed in.
    fn open(lan: &Lan) {
        let delete = ["nft", "delete", "table", "ip", "portal"];
        lan.bench.run(Side::Server, &delete);
    }
}

impl Drop for Portal {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Why the link has no path.
fn reason(lan: &Lan) -> String {
    let report = status(lan);
    let paths = report["sessions"][0]["paths"].as_array().cloned();
    let paths = paths.unwrap_or_default();
    let down = paths.iter().find(|path| path["link"] == "wifi");
    let reason = down.and_then(|path| path["reason"].as_str());
    reason.unwrap_or_default().to_owned()
}

#[test]
fn a_link_behind_a_portal_says_where_to_sign_in_and_is_used_afterwards() {
    let Some(mut lan) = lan() else { return };
    let _files = Helper(lan.serve_files());
    let redirection = format!("HTTP/1.1 302 Found\r\nLocation: {LOGIN}\r\n\r\n");
    let portal = Portal::start(&lan, redirection);
    lan.up("");
    until("the portal is shown", || {
        reason(&lan).contains(LOGIN).then_some(())
    });
    let shown = sumlink(&lan, &["status", "--control", "client.sock"]);
    assert!(text(shown).contains(LOGIN));
    // Programs use the other link, and nothing but attempts to dial passes this one.
    let captures = vec![lan.capture(Side::Client, "wifi")];
    for side in [Side::Lan, Side::Client] {
        assert_ne!(page(&lan, side, &format!("http://{V4}/")), "000");
    }
    let packets = packets_of(captures);
    let of_users = packets.iter().filter(|packet| {
        let ends = [packet.source.to_string(), packet.destination.to_string()];
        ends.contains(&V4.to_owned())
    });
    assert_eq!(of_users.count(), 0);
    until_active(&lan, &["lte"]);
    Portal::open(&lan);
    until_active(&lan, &["lte", "wifi"]);
    assert_eq!(lan.end_gateway(), Some(0));
    drop(portal);
}

#[test]
fn a_portal_that_answers_with_its_page_is_told_from_a_web_server() {
    let Some(mut lan) = lan() else { return };
    let page = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsign in\n".to_owned();
    let _portal = Portal::start(&lan, page);
    lan.up("");
    until("the portal is shown", || {
        reason(&lan).contains("captive portal").then_some(())
    });
    Portal::open(&lan);
    until_active(&lan, &["lte", "wifi"]);
    assert_eq!(lan.end_gateway(), Some(0));
}

#[test]
fn a_session_that_expires_at_a_portal_is_shown_and_the_link_returns() {
    let Some(mut lan) = lan() else { return };
    let _files = Helper(lan.serve_files());
    lan.up("");
    until_active(&lan, &["lte", "wifi"]);
    let answer = "HTTP/1.1 511 Network Authentication Required\r\n\r\n".to_owned();
    let _portal = Portal::start(&lan, answer);
    until("the link is not used", || {
        (super::active(&lan) == ["lte"]).then_some(())
    });
    assert_ne!(page(&lan, Side::Lan, &format!("http://{V4}/")), "000");
    until("the portal is shown", || {
        reason(&lan).contains("captive portal").then_some(())
    });
    Portal::open(&lan);
    until_active(&lan, &["lte", "wifi"]);
    assert_eq!(lan.end_gateway(), Some(0));
}
