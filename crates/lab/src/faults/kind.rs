//! What can befall a link, how the laboratory brings it about, and what must be reached meanwhile.

use crate::config::{Direction, LinkChange};
use crate::error::LabError;

/// The rate of both links, in bit/s.
pub(super) const RATE: u64 = 20_000_000;

/// The links under test: equal ones, so that either may fail; a round trip of 20 ms when nothing waits.
pub(super) const LINKS: [&str; 2] = [
    "a:rate=20mbit,delay=10ms,queue=20ms",
    "b:rate=20mbit,delay=10ms,queue=20ms",
];
pub(super) const NAMES: [&str; 2] = ["a", "b"];

/// A fault.
#[derive(Debug, PartialEq)]
pub(crate) struct Kind {
    pub(super) name: &'static str,
    /// For people.
    pub(super) about: &'static str,
    /// Settings of the link, as `sumlink-lab set` reads them: what brings the fault about, and what ends it. Without an end it is a
    /// moment.
    begin: &'static [&'static str],
    end: &'static [&'static str],
    pub(super) load: Load,
    /// Milliseconds that half of the faults, and 99 of 100, may hold up the delivery.
    pub(super) gap: [f64; 2],
    /// The same of the time until the link carries again; without a bar for what does not load it.
    pub(super) back: Option<[f64; 2]>,
}

/// What is carried meanwhile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Load {
    /// As much as there is room for; single faults.
    Bulk,
    /// A small message every so often; single faults.
    Interactive,
    /// As much as there is room for, while link `a` comes and goes.
    Flapping,
}

/// Bars of what is not told: silence has to be noticed.
const SILENT: [f64; 2] = [200.0, 500.0];
/// Bars of what the client's kernel tells.
const TOLD: [f64; 2] = [50.0, 150.0];
const BACK: Option<[f64; 2]> = Some([1000.0, 3000.0]);
/// Goodput while a link flaps, over that of the other link alone.
pub(super) const FLAPPING: f64 = 0.95;

/// All, in the order of the table.
pub(super) const KINDS: [Kind; 13] = [
    Kind {
        name: "blackhole",
        about: "nothing gets through, and the carrier stays",
        begin: &["state=blackhole"],
        end: &["state=up"],
        load: Load::Bulk,
        gap: SILENT,
        back: BACK,
    },
    Kind {
        name: "loss-down",
        about: "nothing gets through to the client",
        begin: &["down.loss=100%"],
        end: &["down.loss=0%"],
        load: Load::Bulk,
        gap: SILENT,
        back: BACK,
    },
    Kind {
        name: "loss-up",
        about: "nothing gets through to the server",
        begin: &["up.loss=100%"],
        end: &["up.loss=0%"],
        load: Load::Bulk,
        gap: SILENT,
        back: BACK,
    },
    Kind {
        name: "brown-out",
        about: "1 % of the rate",
        begin: &["rate=200kbit"],
        end: &["rate=20mbit"],
        load: Load::Bulk,
        gap: SILENT,
        back: BACK,
    },
    Kind {
        name: "rebinding",
        about: "the address translator forgets its mappings, silently",
        begin: &["connections=forgotten"],
        end: &[],
        load: Load::Bulk,
        gap: SILENT,
        back: BACK,
    },
    Kind {
        name: "link-down",
        about: "the cable is pulled, which the client's kernel tells",
        begin: &["state=down"],
        end: &["state=up"],
        load: Load::Bulk,
        gap: TOLD,
        back: BACK,
    },
    Kind {
        name: "address-gone",
        about: "the client's address on the link is taken away, and comes back",
        begin: &["state=unaddressed"],
        end: &["state=up"],
        load: Load::Bulk,
        gap: TOLD,
        back: BACK,
    },
    Kind {
        name: "new-address",
        about: "the client gets another address on the link: DHCP, roaming",
        begin: &["address=new"],
        end: &[],
        load: Load::Bulk,
        gap: TOLD,
        back: BACK,
    },
    Kind {
        name: "reset",
        about: "a middlebox answers every packet of the connections with a reset",
        begin: &["connections=reset"],
        end: &[],
        load: Load::Bulk,
        gap: TOLD,
        back: BACK,
    },
    Kind {
        name: "interactive-blackhole",
        about: "nothing gets through while 100 bytes are sent every 20 ms",
        begin: &["state=blackhole"],
        end: &["state=up"],
        load: Load::Interactive,
        gap: [300.0, 300.0],
        back: None,
    },
    Kind {
        name: "interactive-link-down",
        about: "the cable is pulled while 100 bytes are sent every 20 ms",
        begin: &["state=down"],
        end: &["state=up"],
        load: Load::Interactive,
        gap: TOLD,
        back: None,
    },
    Kind {
        name: "flapping-blackhole",
        about: "link a is silent for 2 s, works for 2 s, and so on",
        begin: &["state=blackhole"],
        end: &["state=up"],
        load: Load::Flapping,
        gap: SILENT,
        back: None,
    },
    Kind {
        name: "flapping-link-down",
        about: "the cable of link a is pulled for 2 s, plugged in for 2 s, and so on",
        begin: &["state=down"],
        end: &["state=up"],
        load: Load::Flapping,
        gap: TOLD,
        back: None,
    },
];

impl Kind {
    /// The one of that name.
    pub(super) fn by_name(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    /// What brings it about on a link.
    pub(super) fn begin(&self, link: &str) -> Result<Vec<LinkChange>, LabError> {
        parse(self.begin, link)
    }

    /// What ends it; nothing for one that is a moment.
    pub(super) fn end(&self, link: &str) -> Result<Vec<LinkChange>, LabError> {
        parse(self.end, link)
    }

    /// Whether the interface drops what it is given meanwhile.
    pub(super) fn takes_the_carrier(&self) -> bool {
        self.begin.contains(&"state=down")
    }

    /// Whether it lasts.
    pub(super) fn lasts(&self) -> bool {
        !self.end.is_empty()
    }
}

fn parse(settings: &[&str], link: &str) -> Result<Vec<LinkChange>, LabError> {
    let changes = settings
        .iter()
        .map(|setting| LinkChange::parse_for(link, setting));
    Ok(changes.collect::<Result<_, _>>()?)
}

/// The word for a direction.
pub(super) fn way(direction: Direction) -> &'static str {
    match direction {
        Direction::Up => "up",
        Direction::Down => "down",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LinkSpec;

    #[test]
    fn every_kind_can_be_brought_about_and_ended() {
        for kind in &KINDS {
            assert!(!kind.begin("a").unwrap().is_empty(), "{}", kind.name);
            assert_eq!(kind.end("a").unwrap().is_empty(), !kind.lasts());
            assert_eq!(Kind::by_name(kind.name), Some(kind));
        }
        for (link, name) in LINKS.iter().zip(NAMES) {
            let link: LinkSpec = link.parse().unwrap();
            assert_eq!(link.name, name);
            assert_eq!(link.shapes.map(|shape| shape.rate), [RATE; 2]);
        }
    }
}
