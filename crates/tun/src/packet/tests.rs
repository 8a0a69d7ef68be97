use std::net::SocketAddr;
use std::time::Duration;

use etherparse::PacketBuilder;
use proptest::prelude::*;
use tokio::time::Instant;

use super::checksum::{Sum, pseudo_header};
use super::icmp::{Problem, error};
use super::reassembly::Reassembly;
use super::*;

fn v4(last: u8, port: u16) -> SocketAddr {
    ([192, 0, 2, last], port).into()
}

fn v6(last: u16, port: u16) -> SocketAddr {
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, last], port).into()
}

/// A TCP segment with correct checksums.
fn segment(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let ip = match (from.ip(), to.ip()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => PacketBuilder::ipv4(a.octets(), b.octets(), 9),
        (IpAddr::V6(a), IpAddr::V6(b)) => PacketBuilder::ipv6(a.octets(), b.octets(), 9),
        _ => unreachable!("of one family"),
    };
    let tcp = ip.tcp(from.port(), to.port(), 7, 100).syn();
    let mut packet = Vec::new();
    tcp.write(&mut packet, payload).unwrap();
    packet
}

/// Whether the checksums of a whole IP packet of TCP, UDP or ICMP are correct.
fn is_right(bytes: &[u8]) -> bool {
    let packet = parse(bytes).unwrap();
    let (header, protocol) = match &packet.body {
        Body::Tcp(tcp) => (tcp.header, protocol::TCP),
        Body::Udp(udp) => (udp.header, protocol::UDP),
        _ if packet.source.is_ipv4() => (20, protocol::ICMP),
        _ => (40, protocol::ICMP6),
    };
    let body = &bytes[header..packet.len];
    let sum = match protocol {
        protocol::ICMP => Sum::default(),
        _ => pseudo_header(packet.source, packet.destination, protocol, body.len()),
    };
    let is_header_right = match packet.source {
        IpAddr::V4(_) => Sum::default().plus(&bytes[..20]).checksum() == 0,
        IpAddr::V6(_) => true,
    };
    is_header_right && sum.plus(body).checksum() == 0
}

fn datagram(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    crate::sink::datagram(from, to, 77, payload)
}

#[test]
fn the_fields_of_packets_are_read() {
    let bytes = segment(v4(1, 5), v4(2, 80), b"abc");
    let packet = parse(&bytes).unwrap();
    assert_eq!((packet.from(5), packet.to(80)), (v4(1, 5), v4(2, 80)));
    assert_eq!((packet.hop_limit, packet.len), (9, 43));
    let Body::Tcp(tcp) = packet.body else {
        panic!()
    };
    assert_eq!((tcp.sequence, tcp.len, tcp.header), (7, 3, 20));
    assert!(tcp.flags.syn && !tcp.flags.ack);
    // Bytes behind the packet's end do not count.
    let padded = [&bytes[..], &[1, 2, 3]].concat();
    assert_eq!(parse(&padded).unwrap().len, 43);

    let bytes = datagram(v6(1, 5), v6(2, 53), b"question");
    let Body::Udp(udp) = parse(&bytes).unwrap().body else {
        panic!()
    };
    assert_eq!((udp.source_port, udp.destination_port), (5, 53));
    assert_eq!(&bytes[udp.payload], b"question");

    let mut bytes = Vec::new();
    let request = PacketBuilder::ipv6(v6_octets(1), v6_octets(2), 3).icmpv6_echo_request(42, 7);
    request.write(&mut bytes, b"data").unwrap();
    let Body::Echo(echo) = parse(&bytes).unwrap().body else {
        panic!()
    };
    assert_eq!((echo.id, &bytes[echo.payload]), (42, &b"\0\x07data"[..]));
}

fn v6_octets(last: u16) -> [u8; 16] {
    match v6(last, 0).ip() {
        IpAddr::V6(ip) => ip.octets(),
        IpAddr::V4(_) => unreachable!(),
    }
}

#[test]
fn extension_headers_are_skipped_and_source_routes_refused() {
    let whole = datagram(v6(1, 5), v6(2, 53), b"question");
    let with = |protocol: u8, segments_left: u8| {
        let mut packet = whole.clone();
        packet[6] = protocol;
        packet[5] += 8;
        packet.splice(40..40, [protocol::UDP, 0, 0, segments_left, 0, 0, 0, 0]);
        parse(&packet)
    };
    for extension in [0, 43, 60] {
        let packet = with(extension, 0).unwrap();
        assert_eq!(packet.protocol_at, 40);
        let Body::Udp(udp) = packet.body else {
            panic!()
        };
        assert_eq!(udp.payload, 56..64);
    }
    assert_eq!(with(43, 1), Err(Malformed::Extensions));
    assert_eq!(with(50, 0).unwrap().body, Body::Other(50));
}

