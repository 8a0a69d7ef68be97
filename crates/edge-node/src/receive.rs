//! Packets from the tunnels: plain ones, and numbered ones in restored order.
//!
//! The remote end numbers packets per destination address, so each address has a sequence of its
//! own. A restarted end begins at 0 again, with a new epoch. An end that had too many users and has
//! forgotten one begins at 0 again, too, and marks the first packets as young.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use sumlink_edge::Instant;
use sumlink_edge::lwa::{
    FORGOTTEN, Header, Reorder, ReorderConfig, ReorderStats, SequenceBits, is_young,
};

/// Most addresses with a sequence; the remote end numbers no more than this. The two ends may know
/// different ones; numbered packets to an address unknown here are delivered as they arrive.
const MAX_USERS: usize = 4096;

/// An epoch other than the latest one is accepted after the latest has been silent for this long,
/// because clocks are sometimes set back.
const SILENCE: Duration = Duration::from_secs(2);

/// Restores the order of packets.
#[derive(Debug)]
pub(crate) struct Receive {
    config: ReorderConfig,
    /// The latest epoch, and when a packet of it last arrived.
    epoch: Option<(u32, Instant)>,
    users: HashMap<IpAddr, User>,
    /// No search for idle users takes place before this time.
    full_until: Instant,
    /// Counters of forgotten users, and of packets without a user.
    before: ReorderStats,
    /// Bytes stored for all users together; `config` has their bound.
    stored: usize,
    /// Users with packets to deliver or missing.
    active: Vec<IpAddr>,
}

/// Interval between searches for idle users when none was found.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);

/// The sequence of one user.
#[derive(Debug)]
struct User {
    order: Reorder,
    /// An end uses one number length from its start to its end.
    bits: SequenceBits,
    /// When a packet for the user last arrived.
    last_arrival: Instant,
}

impl Receive {
    pub(crate) fn new(config: ReorderConfig) -> Self {
        Self {
            config,
            epoch: None,
            users: HashMap::new(),
            full_until: Instant::ZERO,
            before: ReorderStats::default(),
            stored: 0,
            active: Vec::new(),
        }
    }

    /// Whether packets of this epoch are accepted; a later epoch than all before invalidates
    /// earlier ones.
    fn accept(&mut self, epoch: u32, now: Instant) -> bool {
        match &mut self.epoch {
            Some((latest, last_arrival)) if *latest == epoch => {
                *last_arrival = now;
                true
            }
            Some((latest, last_arrival))
                if (epoch.wrapping_sub(*latest) as i32) < 0
                    && now.saturating_sub(*last_arrival) < SILENCE =>
            {
                false
            }
            _ => {
                self.before = self.stats();
                self.users.clear();
                self.stored = 0;
                self.active.clear();
                self.epoch = Some((epoch, now));
                true
            }
        }
    }

    /// Handles a numbered packet; `out` receives the packets that can be delivered now.
    pub(crate) fn handle_pdu(
        &mut self,
        bits: SequenceBits,
        epoch: u32,
        pdu: &[u8],
        now: Instant,
        mut out: impl FnMut(Vec<u8>),
    ) {
        let inner =
            Header::read(bits, pdu).and_then(|(_, packet)| Some((destination(packet)?, packet)));
        let Some((user, packet)) = inner else {
            self.before.malformed += 1;
            return;
        };
        if !self.accept(epoch, now) {
            self.before.late += 1;
            return;
        }
        let other = self.users.get(&user).filter(|known| known.bits != bits);
        if let Some(other) = other {
            // A length that has been in use for a while is more likely the remote end's than the
            // one that came first.
            if !other.is_silent(self.config.timer, now) {
                self.before.malformed += 1;
                return;
            }
            self.forget(user);
        }
        let is_idle = self.users.get(&user).map(|known| known.is_idle(now));
        match is_idle {
            // The remote end had forgotten the user, too: no packets of the old sequence are in
            // flight.
            Some(true) if is_young(pdu) => self.forget(user),
            None if !self.has_room(now) => return out(packet.to_vec()),
            _ => {}
        }
        let config = ReorderConfig {
            bits,
            ..self.config
        };
        let entry = self.users.entry(user);
        let user_of = || User {
            order: Reorder::new(config),
            bits,
            last_arrival: now,
        };
        let User {
            order,
            last_arrival,
            ..
        } = entry.or_insert_with(user_of);
        *last_arrival = now;
        let before = order.stored_bytes();
        order.set_bytes(self.config.bytes.saturating_sub(self.stored - before));
        order.handle_pdu(pdu, now);
        self.stored = self.stored - before + order.stored_bytes();
        while let Some(packet) = order.poll() {
            out(packet);
        }
        if order.poll_timeout().is_some() && !self.active.contains(&user) {
            self.active.push(user);
        }
    }

