//! Algorithm 1 of VISIBLE: decides how to handle a duplicate acknowledgment.
//!
//! The conditions are those of the paper with its misprints corrected; docs/edge.md lists each as
//! printed, with the reason for the correction. This module only decides; [`crate::Edge`] handles
//! the packets.

use std::time::Duration;

use crate::Instant;

/// How often a gap's duplicates become acknowledgments of data that the user lacks: the readings
/// of line 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Boost {
    /// Never: the node holds and repairs, but acknowledges no data.
    Off,
    /// φ + P < free/N, as printed: at most once per gap, and never with 1/φ flows or more.
    #[default]
    Once,
    /// φ × P < free/N: once at least, and more often the emptier the queues and the fewer the
    /// flows are. The k-th boost acknowledges k segments, as line 3 adds MSS × P.
    Many,
}

impl Boost {
    /// All readings by name.
    pub const NAMES: [(&'static str, Self); 3] =
        [("on", Self::Once), ("off", Self::Off), ("many", Self::Many)];

    /// The name of the reading.
    pub fn name(self) -> &'static str {
        let known = Self::NAMES.iter().find(|(_, boost)| *boost == self);
        known.map_or("", |(name, _)| name)
    }
}

/// The parameters of VISIBLE. The paper names them without values; the defaults are this project's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// The boost phase.
    pub boost: Boost,
    /// A packet is sent again only if its link has provably lost it, and duplicates are held until
    /// then. Without it, as in the paper, when PH^a or the holding time is exceeded.
    pub proof: bool,
    /// ϑ: share of every queue that must be free for boosting, 0 to 1; without `proof`, for holding
    /// and repairing as well.
    pub min_free: f64,
    /// φ: compared with the free share of the queues and the number of duplicates as [`Boost`]
    /// says, 0 to 1. The larger it is, the earlier boosting stops as queues and the number of flows
    /// grow.
    pub boost_fraction: f64,
    /// α: weight of a gap with more duplicates than the average, 0 to 1; low.
    pub rise: f64,
    /// β: weight of a gap with fewer duplicates than the average, 0 to 1; high.
    pub fall: f64,
    /// PH^a of a new flow: expected number of duplicate acknowledgments per gap.
    pub held_at_first: f64,
    /// RT^max: how often the node repairs a missing packet before it leaves the repair to the
    /// sender.
    pub max_retransmissions: u32,
    /// A gap is repaired after this many link trip times without an acknowledgment that concerns
    /// it.
    pub repair_after: f64,
    /// Lower bound of that time.
    pub min_repair: Duration,
    /// A flow with undeliverable owed bytes is reset after this time, so that both ends notice.
    pub give_up: Duration,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            boost: Boost::Once,
            proof: true,
            min_free: 0.25,
            boost_fraction: 0.2,
            rise: 0.125,
            fall: 0.75,
            held_at_first: 16.0,
            max_retransmissions: 2,
            repair_after: 2.0,
            min_repair: Duration::from_millis(20),
            give_up: Duration::from_secs(30),
        }
    }
}

/// Input of the algorithm for one acknowledgment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Situation {
    /// CT.
    pub now: Instant,
    /// The acknowledgment is a duplicate.
    pub duplicate: bool,
    /// A^r > I: the user has acknowledged data since the SYN.
    pub beyond_initial: bool,
    /// The node has a copy of the missing packet; otherwise it can do nothing about the gap.
    pub kept: bool,
    /// The next packet may be acknowledged in advance (see [`crate::Edge`]).
    pub boostable: bool,
    /// The missing packet is provably lost.
    pub lost: bool,
    /// The far end has sent the missing packet more than once, because the node dropped it or gave
    /// up: it recovers from the loss, and needs all acknowledgments for that.
    pub repeated: bool,
    /// How often the node has sent the missing packet again.
    pub repaired: u32,
    /// min(B^a / B^s) over the links that are up, 0 to 1.
    pub free: f64,
    /// N: flows with outstanding data and a recent acknowledgment, flows with owed bytes, and this
    /// flow.
    pub flows: usize,
    /// Mean LTT of the links that are up; `None` before the first measurement.
    pub trip: Option<Duration>,
}

/// Decision about an acknowledgment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Boost phase: it is passed on as an acknowledgment of the missing packet, or of later packets.
    Boost,
    /// Holding phase: it is not passed on.
    Hold,
    /// Retransmission phase: the node sends the missing packet again, and the duplicate is passed
    /// on.
    Retransmit,
    /// With proof of the loss: the node sends the missing packet again, and the duplicate is not
    /// passed on.
    Repair,
    /// Regular transmission: it is passed on.
    Pass,
}