#[test]
fn a_reset_answers_as_the_rfc_says() {
    let bytes = segment(v6(1, 5), v6(2, 80), b"abc");
    let packet = parse(&bytes).unwrap();
    let Body::Tcp(syn) = packet.body else {
        panic!()
    };
    let answer = build::reset(&packet, &syn).unwrap();
    assert!(is_right(&answer));
    let reset = parse(&answer).unwrap();
    assert_eq!((reset.from(80), reset.to(5)), (v6(2, 80), v6(1, 5)));
    let Body::Tcp(tcp) = reset.body else { panic!() };
    assert!(tcp.flags.rst && tcp.flags.ack);
    // The SYN and three bytes.
    assert_eq!((tcp.sequence, tcp.ack), (0, 7 + 4));
    assert_eq!(build::reset(&reset, &tcp), None);

    let flags = Flags {
        ack: true,
        ..Flags::default()
    };
    let answer = build::reset(
        &packet,
        &Segment {
            flags,
            ack: 99,
            ..syn
        },
    )
    .unwrap();
    let Body::Tcp(tcp) = parse(&answer).unwrap().body else {
        panic!()
    };
    assert!(tcp.flags.rst && !tcp.flags.ack);
    assert_eq!(tcp.sequence, 99);
}

#[test]
fn an_error_quotes_the_packet_and_spares_groups() {
    let long = datagram(v4(1, 5), v4(2, 53), &[7; 1000]);
    let bytes = error(Problem::TooBig { mtu: 1400 }, v4(9, 0).ip(), &long).unwrap();
    assert!(is_right(&bytes) && bytes.len() == 576);
    assert_eq!(
        bytes[20..28],
        [3, 4, bytes[22], bytes[23], 0, 0, 0x05, 0x78]
    );
    assert_eq!(bytes[28..], long[..548]);

    let long = datagram(v6(1, 5), v6(2, 53), &[7; 2000]);
    let bytes = error(Problem::TooBig { mtu: 600 }, v6(9, 0).ip(), &long).unwrap();
    assert!(is_right(&bytes) && bytes.len() == 1280);
    // The least MTU of IPv6 is the least to report.
    assert_eq!(bytes[44..48], [0, 0, 0x05, 0]);

    // A quote that is cut within its transport header.
    assert!(
        error(
            Problem::Port,
            v4(9, 0).ip(),
            &datagram(v4(1, 5), v4(2, 9), b"")[..28]
        )
        .is_some()
    );
    assert_eq!(
        error(
            Problem::Port,
            v6(9, 0).ip(),
            &datagram(v4(1, 5), v4(2, 9), b"")
        ),
        None
    );
    let of_group = datagram(([224, 0, 0, 1], 5).into(), v4(2, 9), b"");
    assert_eq!(error(Problem::Port, v4(9, 0).ip(), &of_group), None);
    assert!(!icmp::may_report(&parse(&of_group).unwrap()));
    let own = error(Problem::Port, v4(9, 0).ip(), &long[..0]);
    assert_eq!(own, None);
}

/// The fragments of a packet.
fn fragments_of(packet: &[u8], mtu: usize) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    build::fragments(packet, mtu, 0x1234_5678, |fragment| {
        all.push(fragment.to_vec())
    });
    all
}

fn push(reassembly: &mut Reassembly, bytes: &[u8], now: Instant) -> Option<Vec<u8>> {
    let packet = parse(bytes).unwrap();
    let Body::Fragment(fragment) = &packet.body else {
        panic!("not a fragment: {packet:?}");
    };
    reassembly.push(&packet, fragment, bytes, now)
}

#[test]
fn overlapping_fragments_spoil_their_datagram_for_as_long_as_it_would_wait() {
    let whole = datagram(v4(1, 5), v4(2, 53), &[7; 3000]);
    let fragments = fragments_of(&whole, 1500);
    assert_eq!(fragments.len(), 3);
    let (mut reassembly, now) = (Reassembly::default(), Instant::now());
    assert_eq!(push(&mut reassembly, &fragments[0], now), None);
    // The second one again, eight bytes too early.
    let mut early = fragments[1].clone();
    early[7] -= 1;
    assert_eq!(push(&mut reassembly, &early, now), None);
    for fragment in &fragments {
        assert_eq!(push(&mut reassembly, fragment, now), None);
    }
    reassembly.expire(now + Duration::from_secs(29));
    assert_eq!(reassembly.take_given_up(), 0);
    reassembly.expire(now + Duration::from_secs(30));
    assert_eq!(reassembly.take_given_up(), 1);
    let mut done = None;
    for fragment in &fragments {
        done = push(&mut reassembly, fragment, now);
    }
    assert!(is_right(&done.unwrap()));
}

