//! Encodes frames.

use super::{Frame, MAX_ACK_RANGES, MAX_DATA, kind};
use crate::policy::PeerPolicy;
use crate::varint;

impl Frame<'_> {
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
}

/// Appends the head of a DATA frame; `len` payload bytes must follow.
pub(crate) fn encode_data_head(stream: u64, offset: u64, len: usize, out: &mut Vec<u8>) {
    debug_assert!((1..=MAX_DATA).contains(&len));
    out.push(kind::DATA as u8);
    varint::write(
        (varint::len(stream) + varint::len(offset) + len) as u64,
        out,
    );
    varint::write(stream, out);
    varint::write(offset, out);
}

/// Appends a DATAGRAM frame with the packet that `write` appends; false if it appends none.
pub(crate) fn encode_datagram(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> bool) -> bool {
    let start = out.len();
    varint::write(kind::DATAGRAM, out);
    // The length has four bytes whatever its value, so that the packet need not move.
    let length = out.len();
    out.extend_from_slice(&[0; 4]);
    let body = out.len();
    if !write(out) {
        out.truncate(start);
        return false;
    }
    let len = (out.len() - body) as u32 | 0x8000_0000;
    out[length..body].copy_from_slice(&len.to_be_bytes());
    true
}

fn encode_body(frame: &Frame<'_>, out: &mut Vec<u8>) -> u64 {
    let mut put = |values: &[u64]| values.iter().for_each(|&value| varint::write(value, out));
    match frame {
        Frame::Hello(hello) => {
            put(&[hello.version, u64::from(hello.new)]);
            out.extend_from_slice(&hello.session);
            varint::write(hello.path, out);
            out.extend_from_slice(hello.link);
            kind::HELLO
        }
        Frame::Welcome { version } => {
            put(&[*version]);
            kind::WELCOME
        }
        Frame::Refuse { code, reason } => {
            put(&[*code]);
            out.extend_from_slice(reason);
            kind::REFUSE
        }
        Frame::Open {
            stream,
            class,
            target,
        } => {
            put(&[*stream, *class]);
            out.extend_from_slice(target);
            kind::OPEN
        }
        Frame::Accept { stream } => {
            put(&[*stream]);
            kind::ACCEPT
        }
        Frame::Data {
            stream,
            offset,
            data,
        } => {
            put(&[*stream, *offset]);
            out.extend_from_slice(data);
            kind::DATA
        }
        Frame::Fin { stream, size } => {
            put(&[*stream, *size]);
            kind::FIN
        }
        Frame::Reset { stream, code, size } => {
            put(&[*stream, *code, *size]);
            kind::RESET
        }
        Frame::Ack(ack) => {
            put(&[ack.stream, u64::from(ack.complete), ack.cumulative]);
            let mut end = ack.cumulative;
            for range in ack.ranges.iter().take(MAX_ACK_RANGES) {
                // Ranges out of order are the caller's mistake, and no reason to panic.
                put(&[
                    range.start.saturating_sub(end),
                    range.end.saturating_sub(range.start),
                ]);
                end = range.end;
            }
            kind::ACK
        }
        Frame::CreditSession { limit } => {
            put(&[*limit]);
            kind::CREDIT_SESSION
        }
        Frame::CreditStream { stream, limit } => {
            put(&[*stream, *limit]);
            kind::CREDIT_STREAM
        }
        Frame::CreditInitial { limit } => {
            put(&[*limit]);
            kind::CREDIT_INITIAL
        }
        Frame::CreditStreams { limit } => {
            put(&[*limit]);
            kind::CREDIT_STREAMS
        }
        Frame::Ping { token } => {
            put(&[*token]);
            kind::PING
        }
        Frame::Pong { token } => {
            put(&[*token]);
            kind::PONG
        }
        Frame::Path { path, received } => {
            put(&[*path, *received]);
            kind::PATH
        }
        Frame::Policy {
            path,
            version,
            policy: PeerPolicy { policy, rate },
        } => {
            // One more than the limit, so that 0 means none.
            let latency = policy.max_added_latency.map_or(0, |most| {
                (most.as_micros() as u64).saturating_add(1).min(varint::MAX)
            });
            put(&[
                *path,
                *version,
                policy.priority.code(),
                u64::from(policy.metered),
                latency,
                rate.map_or(0, |rate| rate.saturating_add(1).min(varint::MAX)),
            ]);
            kind::POLICY
        }
        Frame::PathState {
            path,
            version,
            state,
        } => {
            put(&[*path, *version, *state as u64]);
            kind::PATH_STATE
        }
        Frame::Datagram { packet } => {
            out.extend_from_slice(packet);
            kind::DATAGRAM
        }
        Frame::Join { version, secret } => {
            put(&[*version]);
            out.extend_from_slice(secret);
            kind::JOIN
        }
        Frame::Joined { name } => {
            out.extend_from_slice(name);
            kind::JOINED
        }
        Frame::Server { name } => {
            out.extend_from_slice(name);
            kind::SERVER
        }
        Frame::Close { code, reason } => {
            put(&[*code]);
            out.extend_from_slice(reason);
            kind::CLOSE
        }
    }
}
