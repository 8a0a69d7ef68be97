//! Links with shared resources: the air, an interferer, a radio.

use std::time::Duration;

use sumlink_link::{Air, Interferer, Radio};

use super::Direction;

/// Directions of links that hear each other and share the air; see [`Air`] for the model.
#[derive(Clone, Debug, PartialEq)]
pub struct CouplingGroup {
    /// Links by name, in the order of `air`'s; each direction of a link is in at most one group.
    pub members: Vec<(String, Direction)>,
    /// The sharing model.
    pub air: Air,
}

/// An interferer on the channel of links; see [`Interferer`] for the model.
#[derive(Clone, Debug, PartialEq)]
pub struct InterfererSpec {
    /// Links by name; each direction of a link has at most one interferer.
    pub members: Vec<(String, Direction)>,
    /// Its initial behavior.
    pub interferer: Interferer,
    /// Later behaviors, with their times since the beginning of the run.
    pub changes: Vec<(Duration, Interferer)>,
}

/// Several links behind one radio that is on one channel at a time; see [`Radio`] for the model.
#[derive(Clone, Debug, PartialEq)]
pub struct RadioSpec {
    /// Links by name, one for each hotspot; both directions of each.
    pub links: Vec<String>,
    /// The radio.
    pub radio: Radio,
}

/// One direction of several links, as members of a group.
pub fn members<'a>(
    direction: Direction,
    links: impl IntoIterator<Item = &'a str>,
) -> Vec<(String, Direction)> {
    let member = |link: &str| (link.to_owned(), direction);
    links.into_iter().map(member).collect()
}
