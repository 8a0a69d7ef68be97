//! Published ports, echoes and the server's resolvers, over real sockets on loopback.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use sumlink_transport::config::{AuthorizedClient, ClientConfig, LinkConfig, ServerConfig};
use sumlink_transport::datagrams::{FlowFailure, Received};
use sumlink_transport::publish::{PublicPort, Publish, PublishStatus};
use sumlink_transport::resolver::ResolverSource;
use sumlink_transport::target::{Host, PUBLISH, RESOLVER};
use sumlink_transport::{Client, OpenError, SecretKey, Server, ServerHandle, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

/// Longer than any step takes; a test that reaches this time has failed.
const LONG: Duration = Duration::from_secs(60);

/// A server that can be stopped, and started again on its port.
struct Running {
    address: SocketAddr,
    handle: ServerHandle,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<()>,
}

impl Running {
    async fn start(config: ServerConfig) -> Self {
        // Another test may use the UDP port with the number of the TCP port for a moment.
        let binding = async {
            loop {
                match Server::bind(config.clone()).await {
                    Ok(server) => return server,
                    Err(error) if error.to_string().contains("in use") => {
                        sleep(Duration::from_millis(20)).await;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        };
        let server = timeout(LONG, binding).await.unwrap();
        let (address, handle) = (server.local_addr().unwrap(), server.handle());
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(server.run(async move {
            let _ = stopped.await;
        }));
        Self {
            address,
            handle,
            stop: Some(stop),
            served,
        }
    }

    async fn stop(mut self) {
        drop(self.stop.take());
        timeout(LONG, self.served).await.unwrap().unwrap();
    }
}

/// Keys of a server and of two clients, and the ports that the first may publish.
struct Bench {
    server: SecretKey,
    client: SecretKey,
    other: SecretKey,
    rules: Vec<String>,
}

impl Bench {
    fn new(rules: &[String]) -> Self {
        let [server, client, other] = [(); 3].map(|()| SecretKey::generate().unwrap());
        Self {
            server,
            client,
            other,
            rules: rules.to_vec(),
        }
    }

    fn clients(&self, rules: &[String]) -> Vec<AuthorizedClient> {
        let keys = [&self.client, &self.other].into_iter();
        let client = |key: &SecretKey| AuthorizedClient {
            key: key.public(),
            name: String::new(),
            publish: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
        };
        keys.map(client).collect()
    }

    fn server(&self, listen: SocketAddr) -> ServerConfig {
        ServerConfig::new(listen, self.server.clone(), self.clients(&self.rules))
    }

    async fn serve(&self) -> Running {
        Running::start(self.server("127.0.0.1:0".parse().unwrap())).await
    }

    async fn connect(&self, server: SocketAddr, key: &SecretKey, ports: Vec<Publish>) -> Client {
        let config = ClientConfig::new(server.to_string(), self.server.public(), key.clone())
            .links(vec![LinkConfig::named("lo")])
            .publish(ports);
        timeout(LONG, Client::connect(config))
            .await
            .unwrap()
            .unwrap()
    }
}

/// A port of loopback that is free now.
async fn free(protocol: &str) -> PublicPort {
    let port = match protocol {
        "tcp" => TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr(),
        _ => UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr(),
    };
    let port = port.unwrap().port();
    format!("{protocol}:127.0.0.1:{port}").parse().unwrap()
}

fn rule(port: &PublicPort) -> String {
    format!("{}:{}", port.protocol, port.port)
}

fn publish(listen: PublicPort, target: SocketAddr) -> Publish {
    Publish {
        listen,
        target: target.into(),
        proxy_protocol: false,
    }
}

/// Waits until the first port of the client has this state, and returns its status.
async fn until(client: &Client, state: &str) -> PublishStatus {
    let met = async {
        loop {
            let status = client.status().await.published.remove(0);
            if status.state == state {
                return status;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, met)
        .await
        .unwrap_or_else(|_| panic!("never {state}"))
}

/// A target that echoes connections to their end and counts nothing.
async fn echo() -> SocketAddr {
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
    address
}

/// Sends, ends, and reads to the end.
async fn exchange(to: SocketAddr, data: &[u8]) -> Vec<u8> {
    let exchange = async {
        let mut tcp = TcpStream::connect(to).await.unwrap();
        let (mut reader, mut writer) = tcp.split();
        let mut received = Vec::new();
        let write = async {
            writer.write_all(data).await.unwrap();
            writer.shutdown().await.unwrap();
        };
        let (_, read) = tokio::join!(write, reader.read_to_end(&mut received));
        read.unwrap();
        received
    };
    timeout(LONG, exchange).await.unwrap()
}

/// A connection is accepted and reset, perhaps before the program has noticed it.
async fn assert_reset(to: SocketAddr) {
    let connect = async { TcpStream::connect(to).await?.read(&mut [0]).await };
    let error = timeout(LONG, connect).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

/// Waits until nothing accepts connections.
async fn until_closed(address: SocketAddr) {
    let closed = async {
        while TcpStream::connect(address).await.is_ok() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, closed).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_to_the_port_reaches_the_target_and_ends_as_it_ends() {
    let listen = free("tcp").await;
    let bench = Bench::new(&[rule(&listen)]);
    let server = bench.serve().await;
    let ports = vec![publish(listen, echo().await)];
    let client = bench.connect(server.address, &bench.client, ports).await;
    until(&client, "published").await;
    let data: Vec<u8> = (0..3_000_000u64).map(|i| ((i * i) >> 9) as u8).collect();
    assert!(exchange(listen.socket_address(), &data).await == data);
    let own = &server.handle.status().await[0].published[0];
    assert_eq!(own.listen, listen.to_string());
    assert_eq!(own.connections_total, 1);
    // The port is free as soon as the client has gone.
    client.close().await;
    until_closed(listen.socket_address()).await;
    TcpListener::bind(listen.socket_address()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_refuses_resets_the_connection() {
    let listen = free("tcp").await;
    let bench = Bench::new(&[rule(&listen)]);
    let server = bench.serve().await;
    let ports = vec![publish(listen, free("tcp").await.socket_address())];
    let client = bench.connect(server.address, &bench.client, ports).await;
    until(&client, "published").await;
    assert_reset(listen.socket_address()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_target_gets_a_proxy_header_of_version_two() {
    let listen = free("tcp").await;
    let bench = Bench::new(&[rule(&listen)]);
    let server = bench.serve().await;
    let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = Publish {
        proxy_protocol: true,
        ..publish(listen, target.local_addr().unwrap())
    };
    let client = bench
        .connect(server.address, &bench.client, vec![port])
        .await;
    until(&client, "published").await;
    let mut remote = TcpStream::connect(listen.socket_address()).await.unwrap();
    remote.write_all(b"GET").await.unwrap();
    let (mut accepted, _) = timeout(LONG, target.accept()).await.unwrap().unwrap();
    let mut received = [0; 31];
    timeout(LONG, accepted.read_exact(&mut received))
        .await
        .unwrap()
        .unwrap();
    let mut expected = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c".to_vec();
    expected.extend([127, 0, 0, 1, 127, 0, 0, 1]);
    expected.extend(remote.local_addr().unwrap().port().to_be_bytes());
    expected.extend(listen.port.to_be_bytes());
    expected.extend(b"GET");
    assert_eq!(received[..], expected[..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_is_not_permitted_is_refused_until_it_is() {
    let listen = free("tcp").await;
    let bench = Bench::new(&[]);
    let server = bench.serve().await;
    let ports = vec![publish(listen, echo().await)];
    let client = bench.connect(server.address, &bench.client, ports).await;
    let refused = until(&client, "refused").await;
    assert!(refused.reason.contains("does not permit"), "{refused:?}");
    assert!(TcpStream::connect(listen.socket_address()).await.is_err());
    server
        .handle
        .set_authorized(&bench.clients(&[rule(&listen)]));
    until(&client, "published").await;
    assert_eq!(exchange(listen.socket_address(), b"hello").await, b"hello");
    // A permission that is withdrawn closes the port.
    server
        .handle
        .set_authorized(&bench.clients(&[format!("udp:{}", listen.port)]));
    until(&client, "refused").await;
    until_closed(listen.socket_address()).await;
    // Programs with an entry cannot ask for a port.
    let target = Target::new(PUBLISH, listen.port).unwrap();
    let error = client.open_stream(target).await.unwrap_err();
    assert_eq!(error, OpenError::NotAllowed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_port_is_refused_and_published_when_it_is_free() {
    let listen = free("tcp").await;
    let bench = Bench::new(&[rule(&listen)]);
    let server = bench.serve().await;
    let program = TcpListener::bind(listen.socket_address()).await.unwrap();
    let first = echo().await;
    let one = bench
        .connect(server.address, &bench.client, vec![publish(listen, first)])
        .await;
    let refused = until(&one, "refused").await;
    assert!(refused.reason.contains("another program"), "{refused:?}");
    drop(program);
    until(&one, "published").await;
    // Another client with the same permission, and another session of the same client.
    for key in [&bench.other, &bench.client] {
        let two = bench
            .connect(server.address, key, vec![publish(listen, first)])
            .await;
        let refused = until(&two, "refused").await;
        assert!(refused.reason.contains("another client"), "{refused:?}");
        two.close().await;
    }
    assert_eq!(until(&one, "published").await.reason, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_server_publishes_the_ports_again() {
    let (listen, datagrams) = (free("tcp").await, free("udp").await);
    let bench = Bench::new(&[rule(&listen), rule(&datagrams)]);
    let server = bench.serve().await;
    let address = server.address;
    let udp_target = udp_echo().await;
    let ports = vec![
        publish(listen, echo().await),
        publish(datagrams, udp_target),
    ];
    let client = bench.connect(address, &bench.client, ports).await;
    let remote = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for _ in 0..2 {
        until(&client, "published").await;
        assert_eq!(exchange(listen.socket_address(), b"x").await, b"x");
        ask(&remote, datagrams.socket_address()).await;
    }
    server.stop().await;
    until_closed(listen.socket_address()).await;
    let server = Running::start(bench.server(address)).await;
    until(&client, "published").await;
    assert_eq!(exchange(listen.socket_address(), b"again").await, b"again");
    ask(&remote, datagrams.socket_address()).await;
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_connections_at_once_and_no_more_than_the_limit() {
    const MANY: usize = 1000;
    sumlink_transport::descriptors::raise();
    let listen = free("tcp").await;
    let bench = Bench::new(&[rule(&listen)]);
    let mut config = bench.server("127.0.0.1:0".parse().unwrap());
    config.limits.published = MANY;
    let server = Running::start(config).await;
    let ports = vec![publish(listen, echo().await)];
    let client = bench.connect(server.address, &bench.client, ports).await;
    until(&client, "published").await;
    let mut connecting = JoinSet::new();
    for number in 0..MANY as u32 {
        connecting.spawn(async move {
            let mut tcp = TcpStream::connect(listen.socket_address()).await.unwrap();
            tcp.write_all(&number.to_be_bytes()).await.unwrap();
            let mut answer = [0; 4];
            tcp.read_exact(&mut answer).await.unwrap();
            assert_eq!(answer, number.to_be_bytes());
            tcp
        });
    }
    let open = timeout(LONG, connecting.join_all()).await.unwrap();
    let status = until(&client, "published").await;
    assert_eq!(status.connections, MANY as u64);
    assert_reset(listen.socket_address()).await;
    drop(open);
    let ended = async {
        while until(&client, "published").await.connections > 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, ended).await.unwrap();
    assert_eq!(exchange(listen.socket_address(), b"after").await, b"after");
}

/// A UDP server that echoes datagrams.
async fn udp_echo() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            let _ = socket.send_to(&buffer[..length], from).await;
        }
    });
    address
}

/// Sends until the answer comes, as programs over UDP do.
async fn ask(remote: &UdpSocket, to: SocketAddr) {
    let answered = async {
        let mut buffer = [0; 100];
        loop {
            // A closed port is reported as an error of the next call.
            let _ = remote.send_to(b"question", to).await;
            let received = remote.recv_from(&mut buffer);
            if let Ok(Ok((length, from))) = timeout(Duration::from_millis(200), received).await {
                assert_eq!((&buffer[..length], from), (&b"question"[..], to));
                return;
            }
        }
    };
    timeout(LONG, answered).await.expect("an answer");
}

#[tokio::test(flavor = "multi_thread")]
async fn datagrams_of_several_remotes_reach_the_target_from_separate_sockets() {
    let listen = free("udp").await;
    let bench = Bench::new(&["udp:1-65535".to_owned()]);
    let server = bench.serve().await;
    let target = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let ports = vec![publish(listen, target.local_addr().unwrap())];
    let client = bench.connect(server.address, &bench.client, ports).await;
    until(&client, "published").await;
    let mut locals = Vec::new();
    for number in 0..3u8 {
        let remote = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        for _ in 0..2 {
            remote
                .send_to(&[number], listen.socket_address())
                .await
                .unwrap();
            let mut buffer = [0; 10];
            let heard = timeout(LONG, target.recv_from(&mut buffer)).await.unwrap();
            let (length, from) = heard.unwrap();
            assert_eq!(buffer[..length], [number]);
            locals.push(from);
            target.send_to(b"yes", from).await.unwrap();
            let heard = timeout(LONG, remote.recv_from(&mut buffer)).await.unwrap();
            assert_eq!(heard.unwrap(), (3, listen.socket_address()));
        }
    }
    locals.dedup();
    assert_eq!(locals.len(), 3);
    assert_eq!(until(&client, "published").await.connections, 3);
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_resolver_answers_streams_and_datagrams_and_nothing_else_is_opened() {
    let stream = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let resolver = stream.local_addr().unwrap();
    let datagrams = UdpSocket::bind(resolver).await.unwrap();
    let bench = Bench::new(&[]);
    let config = bench
        .server("127.0.0.1:0".parse().unwrap())
        .resolvers(ResolverSource::Listed(vec![resolver]));
    let server = Running::start(config).await;
    let client = bench
        .connect(server.address, &bench.client, Vec::new())
        .await;
    let name = Target::new(RESOLVER, 53).unwrap();
    let mut tcp = client.open_stream(name.clone()).await.unwrap();
    tcp.write_all(b"query").await.unwrap();
    let (mut accepted, _) = timeout(LONG, stream.accept()).await.unwrap().unwrap();
    let mut query = [0; 5];
    accepted.read_exact(&mut query).await.unwrap();
    assert_eq!(&query, b"query");
    let mut flow = client.open_flow(name.clone(), None, None);
    let query = [7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    flow.send(Bytes::copy_from_slice(&query)).unwrap();
    let mut buffer = [0; 100];
    let heard = timeout(LONG, datagrams.recv_from(&mut buffer))
        .await
        .unwrap();
    let (length, from) = heard.unwrap();
    assert_eq!(buffer[..length], query);
    buffer[2] |= 0x80;
    datagrams.send_to(&buffer[..length], from).await.unwrap();
    let answer = timeout(LONG, flow.receive()).await.unwrap();
    let expected = Bytes::copy_from_slice(&buffer[..length]);
    assert_eq!(answer, Some(Received::Datagram(expected)));
    // The address itself stays closed, and so do other ports of the name.
    for (target, error) in [
        (Target::from(resolver), OpenError::NotAllowed),
        (
            Target::new(RESOLVER, 853).unwrap(),
            OpenError::NameNotResolved,
        ),
    ] {
        assert_eq!(client.open_stream(target).await.unwrap_err(), error);
    }
    // A server without resolvers.
    let config = bench
        .server("127.0.0.1:0".parse().unwrap())
        .resolvers(ResolverSource::Off);
    let server = Running::start(config).await;
    let client = bench
        .connect(server.address, &bench.client, Vec::new())
        .await;
    let error = client.open_stream(name).await.unwrap_err();
    assert_eq!(error, OpenError::NotAllowed);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_echo_comes_back_over_the_bond_or_says_that_it_cannot() {
    let bench = Bench::new(&[]);
    let mut config = bench.server("127.0.0.1:0".parse().unwrap());
    config.egress =
        sumlink_transport::egress::EgressPolicy::new(["allow 127.0.0.0/8".parse().unwrap()]);
    let server = Running::start(config).await;
    let client = bench
        .connect(server.address, &bench.client, Vec::new())
        .await;
    let echo = |ip: [u8; 4]| Target::echo(Host::Ip(IpAddr::V4(Ipv4Addr::from(ip))));
    let mut flow = client.open_flow(echo([127, 0, 0, 1]), None, None);
    let request = Bytes::from_static(b"\x01\x02data");
    flow.send(request.clone()).unwrap();
    match timeout(LONG, flow.receive()).await.unwrap() {
        Some(Received::Datagram(answer)) => assert_eq!(answer, request),
        // The system permits neither ping sockets nor raw ones to this user.
        Some(Received::Failed(FlowFailure::Other)) => {}
        other => panic!("{other:?}"),
    }
    let mut refused = client.open_flow(echo([10, 0, 0, 1]), None, None);
    refused.send(request).unwrap();
    let event = timeout(LONG, refused.receive()).await.unwrap();
    assert_eq!(event, Some(Received::Failed(FlowFailure::NotAllowed)));
    drop(server);
}