    /// Whether there is room for another user; forgets users that have been idle for long.
    fn has_room(&mut self, now: Instant) -> bool {
        if self.users.len() >= MAX_USERS && now >= self.full_until {
            let users = self.users.iter();
            let idle = users.filter(|(_, user)| user.is_idle(now));
            let idle: Vec<IpAddr> = idle.map(|(address, _)| *address).collect();
            for user in idle {
                self.forget(user);
            }
            self.full_until = now + SEARCH_INTERVAL;
        }
        self.users.len() < MAX_USERS
    }

    /// Forgets a user's sequence but keeps its counters.
    fn forget(&mut self, user: IpAddr) {
        if let Some(user) = self.users.remove(&user) {
            self.stored -= user.order.stored_bytes();
            add(&mut self.before, user.order.stats());
        }
    }

    /// The next expiry of a gap's timer.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let waiting = self.active.iter().filter_map(|user| self.users.get(user));
        waiting.filter_map(|user| user.order.poll_timeout()).min()
    }

    /// Skips expired gaps and delivers the packets behind them.
    pub(crate) fn handle_timeout(&mut self, now: Instant, mut out: impl FnMut(Vec<u8>)) {
        let (users, stored) = (&mut self.users, &mut self.stored);
        self.active.retain(|user| {
            let Some(User { order, .. }) = users.get_mut(user) else {
                return false;
            };
            *stored -= order.stored_bytes();
            order.handle_timeout(now);
            *stored += order.stored_bytes();
            while let Some(packet) = order.poll() {
                out(packet);
            }
            order.poll_timeout().is_some()
        });
    }

    /// Counters of all users together.
    pub(crate) fn stats(&self) -> ReorderStats {
        let mut sum = self.before;
        for user in self.users.values() {
            add(&mut sum, user.order.stats());
        }
        sum
    }
}

impl User {
    /// Whether the user has been idle for long and has no packets waiting, since a gap's timer is
    /// shorter.
    fn is_idle(&self, now: Instant) -> bool {
        self.is_silent(FORGOTTEN, now)
    }

    fn is_silent(&self, time: Duration, now: Instant) -> bool {
        now.saturating_sub(self.last_arrival) >= time && self.order.stored_bytes() == 0
    }
}

fn add(sum: &mut ReorderStats, one: ReorderStats) {
    sum.delivered += one.delivered;
    sum.reordered += one.reordered;
    sum.duplicates += one.duplicates;
    sum.late += one.late;
    sum.missing += one.missing;
    sum.timeouts += one.timeouts;
    sum.malformed += one.malformed;
}

