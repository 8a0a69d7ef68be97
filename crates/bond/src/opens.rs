//! Streams that wait to be opened: how long, and how many.

use std::collections::VecDeque;
use std::time::Duration;

use crate::Instant;

/// How long a stream waits for a session and for its target.
pub const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// Streams that may wait for the peer to allow more.
const MOST_WAITING: usize = 4096;

/// How long one of them waits. The peer's report that another stream has ended takes a few round trips
/// at most. A longer wait is caused by the limit itself, and the program learns that at once.
pub const WAITING_PATIENCE: Duration = Duration::from_secs(1);

/// Streams that wait for the peer to allow more, in their order.
#[derive(Debug)]
pub struct Waiting<T> {
    streams: VecDeque<(Instant, T)>,
    /// The peer has allowed a stream: before, it has not yet said how many it allows.
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
    /// A stream has been opened.
    pub fn opened(&mut self) {
        self.has_opened = true;
    }

    /// A stream waits that was asked for at `since`.
    ///
    /// # Errors
    ///
    /// Too many streams wait: the stream is given back.
    pub fn push(&mut self, since: Instant, stream: T) -> Result<(), T> {
        if self.streams.len() >= MOST_WAITING {
            return Err(stream);
        }
        self.streams.push_back((since, stream));
        Ok(())
    }

    /// The peer allows more streams: all of them are tried again.
    pub fn take(&mut self) -> impl Iterator<Item = (Instant, T)> + use<T> {
        std::mem::take(&mut self.streams).into_iter()
    }

    /// Streams that nobody waits for any longer leave.
    pub fn retain(&mut self, wants: impl Fn(&T) -> bool) {
        self.streams.retain(|(_, stream)| wants(stream));
    }

    /// When the stream that has waited longest is refused; never before the peer has allowed one.
    pub fn due(&self) -> Option<Instant> {
        let (since, _) = self.streams.front().filter(|_| self.has_opened)?;
        Some(*since + WAITING_PATIENCE)
    }

    /// A stream that has waited long enough and is refused.
    pub fn pop_overdue(&mut self, now: Instant) -> Option<T> {
        let due = self.due()?;
        let (_, stream) = (due <= now).then(|| self.streams.pop_front())??;
        Some(stream)
    }

    /// Whether none waits.
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
    /// A stream was opened that was asked for at `since`.
    pub fn push(&mut self, since: Instant, id: Id) {
        self.streams.push_back((since, id));
    }

    /// When the oldest one is given up.
    pub fn due(&self) -> Option<Instant> {
        let (since, _) = self.streams.front()?;
        Some(*since + OPEN_TIMEOUT)
    }

    /// The next stream that the peer has not confirmed in time; those that are confirmed leave.
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
