//! Sessions over real sockets on loopback: all behavior that needs only one link.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::num::NonZeroU8;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sumlink_engine::scheduler::{OwnSchedulers, Pick, Scheduler, View, lowest_unsent};
use sumlink_engine::{PathId, Role};
use sumlink_transport::config::{
    AuthorizedClient, Carriers, ClientConfig, LinkConfig, ServerConfig, SessionConfig,
};
use sumlink_transport::egress::EgressPolicy;
use sumlink_transport::tls::HandshakeError;
use sumlink_transport::{
    CarrierError, CarrierGroups, Client, ConnectError, Early, OpenError, PathEvent, PublicKey,
    RefuseCode, SecretKey, Server, ServerHandle, Target,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};

struct Running {
    address: SocketAddr,
    key: PublicKey,
    handle: ServerHandle,
    stop: Option<oneshot::Sender<()>>,
}

impl Running {
    async fn start(clients: &[&SecretKey], change: impl FnOnce(&mut ServerConfig)) -> Self {
        let key = SecretKey::generate().unwrap();
        let public = key.public();
        let authorized = clients.iter().map(|key| AuthorizedClient {
            key: key.public(),
            name: String::new(),
            publish: Vec::new(),
        });
        let listen = "127.0.0.1:0".parse().unwrap();
        let mut config = ServerConfig::new(listen, key, authorized.collect())
            .egress(EgressPolicy::new(["allow 127.0.0.0/8".parse().unwrap()]));
        change(&mut config);
        let server = Server::bind(config).await.unwrap();
        let (address, handle) = (server.local_addr().unwrap(), server.handle());
        let (stop, stopped) = oneshot::channel();
        tokio::spawn(server.run(async move {
            let _ = stopped.await;
        }));
        Self {
            address,
            key: public,
            handle,
            stop: Some(stop),
        }
    }

    fn client(&self, key: &SecretKey) -> ClientConfig {
        ClientConfig::new(self.address.to_string(), self.key, key.clone())
            .links(vec![LinkConfig::named("lo")])
    }
}

/// A target that echoes its input, and ends when its client ends.
async fn echo() -> Target {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut reader, mut writer) = tcp.split();
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
                let _ = writer.shutdown().await;
            });
        }
    });
    address.into()
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn written_data_comes_back_complete_and_ended() {
    let key = SecretKey::generate().unwrap();
    let server = Running::start(&[&key], |_| {}).await;
    let client = Client::connect(server.client(&key)).await.unwrap();
    let stream = client.open_stream(echo().await).await.unwrap();
    let data = bytes(20_000_000);
    let (mut reader, mut writer) = tokio::io::split(stream);
    let sent = data.clone();
    let writing = tokio::spawn(async move {
        writer.write_all(&sent).await.unwrap();
        writer.shutdown().await.unwrap();
        writer
    });
    let mut received = Vec::new();
    reader.read_to_end(&mut received).await.unwrap();
    writing.await.unwrap();
    assert!(received == data);
    let status = client.status().await;
    assert_eq!(
        (status.bytes_sent, status.bytes_received),
        (20_000_000, 20_000_000)
    );
    assert_eq!(status.paths.len(), 1);
    assert_eq!(status.paths[0].link, "lo");
    assert_eq!(server.handle.status().await[0].paths[0].link, "lo");
    client.close().await;
}

/// Sends bytes in order on the path that asks, and counts them.
#[derive(Debug)]
struct Counts(Arc<AtomicU64>);

impl Scheduler for Counts {
    fn name(&self) -> &'static str {
        "counts"
    }

    fn pick(&mut self, _: PathId, budget: u64, view: &View<'_>) -> Pick {
        let pick = lowest_unsent(view, budget);
        if let Pick::Send { range, .. } = &pick {
            self.0.fetch_add(range.end - range.start, Ordering::Relaxed);
        }
        pick
    }

    fn max_paths(&self) -> Option<usize> {
        Some(1)
    }
}

/// A registry with the scheduler `counts`, and the number of bytes that it has sent.
fn counting() -> (OwnSchedulers, Arc<AtomicU64>) {
    let sent = Arc::new(AtomicU64::new(0));
    let (mut own, counter) = (OwnSchedulers::default(), Arc::clone(&sent));
    let make = move |_: Role| Box::new(Counts(Arc::clone(&counter))) as Box<dyn Scheduler>;
    own.add("counts", make).unwrap();
    (own, sent)
}

