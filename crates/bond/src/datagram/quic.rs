//! Parameters of QUIC for datagram carriers, and the reasons for them.

use std::time::Duration;

/// Time limit for the QUIC handshake at the client, after which UDP counts as blocked.
///
/// On a path that passes UDP it takes two round trips, one of them for address validation. Lost
/// packets are repeated after 0.3 s and 0.9 s.
pub const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(3);

/// Bytes of datagrams that a connection may hold before it sends them: 1 ms at 2 Gbit/s. The room
/// that a carrier reports is smaller on slower paths.
pub const SEND_BUFFER: usize = 256 * 1024;

/// Bytes of received datagrams that wait for the session: 8 ms at 2 Gbit/s. When more arrive, the
/// oldest are dropped.
pub const RECEIVE_BUFFER: usize = 2 * 1024 * 1024;

/// A carrier ends when nothing arrives for this time (RFC 9308, section 3.2). The session moves its
/// datagrams to another path long before.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// The client sends at least one packet in this time. Most NATs forget an idle UDP mapping after
/// 30 s or more; a lost packet must not be enough.
pub const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Assumed before the first measurement; determines when the first packet is repeated: after three
/// times this value (RFC 9002, section 6.2.2, whose default of 333 ms means a second).
pub const INITIAL_RTT: Duration = Duration::from_millis(100);

/// Packets that the peer may receive before it acknowledges: each acknowledgment costs both sides
/// as much as a datagram. Losses are still reported at once.
pub const ACK_EVERY: u32 = 10;

/// Time that the peer may wait before it acknowledges fewer packets than that.
pub const ACK_DELAY: Duration = Duration::from_millis(5);

/// Reordering after which the peer reports a gap at once: [`PACKET_THRESHOLD`] less one.
pub const ACK_REORDERING: u32 = PACKET_THRESHOLD - 1;

/// Packets acknowledged after one that is missing, before that one counts as lost (RFC 9002,
/// section 6.1.1).
pub const PACKET_THRESHOLD: u32 = 3;

/// Smallest UDP payload of a QUIC path in bytes (RFC 9000, section 14).
pub const MIN_PAYLOAD: u16 = 1200;

/// Bytes around a datagram in its packet: first byte, connection identifier, packet number, tag
/// (RFC 9000, section 17.3.1; RFC 9001, section 5.3), type and length of the frame.
pub const PACKET_OVERHEAD: u64 = 1 + 8 + 2 + 16 + 3;
