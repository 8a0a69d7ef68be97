//! A LAN behind a gateway without sumlink: the basis of the gateway's tests.

use sumlink_lab::{Packet, Side};
use sumlink_test_support::emulated::lan::{Lan, leaks, packets_of};
use sumlink_test_support::emulated::until;

const LINKS: [&str; 2] = ["wifi:rate=50mbit,delay=5ms", "lte:rate=20mbit,delay=20ms"];

fn lan() -> Option<Lan> {
    Lan::of(env!("CARGO_BIN_EXE_sumlink-lab"), &LINKS)
}

#[test]
fn any_program_of_the_lan_reaches_the_internet_host() {
    let Some(lan) = lan() else {
        return;
    };
    lan.forward();
    let _files = Ended(lan.serve_files());
    lan.bench.write("www/page", "the page of the internet host");
    let capture = lan.capture(Side::Client, "wifi");
    for address in ["203.0.113.1", "[2001:db8:3::1]", "www.example.test"] {
        let page = lan.host(&[
            "curl",
            "--silent",
            "--fail",
            &format!("http://{address}/page"),
        ]);
        assert_eq!(page, "the page of the internet host", "{address}");
    }
    let shown = lan.host(&["ping", "-c", "1", "203.0.113.7"]);
    assert!(shown.contains("1 received"), "{shown}");
    // Without sumlink everything leaves beside the bond, and a capture must show it.
    let packets = capture.finish().unwrap();
    let found = leaks(&packets);
    let is_echo = |protocol| move |packet: &&&Packet| packet.protocol == protocol;
    for protocol in [1, 6, 17] {
        assert!(
            found.iter().filter(is_echo(protocol)).count() > 0,
            "{protocol}: {found:?}"
        );
    }
}

#[test]
fn a_client_with_proxies_leaks_nothing() {
    let Some(mut lan) = lan() else {
        return;
    };
    let _files = Ended(lan.serve_files());
    lan.bench.write("www/page", "the page of the internet host");
    lan.serve("");
    let before = lan.traces();
    let captures = lan.capture_links();
    let key = lan.bench.server_key.clone();
    let client = lan.bench.sumlink(
        "client",
        &[
            "client",
            "--server",
            "10.99.0.1:7000",
            "--server-key",
            &key,
            "--key",
            "client.key",
            "--socks",
            "192.168.8.1:1080",
        ],
    );
    client.event("connected");
    let words = [
        "curl",
        "--silent",
        "--fail",
        "--socks5-hostname",
        "192.168.8.1:1080",
    ];
    // The server asks the name server of the internet host.
    let page = lan.host(&[&words[..], &["http://www.example.test/page"]].concat());
    assert_eq!(page, "the page of the internet host");
    let packets = packets_of(captures);
    assert!(!packets.is_empty());
    assert_eq!(leaks(&packets), Vec::<&Packet>::new());
    assert!(
        lan.bench
            .lab
            .questions()
            .iter()
            .any(|asked| asked.name == "www.example.test")
    );
    assert_eq!(lan.traces(), before);
}

#[test]
fn the_file_of_a_gateway_names_its_lan_and_its_links() {
    let Some(lan) = lan() else {
        return;
    };
    lan.write_gateway("capture = \"tun\"\n");
    let file = std::fs::read_to_string(lan.bench.path("gateway.toml")).unwrap();
    assert!(
        file.contains("[gateway]\nlan = [\"lan0\"]\ncapture = \"tun\"\n"),
        "{file}"
    );
    assert!(file.contains("[[link]]\nname = \"lte\"\n"), "{file}");
    let output = lan.try_on(Side::Lan, &["false"]);
    assert!(!output.status.success());
    until("the gateway answers in its LAN", || {
        let output = lan.try_on(Side::Lan, &["ping", "-c", "1", "192.168.8.1"]);
        output.status.success().then_some(())
    });
}

/// A program that ends with the test.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
