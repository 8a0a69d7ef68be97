//! Both ends of datagram carriers on loopback.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sumlink_engine::PathId;
use sumlink_engine::frame::RefuseCode;
use sumlink_link::{LinkConfig, QueueLimit};
use tokio::net::UdpSocket;
use tokio::time::timeout;

use super::fixture::{Direction, Ends, PACKET, Road, SESSION, SOON, bottleneck, key, listen};
use super::{DatagramCarrier, Ended, QuicDialer, QuicError, QuicListener, SendError};
use crate::carrier::handshake::{CarrierError, encode_hello, encode_welcome};
use crate::carrier::socket::Binding;
use crate::carrier::tls::{Authorized, HandshakeError};
use sumlink_test_support::netns::Netns;

/// A datagram of `len` bytes, at least 4, that begins with its number.
fn numbered(number: u32, len: usize) -> Bytes {
    let mut datagram = number.to_be_bytes().to_vec();
    datagram.resize(len, 0xa5);
    datagram.into()
}

fn number(datagram: &Bytes) -> u32 {
    u32::from_be_bytes(datagram[..4].try_into().unwrap())
}

/// Sends a datagram as soon as there is room.
async fn send(carrier: &mut DatagramCarrier, datagram: Bytes) {
    let wait = async {
        carrier.writable().await;
        carrier.send(datagram).unwrap();
    };
    timeout(SOON, wait).await.expect("room within 20 s");
}

/// Waits for at least one datagram.
async fn receive(carrier: &mut DatagramCarrier) -> Vec<Bytes> {
    let mut out = Vec::new();
    let received = carrier.receive(&mut out, 64);
    let count = timeout(SOON, received).await.expect("a datagram").unwrap();
    assert_eq!(count, out.len());
    out
}

#[tokio::test]
async fn a_client_joins_and_datagrams_pass_both_ways() {
    let ends = Ends::new();
    let client = async {
        let opened = ends.open(ends.address()).await.unwrap();
        opened.hello(SESSION, PathId(3), "wlan0".to_owned()).await
    };
    let server = async {
        let asked = ends.accept().await.unwrap();
        assert_eq!(asked.client(), &ends.client.public());
        assert_eq!((asked.session(), asked.path()), (&SESSION, PathId(3)));
        assert_eq!(asked.link(), "wlan0");
        asked.welcome().await
    };
    let (client, server) = tokio::join!(client, server);
    let (mut client, mut server) = (client.unwrap(), server.unwrap());
    assert_eq!(Some(server.remote()), client.local());
    assert_eq!(client.remote(), ends.address());
    send(&mut client, Bytes::from_static(b"ping")).await;
    assert_eq!(receive(&mut server).await, [&b"ping"[..]]);
    send(&mut server, Bytes::new()).await;
    assert_eq!(receive(&mut client).await, [&b""[..]]);
}

#[tokio::test]
async fn a_client_with_an_unknown_key_is_refused() {
    let ends = Ends::new();
    let stranger = key();
    let dialer = QuicDialer::new(stranger.clone(), &ends.server.public());
    let client = async {
        let opened = dialer
            .connect(Some("lo"), ends.address(), None, SOON)
            .await?;
        opened.hello(SESSION, PathId(0), "lo".to_owned()).await
    };
    let (client, server) = tokio::join!(client, ends.accept());
    let key = stranger.public();
    assert!(
        matches!(client, Err(QuicError::Keys(HandshakeError::NotAuthorized { key: own }))
            if own == key),
        "{client:?}"
    );
    assert!(
        matches!(server, Err(QuicError::Keys(HandshakeError::UnknownClient { key: seen }))
            if seen == key),
        "{server:?}"
    );
}

