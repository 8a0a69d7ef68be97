//! The frames that carriers transport: `type, length, body`, all integers variable-length.
//!
//! docs/protocol.md is the description for people; the examples there are decoded by a test. Frames are
//! length-delimited, so that a receiver can pass over types it does not know when they are marked as optional
//! (the type's lowest bit is set and it is at least [`FIRST_OPTIONAL`]).

use crate::varint;

/// Version of this format, spoken in the ALPN of the carrier (`sumlink/1`) and in HELLO.
pub const VERSION: u64 = 1;

/// Longest body of a frame, in bytes.
pub const MAX_BODY: usize = 16 * 1024;

/// Most bytes that a DATA frame's head takes before its payload: type, length, stream, offset.
pub const DATA_HEAD: usize = 1 + 4 + 8 + 8;

/// Most payload that one DATA frame carries: with its head it fills one TLS record (RFC 8446, section 5.1).
pub const MAX_DATA: usize = MAX_BODY - DATA_HEAD;

/// Most received ranges that one ACK frame lists.
pub const MAX_ACK_RANGES: usize = 64;

/// Longest target of an OPEN, reason of a CLOSE or REFUSE, and link name of a HELLO, in bytes.
pub const MAX_TEXT: usize = 512;

/// From this type on, odd frame types may be passed over by who does not know them.
pub const FIRST_OPTIONAL: u64 = 0x40;

const HELLO: u64 = 0x01;
const WELCOME: u64 = 0x02;
const REFUSE: u64 = 0x03;
const OPEN: u64 = 0x04;
const ACCEPT: u64 = 0x05;
const DATA: u64 = 0x06;
const FIN: u64 = 0x07;
const RESET: u64 = 0x08;
const ACK: u64 = 0x09;
const CREDIT_SESSION: u64 = 0x0a;
const CREDIT_STREAM: u64 = 0x0b;
const CREDIT_INITIAL: u64 = 0x0c;
const CREDIT_STREAMS: u64 = 0x0d;
const PING: u64 = 0x0e;
const PONG: u64 = 0x0f;
const PATH: u64 = 0x10;
const CLOSE: u64 = 0x11;

/// One frame. Byte strings are borrowed from the buffer it was decoded from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Frame<'a> {
    /// First frame of a carrier, from the client: which session it belongs to.
    Hello(Hello<'a>),
    /// The server's answer: the carrier is a path of the session now.
    Welcome {
        /// The version that both sides speak from here on.
        version: u64,
    },
    /// The server's other answer: why the carrier is closed.
    Refuse {
        /// See [`RefuseCode`].
        code: u64,
        /// For people.
        reason: &'a [u8],
    },
    /// Opens a stream to a target.
    Open {
        /// The new stream's number; even from the client, odd from the server.
        stream: u64,
        /// Traffic class, 0..=3; see [`crate::Class`].
        class: u64,
        /// What to connect to; opaque to the engine.
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
        /// Position of the first byte in the stream.
        offset: u64,
        /// At least one byte, at most [`MAX_DATA`].
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
        /// Why; application-defined.
        code: u64,
        /// End of the highest byte that the sender of this frame has sent on the stream, so that both sides agree
        /// on the session's credit.
        size: u64,
    },
    /// What has been received of a stream.
    Ack(Ack),
    /// Bytes of all streams together that the peer may send, counted by their highest offsets.
    CreditSession {
        /// The new limit since the session began; never shrinks.
        limit: u64,
    },
    /// Offset that the peer may send up to on one stream.
    CreditStream {
        /// The stream.
        stream: u64,
        /// The new limit; never shrinks.
        limit: u64,
    },
    /// Offset that the peer may send up to on a stream that has had no CREDIT of its own.
    CreditInitial {
        /// The limit.
        limit: u64,
    },
    /// How many streams the peer may have opened since the session began.
    CreditStreams {
        /// The new limit; never shrinks.
        limit: u64,
    },
    /// Asks for a PONG on the same path and for a report on any.
    Ping {
        /// Comes back in the PONG.
        token: u64,
    },
    /// Answer to a PING.
    Pong {
        /// The PING's token.
        token: u64,
    },
    /// What has been received on a path: the proof of delivery for everything on it.
    Path {
        /// The path.
        path: u64,
        /// Bytes of whole frames received on it since it joined.
        received: u64,
    },
    /// Ends the session.
    Close {
        /// Why; application-defined, 0 is a normal end.
        code: u64,
        /// For people.
        reason: &'a [u8],
    },
}

/// Body of a HELLO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// [`VERSION`].
    pub version: u64,
    /// Makes the session (true) or joins one that exists (false).
    pub new: bool,
    /// The session's identifier, drawn at random by the client.
    pub session: [u8; 16],
    /// The path's number; a client never uses one twice in a session.
    pub path: u64,
    /// The link's name at the client, for the server's status.
    pub link: &'a [u8],
}