/// The state of one flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Visible {
    /// P: duplicates since the last new acknowledgment.
    duplicates: u32,
    /// PH^a: average number of duplicates per gap.
    held_average: f64,
    /// H: how long duplicates have been held.
    held_for: Duration,
    /// TH: time of the last held duplicate.
    last_held: Option<Instant>,
    /// RT: how often the node has repaired the missing packet.
    retransmissions: u32,
}

impl Visible {
    /// The state of a new flow.
    pub fn new(parameters: &Parameters) -> Self {
        Self {
            duplicates: 0,
            held_average: parameters.held_at_first,
            held_for: Duration::ZERO,
            last_held: None,
            retransmissions: 0,
        }
    }

    /// Algorithm 1 for one acknowledgment. Line numbers are those of the paper.
    pub fn acknowledgment(&mut self, parameters: &Parameters, situation: &Situation) -> Step {
        if !situation.duplicate {
            self.advance(parameters); // lines 18 to 28
            return Step::Pass;
        }
        let flows = situation.flows.max(1) as f64;
        let room = situation.free > parameters.min_free;
        if parameters.proof {
            self.retransmissions = situation.repaired;
        }
        let repairable = room && situation.kept;
        let theirs = parameters.proof && situation.repeated;
        let untouched =
            repairable && situation.beyond_initial && self.retransmissions == 0 && !theirs;

        // Line 1.
        let (fraction, count) = (parameters.boost_fraction, f64::from(self.duplicates));
        let quiet = match parameters.boost {
            Boost::Off => false,
            // P only grows until the next new acknowledgment and free <= 1: only for P = 0.
            Boost::Once => fraction + count < situation.free / flows,
            Boost::Many => fraction * count < situation.free / flows,
        };
        if untouched && quiet && situation.boostable {
            self.last_held = Some(situation.now);
            self.held_for = Duration::ZERO;
            self.duplicates += 1;
            return Step::Boost;
        }
        if parameters.proof {
            return self.with_proof(parameters, situation);
        }
        // Line 5.
        let few = f64::from(self.duplicates) < self.held_average * situation.free;
        let longest = situation
            .trip
            .unwrap_or_default()
            .mul_f64((situation.free / flows).clamp(0.0, 1.0));
        if untouched && few && self.held_for < longest {
            return self.hold(situation);
        }
        self.duplicates += 1;
        // Line 11.
        if repairable && self.retransmissions < parameters.max_retransmissions {
            self.retransmissions += 1;
            return Step::Retransmit;
        }
        Step::Pass // line 15
    }

    /// Lines 5 to 16 with proof in place of the limits: a packet that is late is waited for, and a
    /// lost one is sent again, unseen by the far end, up to RT^max times.
    fn with_proof(&mut self, parameters: &Parameters, situation: &Situation) -> Step {
        if !situation.kept || !situation.beyond_initial {
            self.duplicates += 1;
            return Step::Pass;
        }
        let repairs = situation.lost && self.retransmissions < parameters.max_retransmissions;
        self.retransmissions += u32::from(repairs);
        match (situation.lost, situation.repeated) {
            (false, false) => self.hold(situation),
            (true, false) if repairs => {
                self.hold(situation);
                Step::Repair
            }
            _ => {
                self.duplicates += 1;
                if repairs {
                    Step::Retransmit
                } else {
                    Step::Pass
                }
            }
        }
    }

    /// Lines 6 to 10.
    fn hold(&mut self, situation: &Situation) -> Step {
        let last = self.last_held.unwrap_or(situation.now);
        self.held_for += situation.now.saturating_sub(last);
        self.last_held = Some(situation.now);
        self.duplicates += 1;
        Step::Hold
    }

    /// A new acknowledgment closes the gap; its duplicates enter the average.
    fn advance(&mut self, parameters: &Parameters) {
        if self.duplicates > 0 {
            let count = f64::from(self.duplicates);
            let weight = if count > self.held_average {
                parameters.rise
            } else {
                parameters.fall
            };
            self.held_average += weight * (count - self.held_average);
            self.duplicates = 0;
        }
        self.held_for = Duration::ZERO;
        self.last_held = None;
        self.retransmissions = 0;
    }

    /// P.
    pub fn duplicates(&self) -> u32 {
        self.duplicates
    }

    /// PH^a.
    pub fn held_average(&self) -> f64 {
        self.held_average
    }

    /// H.
    pub fn held_for(&self) -> Duration {
        self.held_for
    }

    /// RT.
    pub fn retransmissions(&self) -> u32 {
        self.retransmissions
    }
}

#[cfg(test)]
mod tests;