#[tokio::test]
async fn a_server_with_another_key_is_rejected() {
    let ends = Ends::new();
    let pinned = key().public();
    let dialer = QuicDialer::new(ends.client.clone(), &pinned);
    let connect = dialer.connect(Some("lo"), ends.address(), None, SOON);
    let (client, server) = tokio::join!(connect, ends.accept());
    let expected = HandshakeError::WrongServerKey {
        seen: ends.server.public(),
        pinned,
    };
    assert!(
        matches!(&client, Err(QuicError::Keys(error)) if *error == expected),
        "{client:?}"
    );
    assert!(!client.unwrap_err().is_blocked());
    assert!(
        matches!(
            server,
            Err(QuicError::Keys(HandshakeError::PinnedElsewhere))
        ),
        "{server:?}"
    );
}

#[tokio::test]
async fn a_refused_client_gets_the_reason() {
    let ends = Ends::new();
    let client = async {
        let opened = ends.open(ends.address()).await.unwrap();
        opened.hello(SESSION, PathId(0), "lo".to_owned()).await
    };
    let server = async {
        let asked = ends.accept().await.unwrap();
        asked.refuse(RefuseCode::NoSuchSession, "gone").await;
    };
    let (client, ()) = tokio::join!(client, server);
    let Err(QuicError::Join(CarrierError::Refused { code, reason })) = client else {
        panic!("{client:?}");
    };
    assert_eq!((code, reason.as_str()), (RefuseCode::NoSuchSession, "gone"));
}

#[tokio::test]
async fn only_a_hello_that_joins_is_accepted() {
    let ends = Ends::new();
    let joins = encode_hello(SESSION, false, PathId(0), "lo");
    let creates = encode_hello(SESSION, true, PathId(0), "lo");
    for frame in [
        creates,
        [joins.clone(), joins].concat(),
        encode_welcome(),
        vec![0xff; 3000],
    ] {
        let client = async {
            let opened = ends.open(ends.address()).await.unwrap();
            opened.ask(&frame, PathId(0), "lo".to_owned()).await
        };
        let (client, server) = tokio::join!(client, ends.accept());
        assert!(
            matches!(
                client,
                Err(QuicError::Join(CarrierError::Refused {
                    code: RefuseCode::Protocol,
                    ..
                }))
            ),
            "{client:?}"
        );
        assert!(
            matches!(server, Err(QuicError::Join(CarrierError::Protocol(_)))),
            "{server:?}"
        );
    }
}

#[tokio::test]
async fn the_limit_of_a_link_is_the_limit_of_its_datagrams() {
    let ends = Ends::new();
    let (mut client, mut server) = ends.join(ends.address()).await;
    // 28 bytes of headers and 30 of QUIC, which needs at most 4 for the number of a packet.
    let most = usize::from(PACKET) - 28;
    let mut sent = 0;
    while usize::from(client.sample().mtu) < most || usize::from(server.sample().mtu) < most {
        sent += 1;
        send(&mut client, numbered(sent, 100)).await;
        send(&mut server, numbered(sent, 100)).await;
        receive(&mut server).await;
        receive(&mut client).await;
    }
    for (from, to) in [(&mut client, &mut server)] {
        let limit = from.max_datagram();
        assert!((most - 40..most - 20).contains(&limit), "{limit}");
        assert_eq!(
            from.send(numbered(0, limit + 1)),
            Err(SendError::TooLarge { limit })
        );
        send(from, numbered(0, limit)).await;
        let received = loop {
            if let Some(last) = receive(to).await.into_iter().find(|d| d.len() == limit) {
                break last;
            }
        };
        assert_eq!(received, numbered(0, limit));
    }
}

#[tokio::test]
async fn a_link_with_small_packets_is_named_before_any_packet_is_sent() {
    let ends = Ends::new();
    let dialer = ends.dialer();
    let connect = dialer.connect(Some("lo"), ends.address(), Some(1227), SOON);
    let error = connect.await.unwrap_err();
    assert!(
        matches!(
            error,
            QuicError::SmallPackets {
                limit: 1227,
                needed: 1228
            }
        ),
        "{error}"
    );
    assert!(error.is_blocked());
}

