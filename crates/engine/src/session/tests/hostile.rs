//! A malicious peer: the session closes for the right reason, reports it, and takes no unbounded
//! memory.

use proptest::prelude::*;

use crate::frame::{Ack, Frame, FrameError, Hello, MAX_BODY};
use crate::varint::MAX;
use crate::{Class, Config, Event, Instant, PathId, ProtocolError, Role, Session};

const PATH: PathId = PathId(0);
const NOW: Instant = Instant::from_secs(1);

/// A client within a session: stream 0 is open and has sent 7 bytes, the peer may send on stream 1.
fn session() -> Session {
    let mut config = Config::new(Role::Client);
    config.max_streams = 8;
    config.memory = Config::min_memory(8);
    config.stream_memory = 1 << 18;
    let mut session = Session::new(config, NOW).unwrap();
    session.path_up(PATH, NOW);
    let frames = [
        Frame::CreditSession { limit: 1 << 30 },
        Frame::CreditInitial { limit: 1 << 20 },
        Frame::CreditStreams { limit: 8 },
    ];
    frames
        .iter()
        .for_each(|frame| session.handle_frames(PATH, &encoded(frame), NOW).unwrap());
    session.open_stream(b"t", Class::Background, NOW).unwrap();
    session.write(0, b"request", NOW).unwrap();
    drain(&mut session);
    session
}

fn encoded(frame: &Frame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    frame.encode(&mut out);
    out
}

fn drain(session: &mut Session) -> Vec<u8> {
    let mut out = Vec::new();
    while session.poll_transmit(PATH, 1 << 16, NOW, &mut out) > 0 {}
    while session.poll_event().is_some() {}
    out
}

/// As a client and as a server: line breaks and the like in the reason of a CLOSE are not displayed
/// unescaped.
#[test]
fn the_reason_of_a_close_cannot_forge_a_line() {
    for role in [Role::Client, Role::Server] {
        let mut session = Session::new(Config::new(role), NOW).unwrap();
        session.path_up(PATH, NOW);
        let close = Frame::Close {
            code: 7,
            reason: b"bye\n2026-01-01 INFO path up\x1b[2J",
        };
        session.handle_frames(PATH, &encoded(&close), NOW).unwrap();
        let Some(Event::Closed { code: 7, reason }) = session.poll_event() else {
            panic!("a {role:?} must end");
        };
        assert_eq!(reason.as_str(), r"bye\n2026-01-01 INFO path up\u{1b}[2J");
        assert!(
            format!("{reason:?}")
                .chars()
                .all(crate::peer_text::is_plain)
        );
    }
}

/// The error for `frame`, after which the session must be closed and send a CLOSE.
fn refused(session: &mut Session, frame: &Frame<'_>) -> ProtocolError {
    let error = session
        .handle_frames(PATH, &encoded(frame), NOW)
        .expect_err("must be refused");
    assert!(session.is_closed() && session.is_close_pending());
    assert!(matches!(
        session.poll_event(),
        Some(Event::Closed { code: 1, reason }) if reason.as_str() == error.to_string()
    ));
    let pending_close = drain(session);
    assert!(matches!(
        Frame::decode(&pending_close),
        Ok(Some((Frame::Close { code: 1, .. }, _)))
    ));
    assert!(!session.is_close_pending());
    session
        .handle_frames(PATH, &encoded(frame), NOW)
        .expect("a closed session ignores frames");
    error
}

#[test]
fn a_frame_of_every_kind_cut_at_every_byte_is_reassembled() {
    for frame in crate::frame::tests::samples() {
        let whole = encoded(&frame);
        for cut in 0..whole.len() {
            let mut session = session();
            session
                .handle_frames(PATH, &whole[..cut], NOW)
                .expect("the rest may follow");
            assert!(!session.is_closed());
            // Whatever its effect here, it equals that of the whole frame.
            let pieces = session.handle_frames(PATH, &whole[cut..], NOW);
            assert_eq!(
                pieces,
                self::session().handle_frames(PATH, &whole, NOW),
                "{frame:?} cut at {cut}"
            );
        }
    }
}

#[test]
fn handshake_frames_are_refused_inside_a_session() {
    let hello = Hello {
        version: 1,
        new: true,
        session: [0; 16],
        path: 0,
        link: b"",
    };
    let refuse = Frame::Refuse {
        code: 1,
        reason: b"",
    };
    for frame in [Frame::Hello(hello), Frame::Welcome { version: 1 }, refuse] {
        assert_eq!(refused(&mut session(), &frame), ProtocolError::Handshake);
    }
}

#[test]
fn one_byte_over_the_credit_of_a_stream() {
    let limit = session().receive_credit.initial;
    let data = |offset| Frame::Data {
        stream: 0,
        offset,
        data: b"x",
    };
    session()
        .handle_frames(PATH, &encoded(&data(limit - 1)), NOW)
        .unwrap();
    assert_eq!(
        refused(&mut session(), &data(limit)),
        ProtocolError::Credit(0)
    );
    assert_eq!(
        refused(&mut session(), &data(MAX - 1)),
        ProtocolError::Credit(0)
    );
    let reset = Frame::Reset {
        stream: 0,
        code: 0,
        size: limit + 1,
    };
    assert_eq!(refused(&mut session(), &reset), ProtocolError::Credit(0));
}