/// Body of an ACK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The stream.
    pub stream: u64,
    /// The whole stream is received, its end included, or nobody waits for it any more.
    pub complete: bool,
    /// Every byte below this offset is received.
    pub cumulative: u64,
    /// Ranges received above, ascending, with at least one byte missing before each; at most
    /// [`MAX_ACK_RANGES`], the lowest ones when there are more.
    pub ranges: Vec<core::ops::Range<u64>>,
}

/// Why a server refuses a carrier: the code of a REFUSE frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefuseCode {
    /// The version in HELLO is not one that the server speaks.
    Version,
    /// A join to a session that does not exist for this key.
    NoSuchSession,
    /// A new session with an identifier that exists already for this key.
    SessionExists,
    /// A limit of the client is used up.
    Limit,
    /// The carrier did not begin with a proper HELLO.
    Protocol,
    /// The server is stopping.
    Stopping,
    /// A code that this version does not know.
    Unknown,
}

impl RefuseCode {
    /// The code on the wire.
    pub fn code(self) -> u64 {
        match self {
            Self::Unknown => 0,
            Self::Version => 1,
            Self::NoSuchSession => 2,
            Self::SessionExists => 3,
            Self::Limit => 4,
            Self::Protocol => 5,
            Self::Stopping => 6,
        }
    }

    /// The meaning of a code.
    pub fn from_code(code: u64) -> Self {
        match code {
            1 => Self::Version,
            2 => Self::NoSuchSession,
            3 => Self::SessionExists,
            4 => Self::Limit,
            5 => Self::Protocol,
            6 => Self::Stopping,
            _ => Self::Unknown,
        }
    }
}

/// Bytes that are no frame: the peer is at fault, and the carrier cannot be read further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// A type that is neither known nor optional.
    #[error("frame of unknown type {0:#x}")]
    UnknownType(u64),
    /// The length exceeds [`MAX_BODY`].
    #[error("frame of {0} bytes, at most {MAX_BODY} are allowed")]
    TooLong(u64),
    /// The body is shorter or longer than its fields, or a field is out of its range.
    #[error("malformed {0} frame")]
    Malformed(&'static str),
}

impl<'a> Frame<'a> {
    /// Takes the first frame off `bytes`: the frame and its length, or nothing when it is not complete yet.
    ///
    /// An optional frame of unknown type is passed over: the length then covers it and the frame after it.
    pub fn decode(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, FrameError> {
        let mut passed_over = 0;
        while let Some((frame, len)) = Self::decode_one(&bytes[passed_over..])? {
            passed_over += len;
            if let Some(frame) = frame {
                return Ok(Some((frame, passed_over)));
            }
        }
        Ok(None)
    }

    /// As [`Frame::decode`], but an optional frame of unknown type counts by itself, as no frame: who reads a
    /// carrier can let go of its bytes at once.
    pub(crate) fn decode_one(bytes: &'a [u8]) -> Result<Option<(Option<Self>, usize)>, FrameError> {
        let mut rest = bytes;
        let Some(kind) = varint::read(&mut rest) else {
            return Ok(None);
        };
        let known = (HELLO..=CLOSE).contains(&kind);
        let optional = kind >= FIRST_OPTIONAL && kind & 1 == 1;
        if !known && !optional {
            return Err(FrameError::UnknownType(kind));
        }
        let Some(len) = varint::read(&mut rest) else {
            return Ok(None);
        };
        if len > MAX_BODY as u64 {
            return Err(FrameError::TooLong(len));
        }
        let Some((body, after)) = rest.split_at_checked(len as usize) else {
            return Ok(None);
        };
        let frame = if known {
            Some(decode_body(kind, body)?)
        } else {
            None
        };
        Ok(Some((frame, bytes.len() - after.len())))
    }

    /// Appends the frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if let Frame::Data {
            stream,
            offset,
            data,
        } = *self
        {
            encode_data_head(stream, offset, data.len(), out);
            out.extend_from_slice(data);
            return;
        }
        let mut body = Vec::with_capacity(64);
        let kind = encode_body(self, &mut body);
        varint::write(kind, out);
        varint::write(body.len() as u64, out);
        out.extend_from_slice(&body);
    }

    /// Whether the receiver must report that it arrived. Reports themselves must not, or two idle peers would
    /// report to each other for ever.
    pub(crate) fn elicits_report(&self) -> bool {
        !matches!(
            self,
            Frame::Ack(_) | Frame::Path { .. } | Frame::Pong { .. }
        )
    }
}

