//! What a flow carries.

use sumlink_scenario::scenario::Workload;

use crate::clock::{Nanos, SECOND, nanos};

/// What is asked for, and how far that is.
#[derive(Clone, Debug)]
pub(super) enum Load {
    Bulk,
    Objects {
        sizes: Vec<u64>,
        /// Objects asked for so far, and all of them.
        asked: u64,
        all: u64,
        gap: Nanos,
        /// Bits per second that those ahead of an object are given, at least.
        pace: Option<u64>,
        /// When the one that was asked for last was due.
        due: Option<Nanos>,
    },
    Questions {
        question: u64,
        answer: u64,
        gap: Nanos,
        /// How many were asked, and answered.
        asked: u64,
        answered: u64,
    },
    Messages {
        size: u64,
        pause: Nanos,
        /// How many were sent, and when the first one was due.
        sent: u64,
        first: Nanos,
    },
}

impl Load {
    /// What each flow of a workload begins with.
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
                // Bytes at bit/s.
                pause: (u128::from(*message) * 8 * u128::from(SECOND) / u128::from((*rate).max(1)))
                    as Nanos,
                sent: 0,
                first: 0,
            },
            Workload::Video(_) => return Err("the simulator runs no video encoder".to_owned()),
            Workload::Command { .. } => {
                return Err("the simulator runs no programs of the user's".to_owned());
            }
        })
    }
}