#[test]
fn one_byte_over_the_credit_of_the_session() {
    let mut session = session();
    session.receive_credit.used = session.receive_credit.granted - 10;
    let data = |len: usize| Frame::Data {
        stream: 0,
        offset: 0,
        data: &[1; 20][..len],
    };
    session
        .handle_frames(PATH, &encoded(&data(10)), NOW)
        .unwrap();
    assert_eq!(refused(&mut session, &data(11)), ProtocolError::Credit(0));
}

#[test]
fn frames_for_invalid_streams_are_refused() {
    let open = |stream| Frame::Open {
        stream,
        class: 0,
        target: b"",
    };
    assert_eq!(
        refused(&mut session(), &open(17)),
        ProtocolError::Streams(17)
    );
    assert_eq!(
        refused(&mut session(), &open(0)),
        ProtocolError::UnknownStream(0)
    );
    assert_eq!(
        refused(&mut session(), &open(2)),
        ProtocolError::UnknownStream(2)
    );
    for stream in [2, MAX - 1] {
        for frame in [
            Frame::Accept { stream },
            Frame::Data {
                stream,
                offset: 0,
                data: b"x",
            },
            Frame::Fin { stream, size: 0 },
            Frame::Reset {
                stream,
                code: 0,
                size: 0,
            },
            Frame::CreditStream { stream, limit: 1 },
            Frame::Ack(Ack {
                stream,
                complete: false,
                cumulative: 0,
                ranges: vec![],
            }),
        ] {
            assert_eq!(
                refused(&mut session(), &frame),
                ProtocolError::UnknownStream(stream)
            );
        }
    }
    let frame = Frame::Data {
        stream: MAX,
        offset: 0,
        data: b"x",
    };
    assert_eq!(refused(&mut session(), &frame), ProtocolError::Streams(MAX));
    assert_eq!(
        refused(&mut session(), &Frame::Accept { stream: 1 }),
        ProtocolError::UnknownStream(1)
    );
}

#[test]
fn contradictions_about_the_length_of_a_stream() {
    let fin = |size| Frame::Fin { stream: 0, size };
    let data = |offset| Frame::Data {
        stream: 0,
        offset,
        data: b"x",
    };
    let reset = |size| Frame::Reset {
        stream: 0,
        code: 0,
        size,
    };
    for (first, second) in [
        (fin(5), fin(6)),
        (fin(5), data(5)),
        (data(5), fin(5)),
        (data(5), reset(5)),
        (fin(5), reset(6)),
    ] {
        let mut session = session();
        session.handle_frames(PATH, &encoded(&first), NOW).unwrap();
        assert_eq!(
            refused(&mut session, &second),
            ProtocolError::Size(0),
            "{first:?}, {second:?}"
        );
    }
    session()
        .handle_frames(PATH, &encoded(&fin(MAX)), NOW)
        .expect("a long stream is valid");
}

#[test]
fn acknowledgments_and_reports_of_unsent_data_are_refused() {
    let ack = |complete, cumulative, ranges: Vec<std::ops::Range<u64>>| {
        Frame::Ack(Ack {
            stream: 0,
            complete,
            cumulative,
            ranges,
        })
    };
    for frame in [
        ack(false, 8, vec![]),
        ack(false, 0, std::iter::once(3..8).collect()),
        ack(false, MAX, vec![]),
        ack(true, 7, vec![]),
        Frame::Path {
            path: 0,
            received: 1 << 20,
        },
        Frame::Path {
            path: 0,
            received: MAX,
        },
        Frame::Path {
            path: MAX,
            received: 1,
        },
    ] {
        assert_eq!(
            refused(&mut session(), &frame),
            ProtocolError::Acknowledged,
            "{frame:?}"
        );
    }
}

#[test]
fn limits_at_the_largest_integer_are_enforced() {
    let mut session = session();
    for frame in [
        Frame::CreditSession { limit: MAX },
        Frame::CreditInitial { limit: MAX },
        Frame::CreditStream {
            stream: 0,
            limit: MAX,
        },
        Frame::CreditStreams { limit: MAX },
        Frame::Ping { token: MAX },
        Frame::Pong { token: MAX },
        Frame::Accept { stream: 0 },
    ] {
        session.handle_frames(PATH, &encoded(&frame), NOW).unwrap();
    }
    while session.write(0, &[7; 10_000], NOW).unwrap() > 0 {}
    assert!(drain(&mut session).len() > 200_000);
}

#[test]
fn bytes_that_form_no_frame_are_refused() {
    let mut session = session();
    let error = session
        .handle_frames(PATH, &[0x3f, 0xff, 0xff], NOW)
        .unwrap_err();
    assert_eq!(error, ProtocolError::Frame(FrameError::UnknownType(0x3f)));
    assert!(session.is_closed() && session.is_close_pending());
}

