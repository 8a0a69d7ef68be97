//! What a link needs to know about a packet.

/// Something that occupies a link: a real packet in the emulator, a description of one in the simulator.
pub trait Packet {
    /// The bytes that the packet occupies in the queue and on the wire.
    ///
    /// The laboratory counts whole IP packets, headers included; there is no layer 2 below them.
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
