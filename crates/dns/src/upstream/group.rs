//! Several upstreams that are tried in order.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::{ExchangeError, Response, Upstream};
use crate::wire::{Message, Query, code};

/// Time for a question with all upstreams. Stub resolvers repeat a question after 5 s
/// (resolv.conf(5)).
const DEADLINE: Duration = Duration::from_millis(4500);

/// Time without an answer after which the next upstream is asked, too. The first usable answer of
/// any of them counts.
const PATIENCE: Duration = Duration::from_secs(1);

/// Upstreams in the order in which they are tried, beginning with the one that answered last.
#[derive(Debug)]
pub(crate) struct Group {
    members: Vec<Upstream>,
    preferred: AtomicUsize,
}

impl Group {
    pub(crate) fn new(members: Vec<Upstream>) -> Self {
        Self {
            members,
            preferred: AtomicUsize::new(0),
        }
    }

    pub(crate) fn members(&self) -> &[Upstream] {
        &self.members
    }

    /// Asks the upstreams until one answers. If none has a better answer, a failure that an
    /// upstream reports is the answer.
    pub(crate) async fn resolve(&self, query: &Query) -> Result<Response, ExchangeError> {
        let count = self.members.len();
        if count == 0 {
            return Err(ExchangeError::None);
        }
        let first = self.preferred.load(Ordering::Relaxed);
        let mut waiting = (0..count).map(|number| (first + number) % count);
        let mut running = FuturesUnordered::new();
        let begin = |number: usize| async move { (number, self.members[number].ask(query).await) };
        running.extend(waiting.next().map(begin));
        let deadline = Instant::now() + DEADLINE;
        let mut next = Instant::now() + PATIENCE;
        let (mut failure, mut error) = (None, ExchangeError::TimedOut);
        loop {
            tokio::select! {
                Some((number, answered)) = running.next() => {
                    match answered {
                        Ok(response) if is_useful(&response) => {
                            self.preferred.store(number, Ordering::Relaxed);
                            return Ok(response);
                        }
                        Ok(response) => failure = failure.or(Some(response)),
                        Err(failed) => {
                            let upstream = self.members[number].address();
                            debug!(%upstream, error = %failed, "a resolver gave no answer");
                            error = failed;
                        }
                    }
                    running.extend(waiting.next().map(begin));
                    next = Instant::now() + PATIENCE;
                    if running.is_empty() {
                        return failure.ok_or(error);
                    }
                }
                () = sleep_until(next.min(deadline)) => {
                    if Instant::now() >= deadline {
                        return failure.ok_or(ExchangeError::TimedOut);
                    }
                    running.extend(waiting.next().map(begin));
                    next = Instant::now() + PATIENCE;
                }
            }
        }
    }
}

/// Whether another upstream could not have a better answer.
fn is_useful(response: &Response) -> bool {
    let failed = |code| {
        matches!(
            code,
            code::FORMAT_ERROR | code::SERVER_FAILURE | code::NOT_IMPLEMENTED | code::REFUSED
        )
    };
    Message::read(&response.message).is_ok_and(|message| !failed(message.code()))
}