#[test]
fn the_oldest_incomplete_datagrams_make_room() {
    let (mut reassembly, now) = (Reassembly::default(), Instant::now());
    let first = |id: u16| {
        let whole = crate::sink::datagram(v4(1, 5), v4(2, 53), id, &[7; 60_000]);
        let mut parts = Vec::new();
        build::fragments(&whole, 1500, u32::from(id), |part| {
            parts.push(part.to_vec())
        });
        parts
    };
    for id in 0..100 {
        for part in &first(id)[..30] {
            push(&mut reassembly, part, now);
        }
    }
    // 30 fragments of 1480 bytes each fit 23 times into a mebibyte.
    assert_eq!(reassembly.take_given_up(), 100 - 23);
    let rest = &first(99)[30..];
    let mut done = None;
    for part in rest {
        done = push(&mut reassembly, part, now);
    }
    assert_eq!(done.map(|whole| whole.len()), Some(60_028));
}

#[test]
fn a_source_that_sends_too_many_fragments_harms_only_itself() {
    let (mut reassembly, now) = (Reassembly::default(), Instant::now());
    let parts = |source: SocketAddr, id: u16| {
        let whole = crate::sink::datagram(source, v4(2, 53), id, &[7; 3000]);
        let mut parts = Vec::new();
        build::fragments(&whole, 1500, u32::from(id), |part| {
            parts.push(part.to_vec())
        });
        parts
    };
    let own = parts(v4(1, 5), 0);
    assert_eq!(push(&mut reassembly, &own[0], now), None);
    for id in 0..1000 {
        push(&mut reassembly, &parts(v4(3, 5), id)[0], now);
    }
    push(&mut reassembly, &own[1], now);
    assert!(push(&mut reassembly, &own[2], now).is_some());
}

fn address(is_v4: bool) -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
    (any::<[u8; 8]>(), any::<[u8; 32]>(), any::<[u16; 2]>()).prop_map(
        move |(short, long, ports)| {
            let ip = |at: usize| -> IpAddr {
                match is_v4 {
                    true => <[u8; 4]>::try_from(&short[at * 4..at * 4 + 4])
                        .unwrap()
                        .into(),
                    false => <[u8; 16]>::try_from(&long[at * 16..at * 16 + 16])
                        .unwrap()
                        .into(),
                }
            };
            (
                SocketAddr::new(ip(0), ports[0]),
                SocketAddr::new(ip(1), ports[1]),
            )
        },
    )
}

fn two_pairs() -> impl Strategy<Value = [(SocketAddr, SocketAddr); 2]> {
    any::<bool>().prop_flat_map(|is_v4| [address(is_v4), address(is_v4)])
}

