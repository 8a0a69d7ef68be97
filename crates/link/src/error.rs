//! Errors in the description of a link or of a group of links.

/// An impossible parameter. The author of the description is at fault.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// A number outside its range.
    #[error("{what} is {value}, but must be {range}")]
    OutOfRange {
        /// Name of the parameter.
        what: &'static str,
        /// Its value.
        value: f64,
        /// The allowed range.
        range: &'static str,
    },
    /// A time that must be above zero is zero.
    #[error("{what} is zero; give it a length, such as {example}")]
    ZeroTime {
        /// Name of the parameter.
        what: &'static str,
        /// A valid value.
        example: &'static str,
    },
    /// The loss is too high for bursts this short.
    #[error(
        "bursts of {burst} packets cannot lose {loss} of all packets: make them at least {least} \
         packets long"
    )]
    BurstTooShort {
        /// Share of packets to lose.
        loss: f64,
        /// Mean length of a burst in packets.
        burst: f64,
        /// The shortest mean length for that share.
        least: f64,
    },
    /// A list lacks one entry for each link, or a matrix one for each pair.
    #[error("{what} has {got} entries, but must have {expected}")]
    WrongCount {
        /// Name of the list.
        what: &'static str,
        /// Its number of entries.
        got: usize,
        /// The required number of entries.
        expected: usize,
    },
    /// The link does not belong to this network.
    #[error("link {link} does not exist; add it to the network first")]
    UnknownLink {
        /// Its number.
        link: usize,
    },
    /// A link is named twice, or already belongs to another group of the same kind.
    #[error("link {link} is in two {groups}; name it in one of them, once")]
    InTwoGroups {
        /// Its number.
        link: usize,
        /// Kind of group. Kind of group.
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