/// Appends the head of a DATA frame; `len` payload bytes must follow.
pub(crate) fn encode_data_head(stream: u64, offset: u64, len: usize, out: &mut Vec<u8>) {
    debug_assert!((1..=MAX_DATA).contains(&len));
    out.push(DATA as u8);
    varint::write(
        (varint::len(stream) + varint::len(offset) + len) as u64,
        out,
    );
    varint::write(stream, out);
    varint::write(offset, out);
}

fn encode_body(frame: &Frame<'_>, out: &mut Vec<u8>) -> u64 {
    let mut put = |values: &[u64]| values.iter().for_each(|&value| varint::write(value, out));
    match frame {
        Frame::Hello(hello) => {
            put(&[hello.version, u64::from(hello.new)]);
            out.extend_from_slice(&hello.session);
            varint::write(hello.path, out);
            out.extend_from_slice(hello.link);
            HELLO
        }
        Frame::Welcome { version } => {
            put(&[*version]);
            WELCOME
        }
        Frame::Refuse { code, reason } => {
            put(&[*code]);
            out.extend_from_slice(reason);
            REFUSE
        }
        Frame::Open {
            stream,
            class,
            target,
        } => {
            put(&[*stream, *class]);
            out.extend_from_slice(target);
            OPEN
        }
        Frame::Accept { stream } => {
            put(&[*stream]);
            ACCEPT
        }
        Frame::Data {
            stream,
            offset,
            data,
        } => {
            put(&[*stream, *offset]);
            out.extend_from_slice(data);
            DATA
        }
        Frame::Fin { stream, size } => {
            put(&[*stream, *size]);
            FIN
        }
        Frame::Reset { stream, code, size } => {
            put(&[*stream, *code, *size]);
            RESET
        }
        Frame::Ack(ack) => {
            put(&[ack.stream, u64::from(ack.complete), ack.cumulative]);
            let mut end = ack.cumulative;
            for range in ack.ranges.iter().take(MAX_ACK_RANGES) {
                put(&[range.start - end, range.end - range.start]);
                end = range.end;
            }
            ACK
        }
        Frame::CreditSession { limit } => {
            put(&[*limit]);
            CREDIT_SESSION
        }
        Frame::CreditStream { stream, limit } => {
            put(&[*stream, *limit]);
            CREDIT_STREAM
        }
        Frame::CreditInitial { limit } => {
            put(&[*limit]);
            CREDIT_INITIAL
        }
        Frame::CreditStreams { limit } => {
            put(&[*limit]);
            CREDIT_STREAMS
        }
        Frame::Ping { token } => {
            put(&[*token]);
            PING
        }
        Frame::Pong { token } => {
            put(&[*token]);
            PONG
        }
        Frame::Path { path, received } => {
            put(&[*path, *received]);
            PATH
        }
        Frame::Close { code, reason } => {
            put(&[*code]);
            out.extend_from_slice(reason);
            CLOSE
        }
    }
}

fn decode_body(kind: u64, body: &[u8]) -> Result<Frame<'_>, FrameError> {
    let name = name(kind);
    let malformed = || FrameError::Malformed(name);
    let mut rest = body;
    let mut int = || varint::read(&mut rest).ok_or_else(malformed);
    let frame = match kind {
        HELLO => {
            let (version, new) = (int()?, flag(int()?, name)?);
            let (session, after) = rest.split_first_chunk::<16>().ok_or_else(malformed)?;
            rest = after;
            let path = varint::read(&mut rest).ok_or_else(malformed)?;
            let link = text(&mut rest, name)?;
            Frame::Hello(Hello {
                version,
                new,
                session: *session,
                path,
                link,
            })
        }
        WELCOME => Frame::Welcome { version: int()? },
        REFUSE => Frame::Refuse {
            code: int()?,
            reason: text(&mut rest, name)?,
        },
        OPEN => {
            let (stream, class) = (int()?, int()?);
            if class > 3 {
                return Err(malformed());
            }
            Frame::Open {
                stream,
                class,
                target: text(&mut rest, name)?,
            }
        }
        ACCEPT => Frame::Accept { stream: int()? },
        DATA => {
            let (stream, offset) = (int()?, int()?);
            let data = core::mem::take(&mut rest);
            let end = offset.checked_add(data.len() as u64);
            if data.is_empty() || data.len() > MAX_DATA || end.is_none_or(|end| end > varint::MAX) {
                return Err(malformed());
            }
            Frame::Data {
                stream,
                offset,
                data,
            }
        }
        FIN => Frame::Fin {
            stream: int()?,
            size: int()?,
        },
        RESET => Frame::Reset {
            stream: int()?,
            code: int()?,
            size: int()?,
        },
        ACK => {
            let (stream, complete, cumulative) = (int()?, flag(int()?, name)?, int()?);
            let mut ranges = Vec::new();
            let mut end = cumulative;
            while !rest.is_empty() {
                let gap = varint::read(&mut rest).ok_or_else(malformed)?;
                let len = varint::read(&mut rest).ok_or_else(malformed)?;
                let start = end + gap;
                end = start + len;
                if gap == 0 || len == 0 || end > varint::MAX || ranges.len() == MAX_ACK_RANGES {
                    return Err(malformed());
                }
                ranges.push(start..end);
            }
            Frame::Ack(Ack {
                stream,
                complete,
                cumulative,
                ranges,
            })
        }
        CREDIT_SESSION => Frame::CreditSession { limit: int()? },
        CREDIT_STREAM => Frame::CreditStream {
            stream: int()?,
            limit: int()?,
        },
        CREDIT_INITIAL => Frame::CreditInitial { limit: int()? },
        CREDIT_STREAMS => Frame::CreditStreams { limit: int()? },
        PING => Frame::Ping { token: int()? },
        PONG => Frame::Pong { token: int()? },
        PATH => Frame::Path {
            path: int()?,
            received: int()?,
        },
        CLOSE => Frame::Close {
            code: int()?,
            reason: text(&mut rest, name)?,
        },
        _ => return Err(FrameError::UnknownType(kind)),
    };
    if rest.is_empty() {
        Ok(frame)
    } else {
        Err(malformed())
    }
}

