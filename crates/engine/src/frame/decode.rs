//! Decodes frames and reports malformed bytes.

use core::time::Duration;

use super::{
    Ack, FIRST_OPTIONAL, Frame, Hello, MAX_ACK_RANGES, MAX_BODY, MAX_DATA, MAX_TEXT, ReportedState,
    kind,
};
use crate::policy::{PathPolicy, PeerPolicy, Priority};
use crate::{Class, varint};

/// Bytes that do not form a frame. The peer is at fault, and the rest of the carrier cannot be
/// decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The type is neither known nor optional.
    #[error("frame of unknown type {0:#x}")]
    UnknownType(u64),
    /// The length exceeds [`MAX_BODY`].
    #[error("frame of {0} bytes, at most {MAX_BODY} are allowed")]
    TooLong(u64),
    /// The body is shorter or longer than its fields, or a field is out of range.
    #[error("malformed {0} frame")]
    Malformed(&'static str),
}

impl<'a> Frame<'a> {
    /// Decodes the first frame of `bytes`: the frame and its length, or none if it is incomplete.
    ///
    /// Skips optional frames of unknown type. The length then covers them and the frame after them.
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

    /// Like [`Frame::decode`], but returns an optional frame of unknown type as `None` with its own
    /// length, so that the reader of a carrier can drop its bytes at once.
    pub(crate) fn decode_one(bytes: &'a [u8]) -> Result<Option<(Option<Self>, usize)>, FrameError> {
        let mut rest = bytes;
        let Some(kind) = varint::read(&mut rest) else {
            return Ok(None);
        };
        let known = (kind::HELLO..=kind::JOINED).contains(&kind)
            || matches!(kind, kind::PATH_STATE | kind::DATAGRAM | kind::SERVER);
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
}

fn decode_body(kind: u64, body: &[u8]) -> Result<Frame<'_>, FrameError> {
    let name = kind::name(kind);
    let malformed = || FrameError::Malformed(name);
    let mut rest = body;
    let mut int = || varint::read(&mut rest).ok_or_else(malformed);
    let frame = match kind {
        kind::HELLO => {
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
        kind::WELCOME => Frame::Welcome { version: int()? },
        kind::REFUSE => Frame::Refuse {
            code: int()?,
            reason: text(&mut rest, name)?,
        },
        kind::OPEN => {
            let (stream, class) = (int()?, int()?);
            if Class::of_open(class).is_none() {
                return Err(malformed());
            }
            Frame::Open {
                stream,
                class,
                target: text(&mut rest, name)?,
            }
        }
        kind::ACCEPT => Frame::Accept { stream: int()? },
        kind::DATA => {
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
        kind::FIN => Frame::Fin {
            stream: int()?,
            size: int()?,
        },
        kind::RESET => Frame::Reset {
            stream: int()?,
            code: int()?,
            size: int()?,
        },
        kind::ACK => {
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
        kind::CREDIT_SESSION => Frame::CreditSession { limit: int()? },
        kind::CREDIT_STREAM => Frame::CreditStream {
            stream: int()?,
            limit: int()?,
        },
        kind::CREDIT_INITIAL => Frame::CreditInitial { limit: int()? },
        kind::CREDIT_STREAMS => Frame::CreditStreams { limit: int()? },
        kind::PING => Frame::Ping { token: int()? },
        kind::PONG => Frame::Pong { token: int()? },
        kind::PATH => Frame::Path {
            path: int()?,
            received: int()?,
        },
        kind::POLICY => {
            let (path, version) = (int()?, int()?);
            let priority = Priority::by_code(int()?).ok_or_else(malformed)?;
            let metered = flag(int()?, name)?;
            let (latency, rate) = (int()?.checked_sub(1), int()?.checked_sub(1));
            Frame::Policy {
                path,
                version,
                policy: PeerPolicy {
                    policy: PathPolicy {
                        priority,
                        metered,
                        max_added_latency: latency.map(Duration::from_micros),
                    },
                    rate,
                },
            }
        }
        kind::PATH_STATE => Frame::PathState {
            path: int()?,
            version: int()?,
            state: match int()? {
                0 => ReportedState::Delivers,
                1 => ReportedState::Stalled,
                2 => ReportedState::Left,
                _ => return Err(malformed()),
            },
        },
        kind::DATAGRAM => Frame::Datagram {
            packet: core::mem::take(&mut rest),
        },
        kind::JOIN => {
            let version = int()?;
            let (secret, after) = rest.split_first_chunk::<16>().ok_or_else(malformed)?;
            rest = after;
            Frame::Join {
                version,
                secret: *secret,
            }
        }
        kind::JOINED => Frame::Joined {
            name: text(&mut rest, name)?,
        },
        kind::SERVER => Frame::Server {
            name: text(&mut rest, name)?,
        },
        kind::CLOSE => Frame::Close {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::tests::samples;

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
                    | Frame::Datagram { .. }
                    | Frame::Joined { .. }
                    | Frame::Server { .. }
                    | Frame::Close { .. }
            );
            if open_ended {
                continue;
            }
            // The length follows the type; the type's first byte encodes the type's length.
            let length = 1 << (out[0] >> 6);
            let mut short = out[..out.len() - 1].to_vec();
            short[length] -= 1;
            let mut long = out;
            long.push(0x80);
            long[length] += 1;
            for wrong in [short, long] {
                assert!(
                    matches!(Frame::decode(&wrong), Err(FrameError::Malformed(_))),
                    "{frame:?} as {wrong:x?}"
                );
            }
        }
    }

    #[test]
    fn unknown_types_are_refused_unless_optional() {
        assert_eq!(
            Frame::decode(&[0x15, 0x00]),
            Err(FrameError::UnknownType(0x15))
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
}
