//! What comes out of the tunnels: packets as they are, and numbered ones in order.
//!
//! The other end numbers packets by the address that they go to, so that there is one order for each. An end that was
//! started anew begins at 0 again, which its epoch tells. So does one that had forgotten a user, as there were too many: it says of
//! its first numbers that they are young.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use sumlink_edge::Instant;
use sumlink_edge::lwa::{
    FORGOTTEN, Header, Reorder, ReorderConfig, ReorderStats, SequenceBits, is_young,
};

/// Addresses with an order of their own; the other end numbers no more. What has a number all the same, as this end knows others
/// than that one, is given out as it comes.
const MOST_USERS: usize = 4096;

/// An epoch that is not the latest one counts after the latest has been silent for so long: clocks are set back.
const SILENCE: Duration = Duration::from_secs(2);

/// Puts packets in order.
#[derive(Debug)]
pub(crate) struct Receive {
    config: ReorderConfig,
    /// The latest epoch, and when it was last heard of.
    epoch: Option<(u32, Instant)>,
    users: HashMap<IpAddr, User>,
    /// Before this nobody looks again for users that could go.
    full_until: Instant,
    /// Of users that are not known any more, and of what belongs to none.
    before: ReorderStats,
    /// Bytes that wait in all orders together; `config` has the most of them.
    stored: usize,
    /// Users that have packets to give out, or wait for some.
    active: Vec<IpAddr>,
}

/// How often is looked for users that could go, where there were none.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A user's order.
#[derive(Debug)]
struct User {
    order: Reorder,
    /// An end numbers all that it sends in one way from its start to its end.
    bits: SequenceBits,
    /// When something came for it.
    heard: Instant,
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

    /// Whether what has this epoch may be used; a later one than any before ends what came earlier.
    fn accept(&mut self, epoch: u32, now: Instant) -> bool {
        match &mut self.epoch {
            Some((latest, heard)) if *latest == epoch => {
                *heard = now;
                true
            }
            Some((latest, heard))
                if (epoch.wrapping_sub(*latest) as i32) < 0
                    && now.saturating_sub(*heard) < SILENCE =>
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

    /// A numbered packet has come; `out` takes what can be given out now.
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
            // What has come for a while is more likely to be the other end's than the one that was here first.
            if !other.is_silent(self.config.timer, now) {
                self.before.malformed += 1;
                return;
            }
            self.forget(user);
        }
        let is_idle = self.users.get(&user).map(|known| known.is_idle(now));
        match is_idle {
            // The other end had forgotten it, too: nothing of the order before is under way any more.
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
            heard: now,
        };
        let User { order, heard, .. } = entry.or_insert_with(user_of);
        *heard = now;
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

    /// Whether there is room for another user: those that have been idle for long go.
    fn has_room(&mut self, now: Instant) -> bool {
        if self.users.len() >= MOST_USERS && now >= self.full_until {
            let users = self.users.iter();
            let idle = users.filter(|(_, user)| user.is_idle(now));
            let idle: Vec<IpAddr> = idle.map(|(address, _)| *address).collect();
            for user in idle {
                self.forget(user);
            }
            self.full_until = now + LOOK_AGAIN;
        }
        self.users.len() < MOST_USERS
    }

    /// Forgets a user's order, but for what it has seen.
    fn forget(&mut self, user: IpAddr) {
        if let Some(user) = self.users.remove(&user) {
            self.stored -= user.order.stored_bytes();
            add(&mut self.before, user.order.stats());
        }
    }

    /// When a gap is not waited for any more.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let waiting = self.active.iter().filter_map(|user| self.users.get(user));
        waiting.filter_map(|user| user.order.poll_timeout()).min()
    }

    /// Gives out what has waited long enough.
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

    /// What all have seen.
    pub(crate) fn stats(&self) -> ReorderStats {
        let mut sum = self.before;
        for user in self.users.values() {
            add(&mut sum, user.order.stats());
        }
        sum
    }
}

impl User {
    /// Nothing has come for so long, and nothing waits: a timer is shorter.
    fn is_idle(&self, now: Instant) -> bool {
        self.is_silent(FORGOTTEN, now)
    }

