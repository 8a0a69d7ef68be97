//! Streams are opened: their order, early answers, and targets that cannot be reached.

use std::time::Duration;

use sumlink_transport::egress::EgressPolicy;
use sumlink_transport::{Client, Early, OpenError, SecretKey, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::Running;

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
