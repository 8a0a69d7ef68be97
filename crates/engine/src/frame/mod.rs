//! The frames that carriers transport: `type, length, body`, with all integers of variable length.
//!
//! docs/protocol-frames.md describes the format, and a test decodes its examples. Frames are
//! length-delimited, so that a receiver can skip unknown types that are marked as optional (the
//! lowest bit of the type is set and the type is at least [`FIRST_OPTIONAL`]).

mod decode;
mod encode;
mod handshake;
mod kind;

use crate::policy::PeerPolicy;

pub use decode::FrameError;
pub(crate) use encode::{encode_data_head, encode_datagram};
pub use handshake::{Hello, RefuseCode};

/// Version of this format, sent in the ALPN of the carrier (`sumlink/1`) and in HELLO.
pub const VERSION: u64 = 1;

/// Longest body of a frame, in bytes.
pub const MAX_BODY: usize = 16 * 1024;

/// Largest size in bytes of a DATA frame's head (type, length, stream, offset), which precedes its
/// payload.
pub const DATA_HEAD: usize = 1 + 4 + 8 + 8;

/// Largest payload of one DATA frame: with its head it fills one TLS record (RFC 8446, section
/// 5.1).
pub const MAX_DATA: usize = MAX_BODY - DATA_HEAD;

/// Most received ranges in one ACK frame.
pub const MAX_ACK_RANGES: usize = 64;

/// Longest target of an OPEN, reason of a CLOSE or REFUSE, link name of a HELLO and name of a
/// SERVER, in bytes.
pub const MAX_TEXT: usize = 512;

/// From this type on, a peer may skip odd frame types that it does not know.
pub const FIRST_OPTIONAL: u64 = 0x40;

/// One frame. Byte strings are borrowed from the buffer that it was decoded from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Frame<'a> {
    /// First frame of a carrier, sent by the client: names the session that the carrier belongs to.
    Hello(Hello<'a>),
    /// The server accepts: the carrier is now a path of the session.
    Welcome {
        /// The version that both sides use from now on.
        version: u64,
    },
    /// The server refuses and closes the carrier.
    Refuse {
        /// See [`RefuseCode`].
        code: u64,
        /// Human-readable text.
        reason: &'a [u8],
    },
    /// Opens a stream to a target.
    Open {
        /// The new stream's number; even from the client, odd from the server.
        stream: u64,
        /// The class that the opener has set: 0 conversational, 1 streaming, 2 interactive, 3 none,
        /// 4 background.
        class: u64,
        /// The target to connect to; opaque to the engine.
        target: &'a [u8],
    },
    /// The stream's target is connected.
    Accept {
        /// The stream.
        stream: u64,
    },
    /// Bytes of a stream.
    Data {
        /// The stream.
        stream: u64,
        /// Offset of the first byte in the stream.
        offset: u64,
        /// At least one byte and at most [`MAX_DATA`].
        data: &'a [u8],
    },
    /// No byte follows at or after `size`.
    Fin {
        /// The stream.
        stream: u64,
        /// Length of the stream in this direction.
        size: u64,
    },
    /// Both directions of the stream end at once.
    Reset {
        /// The stream.
        stream: u64,
        /// The reason; application-defined.
        code: u64,
        /// End of the highest byte that the sender of this frame has sent on the stream, so that
        /// both sides agree on the session's credit.
        size: u64,
    },
    /// The bytes of a stream that have arrived.
    Ack(Ack),
    /// Bytes that the peer may send on all streams together, counted by their highest offsets.
    CreditSession {
        /// The new limit, counted from the start of the session; never shrinks.
        limit: u64,
    },
    /// Offset that the peer may send up to on one stream.
    CreditStream {
        /// The stream.
        stream: u64,
        /// The new limit; never shrinks.
        limit: u64,
    },
    /// Offset that the peer may send up to on a stream that has received no CREDIT of its own.
    CreditInitial {
        /// The limit.
        limit: u64,
    },
    /// How many streams the peer may open in total, counted from the start of the session.
    CreditStreams {
        /// The new limit; never shrinks.
        limit: u64,
    },
    /// Requests a PONG on the same path and a report on any path.
    Ping {
        /// Repeated in the PONG.
        token: u64,
    },
    /// Answer to a PING.
    Pong {
        /// The PING's token.
        token: u64,
    },
    /// The bytes that have arrived on a path. It proves delivery of everything sent on it before.
    Path {
        /// The path.
        path: u64,
        /// Bytes of whole frames received on it since it joined.
        received: u64,
    },
    /// The policy that the receiver of this frame must follow when it sends over a path.
    Policy {
        /// The path.
        path: u64,
        /// The sender's version of this policy for the path; the highest is the newest.
        version: u64,
        /// The policy.
        policy: PeerPolicy,
    },
    /// How the sender of this frame rates the state of a path.
    PathState {
        /// The path.
        path: u64,
        /// Counts the sender's frames of this type for the path, from 1; the highest is the newest.
        version: u64,
        /// The state of the path.
        state: ReportedState,
    },
    /// A packet of datagrams ([`crate::datagram::wire`]).
    Datagram {
        /// The packet.
        packet: &'a [u8],
    },
    /// The only frame of a client with a key unknown to the server: asks to be added, with the
    /// secret of an invitation.
    Join {
        /// Version of this format.
        version: u64,
        /// The secret.
        secret: [u8; 16],
    },
    /// Answer to a JOIN: the key is now that of a client.
    Joined {
        /// The client's name at the server.
        name: &'a [u8],
    },
    /// The name of the server that has the session, for the client's further carriers (SNI): load
    /// balancers choose servers by it.
    Server {
        /// A DNS name.
        name: &'a [u8],
    },
    /// Ends the session.
    Close {
        /// The reason; application-defined, 0 is a normal end.
        code: u64,
        /// Human-readable text.
        reason: &'a [u8],
    },
}

