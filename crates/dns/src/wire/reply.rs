//! Responses: the stored form of one from upstream, and the message to a client.

use bytes::Bytes;

use super::edns;
use super::message::{HEADER, Section};
use super::{ClientQuery, Malformed, Message, Question, flag, kind};

/// How the TTLs of a stored response change for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    /// It was stored this number of seconds ago.
    Seconds(u32),
    /// It has expired, and each TTL is this number of seconds (RFC 8767, section 5).
    Stale(u32),
}

/// The form in which a response is stored: without the OPT record and the records after it, which
/// concern one hop only (RFC 6891, section 6.1.1), and without bytes behind the records. The TTLs
/// are shorter by `age`, the seconds that the response spent in other caches.
pub(crate) fn storable(message: &Message<'_>, age: u32) -> Bytes {
    let (mut end, mut additional) = (message.question_end, 0u16);
    for record in message.records() {
        if record.section == Section::Additional {
            if record.kind == kind::OPT {
                break;
            }
            additional += 1;
        }
        end = record.end;
    }
    let mut out = message.bytes[..end].to_vec();
    out[10..HEADER].copy_from_slice(&additional.to_be_bytes());
    for record in message.records().take_while(|record| record.end <= end) {
        put_ttl(
            &mut out,
            record.ttl_at,
            seconds(record.ttl).saturating_sub(age),
        );
    }
    out.into()
}

/// The response to a client from a stored one. It has at most `limit` bytes: if the records do not
/// fit, it has none, and the TC bit asks the client to use TCP (RFC 2181, section 9). `error` is an
/// extended error (RFC 8914), for clients with EDNS.
pub(crate) fn render(
    client: &ClientQuery,
    stored: &[u8],
    age: Age,
    limit: usize,
    error: Option<u16>,
) -> Result<Vec<u8>, Malformed> {
    let message = Message::read(stored)?;
    let question_end = HEADER + client.question.len();
    if message.question_end != question_end {
        return Err(Malformed);
    }
    let mut out = stored.to_vec();
    for record in message.records() {
        let ttl = match age {
            Age::Seconds(age) => record.ttl.saturating_sub(age),
            Age::Stale(ttl) => ttl,
        };
        put_ttl(&mut out, record.ttl_at, ttl);
    }
    let wants_authentic = client.query.is_dnssec_ok || client.flags & flag::AUTHENTIC != 0;
    let kept = flag::RECURSION_DESIRED | flag::CHECKING_DISABLED;
    let mut flags = flag::RESPONSE | flag::RECURSION_AVAILABLE | message.code();
    flags |= client.flags & kept;
    if wants_authentic {
        // RFC 6840, section 5.8.
        flags |= message.flags & flag::AUTHENTIC;
    }
    let opt = if client.edns.is_none() {
        0
    } else {
        edns_length(error)
    };
    if out.len() + opt > limit {
        out.truncate(question_end);
        out[6..HEADER].fill(0);
        flags |= flag::TRUNCATED;
    }
    out[..2].copy_from_slice(&client.id.to_be_bytes());
    out[2..4].copy_from_slice(&flags.to_be_bytes());
    out[HEADER..question_end].copy_from_slice(&client.question);
    if client.edns.is_some() {
        let additional = u16::from_be_bytes([out[10], out[11]]).saturating_add(1);
        out[10..HEADER].copy_from_slice(&additional.to_be_bytes());
        edns::append(&mut out, message.code(), client.query.is_dnssec_ok, error);
    }
    Ok(out)
}

/// A stored response of the forwarder's own, with the addresses or pointers in `records` for the
/// question's name.
pub(crate) fn local(question: &Question, code: u16, ttl: u32, records: &[&[u8]]) -> Bytes {
    let mut out = Vec::with_capacity(64);
    let count = records.len() as u16;
    for word in [0, flag::RESPONSE | code, 1, count, 0, 0] {
        out.extend(word.to_be_bytes());
    }
    out.extend(question.name.as_bytes());
    out.extend(question.kind.to_be_bytes());
    out.extend(question.class.to_be_bytes());
    for data in records {
        // A pointer to the question's name.
        out.extend(0xc00cu16.to_be_bytes());
        out.extend(question.kind.to_be_bytes());
        out.extend(question.class.to_be_bytes());
        out.extend(ttl.to_be_bytes());
        out.extend((data.len() as u16).to_be_bytes());
        out.extend(*data);
    }
    out.into()
}

/// A TTL as a number: those with the upper bit count as 0 (RFC 2181, section 8).
pub(crate) fn seconds(ttl: u32) -> u32 {
    if ttl > i32::MAX as u32 { 0 } else { ttl }
}

fn edns_length(error: Option<u16>) -> usize {
    11 + if error.is_some() { 6 } else { 0 }
}

fn put_ttl(out: &mut [u8], at: usize, ttl: u32) {
    out[at..at + 4].copy_from_slice(&ttl.to_be_bytes());
}
