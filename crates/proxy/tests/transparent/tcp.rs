//! Redirected and captured connections.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use socket2::{Domain, Socket, Type};
use sumlink_proxy::{Class, ClassRule, Listener, Service, Side};

use crate::{LONG, Netns, Network, Running, Session};

/// Entries on both loopback addresses, with a class for expedited forwarding.
async fn entries(
    service: Service,
    session: Session,
) -> ([SocketAddr; 2], Vec<tokio::task::JoinHandle<()>>) {
    let rule = ClassRule {
        ports: None,
        dscp: Some("ef".parse().unwrap()),
        user: None,
        class: Class::Conversational,
    };
    let (mut ports, mut tasks) = (Vec::new(), Vec::new());
    for listen in ["127.0.0.1:0", "[::1]:0"] {
        let listener = Listener::bind(listen.parse().unwrap(), service.clone()).await;
        let listener = listener.unwrap().with_classes([rule.clone()].into());
        ports.push(listener.local_addr());
        tasks.push(tokio::spawn(
            listener.serve(session.clone(), std::future::pending()),
        ));
    }
    (ports.try_into().unwrap(), tasks)
}

/// Connects with expedited forwarding.
fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
    match to {
        SocketAddr::V4(_) => socket.set_tos_v4(46 << 2).unwrap(),
        SocketAddr::V6(_) => socket.set_tclass_v6(46 << 2).unwrap(),
    }
    socket.connect_timeout(&to.into(), LONG)?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(LONG)).unwrap();
    Ok(stream)
}

fn exchange(stream: &mut TcpStream) {
    stream.write_all(b"hello").unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"hello");
}

/// Connects; the connection is reset, perhaps before the program learns that it was made.
fn is_reset(to: SocketAddr) {
    let error = connect(to).and_then(|mut stream| stream.read(&mut [0]));
    assert_eq!(error.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

/// Connects to other machines from a namespace, and checks the requests to the session.
fn check(ns: &Netns, session: &Session, side: Side) {
    for to in ["198.51.100.7:80", "[2001:db8::7]:443"] {
        let to: SocketAddr = to.parse().unwrap();
        let (stream, source) = ns.enter(move || {
            let mut stream = connect(to).unwrap();
            assert_eq!(stream.peer_addr().unwrap(), to);
            exchange(&mut stream);
            let source = stream.local_addr().unwrap();
            (stream, source)
        });
        let (origin, target, class) = session.opened.lock().unwrap().pop().unwrap();
        assert_eq!((origin.source, origin.from), (source, side));
        assert_eq!(origin.entry, None);
        let expected = (Some(to.into()), Some(Class::Conversational));
        assert_eq!((target, class), expected);
        drop(stream);
    }
    // A target that cannot be opened.
    ns.enter(|| is_reset("198.51.100.7:9".parse().unwrap()));
    session.opened.lock().unwrap().clear();
}

#[test]
fn redirected_connections_reach_their_original_target() {
    let (Some(gateway), Some(outside)) = (Netns::new(), Netns::new()) else {
        return;
    };
    let there = outside.name();
    gateway.ip(&format!(
        "link add out type veth peer name out netns {there}"
    ));
    outside.ip("link set out up");
    gateway.ip("link set out up");
    gateway.ip("address add 198.18.74.1/32 dev out");
    gateway.ip("address add fd73::1/128 dev out nodad");
    gateway.ip("route add default dev out");
    gateway.ip("-6 route add default dev out");
    let session = Session::default();
    let of_entries = session.clone();
    let start = async move || entries(Service::Redirect, of_entries).await;
    let (_running, [v4, v6]) = Running::start(&gateway, start);
    gateway.nft(&format!(
        "table inet test {{
            chain capture {{
                type nat hook output priority -100;
                oifname out meta nfproto ipv4 meta l4proto tcp redirect to :{}
                oifname out meta nfproto ipv6 meta l4proto tcp redirect to :{}
            }}
        }}",
        v4.port(),
        v6.port(),
    ));
    check(&gateway, &session, Side::Host);
    // Connections to the ports themselves have no other target.
    for to in [v4, v6] {
        gateway.enter(move || is_reset(to));
    }
    assert!(session.opened.lock().unwrap().is_empty());
}

#[test]
fn captured_connections_keep_both_addresses() {
    let Some(network) = Network::new() else {
        return;
    };
    let session = Session::default();
    let of_entries = session.clone();
    let start = async move || entries(Service::Transparent, of_entries).await;
    let (_running, [v4, v6]) = Running::start(&network.gateway, start);
    network.capture("tcp", v4, v6);
    check(&network.machine, &session, Side::Lan);
    for to in [v4, v6] {
        network.gateway.enter(move || is_reset(to));
    }
    assert!(session.opened.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_port_for_captured_connections_needs_a_permission() {
    let address = "127.0.0.1:0".parse().unwrap();
    match Listener::bind(address, Service::Transparent).await {
        Ok(listener) => assert_ne!(listener.local_addr().port(), 0),
        Err(error) => assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}"),
    }
}