#[tokio::test]
async fn a_full_carrier_says_so_and_loses_nothing() {
    let ends = Ends::new();
    let (mut client, mut server) = ends.join(ends.address()).await;
    // Without a turn of quinn's task, nothing leaves.
    let mut sent = 0;
    let refused = loop {
        match client.send(numbered(sent, 1000)) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused, SendError::Full(numbered(sent, 1000)));
    assert!(sent >= 2, "{sent}");
    assert!(client.send_space() <= client.max_datagram());
    let sender = async {
        for number in sent..2000 {
            send(&mut client, numbered(number, 1000)).await;
        }
    };
    let receiver = async {
        let mut numbers = Vec::new();
        while numbers.len() < 2000 {
            numbers.extend(receive(&mut server).await.iter().map(number));
        }
        numbers
    };
    let ((), numbers) = tokio::join!(sender, receiver);
    assert_eq!(numbers, Vec::from_iter(0..2000));
    let sample = client.sample();
    assert_eq!(sample.lost_packets, 0);
    assert!(sample.srtt > Duration::ZERO && sample.min_rtt <= sample.srtt);
    assert!(sample.rttvar > Duration::ZERO && sample.cwnd > 0);
    // The congestion control sees measurements only, not the assumed first round trip.
    let base = client.base().unwrap();
    assert!(
        (sample.min_rtt..sumlink_bond::datagram::quic::INITIAL_RTT).contains(&base),
        "{base:?}"
    );
}

#[tokio::test]
async fn each_side_learns_why_the_other_closed() {
    let ends = Ends::new();
    let (client, server) = ends.join(ends.address()).await;
    let (at_client, at_server) = (client.closed(), server.closed());
    client.close("the link was removed");
    let (at_client, at_server) = tokio::join!(at_client, at_server);
    assert_eq!(at_client, Ended::Here);
    assert_eq!(
        at_server.to_string(),
        "closed by the peer (the link was removed)"
    );

    let (mut client, server) = ends.join(ends.address()).await;
    drop(server);
    let end = timeout(SOON, client.receive(&mut Vec::new(), 1)).await;
    assert_eq!(end.unwrap().unwrap_err().to_string(), "closed by the peer");
    // Nothing waits for a carrier that has ended.
    timeout(SOON, client.writable()).await.unwrap();
    let error = client.send(Bytes::from_static(b"late")).unwrap_err();
    assert!(
        matches!(error, SendError::Ended(Ended::Peer { .. })),
        "{error}"
    );

    let (client, _server) = ends.join(ends.address()).await;
    ends.listener.close("stopping", SOON).await;
    let end = client.closed().await;
    assert_eq!(end.to_string(), "closed by the peer (stopping)");
    assert!(ends.listener.next().await.is_none());
}

#[tokio::test]
async fn a_restarted_server_ends_its_former_carriers_at_once() {
    let ends = Ends::new();
    let successor = listen(&ends.server, &Authorized::default());
    let (former, latter) = (ends.address(), successor.local_addr().unwrap());
    let is_restarted = Arc::new(AtomicBool::new(false));
    let restarted = Arc::clone(&is_restarted);
    let road = Road::new(move |_, packet| {
        let to = if restarted.load(Ordering::Relaxed) {
            latter
        } else {
            former
        };
        (vec![packet], to)
    })
    .await;
    let (mut client, _server) = ends.join(road.address).await;
    is_restarted.store(true, Ordering::Relaxed);
    let end = client.closed();
    client.send(numbered(0, 500)).unwrap();
    assert_eq!(timeout(SOON, end).await.unwrap(), Ended::Restarted);
}

