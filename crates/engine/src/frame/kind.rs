//! The types of frames on the wire, and their names in error messages.

pub(super) const HELLO: u64 = 0x01;
pub(super) const WELCOME: u64 = 0x02;
pub(super) const REFUSE: u64 = 0x03;
pub(super) const OPEN: u64 = 0x04;
pub(super) const ACCEPT: u64 = 0x05;
pub(super) const DATA: u64 = 0x06;
pub(super) const FIN: u64 = 0x07;
pub(super) const RESET: u64 = 0x08;
pub(super) const ACK: u64 = 0x09;
pub(super) const CREDIT_SESSION: u64 = 0x0a;
pub(super) const CREDIT_STREAM: u64 = 0x0b;
pub(super) const CREDIT_INITIAL: u64 = 0x0c;
pub(super) const CREDIT_STREAMS: u64 = 0x0d;
pub(super) const PING: u64 = 0x0e;
pub(super) const PONG: u64 = 0x0f;
pub(super) const PATH: u64 = 0x10;
pub(super) const CLOSE: u64 = 0x11;
pub(super) const POLICY: u64 = 0x12;
pub(super) const JOIN: u64 = 0x13;
pub(super) const JOINED: u64 = 0x14;
/// Optional: a peer that does not know it detects the change later.
pub(super) const PATH_STATE: u64 = 0x43;

/// Optional: a peer without datagrams drops it.
pub(super) const DATAGRAM: u64 = 0x45;

/// Optional: a client that does not know it uses one name for all of its carriers.
pub(super) const SERVER: u64 = 0x47;

/// The name of a frame type in error messages. All kinds of credit share one name.
pub(super) fn name(kind: u64) -> &'static str {
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
        POLICY => "POLICY",
        JOIN => "JOIN",
        JOINED => "JOINED",
        PATH_STATE => "PATH_STATE",
        DATAGRAM => "DATAGRAM",
        SERVER => "SERVER",
        _ => "unknown",
    }
}
