//! EDNS: the OPT record (RFC 6891).

use super::message::Section;
use super::{Message, code, flag, kind};

/// Longest response over UDP that the forwarder sends or asks for, in bytes: it fits into the
/// smallest MTU of IPv6, 1280 bytes, and so is never fragmented (RFC 9715, section 3.2).
pub(crate) const UDP_SIZE: u16 = 1232;

/// Longest response over UDP to a client without EDNS, in bytes (RFC 1035, section 2.3.4).
pub(super) const PLAIN_SIZE: u16 = 512;

/// The client understands DNSSEC (RFC 3225).
const DNSSEC_OK: u32 = 0x8000;

/// The option with an extended error (RFC 8914).
pub(crate) const EXTENDED_ERROR: u16 = 15;

/// The option with padding (RFC 7830).
const PADDING: u16 = 12;

/// The contents of an OPT record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edns {
    /// Longest UDP response that the sender takes, in bytes, at least 512.
    pub(crate) udp_size: u16,
    /// The upper bits of the response code, in place.
    pub(crate) code: u16,
    pub(crate) version: u8,
    pub(crate) is_dnssec_ok: bool,
}

impl Edns {
    /// The OPT record of a message, if it has one.
    pub(crate) fn of(message: &Message<'_>) -> Option<Self> {
        let is_opt = |record: &super::Record<'_>| {
            record.section == Section::Additional && record.kind == kind::OPT
        };
        let record = message.records().find(is_opt)?;
        let [code, version, ..] = record.ttl.to_be_bytes();
        Some(Self {
            udp_size: record.class.max(PLAIN_SIZE),
            code: u16::from(code) << 4,
            version,
            is_dnssec_ok: record.ttl & DNSSEC_OK != 0,
        })
    }
}

/// Whether a resolver reports that it does not know EDNS: an error without EDNS, and often without
/// the question (RFC 6891, section 7).
pub(crate) fn is_without_edns(id: u16, answer: &[u8]) -> bool {
    let Some(&[id_high, id_low, high, low]) = answer.first_chunk::<4>() else {
        return false;
    };
    let flags = u16::from_be_bytes([high, low]);
    u16::from_be_bytes([id_high, id_low]) == id
        && flags & flag::RESPONSE != 0
        && matches!(
            flags & flag::CODE,
            code::FORMAT_ERROR | code::NOT_IMPLEMENTED
        )
        && Message::read(answer).map_or(true, |message| Edns::of(&message).is_none())
}

/// Appends an OPT record. `code` is a whole response code, `error` an extended error.
pub(super) fn append(out: &mut Vec<u8>, code: u16, is_dnssec_ok: bool, error: Option<u16>) {
    let flags = if is_dnssec_ok { DNSSEC_OK } else { 0 };
    let ttl = u32::from(code >> 4) << 24 | flags;
    out.push(0);
    out.extend(kind::OPT.to_be_bytes());
    out.extend(UDP_SIZE.to_be_bytes());
    out.extend(ttl.to_be_bytes());
    match error {
        Some(error) => {
            out.extend(6u16.to_be_bytes());
            out.extend(EXTENDED_ERROR.to_be_bytes());
            out.extend(2u16.to_be_bytes());
            out.extend(error.to_be_bytes());
        }
        None => out.extend(0u16.to_be_bytes()),
    }
}

/// Pads a message that ends with an empty OPT record to a multiple of `block` bytes.
pub(super) fn pad(out: &mut Vec<u8>, block: usize) {
    let bare = out.len() + 4;
    let padding = bare.next_multiple_of(block) - bare;
    let length_at = out.len() - 2;
    // At most `block`, which is a small constant.
    let option = (padding as u16).to_be_bytes();
    out[length_at..].copy_from_slice(&(padding as u16 + 4).to_be_bytes());
    out.extend(PADDING.to_be_bytes());
    out.extend(option);
    out.resize(bare + padding, 0);
}
