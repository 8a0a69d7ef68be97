//! The load of a flow.

use sumlink_scenario::scenario::Workload;

use crate::clock::{Nanos, SECOND, nanos};

/// The load of a flow, and its progress.
#[derive(Clone, Debug)]
pub(super) enum Load {
    Bulk,
    /// Bulk in these times, begin and end, over a connection of its own in each.
    Spells(Vec<(Nanos, Nanos)>),
    Objects {
        sizes: Vec<u64>,
        /// Objects requested so far, and in total.
        asked: u64,
        all: u64,
        gap: Nanos,
        /// Minimum rate at which preceding objects are expected to arrive, in bits per second.
        pace: Option<u64>,
        /// Due time of the last requested object.
        due: Option<Nanos>,
    },
    Questions {
        question: u64,
        answer: u64,
        gap: Nanos,
        /// Questions asked, and answered.
        asked: u64,
        answered: u64,
    },
    Messages {
        size: u64,
        pause: Nanos,
        /// Messages sent, and the due time of the first one.
        sent: u64,
        first: Nanos,
    },
}

impl Load {
    /// The initial state of each kind of workload.
    pub(super) fn of(workload: &Workload) -> Result<Self, String> {
        Ok(match workload {
            Workload::Bulk => Self::Bulk,
            Workload::Files {
                sizes,
                count,
                gap,
                pace,
                ..
            } => Self::Objects {
                sizes: sizes.clone(),
                asked: 0,
                all: sizes.len() as u64 * count,
                gap: nanos(*gap),
                pace: *pace,
                due: None,
            },
            Workload::Requests {
                request,
                answer,
                gap,
                ..
            } => Self::Questions {
                question: *request,
                answer: *answer,
                gap: nanos(*gap),
                asked: 0,
                answered: 0,
            },
            Workload::Cbr { rate, message } => Self::Messages {
                size: *message,
                // The message is in bytes, the rate in bits per second.
                pause: (u128::from(*message) * 8 * u128::from(SECOND) / u128::from((*rate).max(1)))
                    as Nanos,
                sent: 0,
                first: 0,
            },
            Workload::Datagrams(_)
            | Workload::Curl
            | Workload::Connections { .. }
            | Workload::Open { .. }
            | Workload::Dns { .. }
            | Workload::Http3 { .. }
            | Workload::Video(_)
            | Workload::Command { .. } => {
                let kind = workload.kind();
                return Err(format!("the simulator does not run {kind} workloads"));
            }
        })
    }
}
