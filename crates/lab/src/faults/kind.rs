//! The kinds of faults, how the laboratory produces them, and the bars for the delivery meanwhile.

use crate::config::{Direction, LinkChange};
use crate::error::LabError;

/// The rate of both links, in bit/s.
pub(super) const RATE: u64 = 20_000_000;

/// The links under test. They are equal, so that either may fail; the round trip takes 20 ms with
/// empty queues.
pub(super) const LINKS: [&str; 2] = [
    "a:rate=20mbit,delay=10ms,queue=20ms",
    "b:rate=20mbit,delay=10ms,queue=20ms",
];
pub(super) const NAMES: [&str; 2] = ["a", "b"];

/// A kind of fault.
#[derive(Debug, PartialEq)]
pub(crate) struct Kind {
    pub(super) name: &'static str,
    /// Description for the report.
    pub(super) about: &'static str,
    /// Link settings in the syntax of `lab set` that start and end the fault. A fault without an
    /// end is momentary.
    begin: &'static [&'static str],
    end: &'static [&'static str],
    pub(super) load: Load,
    /// Limits in ms for the interruption of the delivery: median and 99th percentile.
    pub(super) gap: [f64; 2],
    /// The same for the time until the link carries its rate again; `None` for loads that do not
    /// fill the link.
    pub(super) back: Option<[f64; 2]>,
}

/// The traffic during the faults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Load {
    /// Bulk traffic; single faults.
    Bulk,
    /// A small message at regular intervals; single faults.
    Interactive,
    /// Bulk traffic while link `a` flaps.
    Flapping,
}

/// Bars for faults without a notification: sumlink has to detect the silence.
const UNREPORTED: [f64; 2] = [200.0, 500.0];
/// Bars for faults that the client's kernel reports.
const REPORTED: [f64; 2] = [50.0, 150.0];
const BACK: Option<[f64; 2]> = Some([1000.0, 3000.0]);
/// Bar for the goodput with a flapping link, relative to the other link alone.
pub(super) const FLAPPING: f64 = 0.95;

/// All kinds, in table order.
pub(super) const KINDS: [Kind; 13] = [
    Kind {
        name: "blackhole",
        about: "all packets are lost; the interface keeps its carrier",
        begin: &["state=blackhole"],
        end: &["state=up"],
        load: Load::Bulk,
        gap: UNREPORTED,
        back: BACK,
    },
    Kind {
        name: "loss-down",
        about: "all packets to the client are lost",
        begin: &["down.loss=100%"],
        end: &["down.loss=0%"],
        load: Load::Bulk,
        gap: UNREPORTED,
        back: BACK,
    },
    Kind {
        name: "loss-up",
        about: "all packets to the server are lost",
        begin: &["up.loss=100%"],
        end: &["up.loss=0%"],
        load: Load::Bulk,
        gap: UNREPORTED,
        back: BACK,
    },
    Kind {
        name: "brown-out",
        about: "the rate drops to 1 %",
        begin: &["rate=200kbit"],
        end: &["rate=20mbit"],
        load: Load::Bulk,
        gap: UNREPORTED,
        back: BACK,
    },
    Kind {
        name: "rebinding",
        about: "the address translator loses its mappings without notice",
        begin: &["connections=forgotten"],
        end: &[],
        load: Load::Bulk,
        gap: UNREPORTED,
        back: BACK,
    },
    Kind {
        name: "link-down",
        about: "the cable is pulled; the client's kernel reports it",
        begin: &["state=down"],
        end: &["state=up"],
        load: Load::Bulk,
        gap: REPORTED,
        back: BACK,
    },
    Kind {
        name: "address-gone",
        about: "the client's address on the link is removed and restored",
        begin: &["state=unaddressed"],
        end: &["state=up"],
        load: Load::Bulk,
        gap: REPORTED,
        back: BACK,
    },
    Kind {
        name: "new-address",
        about: "the client's address on the link changes: DHCP, roaming",
        begin: &["address=new"],
        end: &[],
        load: Load::Bulk,
        gap: REPORTED,
        back: BACK,
    },
    Kind {
        name: "reset",
        about: "a middlebox answers every packet of the connections with a reset",
        begin: &["connections=reset"],
        end: &[],
        load: Load::Bulk,
        gap: REPORTED,
        back: BACK,
    },
    Kind {
        name: "interactive-blackhole",
        about: "all packets are lost while 100 bytes are sent every 20 ms",
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
        gap: REPORTED,
        back: None,
    },
    Kind {
        name: "flapping-blackhole",
        about: "link a alternates: silent for 2 s, working for 2 s",
        begin: &["state=blackhole"],
        end: &["state=up"],
        load: Load::Flapping,
        gap: UNREPORTED,
        back: None,
    },
    Kind {
        name: "flapping-link-down",
        about: "link a alternates: cable pulled for 2 s, plugged in for 2 s",
        begin: &["state=down"],
        end: &["state=up"],
        load: Load::Flapping,
        gap: REPORTED,
        back: None,
    },
];

impl Kind {
    /// The kind with that name.
    pub(super) fn by_name(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    /// The changes that start the fault on a link.
    pub(super) fn begin(&self, link: &str) -> Result<Vec<LinkChange>, LabError> {
        parse(self.begin, link)
    }

    /// The changes that end it; empty for a momentary fault.
    pub(super) fn end(&self, link: &str) -> Result<Vec<LinkChange>, LabError> {
        parse(self.end, link)
    }

    /// Whether the interface drops outgoing packets during the fault.
    pub(super) fn takes_the_carrier(&self) -> bool {
        self.begin.contains(&"state=down")
    }

    /// Whether it has a duration.
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
    fn every_kind_can_be_started_and_ended() {
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
