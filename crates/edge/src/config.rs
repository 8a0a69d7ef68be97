//! What a node is told before it starts.

use std::time::Duration;

use crate::LinkId;
use crate::lwa::SequenceBits;
use crate::steering;
use crate::visible::Parameters;

/// How packets go over the links, and what is done about their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Packets as they are; the receiver sees them out of order.
    Lwip,
    /// Packets with sequence numbers, for a receiver that puts them in order ([`crate::lwa`]).
    Lwa,
    /// Packets as they are, and VISIBLE for the acknowledgements.
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

    /// The mode of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|&(_, mode)| mode)
    }
}

/// What VISIBLE does about selective acknowledgements, which would tell the sender what is being held from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sack {
    /// The offer is taken out of SYNs, so that neither end uses SACK. Flows whose SYNs the node has not seen may still use
    /// it; their blocks are rewritten.
    Strip,
    /// Blocks are taken out of what the node passes on while it repairs the hole itself, and are trimmed to what the
    /// sender has not been told otherwise. What the node gives up on is told in full.
    #[default]
    Rewrite,
}

/// One link of the node.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSettings {
    /// Packets that may wait before it, at least 1.
    pub queue: usize,
    /// Its rate in bytes per second, where it is known; believed until something is measured.
    pub rate: Option<f64>,
}

impl Default for LinkSettings {
    /// 40 packets, as in table II of the paper.
    fn default() -> Self {
        Self {
            queue: 40,
            rate: None,
        }
    }
}

/// Everything that a node is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The links, 1 to 255.
    pub links: Vec<LinkSettings>,
    /// Mode.
    pub mode: Mode,
    /// Name of the policy, see [`steering::POLICIES`].
    pub steering: String,
    /// The link that bare acknowledgements of TCP take while it is up and has room: those that bring neither data nor the
    /// beginning or end of a connection. Without it they are steered like everything else.
    pub acks: Option<LinkId>,
    /// Of VISIBLE: what is done about SACK.
    pub sack: Sack,
    /// Of VISIBLE: the parameters of algorithm 1.
    pub visible: Parameters,
    /// Of LWA: bits of a sequence number.
    pub sequence_bits: SequenceBits,
    /// Flows that are known at once; beyond that the one idle for longest is forgotten.
    pub flows: usize,
    /// Bytes of packets kept for one flow.
    pub kept_per_flow: usize,
    /// Bytes of packets kept for all flows.
    pub kept: usize,
    /// Largest segment that a SYN may offer, in bytes; what is larger is lowered to it, in both directions.
    pub mss: Option<u16>,
    /// Checksums of TCP are verified: what is damaged changes nothing that the node knows. Without it the node trusts
    /// whoever hands it packets.
    pub verify_checksums: bool,
    /// A flow without a packet for so long is forgotten.
    pub idle: Duration,
    /// So is one that is half open, or closed at both ends.
    pub idle_half_open: Duration,
    /// A flow that a node before this one left with acknowledged and undelivered bytes is reset after so long.
    pub orphaned: Duration,
}

impl Default for Config {
    /// Two links and the defaults of each option.
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

/// What is wrong with a configuration. Whoever wrote it is at fault.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No link, or too many to number.
    #[error("{0} links: a node has 1 to 255")]
    Links(usize),
    /// A queue for nothing.
    #[error("link {0} has a queue for no packet: give it at least 1")]
    Queue(usize),
    /// A rate that is none.
    #[error("link {0} has a rate that is not above 0")]
    Rate(usize),
    /// A policy that nobody knows.
    #[error("no steering is called `{0}`: there are qdepl, lrtt, roundrobin and flowhash")]
    Steering(String),
    /// Acknowledgements are to take a link that there is not.
    #[error("acknowledgements are to take link {0}, and the last link is {1}")]
    Acks(usize, usize),
    /// A share that is none.
    #[error("{0} is a share and lies between 0 and 1")]
    Share(&'static str),
    /// A debt that would be forgotten before it is given up.
    #[error(
        "a flow must not be forgotten while something is owed to it: `idle` is at least `give_up`"
    )]
    Idle,
    /// A number that must be a plain one, at least 0.
    #[error("{0} is at least 0 and finite")]
    Number(&'static str),
}

impl Config {
    /// Whether a node can be made of it.
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
            least_free,
            boost_fraction,
            rise,
            fall,
            ..
        } = self.visible;
        let shares = [
            ("least_free", least_free),
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
            // More than this is no number of packets or trips that anybody means.
            if !(0.0..=1e6).contains(&number) {
                return Err(ConfigError::Number(name));
            }
        }
        let may_owe = self.mode == Mode::LwipVisible && self.visible.boost;
        if may_owe && self.idle < self.visible.give_up {
            return Err(ConfigError::Idle);
        }
        // Without a least time a repair could be due again at once, for ever.
        if self.visible.least_repair.is_zero() {
            return Err(ConfigError::Number("least_repair"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_told() {
        assert_eq!(Config::default().check(), Ok(()));
        let wrong = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            config.check().unwrap_err().to_string()
        };
        assert_eq!(wrong(|c| c.links.clear()), "0 links: a node has 1 to 255");
        assert_eq!(
            wrong(|c| c.links[1].queue = 0),
            "link 1 has a queue for no packet: give it at least 1"
        );
        assert_eq!(
            wrong(|c| c.links[0].rate = Some(0.0)),
            "link 0 has a rate that is not above 0"
        );
        assert!(wrong(|c| c.steering = "best".into()).contains("`best`"));
        assert_eq!(
            wrong(|c| c.acks = Some(LinkId(2))),
            "acknowledgements are to take link 2, and the last link is 1"
        );
        assert!(wrong(|c| c.visible.rise = f64::NAN).contains("rise"));
        assert!(wrong(|c| c.visible.repair_after = -1.0).contains("repair_after"));
        assert!(wrong(|c| c.idle = Duration::from_secs(29)).contains("give_up"));
        for (name, mode) in Mode::NAMES {
            assert_eq!(Mode::named(name), Some(mode));
        }
    }

    #[test]
    fn the_message_names_every_policy() {
        let message = ConfigError::Steering("x".into()).to_string();
        assert!(
            steering::POLICIES
                .iter()
                .all(|(name, ..)| message.contains(name))
        );
    }
}
