//! Where packets for programs go.

use std::net::SocketAddr;

use bytes::Bytes;

use crate::packet::build;
use crate::packet::header::header_len;

/// Takes packets for programs. Never waits; a packet may get lost.
pub(crate) trait Sink: Send + Sync + 'static {
    /// A whole packet with complete checksums. If it is longer than the link takes, it is sent in
    /// fragments.
    fn packet(&self, packet: &[u8]);

    /// The identification of the next IPv4 packet.
    fn next_id(&self) -> u16;

    /// Datagrams from one remote to one program.
    fn datagrams(&self, source: SocketAddr, destination: SocketAddr, payloads: &[Bytes]) {
        for payload in payloads {
            self.packet(&datagram(source, destination, self.next_id(), payload));
        }
    }
}

/// A datagram as a whole packet.
pub(crate) fn datagram(
    source: SocketAddr,
    destination: SocketAddr,
    id: u16,
    payload: &[u8],
) -> Vec<u8> {
    let headers = header_len(source.ip()) + build::UDP_HEADER;
    let mut packet = Vec::with_capacity(headers + payload.len());
    build::udp_headers(&mut packet, source, destination, id, &[payload], false);
    packet.extend_from_slice(payload);
    packet
}