proptest! {
    #[test]
    fn no_input_panics(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        version in prop_oneof![Just(0x45u8), Just(0x60), any::<u8>()],
        protocol in prop_oneof![Just(6u8), Just(17), Just(1), Just(58), Just(44), Just(0), any::<u8>()],
    ) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = version;
        }
        let len = bytes.len();
        if len >= 40 {
            match version {
                0x45 => {
                    bytes[2..4].copy_from_slice(&(len as u16).to_be_bytes());
                    bytes[9] = protocol;
                }
                _ => {
                    bytes[4..6].copy_from_slice(&(len as u16 - 40).to_be_bytes());
                    bytes[6] = protocol;
                }
            }
        }
        let (mut reassembly, now) = (Reassembly::default(), Instant::now());
        for problem in [Problem::Port, Problem::TooBig { mtu: 1 }, Problem::Protocol { at: 9 }] {
            error(problem, v4(9, 0).ip(), &bytes);
            error(problem, v6(9, 0).ip(), &bytes);
        }
        let Ok(packet) = parse(&bytes) else { return Ok(()) };
        prop_assert!(packet.len <= len && packet.protocol_at < len);
        match &packet.body {
            Body::Tcp(tcp) => {
                prop_assert!(tcp.header + 20 + tcp.len <= packet.len);
                build::reset(&packet, tcp);
                let (own, header) = (packet.from(1), tcp.header);
                let mut changed = bytes.clone();
                prop_assert!(rewrite(&mut changed, header, false, own, own));
            }
            Body::Udp(udp) => prop_assert!(udp.payload.end <= packet.len),
            Body::Echo(echo) => {
                prop_assert!(echo.payload.end <= packet.len && echo.payload.len() >= 2);
            }
            Body::Fragment(fragment) => {
                reassembly.push(&packet, fragment, &bytes, now);
            }
            Body::Icmp(_) | Body::Other(_) => {}
        }
        let mut sent = 0;
        build::fragments(&bytes, 64, 1, |_| sent += 1);
        prop_assert!(sent <= len);
    }

    #[test]
    fn a_rewritten_segment_has_right_checksums_and_can_be_rewritten_back(
        [(from, to), (new_from, new_to)] in two_pairs(),
        payload in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let before = segment(from, to, &payload);
        let mut packet = before.clone();
        let Body::Tcp(tcp) = parse(&packet).unwrap().body else { panic!() };
        prop_assert!(rewrite(&mut packet, tcp.header, false, new_from, new_to));
        prop_assert!(is_right(&packet));
        let parsed = parse(&packet).unwrap();
        let Body::Tcp(tcp) = parsed.body else { panic!() };
        prop_assert_eq!(parsed.from(tcp.source_port), new_from);
        prop_assert_eq!(parsed.to(tcp.destination_port), new_to);
        prop_assert!(rewrite(&mut packet, tcp.header, false, from, to));
        prop_assert!(is_right(&packet));
        // A checksum of zero has two forms.
        packet[tcp.header + 16..tcp.header + 18]
            .copy_from_slice(&before[tcp.header + 16..tcp.header + 18]);
        packet[10..12].copy_from_slice(&before[10..12]);
        prop_assert_eq!(packet, before);
    }

    #[test]
    fn an_incomplete_checksum_stays_the_sum_of_the_pseudo_header(
        [(from, to), (new_from, new_to)] in two_pairs(),
        payload in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let mut packet = segment(from, to, &payload);
        let Body::Tcp(tcp) = parse(&packet).unwrap().body else { panic!() };
        let at = tcp.header + 16;
        let sum = |from: SocketAddr, to: SocketAddr| {
            let len = 20 + payload.len();
            pseudo_header(from.ip(), to.ip(), protocol::TCP, len).folded()
        };
        packet[at..at + 2].copy_from_slice(&sum(from, to).to_be_bytes());
        prop_assert!(rewrite(&mut packet, tcp.header, true, new_from, new_to));
        // The kernel completes it: the sum of everything from the header on, complemented.
        let whole = Sum::default().plus(&packet[tcp.header..]).checksum();
        packet[at..at + 2].copy_from_slice(&whole.to_be_bytes());
        prop_assert!(is_right(&packet));
    }

    #[test]
    fn built_packets_have_right_checksums(
        [(from, to), _] in two_pairs(),
        payload in proptest::collection::vec(any::<u8>(), 2..300),
    ) {
        let bytes = datagram(from, to, &payload);
        prop_assert!(is_right(&bytes));
        let Body::Udp(udp) = parse(&bytes).unwrap().body else { panic!() };
        prop_assert_eq!(&bytes[udp.payload], &payload[..]);

        let mut reply = Vec::new();
        build::echo_reply(&mut reply, from.ip(), to.ip(), 1, 42, &payload);
        prop_assert!(is_right(&reply));
        let kind = if from.is_ipv4() { icmp::ECHO_REPLY } else { icmp::ECHO_REPLY6 };
        prop_assert_eq!(parse(&reply).unwrap().body, Body::Icmp(kind));
    }

    #[test]
    fn fragments_in_any_order_make_the_datagram_again(
        is_v4 in any::<bool>(),
        len in 0..65_508usize,
        mtu in 600..9000usize,
        seed in any::<u64>(),
        copies in 1..3usize,
    ) {
        let payload: Vec<u8> = (0..len).map(|at| ((at * 31) >> 3) as u8).collect();
        let (from, to) = match is_v4 {
            true => (v4(1, 5), v4(2, 53)),
            false => (v6(1, 5), v6(2, 53)),
        };
        let whole = datagram(from, to, &payload);
        let mut parts = fragments_of(&whole, mtu);
        prop_assert!(parts.iter().all(|part| part.len() <= mtu));
        if parts.len() == 1 {
            return Ok(());
        }
        // An order that depends on the seed only.
        parts.sort_by_key(|part| {
            part.iter().fold(seed, |hash, byte| hash.wrapping_mul(0x0100_0000_01b3) ^ u64::from(*byte))
        });
        let (mut reassembly, now) = (Reassembly::default(), Instant::now());
        let mut done = Vec::new();
        for part in &parts[..parts.len() - 1] {
            for _ in 0..copies {
                done.extend(push(&mut reassembly, part, now));
            }
        }
        prop_assert!(done.is_empty());
        if parts.len() <= 128 {
            let done = push(&mut reassembly, &parts[parts.len() - 1], now).expect("complete");
            prop_assert!(is_right(&done));
            let Body::Udp(udp) = parse(&done).unwrap().body else { panic!() };
            prop_assert_eq!(&done[udp.payload], &payload[..]);
        }
    }
}