/// Each side chooses the scheduler of the bytes that it sends.
#[tokio::test(flavor = "multi_thread")]
async fn schedulers_of_the_program_send_the_bytes_of_their_side() {
    let key = SecretKey::generate().unwrap();
    let [(at_server, down), (at_client, up)] = [counting(), counting()];
    let choose = |session: &mut SessionConfig, own: OwnSchedulers| {
        session.scheduler = "counts".to_owned();
        session.own_schedulers = own;
    };
    let server = Running::start(&[&key], |config| choose(&mut config.session, at_server)).await;
    let mut config = server.client(&key);
    choose(&mut config.session, at_client);
    let client = Client::connect(config).await.unwrap();
    let mut stream = client.open_stream(echo().await).await.unwrap();
    let data = bytes(1_000_000);
    let mut received = vec![0; data.len()];
    let (mut reader, mut writer) = tokio::io::split(&mut stream);
    let (read, written) = tokio::join!(reader.read_exact(&mut received), writer.write_all(&data));
    read.unwrap();
    written.unwrap();
    assert!(received == data);
    for sent in [&up, &down] {
        assert_eq!(sent.load(Ordering::Relaxed), 1_000_000);
    }
    assert_eq!(client.status().await.scheduler, "counts");
    assert_eq!(server.handle.status().await[0].scheduler, "counts");
    client.close().await;
}

#[tokio::test]
async fn a_scheduler_that_only_the_peer_has_is_refused() {
    let key = SecretKey::generate().unwrap();
    let (own, _) = counting();
    let server = Running::start(&[&key], |config| config.session.own_schedulers = own).await;
    let mut config = server.client(&key);
    config.session.scheduler = "counts".to_owned();
    let refusal = Client::connect(config).await.unwrap_err().to_string();
    assert!(
        refusal.contains("unknown scheduler \"counts\""),
        "{refusal}"
    );
}

#[tokio::test]
async fn hundreds_of_streams_share_a_session() {
    let key = SecretKey::generate().unwrap();
    let server = Running::start(&[&key], |config| config.session.max_streams = 100).await;
    let client = Client::connect(server.client(&key)).await.unwrap();
    let target = echo().await;
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..300usize {
        let (client, target) = (client.clone(), target.clone());
        tasks.spawn(async move {
            let mut stream = client.open_stream(target).await.unwrap();
            let data = bytes(1000 + i);
            stream.write_all(&data).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut back = Vec::new();
            stream.read_to_end(&mut back).await.unwrap();
            assert!(back == data);
        });
    }
    while let Some(result) = tasks.join_next().await {
        result.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_reach_their_target_in_the_order_in_which_they_were_opened() {
    let key = SecretKey::generate().unwrap();
    let server = Running::start(&[&key], |_| {}).await;
    let client = Client::connect(server.client(&key)).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = Target::from(listener.local_addr().unwrap());
    for _ in 0..10 {
        let opens = (0..20u8).map(|number| {
            let open = client.open_stream(target.clone());
            async move {
                let mut stream = open.await.unwrap();
                stream.write_all(&[number]).await.unwrap();
                stream
            }
        });
        let _streams = futures_util::future::join_all(opens).await;
        let mut order = Vec::new();
        for _ in 0..20 {
            let (mut tcp, _) = listener.accept().await.unwrap();
            order.push(tcp.read_u8().await.unwrap());
        }
        assert!(order.is_sorted(), "{order:?}");
    }
}

#[tokio::test]
async fn a_wrong_server_key_is_named() {
    let key = SecretKey::generate().unwrap();
    let server = Running::start(&[&key], |_| {}).await;
    let mut config = server.client(&key);
    config.server_key = SecretKey::generate().unwrap().public();
    let error = Client::connect(config).await.unwrap_err();
    let wrong = matches!(
        &error,
        ConnectError::Carrier { error: CarrierError::Tls(HandshakeError::WrongServerKey { seen, .. }), .. }
            if *seen == server.key
    );
    assert!(wrong, "{error}");
}

#[tokio::test]
async fn an_unknown_client_is_refused_without_effect_on_others() {
    let key = SecretKey::generate().unwrap();
    let server = Running::start(&[&key], |_| {}).await;
    let client = Client::connect(server.client(&key)).await.unwrap();
    let mut stream = client.open_stream(echo().await).await.unwrap();
    let stranger = SecretKey::generate().unwrap();
    let error = Client::connect(server.client(&stranger)).await.unwrap_err();
    let refused = matches!(
        &error,
        ConnectError::Carrier {
            error: CarrierError::Tls(HandshakeError::NotAuthorized { .. }),
            ..
        }
    );
    assert!(refused, "{error}");
    stream.write_all(b"still here").await.unwrap();
    let mut back = [0; 10];
    stream.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"still here");
}

#[tokio::test]
async fn garbage_before_tls_costs_the_others_nothing() {
    let key = SecretKey::generate().unwrap();
    let server = Running::start(&[&key], |_| {}).await;
    let client = Client::connect(server.client(&key)).await.unwrap();
    for garbage in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0; 5000],
        &[0x16, 3, 1, 0xff, 0xff],
    ] {
        let mut tcp = TcpStream::connect(server.address).await.unwrap();
        tcp.write_all(garbage).await.unwrap();
        tcp.shutdown().await.unwrap();
        let mut answer = Vec::new();
        // An alert or a reset both count as the end.
        let _ = tcp.read_to_end(&mut answer).await;
    }
    client.open_stream(echo().await).await.unwrap();
}

