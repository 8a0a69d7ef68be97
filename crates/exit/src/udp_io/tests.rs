//! Sockets on loopback.

use proptest::prelude::*;

use super::*;

fn v4() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Receives until `count` datagrams have arrived.
async fn receive(io: &UdpIo, count: usize) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut all = Vec::new();
    while all.len() < count {
        io.ready().await.unwrap();
        let _ = io.try_receive(|arrival| all.push((arrival.remote, arrival.payload.to_vec())));
    }
    all
}

fn to<'a>(remote: SocketAddr, head: &'a [u8], body: &'a [u8]) -> Packet<'a> {
    Packet {
        remote: Some(remote),
        local: None,
        head,
        body,
    }
}

fn fail(index: usize, error: io::Error) {
    panic!("packet {index}: {error}");
}

#[tokio::test]
async fn datagrams_of_any_length_keep_their_order_and_borders() {
    let options = UdpOptions {
        receive_buffer: 1 << 20,
        ..UdpOptions::default()
    };
    for listen in ["127.0.0.1:0", "[::1]:0"] {
        let address = listen.parse().unwrap();
        let sender = UdpIo::bind(address, options).unwrap();
        let receivers = [0, 1].map(|_| UdpIo::bind(address, options).unwrap());
        let data = [7u8; crate::datagram::MAX_PAYLOAD];
        // Runs for segmentation, single ones, an empty one, the longest one.
        let lengths = [
            1200, 1200, 1200, 800, 0, 1, 1, 9000, 9000, 100, 65_507, 0, 1200, 1200,
        ];
        let mut packets = Vec::new();
        for (number, length) in lengths.iter().enumerate() {
            let remote = receivers[usize::from(number % 7 == 6)]
                .local_addr()
                .unwrap();
            let head = &data[..length / 3];
            packets.push(to(remote, head, &data[..length - head.len()]));
        }
        assert_eq!(sender.send(&packets, fail), lengths.len());
        for (which, receiver) in receivers.iter().enumerate() {
            let own = receiver.local_addr().unwrap();
            let expected: Vec<usize> = packets
                .iter()
                .filter(|packet| packet.remote == Some(own))
                .map(Packet::len)
                .collect();
            let received = receive(receiver, expected.len()).await;
            let from = sender.local_addr().unwrap();
            assert!(received.iter().all(|(remote, _)| *remote == from));
            let lengths: Vec<usize> = received.iter().map(|(_, bytes)| bytes.len()).collect();
            assert_eq!(lengths, expected, "{listen} {which}");
        }
    }
}

#[tokio::test]
async fn a_closed_port_is_reported_and_does_not_stop_the_socket() {
    let options = UdpOptions {
        errors: true,
        ..UdpOptions::default()
    };
    for listen in ["127.0.0.1:0", "[::1]:0"] {
        let address = listen.parse().unwrap();
        let sender = UdpIo::bind(address, options).unwrap();
        let open = UdpIo::bind(address, options).unwrap();
        let closed = UdpIo::bind(address, options).unwrap().local_addr().unwrap();
        let open_address = open.local_addr().unwrap();
        for _ in 0..3 {
            assert_eq!(sender.send(&[to(closed, b"", b"lost")], fail), 1);
            // The pending error must not cost this one.
            assert_eq!(sender.send(&[to(open_address, b"", b"kept")], fail), 1);
            assert_eq!(receive(&open, 1).await[0].1, b"kept");
        }
        let mut errors = Vec::new();
        while errors.len() < 3 {
            sender.ready().await.unwrap();
            sender.take_errors(|error| errors.push(error));
            assert!(sender.try_receive(|_| panic!("nothing was sent")).is_err());
        }
        let failure = FlowFailure::Refused;
        let refused = SocketError {
            remote: closed,
            failure,
        };
        assert_eq!(errors, [refused; 3], "{listen}");
    }
}

#[tokio::test]
async fn a_socket_for_both_families_answers_from_the_address_that_was_asked() {
    let options = UdpOptions {
        local_address: true,
        traffic_class: true,
        ..UdpOptions::default()
    };
    let server = UdpIo::bind("[::]:0".parse().unwrap(), options).unwrap();
    let port = server.local_addr().unwrap().port();
    for asked in ["127.0.0.2", "127.0.0.1", "::1"] {
        let asked: IpAddr = asked.parse().unwrap();
        let any = match asked {
            IpAddr::V4(_) => "127.0.0.1:0",
            IpAddr::V6(_) => "[::1]:0",
        };
        let client = UdpIo::bind(any.parse().unwrap(), UdpOptions::default()).unwrap();
        let socket = socket2::SockRef::from(&client.socket);
        match asked {
            IpAddr::V4(_) => socket.set_tos_v4(46 << 2).unwrap(),
            IpAddr::V6(_) => socket.set_tclass_v6(46 << 2).unwrap(),
        }
        let request = [to((asked, port).into(), b"", b"question")];
        assert_eq!(client.send(&request, fail), 1);
        let mut found = None;
        while found.is_none() {
            server.ready().await.unwrap();
            let _ = server.try_receive(|arrival| {
                found = Some((arrival.remote, arrival.local, arrival.dscp));
            });
        }
        let (remote, local, dscp) = found.unwrap();
        assert_eq!((local, dscp), (Some(asked), Some(46)));
        assert_eq!(remote, client.local_addr().unwrap());
        let answer = Packet {
            local,
            ..to(remote, b"ans", b"wer")
        };
        assert_eq!(server.send(&[answer, answer], fail), 2);
        for (from, payload) in receive(&client, 2).await {
            assert_eq!((from.ip(), &payload[..]), (asked, &b"answer"[..]));
        }
    }
}

