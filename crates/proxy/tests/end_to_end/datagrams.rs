//! Datagrams through SOCKS5 associations and forwards, with the real exit behind them.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use sumlink_exit::datagram::{
    DatagramSocket, FlowFailure, MAX_PAYLOAD, PairSocket, Received, SendError, pair,
};
use sumlink_exit::egress::EgressPolicy;
use sumlink_exit::relay::Buffered;
use sumlink_exit::udp::{UdpExit, UdpSettings};
use sumlink_proxy::socks5::message::{Address, Command, DatagramHeader, Reply, Request};
use sumlink_proxy::{
    Class, ClassRule, DatagramOpener, Listener, OpenError, Opener, Service, SourceLimit, Target,
    UdpBindError, UdpForwarder,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::timeout;

use crate::common::{exchange, rest, within};

/// Time in which a datagram that must not arrive would have arrived.
const SILENCE: Duration = Duration::from_millis(100);

/// A session with a server on this machine.
#[derive(Clone)]
struct Session {
    exit: UdpExit,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// The class of each source and of each datagram.
    classes: Mutex<Vec<(Option<Target>, Option<Class>)>>,
    served: Mutex<Vec<AbortHandle>>,
    /// Sources wait for it while the session is down.
    restored: Notify,
    is_down: Mutex<bool>,
}

/// A socket that notes classes.
struct Noting {
    socket: PairSocket,
    shared: Arc<Shared>,
}

impl Session {
    fn new() -> Self {
        let rules = ["allow 127.0.0.0/8", "allow [::1]"].map(|rule| rule.parse().unwrap());
        let (_, policy) = watch::channel(Arc::new(EgressPolicy::new(rules)));
        Self {
            exit: UdpExit::new(policy, UdpSettings::default(), None),
            shared: Arc::default(),
        }
    }

    /// The server forgets all sources, as when it is restarted.
    fn restart(&self) {
        for served in self.shared.served.lock().unwrap().drain(..) {
            served.abort();
        }
    }

    fn sources(&self) -> usize {
        self.exit.stats().sources
    }

    async fn until(&self, sources: usize) {
        within(async {
            while self.sources() != sources {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    fn classes(&self) -> Vec<(Option<Target>, Option<Class>)> {
        self.shared.classes.lock().unwrap().clone()
    }
}

impl DatagramOpener for Session {
    type Socket = Noting;

    async fn bind(&self, class: Option<Class>) -> Result<Noting, OpenError> {
        if *self.shared.is_down.lock().unwrap() {
            self.shared.restored.notified().await;
        }
        self.shared.classes.lock().unwrap().push((None, class));
        let (near, far) = pair(1024);
        let exit = self.exit.clone();
        let served = tokio::spawn(async move { exit.serve(far).await });
        self.shared
            .served
            .lock()
            .unwrap()
            .push(served.abort_handle());
        let shared = Arc::clone(&self.shared);
        Ok(Noting {
            socket: near,
            shared,
        })
    }
}

impl Opener for Session {
    type Stream = Buffered<DuplexStream>;

    async fn open(&self, _: Target, _: Option<Class>) -> Result<Self::Stream, OpenError> {
        Err(OpenError::Refused)
    }
}

impl DatagramSocket for Noting {
    fn send(&self, remote: &Target, payload: Bytes, class: Option<Class>) -> Result<(), SendError> {
        let mut classes = self.shared.classes.lock().unwrap();
        classes.push((Some(remote.clone()), class));
        self.socket.send(remote, payload, class)
    }

    async fn receive(&mut self, out: &mut Vec<(Target, Received)>, limit: usize) -> usize {
        self.socket.receive(out, limit).await
    }

    fn report(&self, remote: &Target, failure: FlowFailure) {
        self.socket.report(remote, failure);
    }
}

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

async fn hear(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = vec![0; 1 << 16];
    let (length, from) = within(socket.recv_from(&mut buffer)).await.unwrap();
    (buffer[..length].to_vec(), from)
}

async fn silent(socket: &UdpSocket) -> bool {
    timeout(SILENCE, socket.peek_from(&mut [0])).await.is_err()
}

async fn remote(listen: &str) -> (UdpSocket, Target) {
    let socket = UdpSocket::bind(listen).await.unwrap();
    let target = socket.local_addr().unwrap().into();
    (socket, target)
}

async fn echo(listen: &str) -> Target {
    let (socket, target) = remote(listen).await;
    tokio::spawn(async move {
        let mut buffer = vec![0; 1 << 16];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            socket.send_to(&buffer[..length], from).await.unwrap();
        }
    });
    target
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
    // The answers meet a closed port, whose ICMP errors must not end the association.
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

    let forward = Forwarded::start(&format!("udp:127.0.0.1:0={target}"));
    let (client, _) = remote("127.0.0.1:0").await;
    socket2::SockRef::from(&client).set_tos_v4(46 << 2).unwrap();
    forward.exchange(&client, b"hello").await;
    let class = Some(Class::Conversational);
    assert_eq!(
        forward.session.classes(),
        [(None, class), (Some(target), class)]
    );
}

/// A forwarded port.
struct Forwarded {
    session: Session,
    address: SocketAddr,
    _served: JoinHandle<()>,
}

impl Forwarded {
    fn start(forward: &str) -> Self {
        Self::serve(UdpForwarder::bind(forward.parse().unwrap()).unwrap())
    }

    fn serve(forwarder: UdpForwarder) -> Self {
        let (session, mut address) = (Session::new(), forwarder.local_addr());
        if address.ip().is_unspecified() {
            address.set_ip([127, 0, 0, 1].into());
        }
        let served = forwarder.serve(session.clone(), std::future::pending());
        Self {
            session,
            address,
            _served: tokio::spawn(served),
        }
    }

    async fn exchange(&self, client: &UdpSocket, payload: &[u8]) {
        client.send_to(payload, self.address).await.unwrap();
        assert_eq!(hear(client).await, (payload.to_vec(), self.address));
    }
}

#[tokio::test]
async fn a_forward_answers_each_program_from_its_port() {
    let (v4, v6) = (echo("127.0.0.1:0").await, echo("[::1]:0").await);
    for forward in [
        format!("udp:127.0.0.1:0={v4}"),
        format!("udp:127.0.0.1:0={v6}"),
        format!("udp:*:0={v4}"),
    ] {
        let forward = Forwarded::start(&forward);
        let clients = [remote("127.0.0.1:0").await.0, remote("127.0.0.3:0").await.0];
        for (number, client) in clients.iter().enumerate() {
            for payload in [vec![number as u8], vec![], vec![number as u8; MAX_PAYLOAD]] {
                forward.exchange(client, &payload).await;
            }
        }
        assert_eq!(forward.session.sources(), 2);
        for client in &clients {
            forward.exchange(client, b"again").await;
        }
    }
}

#[tokio::test]
async fn a_forward_for_all_addresses_answers_from_the_one_that_was_asked() {
    let target = echo("127.0.0.1:0").await;
    let mut forward = Forwarded::start(&format!("udp:*:0={target}"));
    for asked in ["127.0.0.1", "127.0.0.9", "::1"] {
        let asked: IpAddr = asked.parse().unwrap();
        let own = if asked.is_ipv4() {
            "127.0.0.1:0"
        } else {
            "[::1]:0"
        };
        forward.address.set_ip(asked);
        forward.exchange(&remote(own).await.0, b"question").await;
    }
}

#[tokio::test]
async fn a_forward_passes_datagrams_of_its_target_only() {
    let (socket, target) = remote("127.0.0.1:0").await;
    let forward = Forwarded::start(&format!("udp:127.0.0.1:0={target}"));
    let (client, _) = remote("127.0.0.1:0").await;
    client.send_to(b"question", forward.address).await.unwrap();
    let (_, mapped) = hear(&socket).await;
    let (other, _) = remote("127.0.0.1:0").await;
    other.send_to(b"stranger", mapped).await.unwrap();
    socket.send_to(b"answer", mapped).await.unwrap();
    assert_eq!(hear(&client).await.0, b"answer");
}

#[tokio::test(start_paused = true)]
async fn an_idle_program_makes_room_at_a_forward() {
    let target = echo("127.0.0.1:0").await;
    let forward = format!("udp:127.0.0.1:0={target}").parse().unwrap();
    let limit = SourceLimit::new(2);
    let forwarder = UdpForwarder::bind(forward).unwrap().with_sources(limit);
    let forward = Forwarded::serve(forwarder);
    let clients = [0, 1, 2].map(|_| remote("127.0.0.1:0"));
    let [idle, busy, new] = clients;
    let (idle, busy, new) = (idle.await.0, busy.await.0, new.await.0);
    forward.exchange(&idle, b"once").await;
    forward.exchange(&busy, b"call").await;
    new.send_to(b"refused", forward.address).await.unwrap();
    assert!(silent(&new).await);
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        forward.exchange(&busy, b"call").await;
    }
    forward.exchange(&new, b"new").await;
    forward.session.until(2).await;
    forward.exchange(&busy, b"call").await;
}

#[tokio::test(start_paused = true)]
async fn a_program_that_returns_after_a_long_time_is_served_again() {
    let target = echo("127.0.0.1:0").await;
    let forward = Forwarded::start(&format!("udp:127.0.0.1:0={target}"));
    let (client, _) = remote("127.0.0.1:0").await;
    for _ in 0..3 {
        forward.exchange(&client, b"hello").await;
        tokio::time::sleep(Duration::from_secs(301)).await;
        forward.session.until(0).await;
    }
}

#[tokio::test]
async fn a_port_in_use_is_said_to_be_taken() {
    let (_taken, target) = remote("127.0.0.1:0").await;
    let error = UdpForwarder::bind(format!("udp:{target}=a:1").parse().unwrap()).unwrap_err();
    assert!(matches!(error, UdpBindError::Taken(_)), "{error}");
    assert!(error.to_string().contains("ss -lunp"));
}