fn flag(value: u64, name: &'static str) -> Result<bool, FrameError> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(FrameError::Malformed(name)),
    }
}

fn text<'a>(rest: &mut &'a [u8], name: &'static str) -> Result<&'a [u8], FrameError> {
    let text = core::mem::take(rest);
    if text.len() <= MAX_TEXT {
        Ok(text)
    } else {
        Err(FrameError::Malformed(name))
    }
}

fn name(kind: u64) -> &'static str {
    match kind {
        HELLO => "HELLO",
        WELCOME => "WELCOME",
        REFUSE => "REFUSE",
        OPEN => "OPEN",
        ACCEPT => "ACCEPT",
        DATA => "DATA",
        FIN => "FIN",
        RESET => "RESET",
        ACK => "ACK",
        CREDIT_SESSION..=CREDIT_STREAMS => "CREDIT",
        PING => "PING",
        PONG => "PONG",
        PATH => "PATH",
        CLOSE => "CLOSE",
        _ => "unknown",
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
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
            Frame::Close {
                code: 0,
                reason: b"done",
            },
        ]
    }

    #[test]
    fn every_kind_comes_back_unchanged_and_every_cut_waits_for_more() {
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

    #[test]
    fn a_body_one_byte_short_or_long_is_malformed() {
        for frame in samples() {
            let mut out = Vec::new();
            frame.encode(&mut out);
            let open_ended = matches!(
                frame,
                Frame::Hello(_)
                    | Frame::Refuse { .. }
                    | Frame::Open { .. }
                    | Frame::Data { .. }
                    | Frame::Close { .. }
            );
            if open_ended {
                continue;
            }
            out.push(0x80);
            out[1] += 1;
            assert!(
                matches!(Frame::decode(&out), Err(FrameError::Malformed(_))),
                "{frame:?}"
            );
        }
    }

    #[test]
    fn unknown_types_are_refused_unless_optional() {
        assert_eq!(
            Frame::decode(&[0x12, 0x00]),
            Err(FrameError::UnknownType(0x12))
        );
        assert_eq!(
            Frame::decode(&[0x40, 0x42, 0x00]),
            Err(FrameError::UnknownType(0x42))
        );
        let passed_over = [0x40, 0x41, 0x02, 0xaa, 0xbb, 0x05, 0x01, 0x04];
        assert_eq!(
            Frame::decode(&passed_over),
            Ok(Some((Frame::Accept { stream: 4 }, 8)))
        );
        assert_eq!(Frame::decode(&passed_over[..5]), Ok(None));
    }

    #[test]
    fn offsets_beyond_the_largest_integer_are_malformed() {
        let mut out = Vec::new();
        Frame::Data {
            stream: 0,
            offset: varint::MAX,
            data: b"x",
        }
        .encode(&mut out);
        assert_eq!(Frame::decode(&out), Err(FrameError::Malformed("DATA")));
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_its_bytes_arrive() {
        let mut out = vec![0x06];
        varint::write(MAX_BODY as u64 + 1, &mut out);
        assert_eq!(
            Frame::decode(&out),
            Err(FrameError::TooLong(MAX_BODY as u64 + 1))
        );
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_and_what_decodes_comes_back(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
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
