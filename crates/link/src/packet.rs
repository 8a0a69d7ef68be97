//! The link's view of a packet.

/// A packet on a link: real in the emulator, a description in the simulator.
pub trait Packet {
    /// The bytes that the packet occupies in the queue and on the wire.
    ///
    /// The laboratory counts whole IP packets including headers; there is no layer 2 below them.
    fn wire_len(&self) -> usize;
}

impl Packet for Vec<u8> {
    fn wire_len(&self) -> usize {
        self.len()
    }
}

impl Packet for Box<[u8]> {
    fn wire_len(&self) -> usize {
        self.len()
    }
}
