//! Datagrams of programs straight over a link, without a system.

use sumlink_scenario::config::Direction;

use super::Net;
use crate::clock::duration;
use crate::edge::Cargo;
use crate::log::Kind;
use crate::tcp::Side;
use crate::udp::Udp;

impl Net {
    /// A program sends a datagram over a link.
    pub(crate) fn send_udp(&mut self, link: usize, udp: Udp) {
        let direction = match udp.to {
            Side::Client => Direction::Down,
            Side::Server => Direction::Up,
        };
        let id = self.ids[link][direction.index()];
        self.network
            .enqueue(duration(self.now), id, Cargo::Udp(Box::new(udp)));
    }

    /// Takes the datagrams that have arrived.
    pub(crate) fn take_udp(&mut self) -> Vec<Udp> {
        std::mem::take(&mut self.udp)
    }

    pub(super) fn arrive_udp(&mut self, udp: &Udp) {
        let who = udp.flow * 2 + udp.to.index() as u64;
        let len = udp.payload.len() as u64;
        self.log.note(self.now, Kind::Datagram, who, len);
        self.udp.push(udp.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_datagram_has_headers_for_each_fragment() {
        let len = |bytes: usize| {
            let udp = Udp {
                flow: 0,
                to: Side::Client,
                payload: vec![0; bytes].into(),
            };
            udp.wire_len()
        };
        assert_eq!([0, 1472, 1473].map(len), [28, 1500, 1521]);
        assert_eq!(len(65_507), 65_507 + 28 + 44 * 20);
    }
}