/// The state of a path in a PATH_STATE, as its sender sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportedState {
    /// It delivers the sender's data again.
    Delivers,
    /// None of the data that the sender gives it is acknowledged.
    Stalled,
    /// The sender has abandoned it and neither sends nor receives on it.
    Left,
}

/// Body of an ACK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The stream.
    pub stream: u64,
    /// The whole stream has arrived, including its end, or the receiver does not need the rest.
    pub complete: bool,
    /// Every byte below this offset has arrived.
    pub cumulative: u64,
    /// Received ranges above it, ascending, with at least one byte missing before each. At most
    /// [`MAX_ACK_RANGES`]: the lowest ones if there are more.
    pub ranges: Vec<core::ops::Range<u64>>,
}

impl Frame<'_> {
    /// Whether the receiver must report its arrival. Reports do not elicit reports; otherwise two
    /// idle peers would report to each other forever.
    pub(crate) fn elicits_report(&self) -> bool {
        !matches!(
            self,
            // Datagrams have separate reports.
            Frame::Ack(_) | Frame::Path { .. } | Frame::Pong { .. } | Frame::Datagram { .. }
        )
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::policy::{PathPolicy, Priority};
    use crate::varint;
    use proptest::prelude::*;

    /// One frame of every kind, with fields at small values and at their limits.
    pub(crate) fn samples() -> Vec<Frame<'static>> {
        let session = [7; 16];
        let ranges = vec![20..30, 31..varint::MAX];
        vec![
            Frame::Hello(Hello {
                version: VERSION,
                new: true,
                session,
                path: 3,
                link: b"wlan0",
            }),
            Frame::Hello(Hello {
                version: varint::MAX,
                new: false,
                session,
                path: 0,
                link: b"",
            }),
            Frame::Welcome { version: VERSION },
            Frame::Refuse {
                code: 2,
                reason: b"no such session",
            },
            Frame::Open {
                stream: 4,
                class: 3,
                target: b"\x01\xc0\x00\x02\x01\x00\x50",
            },
            Frame::Accept { stream: 4 },
            Frame::Data {
                stream: 4,
                offset: 0,
                data: b"hello",
            },
            Frame::Data {
                stream: varint::MAX,
                offset: varint::MAX - 5,
                data: b"world",
            },
            Frame::Fin { stream: 4, size: 5 },
            Frame::Reset {
                stream: 4,
                code: varint::MAX,
                size: 17,
            },
            Frame::Ack(Ack {
                stream: 4,
                complete: true,
                cumulative: 5,
                ranges: vec![],
            }),
            Frame::Ack(Ack {
                stream: 4,
                complete: false,
                cumulative: 10,
                ranges,
            }),
            Frame::CreditSession { limit: 1 << 26 },
            Frame::CreditStream {
                stream: 4,
                limit: 1 << 25,
            },
            Frame::CreditInitial { limit: 1 << 25 },
            Frame::CreditStreams { limit: 1024 },
            Frame::Ping { token: 9 },
            Frame::Pong { token: 9 },
            Frame::Path {
                path: 1,
                received: 123_456,
            },
            Frame::Policy {
                path: 1,
                version: 1,
                policy: PeerPolicy::default(),
            },
            Frame::Policy {
                path: 1,
                version: varint::MAX,
                policy: PeerPolicy {
                    policy: PathPolicy {
                        priority: Priority::Never,
                        metered: true,
                        max_added_latency: Some(core::time::Duration::from_micros(50_000)),
                    },
                    rate: Some(625_000),
                },
            },
            Frame::PathState {
                path: 1,
                version: 1,
                state: ReportedState::Stalled,
            },
            Frame::PathState {
                path: varint::MAX,
                version: 2,
                state: ReportedState::Left,
            },
            Frame::Datagram {
                packet: b"\x05\x09\x01",
            },
            Frame::Join {
                version: VERSION,
                secret: [7; 16],
            },
            Frame::Joined { name: b"laptop" },
            Frame::Server {
                name: b"a.example.org",
            },
            Frame::Close {
                code: 0,
                reason: b"done",
            },
        ]
    }

    #[test]
    fn an_open_has_one_of_five_classes() {
        for class in 0..7 {
            let open = Frame::Open {
                stream: 4,
                class,
                target: b"t",
            };
            let mut bytes = Vec::new();
            open.encode(&mut bytes);
            let decoded = Frame::decode(&bytes);
            match class {
                0..=4 => assert_eq!(decoded, Ok(Some((open, bytes.len())))),
                _ => assert!(decoded.is_err(), "{class}"),
            }
        }
    }

    #[test]
    fn every_kind_round_trips_and_truncated_frames_are_incomplete() {
        for frame in samples() {
            let mut out = Vec::new();
            frame.encode(&mut out);
            let whole = out.len();
            assert_eq!(Frame::decode(&out), Ok(Some((frame.clone(), whole))));
            for cut in 0..whole {
                assert_eq!(
                    Frame::decode(&out[..cut]),
                    Ok(None),
                    "{frame:?} cut at {cut}"
                );
            }
            out.push(0xff);
            assert_eq!(Frame::decode(&out), Ok(Some((frame, whole))));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_and_decoded_frames_round_trip(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            if let Ok(Some((frame, len))) = Frame::decode(&bytes) {
                prop_assert!(len <= bytes.len());
                let mut out = Vec::new();
                frame.encode(&mut out);
                let (again, _) = Frame::decode(&out).unwrap().unwrap();
                prop_assert_eq!(frame, again);
            }
        }
    }
}
