//! Streams that wait to be opened: for how long, and how many.

use std::collections::VecDeque;
use std::time::Duration;

use crate::Instant;

/// How long a stream waits for a session and for its target.
pub const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of streams that wait until the peer allows more.
const MAX_WAITING: usize = 4096;

/// Maximum wait of such a stream. The peer's report that another stream has ended takes a few round
/// trips at most. A longer wait is caused by the limit itself, and the program gets that error at
/// once.
pub const WAITING_PATIENCE: Duration = Duration::from_secs(1);

/// Streams that wait until the peer allows more, in order.
#[derive(Debug)]
pub struct Waiting<T> {
    streams: VecDeque<(Instant, T)>,
    /// The peer has allowed a stream; before that, its limit is unknown.
    has_opened: bool,
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self {
            streams: VecDeque::new(),
            has_opened: false,
        }
    }
}

impl<T> Waiting<T> {
    /// Records that a stream has been opened.
    pub fn opened(&mut self) {
        self.has_opened = true;
    }

    /// Adds a stream that was requested at `since`.
    ///
    /// # Errors
    ///
    /// Too many streams wait: the stream is returned.
    pub fn push(&mut self, since: Instant, stream: T) -> Result<(), T> {
        if self.streams.len() >= MAX_WAITING {
            return Err(stream);
        }
        self.streams.push_back((since, stream));
        Ok(())
    }

    /// The peer allows more streams: returns all waiting ones for another attempt.
    pub fn take(&mut self) -> impl Iterator<Item = (Instant, T)> + use<T> {
        std::mem::take(&mut self.streams).into_iter()
    }

    /// Removes the streams whose requests were abandoned.
    pub fn retain(&mut self, wants: impl Fn(&T) -> bool) {
        self.streams.retain(|(_, stream)| wants(stream));
    }

    /// When the longest-waiting stream is refused; never before the peer has allowed one.
    pub fn due(&self) -> Option<Instant> {
        let (since, _) = self.streams.front().filter(|_| self.has_opened)?;
        Some(*since + WAITING_PATIENCE)
    }

    /// Removes a stream that has waited too long, to be refused.
    pub fn pop_overdue(&mut self, now: Instant) -> Option<T> {
        let due = self.due()?;
        let (_, stream) = (due <= now).then(|| self.streams.pop_front())??;
        Some(stream)
    }

    /// Whether no stream waits.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }
}

/// Streams that wait for the peer to connect their targets, in the order in which they were opened;
/// streams that are connected may be among them.
#[derive(Debug)]
pub struct Unconfirmed<Id> {
    streams: VecDeque<(Instant, Id)>,
}

impl<Id> Default for Unconfirmed<Id> {
    fn default() -> Self {
        Self {
            streams: VecDeque::new(),
        }
    }
}

impl<Id: Copy> Unconfirmed<Id> {
    /// Adds a stream that was requested at `since`.
    pub fn push(&mut self, since: Instant, id: Id) {
        self.streams.push_back((since, id));
    }

    /// When the oldest one expires.
    pub fn due(&self) -> Option<Instant> {
        let (since, _) = self.streams.front()?;
        Some(*since + OPEN_TIMEOUT)
    }

    /// Removes the next stream that the peer has not confirmed in time, and all confirmed ones
    /// before it.
    pub fn pop_overdue(&mut self, is_unconfirmed: impl Fn(Id) -> bool, now: Instant) -> Option<Id> {
        while let Some(&(since, id)) = self.streams.front() {
            let is_unconfirmed = is_unconfirmed(id);
            if is_unconfirmed && now.saturating_sub(since) < OPEN_TIMEOUT {
                return None;
            }
            self.streams.pop_front();
            if is_unconfirmed {
                return Some(id);
            }
        }
        None
    }
}