#[tokio::test]
async fn repeated_and_reordered_packets_have_no_effect() {
    let ends = Ends::new();
    let server = ends.address();
    let captured = Arc::new(Mutex::new(Vec::new()));
    let capture = Arc::clone(&captured);
    let mut held: Option<Vec<u8>> = None;
    let road = Road::new(move |direction, packet| {
        if direction == Direction::ToClient {
            return (vec![packet.clone(), packet], server);
        }
        capture.lock().unwrap().push(packet.clone());
        // Every other packet is overtaken by its successor, and all are sent twice.
        let packets = match held.take() {
            Some(former) => vec![packet.clone(), former.clone(), packet, former],
            None if packet.len() < 1100 => vec![packet.clone(), packet],
            None => {
                held = Some(packet.clone());
                vec![packet]
            }
        };
        (packets, server)
    })
    .await;
    let (mut client, mut server) = ends.join(road.address).await;
    // In rounds, because a burst may overflow the sockets of the road.
    const ROUNDS: u32 = 40;
    const ROUND: u32 = 20;
    for first in (0..ROUNDS).map(|round| round * ROUND) {
        let sent = first..first + ROUND;
        for number in sent.clone() {
            send(&mut client, numbered(number, 1100)).await;
        }
        let mut numbers = Vec::new();
        while numbers.len() < ROUND as usize {
            numbers.extend(receive(&mut server).await.iter().map(number));
        }
        numbers.sort_unstable();
        assert_eq!(numbers, Vec::from_iter(sent), "each exactly once");
    }

    // A replay of the whole connection, from the client's address as the server saw it.
    let replayed = std::mem::take(&mut *captured.lock().unwrap());
    let replay = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for packet in replayed {
        replay.send_to(&packet, road.address).await.unwrap();
    }
    // Nothing of it arrives as a datagram. New ones do, although the burst may displace some.
    let fresh = numbered(u32::MAX, 1100);
    let arrived = loop {
        send(&mut client, fresh.clone()).await;
        let mut out = Vec::new();
        let arrived = server.receive(&mut out, 1);
        if timeout(Duration::from_millis(50), arrived).await.is_ok() {
            break out;
        }
    };
    assert_eq!(arrived, [fresh]);
    assert_eq!(ends.listener.connections(), 1);
}

