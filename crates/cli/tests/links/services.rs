//! A client that finds its servers in the DNS.

use std::net::UdpSocket;
use std::thread;

use sumlink_lab::Side;
use sumlink_test_support::emulated::{Bench, Daemon, text, until};

/// The name of the records.
const SERVICE: &str = "_sumlink._tcp.example.test";

/// The servers: first label, address, priority.
const SERVERS: [(&str, [u8; 4], u8); 2] = [("a", [10, 99, 0, 1], 10), ("b", [10, 99, 0, 2], 20)];

/// Answers the questions of the client's machine until the test ends.
fn serve_dns(bench: &Bench) {
    let bind = || UdpSocket::bind(("127.0.0.53", 53)).unwrap();
    let socket = bench.lab.run(Side::Client, bind).unwrap();
    bench.write("resolv.conf", "nameserver 127.0.0.53\n");
    thread::spawn(move || {
        let mut question = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut question) {
            let answer = answer(&question[..length]);
            let _ = socket.send_to(&answer, from);
        }
    });
}

/// The answer of a name server with the records above (RFC 1035, section 4.1; RFC 2782).
fn answer(query: &[u8]) -> Vec<u8> {
    let mut labels = Vec::new();
    let mut at = 12;
    while query[at] > 0 {
        let end = at + 1 + usize::from(query[at]);
        labels.push(String::from_utf8_lossy(&query[at + 1..end]).into_owned());
        at = end;
    }
    let kind = query[at + 2];
    let name = labels.join(".");
    let mut records: Vec<Vec<u8>> = Vec::new();
    for (label, address, priority) in SERVERS {
        if kind == 33 && name == SERVICE {
            let mut data = vec![0, priority, 0, 1];
            data.extend(7000_u16.to_be_bytes());
            for label in [label, "example", "test"] {
                data.push(label.len() as u8);
                data.extend(label.as_bytes());
            }
            data.push(0);
            records.push(data);
        }
        if kind == 1 && name == format!("{label}.example.test") {
            records.push(address.to_vec());
        }
    }
    let mut out = query[..at + 5].to_vec();
    let is_known = !records.is_empty() || name.ends_with("b.example.test") || kind == 28;
    (out[2], out[3]) = (0x85, if is_known { 0x80 } else { 0x83 });
    out[6..12].copy_from_slice(&[0, records.len() as u8, 0, 0, 0, 0]);
    for data in records {
        out.extend([0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 30, 0, data.len() as u8]);
        out.extend(data);
    }
    out
}

fn start(bench: &Bench, name: &str, [a, b, c, d]: [u8; 4]) -> Daemon {
    let file = format!("{name}.toml");
    bench.write(
        &file,
        format!(
            "listen = \"{a}.{b}.{c}.{d}:7000\"\nkey = \"server.key\"\n\
             control = \"{name}.sock\"\n[[client]]\nkey = \"{}\"\n",
            bench.client_key
        ),
    );
    let server = bench.sumlink(name, &["server", "--config", &file]);
    server.event("listening");
    server
}

fn write_client(bench: &Bench, service: &str) {
    bench.write(
        "client.toml",
        format!(
            "server = \"{service}\"\nserver_key = \"{}\"\nkey = \"client.key\"\n\
             control = \"client.sock\"\n",
            bench.server_key
        ),
    );
}

#[test]
fn a_client_uses_the_servers_of_srv_records_by_priority() {
    let links = ["a:rate=16mbit,delay=5ms", "b:rate=16mbit,delay=8ms"];
    let Some(bench) = crate::bench(&links.map(str::to_owned)) else {
        return;
    };
    let second = ["ip", "addr", "add", "10.99.0.2/32", "dev", "lo"];
    bench.run(Side::Server, &second);
    serve_dns(&bench);
    let mut servers = SERVERS.map(|(name, address, _)| start(&bench, name, address));
    write_client(&bench, SERVICE);
    let checked = bench.program(&["check", "client.toml"]).output().unwrap();
    assert!(text(checked).contains(SERVICE));
    let mut client = bench.sumlink("client", &["client", "--config", "client.toml"]);
    let event = client.event("connected");
    assert_eq!(event["server"], "a.example.test:7000");
    assert_eq!(event["server_key"], bench.server_key);
    servers[0].signal("KILL");
    servers[0].wait();
    until("the client is at the second server", || {
        let status = ["status", "--json", "--control", "client.sock"];
        let status = text(bench.program(&status).output().unwrap());
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        let session = &status["sessions"][0];
        let paths = session["paths"].as_array()?;
        let is_active = paths.iter().any(|path| path["state"] == "active");
        (session["server"] == "b.example.test:7000" && is_active).then_some(())
    });
    client.signal("TERM");
    assert_eq!(client.wait(), Some(0));
}

#[test]
fn a_name_without_records_is_a_clear_error() {
    let Some(bench) = crate::bench(&["a:rate=16mbit".to_owned()]) else {
        return;
    };
    serve_dns(&bench);
    write_client(&bench, "_other._tcp.example.test");
    let mut client = bench.sumlink("client", &["client", "--config", "client.toml"]);
    let message = client.error();
    assert!(
        message.contains("_other._tcp.example.test: the name has no SRV record with a server"),
        "{message}"
    );
    assert_eq!(client.wait(), Some(5));
}