#[tokio::test]
async fn a_refused_target_says_why() {
    let key = SecretKey::generate().unwrap();
    let server = Running::start(&[&key], |config| {
        config.egress = EgressPolicy::new(["allow 127.0.0.1/32".parse().unwrap()]);
    })
    .await;
    let client = Client::connect(server.client(&key)).await.unwrap();
    let open = async |target: &str| {
        client
            .open_stream(target.parse().unwrap())
            .await
            .unwrap_err()
    };
    assert_eq!(open("127.0.0.2:80").await, OpenError::NotAllowed);
    assert_eq!(open("[::1]:80").await, OpenError::NotAllowed);
    assert_eq!(open("0.0.0.0:80").await, OpenError::NotAllowed);
    assert_eq!(open("[::ffff:127.0.0.2]:80").await, OpenError::NotAllowed);
    let free = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    assert_eq!(open(&free.to_string()).await, OpenError::Refused);
    assert_eq!(
        open("does-not-exist.invalid:80").await,
        OpenError::NameNotResolved
    );
}

/// Connections of this network namespace that wait for an answer from the port.
fn dials(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let waiting = |line: &&str| {
        let mut words = line.split_whitespace().skip(2);
        let remote = words
            .next()
            .is_some_and(|word| word.ends_with(&format!(":{port:04X}")));
        remote && words.next() == Some("02")
    };
    table.lines().filter(waiting).count()
}

