//! SOCKS5 UDP ASSOCIATE, as seen by programs.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use sumlink_exit::datagram::MAX_PAYLOAD;
use sumlink_proxy::socks5::message::{Address, Command, DatagramHeader, Reply, Request};
use sumlink_proxy::{Class, ClassRule, Listener, Service, SourceLimit, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{SILENCE, Session, echo, hear, remote, silent};
use crate::common::{exchange, rest, within};

/// A SOCKS5 port with datagrams.
struct Socks {
    session: Session,
    address: SocketAddr,
    _served: JoinHandle<()>,
}

impl Socks {
    async fn start(listen: &str) -> Self {
        let listener = Listener::bind(listen.parse().unwrap(), Service::Socks5).await;
        Self::serve(listener.unwrap())
    }

    fn serve(listener: Listener) -> Self {
        let (session, address) = (Session::new(), listener.local_addr());
        let served = listener.serve_with_datagrams(session.clone(), std::future::pending());
        Self {
            session,
            address,
            _served: tokio::spawn(served),
        }
    }

    /// Sends a request for an association, with the address of a program's socket.
    async fn request(&self, claimed: SocketAddr) -> TcpStream {
        let mut connection = TcpStream::connect(self.address).await.unwrap();
        exchange(&mut connection, &[5, 1, 0], &[5, 0]).await;
        let request = Request {
            command: Command::UdpAssociate,
            address: Address::Ip(claimed.ip()),
            port: claimed.port(),
        };
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        connection.write_all(&bytes).await.unwrap();
        connection
    }

    /// An association for a socket that the request does not name.
    async fn associate(&self) -> Program {
        let ip = self.address.ip();
        let socket = UdpSocket::bind((ip, 0)).await.unwrap();
        Program::new(self.request("0.0.0.0:0".parse().unwrap()).await, socket).await
    }
}

/// A program with an association.
struct Program {
    connection: TcpStream,
    socket: UdpSocket,
    relay: SocketAddr,
}

impl Program {
    async fn new(mut connection: TcpStream, socket: UdpSocket) -> Self {
        let mut head = [0; 4];
        within(connection.read_exact(&mut head)).await.unwrap();
        assert_eq!(head[..3], [5, 0, 0]);
        let ip: IpAddr = match head[3] {
            1 => connection.read_u32().await.unwrap().to_be_bytes().into(),
            4 => connection.read_u128().await.unwrap().to_be_bytes().into(),
            other => panic!("address type {other}"),
        };
        let relay = SocketAddr::new(ip, connection.read_u16().await.unwrap());
        assert_eq!(ip, connection.peer_addr().unwrap().ip());
        Self {
            connection,
            socket,
            relay,
        }
    }

    async fn send(&self, target: &Target, payload: &[u8]) {
        let datagram = with_header(target, 0, payload);
        self.socket.send_to(&datagram, self.relay).await.unwrap();
    }

    async fn receive(&self) -> (Target, Vec<u8>) {
        let (datagram, from) = hear(&self.socket).await;
        assert_eq!(from, self.relay);
        let (header, length) = DatagramHeader::decode(&datagram).unwrap().unwrap();
        assert_eq!((&datagram[..2], header.fragment), (&[0, 0][..], 0));
        (header.target().unwrap(), datagram[length..].to_vec())
    }

    async fn exchange(&self, target: &Target, payload: &[u8]) {
        self.send(target, payload).await;
        assert_eq!(self.receive().await, (target.clone(), payload.to_vec()));
    }
}

fn with_header(target: &Target, fragment: u8, payload: &[u8]) -> Vec<u8> {
    let header = DatagramHeader {
        fragment,
        ..DatagramHeader::from(target)
    };
    let mut datagram = Vec::new();
    header.encode(&mut datagram);
    datagram.extend_from_slice(payload);
    datagram
}

#[tokio::test]
async fn an_association_reaches_addresses_and_names_of_both_families() {
    let (v4, v6) = (echo("127.0.0.1:0").await, echo("[::1]:0").await);
    for listen in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
        let socks = Socks::start(listen).await;
        let mut program = match listen {
            "[::]:0" => {
                // An IPv4 program at a port for both families gets an IPv4 address.
                let address = SocketAddr::from(([127, 0, 0, 1], socks.address.port()));
                let v4 = Socks { address, ..socks };
                v4.associate().await
            }
            _ => socks.associate().await,
        };
        for target in [&v4, &v6] {
            for payload in [&b"question"[..], b"", b"again"] {
                program.exchange(target, payload).await;
            }
            // 10 or 22 bytes of header on the program's side.
            let longest = MAX_PAYLOAD - if target == &v4 { 10 } else { 22 };
            program.exchange(target, &vec![7; longest]).await;
        }
        // Bytes on the controlling connection change nothing.
        program.connection.write_all(b"ignored").await.unwrap();
        program.exchange(&v4, b"still there").await;
    }
}