#[tokio::test]
async fn a_path_that_stops_taking_large_packets_gets_smaller_ones() {
    let ends = Ends::new();
    let server = ends.address();
    let limit = Arc::new(AtomicUsize::new(usize::MAX));
    let most = Arc::clone(&limit);
    let road = Road::new(move |_, packet| {
        let passes = packet.len() <= most.load(Ordering::Relaxed);
        (passes.then_some(packet).into_iter().collect(), server)
    })
    .await;
    let (mut client, mut server) = ends.join(road.address).await;
    tokio::spawn(async move { while server.receive(&mut Vec::new(), 64).await.is_ok() {} });
    let mut number = 0;
    let mut send_until = async |what: &str, done: &dyn Fn(&DatagramCarrier) -> bool| {
        let sending = async {
            while !done(&client) {
                number += 1;
                let len = client.max_datagram();
                // The limit may fall in between.
                client.writable().await;
                let _ = client.send(numbered(number, len));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(SOON, sending).await.expect(what);
    };
    send_until("1472 bytes", &|client| client.sample().mtu == 1472).await;
    limit.store(1300, Ordering::Relaxed);
    send_until("a black hole", &|client| client.sample().black_holes > 0).await;
    send_until("smaller packets", &|client| client.max_datagram() < 1300).await;
    // The search for the new limit begins after a pause.
    send_until("1300 bytes", &|client| {
        (1290..=1300).contains(&client.sample().mtu)
    })
    .await;
}

#[tokio::test]
async fn blocked_udp_is_recognized() {
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let dialer = QuicDialer::new(key(), &key().public());
    let patience = Duration::from_millis(100);
    let connect = dialer.connect(Some("lo"), address, None, patience);
    let error = connect.await.unwrap_err();
    assert!(
        matches!(error, QuicError::TimedOut { heard: false, .. }),
        "{error}"
    );
    assert!(error.is_blocked());
    drop(silent);
    let connect = dialer.connect(Some("lo"), address, None, SOON);
    let error = connect.await.unwrap_err();
    assert!(
        matches!(error, QuicError::Refused { remote } if remote == address),
        "{error}"
    );
    assert!(error.is_blocked());
}

#[tokio::test]
async fn a_client_that_falls_silent_is_given_up() {
    let ends = Ends::new();
    let server = ends.address();
    // Only the two Initial packets and the Retry packet in between get through.
    let (mut up, mut down) = (2, 1);
    let road = Road::new(move |direction, packet| {
        let left = match direction {
            Direction::ToServer => &mut up,
            Direction::ToClient => &mut down,
        };
        let passes = *left > 0;
        *left -= usize::from(passes);
        (passes.then_some(packet).into_iter().collect(), server)
    })
    .await;
    let dialer = ends.dialer();
    let patience = Duration::from_millis(500);
    let client = dialer.connect(Some("lo"), road.address, None, patience);
    let server = async { ends.listener.next().await.unwrap().prove(patience).await };
    let (client, server) = tokio::join!(client, server);
    for error in [client.map(drop).unwrap_err(), server.map(drop).unwrap_err()] {
        assert!(
            matches!(error, QuicError::TimedOut { heard: true, .. }),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_receiver_that_does_not_read_holds_little() {
    let ends = Ends::new();
    let (mut client, mut server) = ends.join(ends.address()).await;
    const COUNT: u32 = 10_000;
    for number in 0..COUNT {
        send(&mut client, numbered(number, 1000)).await;
    }
    server.close("enough");
    let mut kept = Vec::new();
    while server.receive(&mut kept, 64).await.is_ok() {}
    let bytes: usize = kept.iter().map(Bytes::len).sum();
    assert!(
        bytes > 1_000_000 && bytes <= sumlink_bond::datagram::quic::RECEIVE_BUFFER,
        "{bytes}"
    );
}

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

/// The congestion control with quinn and in real time; its rules are tested with a model.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "compares delays, which takes 40 s; make nightly runs it"]
async fn the_queue_of_a_real_path_is_short() {
    for (rate, delay, loss) in [(50, 20, 0.0), (200, 5, 0.0), (20, 40, 0.0), (50, 20, 0.005)] {
        let ends = Ends::new();
        let config = LinkConfig {
            rate: rate * 1_000_000,
            delay: Duration::from_millis(delay),
            loss,
            queue: QueueLimit::Time(Duration::from_millis(300)),
            seed: 1,
        };
        let road = bottleneck(config, ends.address()).await;
        let (mut client, mut server) = ends.join(road.address).await;
        let sending = tokio::spawn(async move {
            let mut samples = Vec::new();
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(10) {
                client.writable().await;
                let len = client.max_datagram();
                while client.send_space() > len && client.send(numbered(0, len)).is_ok() {}
                if begun.elapsed() > Duration::from_secs(2) {
                    samples.push(client.sample().srtt);
                }
            }
            samples
        });
        let (mut received, mut out) = (0, Vec::new());
        let begun = Instant::now();
        while server.receive(&mut out, 64).await.is_ok() {
            let bytes: usize = out.drain(..).map(|datagram| datagram.len()).sum();
            if begun.elapsed() > Duration::from_secs(2) {
                received += bytes;
            }
        }
        let mut rtts: Vec<Duration> = sending.await.unwrap();
        rtts.sort_unstable();
        let used = received as f64 * 8e-6 / 8.0 / rate as f64;
        let (median, tail) = (rtts[rtts.len() / 2], rtts[rtts.len() * 99 / 100]);
        println!("{rate} Mbit/s, {delay} ms, {loss}: {used:.2} used, {median:?} {tail:?}");
        if loss == 0.0 {
            assert!(used > 0.7, "{used}");
        }
        assert!(median < Duration::from_millis(2 * delay + 20), "{median:?}");
    }
}
