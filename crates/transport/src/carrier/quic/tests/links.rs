//! Carriers over two links, in network namespaces.

use sumlink_engine::PathId;

use super::super::fixture::{SESSION, SOON, key};
use super::super::{QuicDialer, QuicListener};
use super::{numbered, receive, send};
use crate::carrier::socket::Binding;
use crate::carrier::tls::Authorized;
use sumlink_test_support::netns::Netns;

/// A client with two links to the server; the routing table prefers the first one.
fn two_links() -> Option<(Netns, Netns)> {
    let (client, server) = (Netns::new()?, Netns::new()?);
    for (name, net) in [("a0", 1), ("b0", 2)] {
        let peer = server.name();
        client.ip(&format!(
            "link add {name} mtu 1400 type veth peer name {name} netns {peer}"
        ));
        for (ns, host) in [(&client, 2), (&server, 1)] {
            ns.ip(&format!("addr add 10.0.{net}.{host}/24 dev {name}"));
            ns.ip(&format!(
                "-6 addr add 2001:db8:{net}::{host}/64 dev {name} nodad"
            ));
            ns.ip(&format!("link set {name} up"));
        }
        client.ip(&format!(
            "route add default via 10.0.{net}.1 metric {net}00"
        ));
        client.ip(&format!(
            "-6 route add default via 2001:db8:{net}::1 metric {net}00"
        ));
    }
    for address in ["192.0.2.1/32", "2001:db8:f::1/128"] {
        server.ip(&format!("addr add {address} dev lo"));
    }
    Some((client, server))
}

#[test]
fn a_carrier_leaves_by_its_link_and_fits_its_packets() {
    let Some((client_ns, server_ns)) = two_links() else {
        return;
    };
    let (client, server) = (key(), key());
    let authorized = Authorized::new([client.public()]);
    let (address, listening) = std::sync::mpsc::channel();
    let server_key = server.public();
    let serving = std::thread::spawn(move || {
        server_ns.run(async move || {
            let any = "[::]:0".parse().unwrap();
            let listener = QuicListener::bind(any, &server, &authorized).unwrap();
            address.send(listener.local_addr().unwrap().port()).unwrap();
            let mut remotes = Vec::new();
            for _ in 0..4 {
                let attempt = listener.next().await.unwrap();
                let mut carrier = attempt.prove(SOON).await.unwrap().welcome().await.unwrap();
                remotes.push(carrier.remote().ip().to_string());
                // Echoes until the client has seen enough.
                let mut datagrams = Vec::new();
                while carrier.receive(&mut datagrams, 64).await.is_ok() {
                    for datagram in datagrams.drain(..) {
                        send(&mut carrier, datagram).await;
                    }
                }
            }
            remotes
        })
    });
    let port = listening.recv().unwrap();
    client_ns.run(async move || {
        let dialer = QuicDialer::new(client, &server_key);
        for (host, headers) in [("192.0.2.1", 28), ("[2001:db8:f::1]", 48)] {
            for link in ["a0", "b0"] {
                let remote = format!("{host}:{port}").parse().unwrap();
                let opened = dialer
                    .connect(Some(link), remote, None, SOON)
                    .await
                    .unwrap();
                assert_eq!(opened.binding(), Binding::Device);
                let hello = opened.hello(SESSION, PathId(0), link.to_owned());
                let mut carrier = hello.await.unwrap();
                assert_eq!(carrier.remote(), remote);
                while carrier.sample().mtu != 1400 - headers {
                    send(&mut carrier, numbered(0, 100)).await;
                    receive(&mut carrier).await;
                }
            }
        }
    });
    let remotes = serving.join().unwrap();
    assert_eq!(
        remotes,
        ["10.0.1.2", "10.0.2.2", "2001:db8:1::2", "2001:db8:2::2"]
    );
}

#[test]
fn a_device_with_a_smaller_mtu_gets_smaller_packets_whatever_follows_them() {
    let Some((client_ns, server_ns)) = two_links() else {
        return;
    };
    let (client, server) = (key(), key());
    let authorized = Authorized::new([client.public()]);
    let (address, listening) = std::sync::mpsc::channel();
    let server_key = server.public();
    let serving = std::thread::spawn(move || {
        server_ns.run(async move || {
            let any = "[::]:0".parse().unwrap();
            let listener = QuicListener::bind(any, &server, &authorized).unwrap();
            address.send(listener.local_addr().unwrap().port()).unwrap();
            let attempt = listener.next().await.unwrap();
            let mut carrier = attempt.prove(SOON).await.unwrap().welcome().await.unwrap();
            while carrier.receive(&mut Vec::new(), 64).await.is_ok() {}
        });
    });
    let port = listening.recv().unwrap();
    let name = client_ns.name().to_owned();
    client_ns.run(async move || {
        let dialer = QuicDialer::new(client, &server_key);
        let remote = format!("192.0.2.1:{port}").parse().unwrap();
        let opened = dialer.connect(Some("a0"), remote, None, SOON).await;
        let hello = opened.unwrap().hello(SESSION, PathId(0), "a0".to_owned());
        let mut carrier = hello.await.unwrap();
        let mut shrunk = None;
        let sending = async {
            loop {
                let most = carrier.max_datagram();
                if shrunk.is_none() && carrier.sample().mtu == 1372 {
                    let arguments = ["-n", &name, "link", "set", "a0", "mtu", "1280"];
                    let status = std::process::Command::new("ip").args(arguments).status();
                    assert!(status.unwrap().success());
                    shrunk = Some(most);
                }
                if shrunk.is_some_and(|before| most < before) {
                    break;
                }
                // The parts of a datagram of two packets leave as one batch.
                carrier.writable().await;
                let _ = carrier.send(numbered(0, most));
                let _ = carrier.send(numbered(1, 600));
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(SOON, sending).await.unwrap();
    });
    serving.join().unwrap();
}
