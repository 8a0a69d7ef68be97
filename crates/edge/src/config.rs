//! Configuration of a node.

use std::time::Duration;

use crate::LinkId;
use crate::lwa::SequenceBits;
use crate::steering;
use crate::visible::{Boost, Parameters};

/// How packets are carried over the links, and how reordering is handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Packets are sent unchanged; the receiver sees them out of order.
    Lwip,
    /// Packets carry sequence numbers, and the receiver restores their order ([`crate::lwa`]).
    Lwa,
    /// Packets are sent unchanged, and VISIBLE handles the acknowledgments.
    #[default]
    LwipVisible,
}

impl Mode {
    /// All modes by name.
    pub const NAMES: [(&'static str, Self); 3] = [
        ("lwip", Self::Lwip),
        ("lwa", Self::Lwa),
        ("lwip+visible", Self::LwipVisible),
    ];

    /// Looks a mode up by name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|&(_, mode)| mode)
    }
}

/// How VISIBLE treats selective acknowledgments, which would reveal the held duplicates to the
/// sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sack {
    /// Removes the SACK offer from SYNs, so that neither end uses SACK. Flows whose SYNs the node
    /// has not seen may still use it; their blocks are rewritten.
    Strip,
    /// While the node repairs the gap itself, removes the blocks from acknowledgments that it
    /// passes on. They are trimmed where they contradict an acknowledgment number that the sender
    /// has already received. When the node gives up on a gap, the blocks are passed on in full.
    #[default]
    Rewrite,
}

/// One link of the node.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSettings {
    /// Capacity of the queue in front of the link in packets, at least 1.
    pub queue: usize,
    /// Rate in bytes per second, if known; used until a rate has been measured.
    pub rate: Option<f64>,
}

impl Default for LinkSettings {
    /// A queue of 40 packets, as in table II of the paper.
    fn default() -> Self {
        Self {
            queue: 40,
            rate: None,
        }
    }
}

/// Configuration of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The links, 1 to 255.
    pub links: Vec<LinkSettings>,
    /// How packets are carried.
    pub mode: Mode,
    /// Name of the steering policy, see [`steering::POLICIES`].
    pub steering: String,
    /// The link for bare TCP acknowledgments, used while it is up and has room. A bare
    /// acknowledgment carries no data and neither opens nor closes a connection. If unset,
    /// acknowledgments are steered like all other packets.
    pub acks: Option<LinkId>,
    /// VISIBLE: treatment of SACK.
    pub sack: Sack,
    /// VISIBLE: the parameters of algorithm 1.
    pub visible: Parameters,
    /// LWA: length of a sequence number in bits.
    pub sequence_bits: SequenceBits,
    /// Most flows tracked at once; beyond that, the flow that has been idle longest is forgotten.
    pub flows: usize,
    /// Most bytes of packet copies per flow.
    pub kept_per_flow: usize,
    /// Most bytes of packet copies for all flows.
    pub kept: usize,
    /// Largest segment size that a SYN may offer, in bytes. Larger offers are lowered to it in both
    /// directions.
    pub mss: Option<u16>,
    /// Verifies TCP checksums, so that damaged packets do not change the node's state. Without
    /// verification, the node trusts every packet that it receives.
    pub verify_checksums: bool,
    /// A flow without packets for this long is forgotten.
    pub idle: Duration,
    /// The same for a flow that is half open, or closed at both ends.
    pub idle_half_open: Duration,
    /// A flow is reset after this time if an earlier node left it with acknowledged but undelivered
    /// bytes.
    pub orphaned: Duration,
}

impl Default for Config {
    /// Two links, and the default of each option.
    fn default() -> Self {
        Self {
            links: vec![LinkSettings::default(); 2],
            mode: Mode::default(),
            steering: "qdepl".into(),
            acks: None,
            sack: Sack::default(),
            visible: Parameters::default(),
            sequence_bits: SequenceBits::Eighteen,
            flows: 100_000,
            kept_per_flow: 1 << 20,
            kept: 64 << 20,
            mss: None,
            verify_checksums: true,
            idle: Duration::from_secs(300),
            idle_half_open: Duration::from_secs(30),
            orphaned: Duration::from_secs(10),
        }
    }
}

