//! A WireGuard tunnel inside the bond: its packets are the datagrams of a forward.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Child;
use std::thread;
use std::time::Duration;

use sumlink_lab::Side;
use sumlink_test_support::emulated::traffic::Pattern;
use sumlink_test_support::emulated::{Bench, is_root, until};

use crate::bond::Plan;
use crate::datagrams::{LINKS, until_over};

/// Longest wait for a part of the transfer.
const PATIENCE: Duration = Duration::from_secs(30);
const BYTES: usize = 1_000_000;
/// Addresses inside the tunnel.
const SERVER: &str = "10.98.0.1";
const CLIENT: &str = "10.98.0.2";

/// The interfaces. wireguard-go has a control socket for each name, which all namespaces of the
/// machine share; the process id keeps tests at the same time apart.
pub(crate) fn interface(side: Side) -> String {
    format!("wg{}{}", &side.name()[..1], std::process::id())
}

pub(crate) fn public_key(bench: &Bench, side: Side) -> String {
    let file = format!("{}.wg", side.name());
    let make = format!("umask 077; wg genkey > {file}; wg pubkey < {file}");
    bench.run(side, &["sh", "-c", &make]).trim().to_owned()
}

/// Starts one end of the tunnel; the tunnel's process.
pub(crate) fn start(bench: &Bench, side: Side, address: &str, peer: &[&str]) -> Child {
    let interface = interface(side);
    let daemon = bench.spawn(side, &["wireguard-go", "--foreground", &interface]);
    let file = format!("{}.wg", side.name());
    let file = bench.path(&file).display().to_string();
    let shown = [
        "sh",
        "-c",
        &format!("wg show {interface} >/dev/null 2>&1 && echo yes || true"),
    ];
    until("wireguard-go has started", || {
        (bench.run(side, &shown).trim() == "yes").then_some(())
    });
    let set = ["wg", "set", &interface, "private-key", &file];
    bench.run(side, &[&set[..], peer].concat());
    let address = format!("{address}/24");
    bench.run(side, &["ip", "address", "add", &address, "dev", &interface]);
    bench.run(side, &["ip", "link", "set", &interface, "up"]);
    daemon
}

/// Sends bytes from a listener on one side to a connection from the other.
pub(crate) fn transfer(bench: &Bench, from: Side, address: SocketAddr, to: Side) {
    let bind = move || TcpListener::bind(address).unwrap();
    let listener = bench.lab.run(from, bind).unwrap();
    let sending = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&Pattern::bytes(31, BYTES)).unwrap();
    });
    let dial = move || TcpStream::connect_timeout(&address, PATIENCE).unwrap();
    let mut stream = bench.lab.run(to, dial).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    sending.join().unwrap();
    assert!(
        received == Pattern::bytes(31, BYTES),
        "the transfer is damaged"
    );
}

#[test]
fn a_wireguard_tunnel_runs_inside_the_bond() {
    if !is_root() {
        return;
    }
    let forwards = "links = \"auto\"\nforward = [\"udp:51820=10.99.0.1:51820\"]\n";
    let Some(mut bond) = Plan::new(&LINKS).client(forwards).start() else {
        return;
    };
    until_over(&bond, "udp");
    let [server_key, client_key] = [Side::Server, Side::Client].map(|s| public_key(&bond.bench, s));
    let allowed = format!("{CLIENT}/32");
    let peer = [
        "listen-port",
        "51820",
        "peer",
        &client_key,
        "allowed-ips",
        &allowed,
    ];
    let daemon = start(&bond.bench, Side::Server, SERVER, &peer);
    bond.keep(daemon);
    let allowed = format!("{SERVER}/32");
    let endpoint = "127.0.0.1:51820";
    let peer = [
        "peer",
        &server_key,
        "endpoint",
        endpoint,
        "allowed-ips",
        &allowed,
    ];
    let daemon = start(&bond.bench, Side::Client, CLIENT, &peer);
    bond.keep(daemon);

    // The first packet starts the handshake, which is repeated after 5 s if it is lost. ping fails
    // without five answers.
    bond.bench.run(
        Side::Client,
        &["ping", "-c", "5", "-i", "0.2", "-w", "20", SERVER],
    );

    let address = format!("{SERVER}:8000").parse().unwrap();
    transfer(&bond.bench, Side::Server, address, Side::Client);
    bond.stop();
}