/// Destination address of an IP packet.
fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => {
            let bytes: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
            Some(Ipv4Addr::from(bytes).into())
        }
        6 => {
            let bytes: [u8; 16] = packet.get(24..40)?.try_into().ok()?;
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BITS: SequenceBits = SequenceBits::Eighteen;

    /// A packet to the user with this number.
    fn packet(user: u8, content: u8) -> Vec<u8> {
        let mut packet = vec![0; 21];
        packet[0] = 0x45;
        packet[16..20].copy_from_slice(&[10, 0, 0, user]);
        packet[20] = content;
        packet
    }

    fn give(receive: &mut Receive, epoch: u32, (user, number): (u8, u8), ms: u64) -> Vec<u8> {
        let pdu = Header {
            sequence: number.into(),
        }
        .write(BITS, &packet(user, number));
        let mut out = Vec::new();
        let now = Duration::from_millis(ms);
        receive.handle_pdu(BITS, epoch, &pdu, now, |packet| out.push(packet[20]));
        out
    }

    #[test]
    fn each_user_has_its_own_sequence() {
        let mut receive = Receive::new(ReorderConfig::default());
        assert_eq!(give(&mut receive, 7, (1, 0), 0), [0]);
        assert_eq!(give(&mut receive, 7, (1, 2), 0), [0u8; 0]);
        assert_eq!(give(&mut receive, 7, (2, 0), 0), [0]);
        assert_eq!(give(&mut receive, 7, (1, 1), 1), [1, 2]);
        assert_eq!(receive.stats().delivered, 4);
    }

    /// Passes a node's packets to users, which leave at that time, directly to `receive`.
    fn carry(
        edge: &mut sumlink_edge::Edge,
        receive: &mut Receive,
        users: std::ops::Range<u32>,
        ms: u64,
    ) -> usize {
        let now = Duration::from_millis(ms);
        let mut given = 0;
        for user in users {
            let mut udp = vec![
                0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 10, 1, 0, 0, 0, 53, 0, 53,
                0, 9, 0, 0, 1,
            ];
            udp[16..20].copy_from_slice(&(0x0a00_0000 + user).to_be_bytes());
            edge.handle_far(udp, now);
            for link in 0..2 {
                while let Some(packet) = edge.poll_link(sumlink_edge::LinkId(link), now) {
                    match sumlink_edge::lwa::is_numbered(&packet) {
                        true => receive.handle_pdu(BITS, 7, &packet, now, |_| given += 1),
                        false => given += 1,
                    }
                }
            }
        }
        given
    }

    fn lwa() -> sumlink_edge::Edge {
        sumlink_edge::Edge::new(sumlink_edge::Config {
            mode: sumlink_edge::Mode::Lwa,
            ..sumlink_edge::Config::default()
        })
        .unwrap()
    }

    #[test]
    fn users_beyond_the_bound_wait_for_no_gap() {
        let (mut edge, mut receive) = (lwa(), Receive::new(ReorderConfig::default()));
        assert_eq!(carry(&mut edge, &mut receive, 0..4300, 0), 4300);
        // The user's end restarts, and learns of the users in a different order.
        let mut receive = Receive::new(ReorderConfig::default());
        for round in 1..4 {
            assert_eq!(carry(&mut edge, &mut receive, 4096..4300, round), 204);
        }
        assert_eq!(receive.poll_timeout(), None);
        assert_eq!(receive.stats().missing + receive.stats().late, 0);
    }

    #[test]
    fn idle_users_make_room_and_start_again_when_they_return() {
        let (mut edge, mut receive) = (lwa(), Receive::new(ReorderConfig::default()));
        for round in 0..3 {
            assert_eq!(carry(&mut edge, &mut receive, 0..4096, round), 4096);
        }
        // A minute later, other users have the places at both ends, and then the first ones again.
        for (users, ms) in [(5000..9096, 70_000), (0..4096, 140_000), (0..4096, 140_001)] {
            assert_eq!(carry(&mut edge, &mut receive, users, ms), 4096, "{ms} ms");
        }
        assert_eq!(receive.users.len(), 4096);
        let stats = receive.stats();
        assert_eq!((stats.late, stats.missing, stats.reordered), (0, 0, 0));
        assert_eq!(stats.delivered, 6 * 4096);
    }

    #[test]
    fn a_young_sequence_does_not_count_as_late() {
        let young = |receive: &mut Receive, number: u8, ms| {
            let header = Header {
                sequence: number.into(),
            };
            let mut pdu = header.write(BITS, &packet(1, number));
            pdu[0] |= 0x40;
            assert!(is_young(&pdu));
            let (mut out, now) = (Vec::new(), Duration::from_millis(ms));
            receive.handle_pdu(BITS, 7, &pdu, now, |packet| out.push(packet[20]));
            out
        };
        let mut receive = Receive::new(ReorderConfig::default());
        for number in 0..9 {
            assert_eq!(young(&mut receive, number, 0), [number]);
        }
        // Two seconds of silence do not suffice, whether the sequence is young or not.
        assert_eq!(young(&mut receive, 0, 2_000), [0u8; 0]);
        // A packet has overtaken the first one.
        assert_eq!(young(&mut receive, 1, 60_000), [0u8; 0]);
        assert_eq!(young(&mut receive, 0, 60_001), [0, 1]);
        assert_eq!(
            give(&mut receive, 7, (1, 2), 200_000),
            [2],
            "the sequence continues"
        );
        assert_eq!(receive.stats().late, 1);
    }

    #[test]
    fn memory_is_bounded_over_all_users() {
        let bytes = 100;
        let mut receive = Receive::new(ReorderConfig {
            bytes,
            ..ReorderConfig::default()
        });
        for number in 1..100 {
            for user in 1..=8 {
                give(&mut receive, 7, (user, number), 0);
                let stored = receive.users.values();
                let stored = stored.map(|user| user.order.stored_bytes());
                assert_eq!(stored.sum::<usize>(), receive.stored);
                assert!(receive.stored <= bytes, "{}", receive.stored);
            }
        }
        receive.handle_timeout(Duration::from_secs(1), |_| {});
        assert_eq!(receive.stored, 0);
    }

    #[test]
    fn a_gap_ends_with_its_timer() {
        let mut receive = Receive::new(ReorderConfig::default());
        give(&mut receive, 7, (1, 1), 0);
        let at = receive.poll_timeout().unwrap();
        let mut out = Vec::new();
        receive.handle_timeout(at, |packet| out.push(packet[20]));
        assert_eq!((out, receive.poll_timeout()), (vec![1], None));
    }

    #[test]
    fn a_restarted_end_starts_again_and_earlier_packets_are_refused() {
        let mut receive = Receive::new(ReorderConfig::default());
        assert_eq!(give(&mut receive, 7, (1, 0), 0), [0]);
        assert_eq!(give(&mut receive, 7, (1, 1), 0), [1]);
        assert_eq!(
            give(&mut receive, 8, (1, 0), 1),
            [0],
            "the number does not count as late"
        );
        assert_eq!(
            give(&mut receive, 7, (1, 2), 2),
            [0u8; 0],
            "a packet of the earlier end"
        );
        assert_eq!(receive.stats().late, 1);
        // Its clock was set back: packets are refused until the later epoch has been silent for a
        // while.
        assert_eq!(give(&mut receive, 3, (1, 0), 3000), [0]);
        assert_eq!(receive.stats().delivered, 4, "earlier counts are kept");
    }

    #[test]
    fn another_number_length_does_not_shift_the_payload() {
        let mut receive = Receive::new(ReorderConfig::default());
        assert_eq!(give(&mut receive, 7, (1, 0), 0), [0]);
        let other = Header { sequence: 1 }.write(SequenceBits::Twelve, &packet(1, 9));
        let give_out = |packet| panic!("{packet:?}");
        receive.handle_pdu(SequenceBits::Twelve, 7, &other, Duration::ZERO, give_out);
        assert_eq!(receive.stats().malformed, 1);
        assert_eq!(give(&mut receive, 7, (1, 1), 0), [1]);
        // A restarted end does not count it again.
        assert_eq!(give(&mut receive, 8, (1, 0), 1), [0]);
        assert_eq!(receive.stats().malformed, 1);
    }

    #[test]
    fn a_stray_number_of_another_length_does_not_block_a_user() {
        let mut receive = Receive::new(ReorderConfig::default());
        let stray = Header { sequence: 1 }.write(SequenceBits::Twelve, &packet(1, 9));
        receive.handle_pdu(SequenceBits::Twelve, 7, &stray, Duration::ZERO, |_| {});
        receive.handle_timeout(Duration::from_millis(200), |_| {});
        assert_eq!(give(&mut receive, 7, (1, 0), 200), [0]);
        assert_eq!(give(&mut receive, 7, (1, 1), 201), [1]);
        receive.handle_pdu(
            SequenceBits::Twelve,
            7,
            &stray,
            Duration::from_millis(202),
            |packet| panic!("{packet:?}"),
        );
        assert_eq!(give(&mut receive, 7, (1, 2), 203), [2]);
    }

    #[test]
    fn malformed_packets_are_counted() {
        let mut receive = Receive::new(ReorderConfig::default());
        for bad in [
            &b""[..],
            &[0x80, 0, 0],
            &[0x80, 0, 0, 0x45, 1],
            &[0x80, 0, 0, 0x10],
        ] {
            receive.handle_pdu(BITS, 1, bad, Instant::ZERO, |_| {
                panic!("no packet may be delivered")
            });
        }
        assert_eq!(receive.stats().malformed, 4);
        assert!(receive.users.is_empty());
    }
}
