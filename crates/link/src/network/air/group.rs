//! A coupling group while it runs.
//!
//! The chain is not solved but run, event by event, next to the packets: a link sends at full speed
//! during its transmissions and not at all between them. Fluid rates by the set of backlogged links would
//! give the same mean rates for less work, but neither the waiting of a packet for its turn nor the
//! bursts that make one link's delay depend on the other's load; and what an unsaturated link does would
//! need a second formula. A transmission stands for what a radio sends in one access, an aggregate of
//! packets rather than one: a packet may start in one transmission and end in the next. There are about
//! two events in each of them however many packets it carries. A transmission ends early when the queue
//! is empty.
//!
//! The rate of a coupled link is what it carries **alone**, its back-off included, because that is what
//! people measure. While it sends it is faster by `1 + 1/theta`; an opportunity of a trace is larger by as
//! much.

use core::time::Duration;

use super::Air;
use crate::random::Random;

/// The chain of one group while it runs.
#[derive(Clone, Debug)]
pub(crate) struct AirGroup {
    air: Air,
    members: Vec<Member>,
    /// Up to when the back-off counters have been brought.
    at: Duration,
    /// The next event and whose it is.
    next: Option<(Duration, usize)>,
}

#[derive(Clone, Debug)]
struct Member {
    /// The number of the link in the network.
    link: usize,
    phase: Phase,
    /// Share of its back-off that runs off in the time that passes.
    speed: f64,
    /// Lengths of back-offs and transmissions.
    random: Random,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// Nothing to send.
    Idle,
    /// Seconds left at full speed.
    BackOff(f64),
    /// Until then.
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

    /// When somebody starts or stops next.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.next.map(|(at, _)| at)
    }

    /// Speed of a link's server now, as a share of what it carries alone.
    pub(crate) fn share(&self, member: usize) -> f64 {
        match self.members[member].phase {
            Phase::Sending(_) => 1.0 + 1.0 / self.air.theta[member],
            _ => 0.0,
        }
    }

    /// Takes note of whether a link has something to send.
    pub(crate) fn update(&mut self, now: Duration, member: usize, backlogged: bool) {
        if backlogged != (self.members[member].phase == Phase::Idle) {
            return;
        }
        self.settle(now);
        self.members[member].phase = if backlogged {
            self.back_off(member)
        } else {
            Phase::Idle
        };
        self.plan();
    }

    /// Lets the next event happen, which is due at `now`; returns the number of the link.
    pub(crate) fn fire(&mut self, now: Duration) -> Option<usize> {
        let (_, member) = self.next.take()?;
        self.settle(now);
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

    /// A new back-off.
    fn back_off(&mut self, member: usize) -> Phase {
        let mean = self.air.transmission.as_secs_f64() / self.air.theta[member];
        Phase::BackOff(mean * self.members[member].random.next_exponential())
    }

    /// Brings the back-off counters up to `now`.
    fn settle(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.at = self.at.max(now);
        for member in &mut self.members {
            if let Phase::BackOff(left) = &mut member.phase {
                *left = (*left - passed * member.speed).max(0.0);
            }
        }
    }

    /// Works out speeds and the next event.
    fn plan(&mut self) {
        self.next = None;
        for i in 0..self.members.len() {
            let event = match self.members[i].phase {
                Phase::Idle => continue,
                Phase::Sending(until) => until,
                Phase::BackOff(left) => {
                    let speed = self.speed(i);
                    self.members[i].speed = speed;
                    // A counter that stands still is planned again when somebody stops sending.
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

    /// How fast the back-off of a member runs while those send that do.
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
