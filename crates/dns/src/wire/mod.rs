//! DNS messages (RFC 1035, section 4).
//!
//! Messages are forwarded as bytes: a record of unknown type, or with content that this crate does
//! not understand, passes unchanged. Only the structure is read, and the fields that the forwarder
//! decides by: names, types, TTLs, addresses, and EDNS.

mod edns;
mod message;
mod name;
mod query;
mod reply;

pub(crate) use edns::is_without_edns;
pub(crate) use message::{Message, Question, Record, Section, flag, word};
pub use name::{MAX_NAME, Name, NameError};
pub(crate) use query::{ClientQuery, Form, Query, Unreadable};
pub(crate) use reply::{Age, local, render, seconds, storable};

/// Record types that the forwarder knows (IANA, "Domain Name System (DNS) Parameters").
pub(crate) mod kind {
    pub(crate) const A: u16 = 1;
    pub(crate) const CNAME: u16 = 5;
    pub(crate) const SOA: u16 = 6;
    pub(crate) const AAAA: u16 = 28;
    pub(crate) const SRV: u16 = 33;
    pub(crate) const OPT: u16 = 41;
    pub(crate) const SVCB: u16 = 64;
    pub(crate) const HTTPS: u16 = 65;
    /// Transfers of zones: several messages, over TCP only (RFC 5936).
    pub(crate) const IXFR: u16 = 251;
    pub(crate) const AXFR: u16 = 252;
    pub(crate) const ANY: u16 = 255;
}

/// The class of the internet.
pub(crate) const INTERNET: u16 = 1;

/// Response codes (RFC 1035, section 4.1.1).
pub(crate) mod code {
    pub(crate) const NO_ERROR: u16 = 0;
    pub(crate) const FORMAT_ERROR: u16 = 1;
    pub(crate) const SERVER_FAILURE: u16 = 2;
    pub(crate) const NO_SUCH_NAME: u16 = 3;
    pub(crate) const NOT_IMPLEMENTED: u16 = 4;
    pub(crate) const REFUSED: u16 = 5;
    /// An unknown EDNS version (RFC 6891, section 9): 16, with its upper bits in OPT.
    pub(crate) const BAD_VERSION: u16 = 16;
}

/// A message does not have the structure of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the DNS message is malformed")]
pub(crate) struct Malformed;
