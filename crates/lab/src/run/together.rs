//! Concurrent runs, as far as the machine has capacity for them.
//!
//! Each run has its own namespaces and emulator, so they share only the machine. A run that got too
//! little CPU time is repeated alone, and the number of concurrent runs is reduced from then on. As
//! long as this has not happened, the number grows whenever the runs leave the machine idle,
//! because its capacity is not known in advance.

mod capacity;
mod queue;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Sender};
use std::thread;

use crate::error::LabError;
use crate::results::Run;

use super::job::Job;
use super::once::{self, Concurrency};
pub(crate) use capacity::Capacity;
use queue::Queue;

/// Progress reports of the runs.
pub(super) enum Update {
    /// A run has begun.
    Begun(usize),
    /// The run is in this phase, at this number of seconds.
    Comes(usize, usize, f64),
    /// The run has ended.
    Done(usize, Box<Run>),
}

/// Does all jobs, in order where possible; after the first error it waits for the concurrent runs
/// and returns.
pub(super) fn run(
    jobs: &[&Job<'_>],
    capacity: Capacity,
    report: &mut dyn FnMut(Update) -> Result<(), LabError>,
) -> Result<(), LabError> {
    thread::scope(|scope| {
        let (post, inbox) = mpsc::channel();
        let mut queue = Queue::new(jobs, capacity);
        let mut failure = None;
        loop {
            while failure.is_none() {
                let Some((index, concurrency)) = queue.next() else {
                    break;
                };
                failure = report(Update::Begun(index)).err();
                let post = post.clone();
                scope.spawn(move || one(jobs[index], index, concurrency, &post));
            }
            if queue.is_idle() {
                return failure.map_or(Ok(()), Err);
            }
            let message = match inbox.recv() {
                Ok(Message::Comes(index, phase, elapsed)) => {
                    report(Update::Comes(index, phase, elapsed))
                }
                Ok(Message::Ended(index, result)) => result
                    .and_then(|mut run| {
                        queue.note_company(index, &mut run);
                        if queue.ended(index, &run) {
                            report(Update::Done(index, run))
                        } else {
                            Ok(())
                        }
                    })
                    .inspect_err(|_| queue.forget(index)),
                // The sender outlives this loop.
                Err(_) => Ok(()),
            };
            failure = failure.or(message.err());
        }
    })
}

enum Message {
    Comes(usize, usize, f64),
    Ended(usize, Result<Box<Run>, LabError>),
}

fn one(job: &Job<'_>, index: usize, concurrency: Concurrency, post: &Sender<Message>) {
    let mut tick = |phase, elapsed| {
        // After a failure the receiver is gone.
        let _ = post.send(Message::Comes(index, phase, elapsed));
    };
    // A panic must be reported as well, since the main thread waits for the end of this run.
    let result = catch_unwind(AssertUnwindSafe(|| once::run(job, concurrency, &mut tick)));
    let result = result.unwrap_or_else(|_| Err(LabError::system("measuring", "a thread panicked")));
    let _ = post.send(Message::Ended(index, result.map(Box::new)));
}
