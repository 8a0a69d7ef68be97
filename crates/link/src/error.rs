//! What can be wrong with a description of a link or of a group of links.

/// A parameter that describes nothing that could exist. Whoever wrote the description is at fault.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// A number outside its range.
    #[error("{what} is {value}, but must be {range}")]
    OutOfRange {
        /// Which one.
        what: &'static str,
        /// What it is.
        value: f64,
        /// What it must be.
        range: &'static str,
    },
    /// A time that must pass is zero.
    #[error("{what} is zero; give it a length, such as {example}")]
    ZeroTime {
        /// Which one.
        what: &'static str,
        /// One that would do.
        example: &'static str,
    },
    /// Losses cannot be so frequent and so scattered at once.
    #[error(
        "bursts of {burst} packets cannot lose {loss} of all packets: make them at least {least} packets long"
    )]
    BurstTooShort {
        /// Share of packets to lose.
        loss: f64,
        /// Mean length of a burst in packets.
        burst: f64,
        /// The shortest mean length for that share.
        least: f64,
    },
    /// A list has not one entry for each link, or a matrix not one for each pair.
    #[error("{what} has {got} entries, but must have {expected}")]
    WrongCount {
        /// Which list.
        what: &'static str,
        /// How many it has.
        got: usize,
        /// How many it must have.
        expected: usize,
    },
    /// The link is not of this network.
    #[error("link {link} does not exist; add it to the network first")]
    UnknownLink {
        /// Its number.
        link: usize,
    },
    /// A link is named twice, or belongs to another group of the same kind already.
    #[error("link {link} is in two {groups}; name it in one of them, once")]
    InTwoGroups {
        /// Its number.
        link: usize,
        /// What kind of groups.
        groups: &'static str,
    },
}

/// Checks that a number is a share, 0.0..=1.0.
pub(crate) fn share(what: &'static str, value: f64) -> Result<(), ModelError> {
    if (0.0..=1.0).contains(&value) {
        return Ok(());
    }
    Err(ModelError::OutOfRange {
        what,
        value,
        range: "from 0 to 1",
    })
}
