//! Ways from outside to hosts of the LAN: published ports of the server, and ports that the
//! administrator forwards from a link. The complaints of docs/notes/gateway-complaints.md about
//! port forwarding.

use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use sumlink_lab::Side;
use sumlink_test_support::emulated::lan::Lan;
use sumlink_test_support::emulated::until;

use super::{CAPTURES, Helper, V4, assert_no_leak, lan, page, program, status};

/// The server's public address, and the one that its clients use.
const PUBLIC: &str = "198.51.100.1";
const SERVER: &str = "10.99.0.1";
/// The internet host, as the server sees it.
const REMOTE: &str = "198.51.100.2";

/// nginx on the LAN host; port 8081 answers with the remote's address in the PROXY protocol.
fn web_server(lan: &Lan) -> Helper {
    let config = "user root root;\ndaemon off;\nmaster_process off;\npid lan.pid;\n\
                  error_log stderr;\nevents { }\nhttp {\n  access_log off;\n  \
                  server { listen 192.168.8.2:80; return 200 \"lan\"; }\n  \
                  server { listen 192.168.8.2:8081 proxy_protocol; \
                  return 200 \"$proxy_protocol_addr\"; }\n}\n";
    let config = lan.bench.write("lan.conf", config);
    let mut command = Command::new("nginx");
    command
        .arg("-p")
        .arg(lan.bench.dir())
        .arg("-c")
        .arg(config)
        .args(["-e", "stderr"])
        .stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let child = lan.bench.lab.spawn(Side::Lan, command).unwrap();
    lan.bench.until_listening(Side::Lan, 80);
    Helper(child)
}

/// The text of a page.
fn get(lan: &Lan, side: Side, url: &str) -> String {
    let output = lan.try_on(side, &["curl", "-sS", "--max-time", "10", url]);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn servers_of_a_lan_host_are_published_with_the_addresses_of_their_remotes() {
    let Some(mut lan) = Lan::of(program(), &super::LINKS) else {
        return;
    };
    // LAN hosts may use the server's address, too.
    let egress = format!("[egress]\nrules = [\"allow {SERVER}:8000-8999\"]\n");
    lan.serve_client("publish = [\"tcp:8000-8999\", \"udp:5000\"]", &egress);
    let _web = web_server(&lan);
    let bind = || UdpSocket::bind("192.168.8.2:5000").unwrap();
    let echo = lan.bench.lab.run(Side::Lan, bind).unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = echo.recv_from(&mut buffer) {
            if length == 0 {
                return;
            }
            let _ = echo.send_to(&buffer[..length], from);
        }
    });
    let published = "[[publish]]\nlisten = \"tcp:8443\"\ntarget = \"192.168.8.2:80\"\n\
                     [[publish]]\nlisten = \"tcp:8444\"\ntarget = \"192.168.8.2:8081\"\n\
                     proxy_protocol = true\n\
                     [[publish]]\nlisten = \"udp:5000\"\ntarget = \"192.168.8.2:5000\"\n";
    for capture in CAPTURES {
        lan.up(&format!("capture = \"{capture}\"\n{published}"));
        until("the ports are published", || {
            let report = status(&lan);
            let ports = report["sessions"][0]["published"].as_array().cloned()?;
            let is_open = |port: &serde_json::Value| port["state"] == "published";
            (ports.len() == 3 && ports.iter().all(is_open)).then_some(())
        });
        let url = format!("http://{PUBLIC}:8443/");
        assert_eq!(get(&lan, Side::Internet, &url), "lan", "{capture}");
        let url = format!("http://{PUBLIC}:8444/");
        assert_eq!(get(&lan, Side::Internet, &url), REMOTE, "{capture}");
        // A host of the LAN that knows only the public name of its neighbor.
        let url = format!("http://{SERVER}:8443/");
        for side in [Side::Lan, Side::Client] {
            assert_eq!(get(&lan, side, &url), "lan", "{capture}, {side:?}");
        }
        let ask = || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect((PUBLIC, 5000)).unwrap();
            socket
        };
        let remote = lan.bench.lab.run(Side::Internet, ask).unwrap();
        remote
            .set_read_timeout(Some(Duration::from_millis(500)))
            .unwrap();
        until("a datagram returns", || {
            remote.send(b"question").ok()?;
            let mut buffer = [0; 16];
            let length = remote.recv(&mut buffer).ok()?;
            (&buffer[..length] == b"question").then_some(())
        });
        assert_eq!(lan.end_gateway(), Some(0));
    }
    let end = || UdpSocket::bind("0.0.0.0:0")?.send_to(&[], "192.168.8.2:5000");
    lan.bench.lab.run(Side::Lan, end).unwrap().unwrap();
}

#[test]
fn ports_that_the_administrator_forwards_from_a_link_still_work() {
    let Some(mut lan) = lan() else { return };
    let _files = Helper(lan.serve_files());
    let _web = web_server(&lan);
    let rules = "table ip forwards {\n  chain c {\n    type nat hook prerouting priority dstnat;\n    \
                 iifname \"wifi\" tcp dport 8080 dnat to 192.168.8.2:80\n  }\n}\n";
    let rules = lan.bench.write("forwards.nft", rules);
    lan.bench
        .run(Side::Client, &["nft", "-f", rules.to_str().unwrap()]);
    lan.bench
        .run(Side::Client, &["sysctl", "-qw", "net.ipv4.ip_forward=1"]);
    let before = lan.traces();
    for capture in CAPTURES {
        lan.up(&format!("capture = \"{capture}\"\n"));
        // The client's address on the first link, without the server's program.
        let url = "http://10.77.1.2:8080/";
        assert_eq!(get(&lan, Side::Internet, url), "lan", "{capture}");
        // What the LAN host itself begins takes the bond.
        let captures = lan.capture_links();
        assert_ne!(page(&lan, Side::Lan, &format!("http://{V4}/")), "000");
        assert_no_leak(captures, capture);
        assert_eq!(lan.end_gateway(), Some(0));
        assert_eq!(lan.traces(), before, "{capture}");
    }
}