    fn is_silent(&self, time: Duration, now: Instant) -> bool {
        now.saturating_sub(self.heard) >= time && self.order.stored_bytes() == 0
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

/// Where an IP packet goes to.
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

    /// A packet to the user of that number.
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
    fn each_user_has_an_order_of_its_own() {
        let mut receive = Receive::new(ReorderConfig::default());
        assert_eq!(give(&mut receive, 7, (1, 0), 0), [0]);
        assert_eq!(give(&mut receive, 7, (1, 2), 0), []);
        assert_eq!(give(&mut receive, 7, (2, 0), 0), [0]);
        assert_eq!(give(&mut receive, 7, (1, 1), 1), [1, 2]);
        assert_eq!(receive.stats().delivered, 4);
    }

    /// What a node gives its links for packets to users, which go out at that time: each to `receive` at once.
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
    fn those_who_are_too_many_wait_for_nobody_whomever_an_end_knows() {
        let (mut edge, mut receive) = (lwa(), Receive::new(ReorderConfig::default()));
        assert_eq!(carry(&mut edge, &mut receive, 0..4300, 0), 4300);
        // The user's end is started anew, and learns of others first.
        let mut receive = Receive::new(ReorderConfig::default());
        for round in 1..4 {
            assert_eq!(carry(&mut edge, &mut receive, 4096..4300, round), 204);
        }
        assert_eq!(receive.poll_timeout(), None);
        assert_eq!(receive.stats().missing + receive.stats().late, 0);
    }

    #[test]
    fn users_who_are_gone_make_room_and_begin_anew_when_they_come_back() {
        let (mut edge, mut receive) = (lwa(), Receive::new(ReorderConfig::default()));
        for round in 0..3 {
            assert_eq!(carry(&mut edge, &mut receive, 0..4096, round), 4096);
        }
        // A minute later others have their places at both ends, and then the first ones again.
        for (users, ms) in [(5000..9096, 70_000), (0..4096, 140_000), (0..4096, 140_001)] {
            assert_eq!(carry(&mut edge, &mut receive, users, ms), 4096, "{ms} ms");
        }
        assert_eq!(receive.users.len(), 4096);
        let stats = receive.stats();
        assert_eq!((stats.late, stats.missing, stats.reordered), (0, 0, 0));
        assert_eq!(stats.delivered, 6 * 4096);
    }

    #[test]
    fn who_is_young_again_is_no_late_one() {
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
        // Two seconds are no sign of anything, be the order young or not.
        assert_eq!(young(&mut receive, 0, 2_000), []);
        // One has overtaken the first.
        assert_eq!(young(&mut receive, 1, 60_000), []);
        assert_eq!(young(&mut receive, 0, 60_001), [0, 1]);
        assert_eq!(give(&mut receive, 7, (1, 2), 200_000), [2], "it goes on");
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
    fn an_end_that_was_started_anew_begins_anew_and_its_past_is_refused() {
        let mut receive = Receive::new(ReorderConfig::default());
        assert_eq!(give(&mut receive, 7, (1, 0), 0), [0]);
        assert_eq!(give(&mut receive, 7, (1, 1), 0), [1]);
        assert_eq!(
            give(&mut receive, 8, (1, 0), 1),
            [0],
            "the number is not late"
        );
        assert_eq!(
            give(&mut receive, 7, (1, 2), 2),
            [],
            "of the one that is gone"
        );
        assert_eq!(receive.stats().late, 1);
        // Its clock was set back: nothing of the later one for a while.
        assert_eq!(give(&mut receive, 3, (1, 0), 3000), [0]);
        assert_eq!(
            receive.stats().delivered,
            4,
            "what was counted before is kept"
        );
    }

    #[test]
    fn numbers_of_another_length_do_not_shift_what_is_in_a_packet() {
        let mut receive = Receive::new(ReorderConfig::default());
        assert_eq!(give(&mut receive, 7, (1, 0), 0), [0]);
        let other = Header { sequence: 1 }.write(SequenceBits::Twelve, &packet(1, 9));
        let give_out = |packet| panic!("{packet:?}");
        receive.handle_pdu(SequenceBits::Twelve, 7, &other, Duration::ZERO, give_out);
        assert_eq!(receive.stats().malformed, 1);
        assert_eq!(give(&mut receive, 7, (1, 1), 0), [1]);
        // An end that was started anew does not count it again.
        assert_eq!(give(&mut receive, 8, (1, 0), 1), [0]);
        assert_eq!(receive.stats().malformed, 1);
    }

    #[test]
    fn who_had_a_stray_number_of_another_length_first_is_heard_all_the_same() {
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
    fn what_is_no_packet_is_counted() {
        let mut receive = Receive::new(ReorderConfig::default());
        for bad in [
            &b""[..],
            &[0x80, 0, 0],
            &[0x80, 0, 0, 0x45, 1],
            &[0x80, 0, 0, 0x10],
        ] {
            receive.handle_pdu(BITS, 1, bad, Instant::ZERO, |_| {
                panic!("nothing to give out")
            });
        }
        assert_eq!(receive.stats().malformed, 4);
        assert!(receive.users.is_empty());
    }
}
