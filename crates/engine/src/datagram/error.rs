//! Errors of the program with a flow, and the codes that both sides exchange.

/// The reason for which an operation on a flow failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlowError {
    /// The flow does not exist or has ended.
    #[error("the flow does not exist")]
    Unknown,
    /// The datagram fits neither a path nor two fragments.
    #[error("the datagram has more than {most} bytes, which no path carries in two parts")]
    TooBig {
        /// The largest datagram that the paths carry now, in bytes.
        most: usize,
    },
    /// The peer has answered no datagram; its version does not know them.
    #[error("the peer does not answer datagrams: its version does not know them")]
    PeerWithoutDatagrams,
    /// All flows are in use, and none of them may be ended for a new one.
    #[error("all flows of the session are in use by calls")]
    NoMoreFlows,
    /// The target of a flow does not fit into a packet.
    #[error("the target is longer than 512 bytes")]
    TargetTooLong,
    /// The number of the source cannot be encoded.
    #[error("the number of the source is larger than 2^62 - 1")]
    Source,
    /// The session has ended.
    #[error("the session has ended")]
    Closed,
}

/// Why a datagram of a flow could not be delivered beyond the bond. Numbers up to 8 are those of
/// stream resets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FlowErrorCode {
    /// No reason listed here.
    Other,
    /// The egress policy does not allow the target.
    Forbidden,
    /// The name of the target does not resolve.
    NameNotFound,
    /// The target's host has no socket on the port (ICMP port unreachable).
    Refused,
    /// The target's network cannot be reached.
    NetworkUnreachable,
    /// The target's network or name server does not answer in time.
    TimedOut,
    /// A limit of the exit is reached.
    Limit,
    /// The target cannot be read.
    BadTarget,
    /// The target's host cannot be reached.
    HostUnreachable,
    /// The datagram does not fit the way to the target.
    TooBig,
}

impl FlowErrorCode {
    /// All codes.
    pub const ALL: [Self; 10] = [
        Self::Other,
        Self::Forbidden,
        Self::NameNotFound,
        Self::Refused,
        Self::NetworkUnreachable,
        Self::TimedOut,
        Self::Limit,
        Self::BadTarget,
        Self::HostUnreachable,
        Self::TooBig,
    ];

    /// Its number in a FLOW_FAILED record.
    pub fn code(self) -> u64 {
        match self {
            Self::Other => 0,
            Self::Forbidden => 1,
            Self::NameNotFound => 2,
            Self::Refused => 3,
            Self::NetworkUnreachable => 4,
            Self::TimedOut => 5,
            Self::Limit => 6,
            Self::BadTarget => 7,
            Self::HostUnreachable => 9,
            Self::TooBig => 10,
        }
    }

    /// The code with this number; [`FlowErrorCode::Other`] for unknown ones.
    pub fn by_code(code: u64) -> Self {
        let known = Self::ALL.into_iter().find(|known| known.code() == code);
        known.unwrap_or(Self::Other)
    }

    /// A description in a few words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Other => "the datagram could not be delivered",
            Self::Forbidden => "the egress policy does not allow the target",
            Self::NameNotFound => "the name does not resolve",
            Self::Refused => "the target has no socket on the port",
            Self::NetworkUnreachable => "the target's network cannot be reached",
            Self::TimedOut => "the target did not answer in time",
            Self::Limit => "a limit is reached",
            Self::BadTarget => "the target cannot be read",
            Self::HostUnreachable => "the target's host cannot be reached",
            Self::TooBig => "the datagram is too big",
        }
    }
}

/// Why a flow has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CloseReason {
    /// A program has ended it.
    Closed,
    /// It carried nothing for the idle timeout.
    Idle,
    /// It was idle and made room for a new flow.
    Evicted,
    /// The peer does not know it (any more).
    Forgotten,
}

impl CloseReason {
    /// All reasons.
    pub const ALL: [Self; 4] = [Self::Closed, Self::Idle, Self::Evicted, Self::Forgotten];

    /// Its number in a FLOW_CLOSE record.
    pub fn code(self) -> u64 {
        self as u64
    }

    /// The reason with this number; [`CloseReason::Closed`] for unknown ones.
    pub fn by_code(code: u64) -> Self {
        let known = Self::ALL.into_iter().find(|known| known.code() == code);
        known.unwrap_or(Self::Closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_returns_and_unknown_ones_have_a_meaning() {
        for code in FlowErrorCode::ALL {
            assert_eq!(FlowErrorCode::by_code(code.code()), code);
        }
        assert_eq!(FlowErrorCode::by_code(99), FlowErrorCode::Other);
        for reason in CloseReason::ALL {
            assert_eq!(CloseReason::by_code(reason.code()), reason);
        }
        assert_eq!(CloseReason::by_code(99), CloseReason::Closed);
    }
}