#[tokio::test]
async fn a_reply_has_the_name_that_the_program_used() {
    let socks = Socks::start("127.0.0.1:0").await;
    let program = socks.associate().await;
    let (socket, target) = remote("127.0.0.1:0").await;
    let named = Target::new("localhost", target.port).unwrap();
    program.send(&named, b"question").await;
    // The resolver may prefer IPv6, where nothing listens.
    let Ok((_, from)) = timeout(SILENCE, hear(&socket)).await else {
        return;
    };
    socket.send_to(b"answer", from).await.unwrap();
    assert_eq!(program.receive().await, (named, b"answer".to_vec()));
    let (elsewhere, elsewhere_target) = remote("127.0.0.1:0").await;
    elsewhere.send_to(b"elsewhere", from).await.unwrap();
    let expected = (elsewhere_target, b"elsewhere".to_vec());
    assert_eq!(program.receive().await, expected);
}

#[tokio::test]
async fn only_the_program_itself_may_use_its_association() {
    let socks = Socks::start("127.0.0.1:0").await;
    let (socket, target) = remote("127.0.0.1:0").await;
    let program = socks.associate().await;
    let datagram = with_header(&target, 0, b"stranger");
    let (other_host, _) = remote("127.0.0.2:0").await;
    let (other_port, _) = remote("127.0.0.1:0").await;
    other_host.send_to(&datagram, program.relay).await.unwrap();
    program.send(&target, b"own").await;
    assert_eq!(hear(&socket).await.0, b"own");
    // Its port is known now.
    for stranger in [&other_host, &other_port] {
        let _ = stranger.send_to(&datagram, program.relay).await;
    }
    // The strangers' datagrams were sent first.
    program.send(&target, b"own").await;
    assert_eq!(hear(&socket).await.0, b"own");
}

#[tokio::test]
async fn a_named_port_is_the_only_one() {
    let socks = Socks::start("127.0.0.1:0").await;
    let (socket, target) = remote("127.0.0.1:0").await;
    let (own, _) = remote("127.0.0.1:0").await;
    let named = own.local_addr().unwrap();
    for claimed in [named, SocketAddr::from(([0, 0, 0, 0], named.port()))] {
        let (own, _) = remote("127.0.0.1:0").await;
        let claimed = SocketAddr::new(claimed.ip(), own.local_addr().unwrap().port());
        let program = Program::new(socks.request(claimed).await, own).await;
        let (other, _) = remote("127.0.0.1:0").await;
        let datagram = with_header(&target, 0, b"stranger");
        let _ = other.send_to(&datagram, program.relay).await;
        program.send(&target, b"own").await;
        assert_eq!(hear(&socket).await.0, b"own");
    }
    // The address of a NAT's inside, or of the target.
    let claimed = SocketAddr::from(([192, 0, 2, 1], 9));
    let program = Program::new(socks.request(claimed).await, own).await;
    program.send(&target, b"behind a NAT").await;
    assert_eq!(hear(&socket).await.0, b"behind a NAT");
}

#[tokio::test]
async fn fragments_and_malformed_datagrams_are_dropped() {
    let socks = Socks::start("127.0.0.1:0").await;
    let program = socks.associate().await;
    let (socket, target) = remote("127.0.0.1:0").await;
    let whole = with_header(&target, 0, b"whole");
    let mut bad: Vec<Vec<u8>> = (0..10).map(|cut| whole[..cut].to_vec()).collect();
    bad.extend([1, 127, 128, 255].map(|number| with_header(&target, number, b"fragment")));
    bad.push(vec![0, 0, 0, 2, 127, 0, 0, 1, 0, 9]);
    bad.push(vec![0, 0, 0, 1, 127, 0, 0, 1, 0, 0, b'x']);
    bad.push([&[0, 0, 0, 3, 3][..], b"a/\x01", &[0, 9]].concat());
    bad.push([&[0, 0, 0, 3, 0][..], &[0, 9]].concat());
    for datagram in &bad {
        program
            .socket
            .send_to(datagram, program.relay)
            .await
            .unwrap();
    }
    program.send(&target, b"whole").await;
    assert_eq!(hear(&socket).await.0, b"whole");
}