#[tokio::test]
async fn an_abandoned_open_ends_its_dial() {
    let key = SecretKey::generate().unwrap();
    let server = Running::start(&[&key], |_| {}).await;
    let client = Client::connect(server.client(&key)).await.unwrap();
    // A listener with a full queue never answers.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queued = Vec::new();
    let patience = Duration::from_millis(300);
    while let Ok(tcp) = tokio::time::timeout(patience, TcpStream::connect(address)).await {
        queued.push(tcp.unwrap());
    }
    let mut open = Box::pin(client.open_stream(address.into()));
    let dialed = async {
        while dials(address.port()) == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        answer = &mut open => panic!("answered although no server does: {answer:?}"),
        dialed = tokio::time::timeout(Duration::from_secs(5), dialed) => dialed.unwrap(),
    }
    drop(open);
    // Far sooner than the dial's timeout.
    let ended = async {
        while dials(address.port()) > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), ended)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_dropped_stream_is_reset_at_the_target() {
    let key = SecretKey::generate().unwrap();
    let server = Running::start(&[&key], |_| {}).await;
    let client = Client::connect(server.client(&key)).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target: Target = listener.local_addr().unwrap().into();
    let opening =
        tokio::spawn(async move { client.open_stream(target).await.map(|s| (client, s)) });
    let (mut tcp, _) = listener.accept().await.unwrap();
    let (_client, mut stream) = opening.await.unwrap().unwrap();
    stream.write_all(b"half of it").await.unwrap();
    let mut half = [0; 10];
    tcp.read_exact(&mut half).await.unwrap();
    drop(stream);
    let error = tcp.read(&mut half).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_was_connected_is_not_waited_for_until_it_fails() {
    not_waited_for_until_it_fails(Early::Known).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_target_is_waited_for_until_it_fails_where_that_is_asked_for() {
    not_waited_for_until_it_fails(Early::Always).await;
}

async fn not_waited_for_until_it_fails(when: Early) {
    let key = SecretKey::generate().unwrap();
    let server = Running::start(&[&key], |_| {}).await;
    let client = Client::connect(server.client(&key)).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target: Target = listener.local_addr().unwrap().into();
    let early = async || client.open_stream_early(target.clone(), None, when).await;
    if when == Early::Known {
        let (first, accepted) = tokio::join!(early(), listener.accept());
        drop((first.unwrap(), accepted.unwrap()));
    }
    // Data written immediately arrives.
    let mut second = early().await.unwrap();
    second.write_all(b"hello").await.unwrap();
    let (mut tcp, _) = listener.accept().await.unwrap();
    let mut hello = [0; 5];
    tcp.read_exact(&mut hello).await.unwrap();
    assert_eq!(&hello, b"hello");
    // The target stops listening: the first program notices when it uses the stream, the next one
    // gets an error.
    drop((listener, tcp));
    let mut third = early().await.expect("it is not waited for");
    third.read(&mut hello).await.expect_err("and yet refused");
    assert_eq!(early().await.unwrap_err(), OpenError::Refused);
    let plain = client.open_stream(target.clone()).await;
    assert_eq!(plain.unwrap_err(), OpenError::Refused);
}

/// The target's and the program's end of a stream.
async fn both_ends(client: &Client) -> (TcpStream, sumlink_transport::Stream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target: Target = listener.local_addr().unwrap().into();
    let (opened, accepted) = tokio::join!(client.open_stream(target), listener.accept());
    (accepted.unwrap().0, opened.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_side_that_finishes_second_delivers_everything() {
    let key = SecretKey::generate().unwrap();
    let server = Running::start(&[&key], |_| {}).await;
    let client = Client::connect(server.client(&key)).await.unwrap();
    let data = bytes(20_000_000);

    // The program writes everything, then the target answers and closes.
    let (mut tcp, mut stream) = both_ends(&client).await;
    stream.shutdown().await.unwrap();
    assert_eq!(tcp.read(&mut [0; 1]).await.unwrap(), 0);
    let answer = data.clone();
    let target = tokio::spawn(async move {
        tcp.write_all(&answer).await.unwrap();
        tcp.shutdown().await.unwrap();
    });
    let mut received = Vec::new();
    stream.read_to_end(&mut received).await.unwrap();
    assert!(
        received == data,
        "{} of {} bytes",
        received.len(),
        data.len()
    );
    target.await.unwrap();

    // The target ends first and reads slowly; the program fills all buffers, finishes and closes.
    let (mut tcp, mut stream) = both_ends(&client).await;
    tcp.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
    let mut sent = 0;
    let full = Duration::from_millis(300);
    loop {
        let from = sent % data.len();
        let to = data.len().min(from + 64 * 1024);
        match tokio::time::timeout(full, stream.write(&data[from..to])).await {
            Ok(len) => sent += len.unwrap(),
            Err(_) => break,
        }
    }
    stream.shutdown().await.unwrap();
    drop(stream);
    let mut received = Vec::new();
    tcp.read_to_end(&mut received).await.unwrap();
    assert_eq!(received.len(), sent);
    let whole = received
        .chunks(data.len())
        .all(|part| *part == data[..part.len()]);
    assert!(whole, "the copy differs");
}

/// A program finishes and closes while all buffers are full, and its target reads only as fast as
/// its answer is consumed.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_ignores_the_answer_delays_no_other() {
    let key = SecretKey::generate().unwrap();
    let server = Running::start(&[&key], |_| {}).await;
    let client = Client::connect(server.client(&key)).await.unwrap();
    let data = bytes(64 * 1024);
    let (mut tcp, mut stream) = both_ends(&client).await;
    let target = tokio::spawn(async move {
        let (mut reader, mut writer) = tcp.split();
        // An echo, until the end or until its output is no longer read.
        let mut total = 0;
        let mut part = vec![0; 64 * 1024];
        loop {
            let len = reader.read(&mut part).await.unwrap();
            if len == 0 {
                return total;
            }
            total += len;
            let _ = writer.write_all(&part[..len]).await;
        }
    });
    let mut sent = 0;
    let full = Duration::from_millis(300);
    while let Ok(len) = tokio::time::timeout(full, stream.write(&data)).await {
        sent += len.unwrap();
    }
    stream.shutdown().await.unwrap();
    drop(stream);
    let received = tokio::time::timeout(Duration::from_secs(30), target).await;
    assert_eq!(received.unwrap().unwrap(), sent);
}

#[tokio::test]
async fn a_reset_of_the_target_reaches_the_program() {
    let key = SecretKey::generate().unwrap();
    let server = Running::start(&[&key], |_| {}).await;
    let client = Client::connect(server.client(&key)).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target: Target = listener.local_addr().unwrap().into();
    let (opened, accepted) = tokio::join!(client.open_stream(target), listener.accept());
    let (mut stream, (mut tcp, _)) = (opened.unwrap(), accepted.unwrap());
    tcp.write_all(b"half").await.unwrap();
    let mut half = [0; 4];
    stream.read_exact(&mut half).await.unwrap();
    tcp.set_zero_linger().unwrap();
    drop(tcp);
    let error = stream.read(&mut half).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_client_of_a_stopped_server_connects_to_its_successor() {
    let key = SecretKey::generate().unwrap();
    let server_key = SecretKey::generate().unwrap();
    let mut server = Running::start(&[&key], |config| config.key = server_key.clone()).await;
    server.key = server_key.public();
    let client = Client::connect(server.client(&key)).await.unwrap();
    let mut events = client.events();
    let mut stream = client.open_stream(echo().await).await.unwrap();
    server.stop.take();
    loop {
        if let PathEvent::Closed { reason } = events.recv().await.unwrap().event {
            assert_eq!(reason, "the server is stopping");
            break;
        }
    }
    assert!(stream.read(&mut [0; 10]).await.is_err());
    let address = server.address;
    let again = Running::start(&[&key], |config| {
        config.key = server_key.clone();
        config.listen = address;
    })
    .await;
    assert_eq!(again.address, address);
    let mut stream = client.open_stream(echo().await).await.unwrap();
    stream.write_all(b"again").await.unwrap();
    let mut back = [0; 5];
    stream.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"again");
}

#[tokio::test]
async fn a_revoked_key_ends_its_session() {
    let (key, other) = (
        SecretKey::generate().unwrap(),
        SecretKey::generate().unwrap(),
    );
    let server = Running::start(&[&key, &other], |_| {}).await;
    let client = Client::connect(server.client(&key)).await.unwrap();
    let mut events = client.events();
    server.handle.set_authorized(&[AuthorizedClient {
        key: other.public(),
        name: String::new(),
        publish: Vec::new(),
    }]);
    loop {
        if let PathEvent::Closed { reason } = events.recv().await.unwrap().event {
            assert_eq!(reason, "the client's key is no longer authorized");
            break;
        }
    }
    Client::connect(server.client(&other)).await.unwrap();
}

#[tokio::test]
async fn sessions_of_a_client_are_limited() {
    let key = SecretKey::generate().unwrap();
    let server = Running::start(&[&key], |config| config.limits.sessions = 2).await;
    let _first = Client::connect(server.client(&key)).await.unwrap();
    let second = Client::connect(server.client(&key)).await.unwrap();
    let error = Client::connect(server.client(&key)).await.unwrap_err();
    let limited = matches!(
        &error,
        ConnectError::Carrier {
            error: CarrierError::Refused {
                code: RefuseCode::Limit,
                ..
            },
            ..
        }
    );
    assert!(limited, "{error}");
    second.close().await;
    // The server forgets the session as soon as it has read the CLOSE frame.
    let connected = async {
        while Client::connect(server.client(&key)).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), connected)
        .await
        .unwrap();
}

#[tokio::test]
async fn bad_addresses_and_links_say_what_is_wrong() {
    let key = SecretKey::generate().unwrap();
    let server = Running::start(&[&key], |_| {}).await;
    let connect = async |change: &dyn Fn(&mut ClientConfig)| {
        let mut config = server.client(&key);
        change(&mut config);
        Client::connect(config).await.unwrap_err().to_string()
    };
    let no_port = connect(&|config| config.server = "localhost".to_owned()).await;
    assert!(no_port.contains("HOST:PORT"), "{no_port}");
    let no_name = connect(&|config| config.server = "does-not-exist.invalid:1".to_owned()).await;
    assert!(no_name.contains("does-not-exist.invalid"), "{no_name}");
    let no_link = connect(&|config| config.links[0].name = "wlan99".to_owned()).await;
    assert!(no_link.contains("wlan99"), "{no_link}");
    let no_control = connect(&|config| config.congestion = Some("fastest".to_owned())).await;
    assert!(no_control.contains("fastest"), "{no_control}");
    let no_scheduler = connect(&|config| config.session.scheduler = "fastest".to_owned()).await;
    assert!(no_scheduler.contains("fbdt"), "{no_scheduler}");
    let unused = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let refused = connect(&|config| config.server = unused.to_string()).await;
    assert!(refused.contains("refused"), "{refused}");
}

/// The sessions of the carriers passed to it.
#[derive(Debug, Default)]
struct Joined(Mutex<Vec<[u8; 16]>>);

impl CarrierGroups for Joined {
    fn join(&self, _: BorrowedFd<'_>, session: &[u8; 16]) -> io::Result<()> {
        self.0.lock().unwrap().push(*session);
        // An error here does not end the carrier.
        Err(io::Error::other("no"))
    }
}

#[tokio::test]
async fn each_end_gets_every_carrier_and_its_session() {
    let key = SecretKey::generate().unwrap();
    let [at_client, at_server] = [(); 2].map(|()| Arc::new(Joined::default()));
    let groups = Arc::clone(&at_server);
    let running = Running::start(&[&key], |config| config.groups = Some(groups)).await;
    let mut config = running.client(&key);
    config.groups = Some(at_client.clone());
    config.carriers = Carriers::Fixed(NonZeroU8::new(3).unwrap());
    let _client = Client::connect(config).await.unwrap();
    let sessions = [&at_client, &at_server].map(|joined| {
        let joined = Arc::clone(joined);
        async move {
            while joined.0.lock().unwrap().len() < 3 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let sessions = joined.0.lock().unwrap();
            sessions.clone()
        }
    });
    let [client, server] = sessions;
    let both = async { tokio::join!(client, server) };
    let (client, server) = tokio::time::timeout(Duration::from_secs(60), both)
        .await
        .expect("three carriers");
    assert_eq!(client, [client[0]; 3]);
    assert_eq!(server, client);
}

/// A relay to the server that counts its connections.
async fn counting_way(server: SocketAddr) -> (SocketAddr, watch::Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (count, counted) = watch::channel(0);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            count.send_modify(|dials| *dials += 1);
            tokio::spawn(async move {
                let mut server = TcpStream::connect(server).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    (address, counted)
}

/// The first connection is cut in the middle of the session; the totals keep its bytes.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_keeps_its_totals_when_its_path_is_replaced() {
    let key = SecretKey::generate().unwrap();
    let name = |config: &mut ServerConfig| config.authorized[0].name = "laptop".to_owned();
    let server = Running::start(&[&key], name).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let way = listener.local_addr().unwrap();
    let (cut, is_cut) = watch::channel(0);
    let to = server.address;
    tokio::spawn(async move {
        let mut number = 0;
        while let Ok((mut client, _)) = listener.accept().await {
            number += 1;
            let mut is_cut = is_cut.clone();
            tokio::spawn(async move {
                let mut server = TcpStream::connect(to).await.unwrap();
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                    _ = is_cut.wait_for(|cut| *cut >= number) => {}
                }
            });
        }
    });
    let mut config = server.client(&key);
    config.server = way.to_string();
    let client = Client::connect(config).await.unwrap();
    let mut stream = client.open_stream(echo().await).await.unwrap();
    let data = bytes(300_000);
    let mut received = vec![0; data.len()];
    let (mut reader, mut writer) = tokio::io::split(&mut stream);
    let (read, written) = tokio::join!(reader.read_exact(&mut received), writer.write_all(&data));
    read.unwrap();
    written.unwrap();
    let before = client.status().await.links.remove(0);
    assert_eq!(
        (before.link.as_str(), before.paths, before.paths_total),
        ("lo", 1, 1)
    );
    assert!(
        before.bytes_sent > 300_000 && before.bytes_received > 300_000,
        "{before:?}"
    );
    cut.send_replace(1);
    let status = loop {
        let status = client.status().await;
        if status
            .links
            .iter()
            .any(|link| (link.paths, link.paths_total) == (1, 2))
        {
            break status;
        }
        tokio::task::yield_now().await;
    };
    let after = &status.links[0];
    assert!(after.bytes_sent >= before.bytes_sent, "{after:?}");
    assert!(after.bytes_received >= before.bytes_received, "{after:?}");
    assert!(
        after.send_share > 0.99 && after.receive_share > 0.99,
        "{after:?}"
    );
    assert!(
        status.paths[0].bytes_received < 300_000,
        "{:?}",
        status.paths
    );
    assert_eq!(status.client, "");
    let at_server = server.handle.status().await.remove(0);
    assert_eq!(at_server.client, "laptop");
    assert!(
        at_server.links[0].bytes_received >= 300_000,
        "{:?}",
        at_server.links
    );
    client.close().await;
}

/// A link should have four connections, but only two of them survive. After the third dial there
/// must be fewer than `many` dials within three seconds. Without pauses there would be far more; a
/// slow machine dials less.
async fn dials_are_fewer_than(
    many: usize,
    at_server: impl FnOnce(&mut ServerConfig),
    at_client: impl FnOnce(&mut ClientConfig),
) {
    let key = SecretKey::generate().unwrap();
    let server = Running::start(&[&key], at_server).await;
    let (way, mut dials) = counting_way(server.address).await;
    let mut config = server.client(&key);
    config.server = way.to_string();
    config.carriers = Carriers::Fixed(NonZeroU8::new(4).unwrap());
    at_client(&mut config);
    let client = Client::connect(config).await.unwrap();
    tokio::time::timeout(Duration::from_secs(60), dials.wait_for(|dials| *dials >= 3))
        .await
        .expect("a third dial")
        .unwrap();
    let so_many = dials.wait_for(|dials| *dials >= many);
    let reached = tokio::time::timeout(Duration::from_secs(3), so_many).await;
    assert!(reached.is_err(), "{many} dials in three seconds");
    let paths = client.status().await.paths;
    let active = paths.iter().filter(|path| path.state == "active").count();
    assert!(active >= 2, "the first two go on: {paths:?}");
}

fn takes_two_paths(config: &mut SessionConfig) {
    config.scheduler = "musher".to_owned();
    config.own_schedulers = sumlink_schedulers::all();
}

/// Dials that are refused at once run in parallel: four. The next ones follow after five seconds.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_whose_path_the_clients_own_session_refuses_is_dialed_after_a_pause() {
    let at_client = |config: &mut ClientConfig| takes_two_paths(&mut config.session);
    dials_are_fewer_than(8, |_| {}, at_client).await;
}

/// The third dial, and again after 0.25, 0.75 and 1.75 s: six.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_a_path_is_dialed_after_pauses_that_grow() {
    let at_server = |config: &mut ServerConfig| takes_two_paths(&mut config.session);
    dials_are_fewer_than(10, at_server, |_| {}).await;
}

/// Breaks every connection that joins after the first two.
#[derive(Debug, Default)]
struct Breaks(AtomicUsize);

impl CarrierGroups for Breaks {
    fn join(&self, socket: BorrowedFd<'_>, _: &[u8; 16]) -> io::Result<()> {
        if self.0.fetch_add(1, Ordering::Relaxed) >= 2 {
            let tcp = std::net::TcpStream::from(socket.try_clone_to_owned()?);
            tcp.shutdown(Shutdown::Both)?;
        }
        Ok(())
    }
}

/// Two every 0.25 s: a connection that joins does not shorten the pause after another one has
/// ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_with_short_lived_paths_is_dialed_with_pauses() {
    let at_client = |config: &mut ClientConfig| config.groups = Some(Arc::new(Breaks::default()));
    dials_are_fewer_than(60, |_| {}, at_client).await;
}