#[test]
fn optional_frames_are_not_buffered() {
    let mut session = session();
    let mut frame = vec![0x40, 0x41, 0x7f, 0xff];
    frame.resize(4 + 0x3fff, 0xaa);
    let before = session.paths[&PATH].inbound.received;
    for _ in 0..100 {
        let (head, tail) = frame.split_at(10_000);
        session.handle_frames(PATH, head, NOW).unwrap();
        session.handle_frames(PATH, tail, NOW).unwrap();
        assert!(session.paths[&PATH].inbound.partial.is_empty());
        assert!(session.paths[&PATH].inbound.partial.capacity() < 4 * MAX_BODY);
    }
    // They count like any other frame, or the peer's reports would never match.
    assert_eq!(
        session.paths[&PATH].inbound.received - before,
        100 * frame.len() as u64
    );
}

#[test]
fn too_many_pieces() {
    let mut config = Config::new(Role::Server);
    config.max_streams = 8;
    let mut session = Session::new(config, NOW).unwrap();
    session.path_up(PATH, NOW);
    let mut sent = 0;
    let error = (0..8)
        .flat_map(|i| (0..32_000).map(move |k| (2 * i, 2 * k + 1)))
        .find_map(|(stream, offset)| {
            sent += 1;
            session
                .handle_frames(
                    PATH,
                    &encoded(&Frame::Data {
                        stream,
                        offset,
                        data: b"x",
                    }),
                    NOW,
                )
                .err()
        });
    assert!(
        matches!(error, Some(ProtocolError::Pieces(_))),
        "{error:?} after {sent}"
    );
    assert_eq!(sent, super::super::receive::MAX_PIECES + 1);
}

/// Streams are opened and reset without end by a peer that acknowledges nothing.
#[test]
fn frames_queued_for_a_peer_that_acknowledges_nothing_are_bounded() {
    for reads in [true, false] {
        let mut session = session();
        let mut next = 1;
        for _ in 0..100_000 {
            if next / 2 < session.receive_credit.streams {
                let mut bytes = encoded(&Frame::Open {
                    stream: next,
                    class: 0,
                    target: b"t",
                });
                bytes.extend(encoded(&Frame::Reset {
                    stream: next,
                    code: 0,
                    size: 0,
                }));
                session.handle_frames(PATH, &bytes, NOW).unwrap();
                next += 2;
            }
            session
                .handle_frames(PATH, &encoded(&Frame::Ping { token: 1 }), NOW)
                .unwrap();
            let gone = next.saturating_sub(2 + 2 * (next / 2 % 2)).max(1);
            session
                .handle_frames(
                    PATH,
                    &encoded(&Frame::Fin {
                        stream: gone,
                        size: 0,
                    }),
                    NOW,
                )
                .unwrap();
            while session.poll_event().is_some() {}
            if reads {
                drain(&mut session);
            }
        }
        let path = &session.paths[&PATH];
        let (waiting, under_way) = (session.control.len(), path.outbound.control.len());
        assert!(
            waiting < 100 && under_way <= 8192,
            "{waiting} frames wait, {under_way} are in flight"
        );
        assert!(
            session.reports.pending() < 1100,
            "{} reports wait",
            session.reports.pending()
        );
        assert!(session.streams.len() < 20 && session.retired.count() < 20);
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut session = session();
        let _ = session.handle_frames(PATH, &bytes, NOW);
        drain(&mut session);
    }

    /// Well-formed frames with arbitrary fields get further than arbitrary bytes.
    #[test]
    fn arbitrary_frames_do_not_panic(
        fields in proptest::collection::vec((4u8..=0x11, 0u64..20, field(), field()), 1..60),
    ) {
        let mut session = session();
        for (kind, stream, a, b) in fields {
            let (a, b) = (a.min(MAX), b.min(MAX));
            let mut body = Vec::new();
            let values: &[u64] = match kind {
                0x04 | 0x06 | 0x07 | 0x0b => &[stream, a],
                0x05 => &[stream],
                0x08 => &[stream, a, b],
                0x09 => &[stream, a % 2, b],
                0x10 => &[stream % 2, a],
                _ => &[a],
            };
            values.iter().for_each(|value| crate::varint::write(*value, &mut body));
            if kind == 0x06 {
                body.extend_from_slice(&[1, 2, 3]);
            }
            let mut bytes = vec![kind, body.len() as u8];
            bytes.extend(body);
            let closed = session.handle_frames(PATH, &bytes, NOW).is_err();
            drain(&mut session);
            let mut text = Vec::new();
            for stream in 0..20 {
                let _ = session.read(stream, 100, &mut text, NOW);
                let _ = session.write(stream, b"abc", NOW);
            }
            let stats = session.stats();
            prop_assert!(stats.receive_memory <= session.config.memory);
            if closed {
                break;
            }
        }
    }
}

fn field() -> impl Strategy<Value = u64> {
    prop_oneof![0..20u64, 0..100_000u64, Just(MAX), any::<u64>()]
}