#[tokio::test]
async fn an_association_ends_with_its_connection() {
    let socks = Socks::start("127.0.0.1:0").await;
    let target = echo("127.0.0.1:0").await;
    let program = socks.associate().await;
    program.exchange(&target, b"hello").await;
    assert_eq!(socks.session.sources(), 1);
    drop(program.connection);
    socks.session.until(0).await;
    program.socket.connect(program.relay).await.unwrap();
    // The port is closed: the kernel answers with an error.
    within(async {
        while program.socket.send(b"too late").await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_program_that_opens_its_socket_again_is_served() {
    let socks = Socks::start("127.0.0.1:0").await;
    let (socket, target) = remote("127.0.0.1:0").await;
    let mut program = socks.associate().await;
    program.send(&target, b"question").await;
    let (_, mapped) = hear(&socket).await;
    let port = program.socket.local_addr().unwrap();
    drop(program.socket);
    // The answers meet a closed port. Its ICMP errors must not end the association.
    for _ in 0..10 {
        socket.send_to(b"answer", mapped).await.unwrap();
    }
    program.socket = UdpSocket::bind(port).await.unwrap();
    let exchanged = async {
        loop {
            program.send(&target, b"again").await;
            if !silent(&socket).await {
                return hear(&socket).await.0;
            }
        }
    };
    assert_eq!(within(exchanged).await, b"again");
}

#[tokio::test]
async fn the_number_of_associations_is_bounded() {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), Service::Socks5).await;
    let socks = Socks::serve(listener.unwrap().with_sources(SourceLimit::new(1)));
    let target = echo("127.0.0.1:0").await;
    let program = socks.associate().await;
    let mut refused = socks.request("0.0.0.0:0".parse().unwrap()).await;
    let reply = rest(&mut refused).await.unwrap();
    assert_eq!(reply, Reply::Failure.encode());
    program.exchange(&target, b"unharmed").await;
    drop(program);
    socks.session.until(0).await;
    // The place is free as soon as the association has ended.
    let again = async {
        loop {
            let mut connection = socks.request("0.0.0.0:0".parse().unwrap()).await;
            let mut reply = [0; 10];
            connection.read_exact(&mut reply).await.unwrap();
            if reply[1] == Reply::Succeeded as u8 {
                return;
            }
        }
    };
    within(again).await;
}

#[tokio::test]
async fn a_lost_source_is_replaced_by_the_next_datagram() {
    let socks = Socks::start("127.0.0.1:0").await;
    let target = echo("127.0.0.1:0").await;
    let program = socks.associate().await;
    program.exchange(&target, b"before").await;
    socks.session.restart();
    socks.session.until(0).await;
    // A datagram may get lost on the source that has just ended.
    let answered = async {
        loop {
            program.send(&target, b"after").await;
            if !silent(&program.socket).await {
                return program.receive().await;
            }
        }
    };
    assert_eq!(within(answered).await, (target, b"after".to_vec()));
}

#[tokio::test]
async fn datagrams_wait_for_a_session_that_is_coming_back() {
    let socks = Socks::start("127.0.0.1:0").await;
    let target = echo("127.0.0.1:0").await;
    let program = socks.associate().await;
    let shared = &socks.session.shared;
    *shared.is_down.lock().unwrap() = true;
    for number in 0..100u8 {
        program.send(&target, &[number]).await;
    }
    assert!(silent(&program.socket).await);
    *shared.is_down.lock().unwrap() = false;
    shared.restored.notify_one();
    // The newest ones have waited, in order.
    let (_, first) = program.receive().await;
    assert!((50..100).contains(&first[0]), "{first:?}");
    for number in first[0] + 1..100 {
        assert_eq!(program.receive().await.1, [number]);
    }
}

#[tokio::test]
async fn failures_do_not_end_an_association() {
    let socks = Socks::start("127.0.0.1:0").await;
    let program = socks.associate().await;
    let (closed, closed_target) = remote("127.0.0.1:0").await;
    drop(closed);
    program.send(&closed_target, b"lost").await;
    program
        .send(&"10.255.255.1:9".parse().unwrap(), b"refused")
        .await;
    program
        .send(&"host.invalid:9".parse().unwrap(), b"lost")
        .await;
    program.exchange(&echo("127.0.0.1:0").await, b"kept").await;
}

#[tokio::test]
async fn rules_and_the_dscp_of_datagrams_set_the_class() {
    let target = echo("127.0.0.1:0").await;
    let by_port = echo("127.0.0.1:0").await;
    let rule = ClassRule {
        ports: Some(by_port.port.to_string().parse().unwrap()),
        dscp: None,
        user: None,
        class: Class::Streaming,
    };
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), Service::Socks5).await;
    let rules: Arc<[ClassRule]> = Arc::new([rule]);
    let socks = Socks::serve(listener.unwrap().with_classes(Arc::clone(&rules)));
    let program = socks.associate().await;
    let mut expected = vec![(None, None)];
    for (dscp, target, class) in [
        (0, &target, None),
        (46, &target, Some(Class::Conversational)),
        (46, &by_port, Some(Class::Streaming)),
        (10, &target, None),
    ] {
        socket2::SockRef::from(&program.socket)
            .set_tos_v4(dscp << 2)
            .unwrap();
        program.exchange(target, b"hello").await;
        expected.push((Some(target.clone()), class));
    }
    assert_eq!(socks.session.classes(), expected);
}
