//! A running coupling group.
//!
//! The Markov chain is simulated event by event next to the packets instead of being solved: a link
//! sends at full speed during its transmissions and not at all between them. Fluid rates by the set
//! of backlogged links would give the same mean rates for less work. But they would model neither
//! the wait of a packet for its turn nor the bursts that make one link's delay depend on another's
//! load. And an unsaturated link would need a second formula.
//!
//! A transmission stands for one channel access of a radio: an aggregate of packets, not one
//! packet. A packet may start in one transmission and end in the next. A transmission takes about
//! two events regardless of its number of packets, and ends early when the queue is empty.
//!
//! The configured rate of a coupled link is its rate **alone**, including back-off, because that is
//! the rate that people measure. While it sends it is faster by `1 + 1/theta`; an opportunity of a
//! trace is larger by the same factor.

use core::time::Duration;

use super::Air;
use crate::random::Random;

/// The running Markov chain of one group.
#[derive(Clone, Debug)]
pub(crate) struct AirGroup {
    air: Air,
    members: Vec<Member>,
    /// Time to which the back-off counters are advanced.
    at: Duration,
    /// The next event and the member it belongs to.
    next: Option<(Duration, usize)>,
}

#[derive(Clone, Debug)]
struct Member {
    /// The number of the link in the network.
    link: usize,
    phase: Phase,
    /// Speed at which its back-off elapses, as a share of full speed.
    speed: f64,
    /// Lengths of back-offs and transmissions.
    random: Random,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// No packets to send.
    Idle,
    /// Remaining seconds at full speed.
    BackOff(f64),
    /// End of the transmission.
    Sending(Duration),
}

impl AirGroup {
    pub(crate) fn new(air: Air, links: &[usize], random: &Random) -> Self {
        let member = |link: &usize| Member {
            link: *link,
            phase: Phase::Idle,
            speed: 1.0,
            random: random.split(*link as u64),
        };
        Self {
            members: links.iter().map(member).collect(),
            air,
            at: Duration::ZERO,
            next: None,
        }
    }

    /// Time of the next start or end of a transmission.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.next.map(|(at, _)| at)
    }

    /// Current speed of a link's server, as a share of its rate alone.
    pub(crate) fn share(&self, member: usize) -> f64 {
        match self.members[member].phase {
            Phase::Sending(_) => 1.0 + 1.0 / self.air.theta[member],
            _ => 0.0,
        }
    }

    /// Records whether a link has packets to send.
    pub(crate) fn update(&mut self, now: Duration, member: usize, backlogged: bool) {
        if backlogged != (self.members[member].phase == Phase::Idle) {
            return;
        }
        self.advance_counters(now);
        self.members[member].phase = if backlogged {
            self.back_off(member)
        } else {
            Phase::Idle
        };
        self.plan();
    }

    /// Processes the next event, which is due at `now`; returns the number of the link.
    pub(crate) fn fire(&mut self, now: Duration) -> Option<usize> {
        let (_, member) = self.next.take()?;
        self.advance_counters(now);
        self.members[member].phase = match self.members[member].phase {
            Phase::BackOff(_) => {
                let length = self.members[member].random.next_exponential();
                Phase::Sending(now.saturating_add(self.air.transmission.mul_f64(length)))
            }
            _ => self.back_off(member),
        };
        self.plan();
        Some(self.members[member].link)
    }

    /// Draws a new back-off.
    fn back_off(&mut self, member: usize) -> Phase {
        let mean = self.air.transmission.as_secs_f64() / self.air.theta[member];
        Phase::BackOff(mean * self.members[member].random.next_exponential())
    }

    /// Advances the back-off counters to `now`.
    fn advance_counters(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.at = self.at.max(now);
        for member in &mut self.members {
            if let Phase::BackOff(left) = &mut member.phase {
                *left = (*left - passed * member.speed).max(0.0);
            }
        }
    }

    /// Computes the speeds and the next event.
    fn plan(&mut self) {
        self.next = None;
        for i in 0..self.members.len() {
            let event = match self.members[i].phase {
                Phase::Idle => continue,
                Phase::Sending(until) => until,
                Phase::BackOff(left) => {
                    let speed = self.speed(i);
                    self.members[i].speed = speed;
                    // A stopped counter is scheduled again when a transmission ends.
                    match Duration::try_from_secs_f64(left / speed) {
                        Ok(wait) => self.at.saturating_add(wait),
                        Err(_) => continue,
                    }
                }
            };
            if self.next.is_none_or(|(at, _)| event < at) {
                self.next = Some((event, i));
            }
        }
    }

    /// Speed of a member's back-off given the current transmissions.
    fn speed(&self, member: usize) -> f64 {
        let deferral = &self.air.deferral[member];
        self.members
            .iter()
            .zip(deferral)
            .filter(|(other, _)| matches!(other.phase, Phase::Sending(_)))
            .map(|(_, deferral)| 1.0 - deferral)
            .product()
    }
}