/// An invalid configuration; its author is at fault.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No links, or more than can be numbered.
    #[error("{0} links: a node has 1 to 255")]
    Links(usize),
    /// A queue without capacity.
    #[error("link {0} has a queue of 0 packets; it needs at least 1")]
    Queue(usize),
    /// A rate that is not positive.
    #[error("the rate of link {0} must be above 0")]
    Rate(usize),
    /// An unknown policy.
    #[error("unknown steering `{0}`; choose qdepl, lrtt, roundrobin or flowhash")]
    Steering(String),
    /// The link for acknowledgments does not exist.
    #[error("the link for acknowledgments is {0}, but the last link is {1}")]
    Acks(usize, usize),
    /// A share outside 0 to 1.
    #[error("{0} must be between 0 and 1")]
    Share(&'static str),
    /// A debt could be forgotten before the node gives it up.
    #[error(
        "`idle` must be at least `give_up`, or flows with undelivered bytes would be forgotten"
    )]
    Idle,
    /// A number that must be finite and at least 0.
    #[error("{0} must be finite and at least 0")]
    Number(&'static str),
}

impl Config {
    /// Checks the configuration.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !(1..=255).contains(&self.links.len()) {
            return Err(ConfigError::Links(self.links.len()));
        }
        for (n, link) in self.links.iter().enumerate() {
            if link.queue == 0 {
                return Err(ConfigError::Queue(n));
            }
            if link
                .rate
                .is_some_and(|rate| !(rate.is_finite() && rate > 0.0))
            {
                return Err(ConfigError::Rate(n));
            }
        }
        if steering::build(&self.steering).is_none() {
            return Err(ConfigError::Steering(self.steering.clone()));
        }
        if let Some(LinkId(link)) = self.acks
            && usize::from(link) >= self.links.len()
        {
            return Err(ConfigError::Acks(link.into(), self.links.len() - 1));
        }
        let Parameters {
            min_free,
            boost_fraction,
            rise,
            fall,
            ..
        } = self.visible;
        let shares = [
            ("min_free", min_free),
            ("boost_fraction", boost_fraction),
            ("rise", rise),
            ("fall", fall),
        ];
        if let Some((name, _)) = shares
            .into_iter()
            .find(|(_, share)| !(0.0..=1.0).contains(share))
        {
            return Err(ConfigError::Share(name));
        }
        let Parameters {
            held_at_first,
            repair_after,
            ..
        } = self.visible;
        for (name, number) in [
            ("held_at_first", held_at_first),
            ("repair_after", repair_after),
        ] {
            // No sensible configuration has more packets or trips than this.
            if !(0.0..=1e6).contains(&number) {
                return Err(ConfigError::Number(name));
            }
        }
        let may_owe = self.mode == Mode::LwipVisible && self.visible.boost != Boost::Off;
        if may_owe && self.idle < self.visible.give_up {
            return Err(ConfigError::Idle);
        }
        // With a minimum of zero, a repair could be due again immediately, forever.
        if self.visible.min_repair.is_zero() {
            return Err(ConfigError::Number("min_repair"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_configurations_are_errors() {
        assert_eq!(Config::default().check(), Ok(()));
        let wrong = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            config.check().unwrap_err().to_string()
        };
        assert_eq!(wrong(|c| c.links.clear()), "0 links: a node has 1 to 255");
        assert_eq!(
            wrong(|c| c.links[1].queue = 0),
            "link 1 has a queue of 0 packets; it needs at least 1"
        );
        assert_eq!(
            wrong(|c| c.links[0].rate = Some(0.0)),
            "the rate of link 0 must be above 0"
        );
        assert!(wrong(|c| c.steering = "best".into()).contains("`best`"));
        assert_eq!(
            wrong(|c| c.acks = Some(LinkId(2))),
            "the link for acknowledgments is 2, but the last link is 1"
        );
        assert!(wrong(|c| c.visible.rise = f64::NAN).contains("rise"));
        assert!(wrong(|c| c.visible.repair_after = -1.0).contains("repair_after"));
        assert!(wrong(|c| c.idle = Duration::from_secs(29)).contains("give_up"));
        for (name, mode) in Mode::NAMES {
            assert_eq!(Mode::named(name), Some(mode));
        }
    }

    #[test]
    fn the_error_names_every_policy() {
        let message = ConfigError::Steering("x".into()).to_string();
        assert!(
            steering::POLICIES
                .iter()
                .all(|(name, ..)| message.contains(name))
        );
    }
}