#[tokio::test]
async fn a_datagram_that_cannot_be_sent_is_passed_back_and_the_next_one_is_sent() {
    let sender = UdpIo::bind(v4(), UdpOptions::default()).unwrap();
    let receiver = UdpIo::bind(v4(), UdpOptions::default()).unwrap();
    let remote = receiver.local_addr().unwrap();
    let long = vec![0; crate::datagram::MAX_PAYLOAD + 1];
    let packets = [
        to(remote, b"", b"1"),
        to(remote, b"", &long),
        to(remote, b"", b"2"),
    ];
    let mut failures = Vec::new();
    let handled = sender.send(&packets, |index, error| {
        failures.push((index, FlowFailure::from_send(&error)));
    });
    assert_eq!(handled, 3);
    assert_eq!(failures, [(1, Some(FlowFailure::TooBig { mtu: 0 }))]);
    assert_eq!(receive(&receiver, 2).await[1].1, b"2");
}

#[tokio::test]
async fn a_connected_socket_takes_no_datagrams_from_others() {
    let one = UdpIo::bind(v4(), UdpOptions::default()).unwrap();
    let [friend, stranger] = [0, 1].map(|_| UdpIo::bind(v4(), UdpOptions::default()).unwrap());
    one.connect(friend.local_addr().unwrap()).unwrap();
    let own = one.local_addr().unwrap();
    assert_eq!(stranger.send(&[to(own, b"", b"stranger")], fail), 1);
    assert_eq!(friend.send(&[to(own, b"", b"friend")], fail), 1);
    assert_eq!(receive(&one, 1).await[0].1, b"friend");
    let answer = Packet {
        remote: None,
        ..to(own, b"", b"answer")
    };
    assert_eq!(one.send(&[answer], fail), 1);
    assert_eq!(receive(&friend, 1).await[0].1, b"answer");
}

#[tokio::test]
async fn an_error_that_is_not_asked_for_wakes_nobody() {
    let one = UdpIo::bind(v4(), UdpOptions::default()).unwrap();
    let gone = UdpIo::bind(v4(), UdpOptions::default()).unwrap();
    let remote = gone.local_addr().unwrap();
    one.connect(remote).unwrap();
    drop(gone);
    assert_eq!(one.send(&[to(remote, b"", b"lost")], fail), 1);
    // The kernel reports it in place of a datagram; after that, nothing is ready.
    let quiet = async {
        loop {
            let ready = tokio::time::timeout(Duration::from_millis(50), one.ready());
            match ready.await {
                Ok(_) => assert!(one.try_receive(|_| {}).is_err()),
                Err(_) => break,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), quiet)
        .await
        .expect("the socket becomes quiet");
    assert_eq!(one.send(&[to(remote, b"", b"lost, too")], fail), 1);
}

/// Lengths around those that segmentation treats differently: equal ones, shorter ends, empty ones.
fn length() -> impl Strategy<Value = usize> {
    prop_oneof![4 => Just(1200usize), 2 => Just(0usize), 2 => 1..30usize, 1 => 0..3000usize]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_arrives_in_order_at_each_receiver(
        sequence in proptest::collection::vec((0..2usize, length(), any::<bool>()), 1..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let options = UdpOptions { receive_buffer: 1 << 20, ..UdpOptions::default() };
            let sender = UdpIo::bind(v4(), options).unwrap();
            let receivers = [0, 1].map(|_| UdpIo::bind(v4(), options).unwrap());
            let contents: Vec<Vec<u8>> = sequence
                .iter()
                .enumerate()
                .map(|(number, (_, length, _))| vec![number as u8; *length])
                .collect();
            let mut packets = Vec::new();
            for ((to_which, length, is_split), content) in sequence.iter().zip(&contents) {
                let remote = receivers[*to_which].local_addr().unwrap();
                let (head, body) = content.split_at(if *is_split { length / 2 } else { 0 });
                packets.push(to(remote, head, body));
            }
            assert_eq!(sender.send(&packets, fail), packets.len());
            for (which, receiver) in receivers.iter().enumerate() {
                let own = sequence.iter().zip(&contents).filter(|((to, ..), _)| *to == which);
                let expected: Vec<&Vec<u8>> = own.map(|(_, content)| content).collect();
                let received = receive(receiver, expected.len()).await;
                assert!(received.iter().map(|(_, content)| content).eq(expected));
            }
        });
    }
}
