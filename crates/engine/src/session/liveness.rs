//! Which paths deliver, and the timers that act when nothing arrives.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Event, Session};
use crate::frame::ReportedState;
use crate::path::{Control, Path, PathState};
use crate::{Instant, PathId};

/// Interval of PINGs on a path on which nothing else requests a report.
const PING_INTERVAL: Duration = Duration::from_secs(1);

/// The first interval while no stream is open: short enough to detect a dead path before it is
/// needed. It doubles with each PING ...
const IDLE_PING_INTERVAL: Duration = Duration::from_secs(10);

/// ... up to this: long enough for batteries, metered links and servers with many idle sessions,
/// and below the timeouts of proxies. TCP's own keep-alives keep the state of NATs meanwhile.
const LONGEST_IDLE_PING_INTERVAL: Duration = Duration::from_secs(45);

/// The interval on a stalled path, while its carrier has sent everything that it was given. TCP
/// detects the loss of a retransmission by the data that it sends after it. Without such data it
/// waits for ever longer timeouts.
const STALLED_PING_INTERVAL: Duration = Duration::from_millis(25);

/// Most unanswered PINGs on a stalled path.
pub(super) const MAX_STALLED_PINGS: usize = 256;

/// Interval of checks for late bytes while bytes are in flight on several paths.
const REPEAT_CHECK: Duration = Duration::from_millis(20);

/// A path that a scheduler has made wait for another is asked again after this time: by then the
/// other may have failed.
const WAIT_CHECK: Duration = Duration::from_millis(10);

/// Interval of further attempts at overdue work for which no carrier has space.
const OVERDUE_CHECK: Duration = Duration::from_millis(1);

/// The interval if every possible carrier has reported that it is full: each asks again once it has
/// space.
const FULL_CHECK: Duration = Duration::from_millis(50);

/// Closing code of a session that has been without a path for too long.
const CODE_TIMEOUT: u64 = 2;

impl Session {
    /// Time of the next call of [`Session::handle_timeout`]; `poll_transmit` may return data then,
    /// too.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.closed {
            return None;
        }
        let datagrams = self.datagrams.poll_timeout();
        if let Some(since) = self.pathless_since {
            let end = since + self.config.session_timeout;
            return Some(datagrams.map_or(end, |at| at.min(end)));
        }
        let best = self.best_path(self.handled);
        let mut earliest: Option<Instant> = self.control_deadline();
        let mut consider = |at: Option<Instant>| {
            if let Some(at) = at {
                earliest = Some(earliest.map_or(at, |known| known.min(at)));
            }
        };
        if let Some(since) = self.waits_since.filter(|_| !self.ready.is_empty()) {
            consider(Some(since.max(self.handled) + WAIT_CHECK));
        }
        let several = self.delivering() > 1;
        for path in self
            .paths
            .values()
            .filter(|path| path.state == PathState::Active)
        {
            // Data that only this path can send waits for its carrier.
            let sendable = |at: Instant| match path.sample.full {
                true => at.max(self.handled + FULL_CHECK),
                false => at,
            };
            consider(self.reports.due(path, best == Some(path.id)).map(sendable));
            match path.oldest_unacknowledged() {
                Some(_) if several => consider(path.stalls_at()),
                Some(_) => {}
                None => {
                    let idle = self.streams.is_empty();
                    consider(Some(sendable(path.next_ping(idle))));
                    consider(path.full_stalls_at(idle).filter(|_| several));
                }
            }
            if several {
                consider(path.control_late_at());
            }
            if several && let Some(flight) = path.outbound.flights.front() {
                let late = flight.expected_at + path.patience();
                consider((late > self.handled).then_some(late));
                let at = flight.sent_at.max(path.inbound.last_received) + REPEAT_CHECK;
                consider(Some(if at > self.handled {
                    at
                } else {
                    self.handled + REPEAT_CHECK
                }));
            }
        }
        let stalled = self.paths.values();
        for path in stalled.filter(|path| path.state == PathState::Stalled) {
            consider(path.pauses_until().filter(|_| path.has_unreported_stall()));
            if path.sample.unsent == 0 && path.outbound.control.len() < MAX_STALLED_PINGS {
                consider(Some(path.next_ping(false)));
            }
        }
        consider(self.next_selection());
        consider(datagrams);
        // Overdue work waits for a carrier that accepts it. Check again soon, but not in a busy
        // loop.
        let check = match self.paths.values().all(|path| path.sample.full) {
            true => FULL_CHECK,
            false => OVERDUE_CHECK,
        };
        earliest.map(|at| {
            if at > self.handled {
                at
            } else {
                self.handled + check
            }
        })
    }

    /// The path that has been stalled for longest, here or by the peer's report, if any. If the
    /// session cannot take another path, a new one that has just proven itself may replace it.
    ///
    /// This includes the last path, which never stalls because no other path can take its data.
    pub fn longest_stalled_path(&self, now: Instant) -> Option<PathId> {
        let idle = self.streams.is_empty();
        let since = |path: &Path| {
            let stalls_at = path.stalls_at().or_else(|| path.full_stalls_at(idle));
            let would_stall = stalls_at.filter(|at| *at <= now);
            path.stalled_since().or(would_stall)
        };
        let stalled = self.paths.values();
        let stalled = stalled.filter_map(|path| Some((since(path)?, path.id)));
        stalled.min().map(|(_, id)| id)
    }

    /// Does everything that is due. Some timeouts of `poll_timeout` change nothing here because
    /// they are for `poll_transmit`.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.closed {
            return;
        }
        self.handled = self.handled.max(now);
        self.latest = self.latest.max(now);
        if let Some(since) = self.pathless_since
            && now >= since + self.config.session_timeout
        {
            self.end(
                CODE_TIMEOUT,
                "no path returned within the session timeout".into(),
            );
            return;
        }
        let stalled: Vec<PathId> = self
            .paths
            .values()
            .filter(|path| path.state == PathState::Active)
            .filter(|path| {
                let full = || path.full_stalls_at(self.streams.is_empty());
                let stalls_at = path.stalls_at().or_else(full);
                stalls_at.is_some_and(|at| at <= now)
            })
            .map(|path| path.id)
            .collect();
        for id in stalled {
            self.stall(id, now);
        }
        self.datagrams.handle_timeout(now);
        self.report_stalls(now);
        self.repeat_late_control(now);
        self.select_paths(now);
    }

    /// Sends late control frames over another path, too, because each of them holds something up.
    fn repeat_late_control(&mut self, now: Instant) {
        if self.delivering() < 2 {
            return;
        }
        let active = self
            .paths
            .values_mut()
            .filter(|path| path.state == PathState::Active);
        let mut late = Vec::new();
        for path in active.filter(|path| path.control_late_at().is_some_and(|at| at <= now)) {
            let wait = path.delay() + path.patience();
            let control = path.outbound.control.iter_mut();
            late.extend(
                control
                    .take_while(|sent| sent.sent_at + wait <= now)
                    .filter(|sent| sent.needs_repeat())
                    .filter_map(|sent| sent.frame.take()),
            );
        }
        if !late.is_empty() {
            self.requeue(VecDeque::new(), late.into_iter(), now);
        }
    }

    /// Moves the data of `id` to the other paths. The last delivering path is kept, since no other
    /// path can take its data.
    fn stall(&mut self, id: PathId, now: Instant) {
        if self.delivering() < 2 {
            return;
        }
        let Some(path) = self.paths.get_mut(&id) else {
            return;
        };
        path.state = PathState::Stalled;
        path.stall.began = now;
        path.stall.oldest_sent_at = path.oldest_unacknowledged().unwrap_or(now);
        let ends = [
            path.outbound.flights.back().map(|flight| flight.path_end),
            path.outbound.control.back().map(|sent| sent.path_end),
        ];
        // A path without unacknowledged data recovers with the next data that it delivers.
        path.stall.recovers_at = ends
            .into_iter()
            .flatten()
            .max()
            .unwrap_or(path.outbound.sent + 1);
        let flights = std::mem::take(&mut path.outbound.flights);
        let control: Vec<_> = path
            .outbound
            .control
            .iter_mut()
            .filter_map(|sent| sent.frame.take())
            .collect();
        self.requeue(flights, control.into_iter(), now);
        self.reports
            .report_again(&mut self.streams, &mut self.paths);
        self.schedulers.paths_changed();
    }

    /// A stalled path becomes active again once its earlier data has arrived, so that new data does
    /// not wait behind it.
    pub(super) fn recover_path(&mut self, id: PathId, now: Instant) {
        let Some(path) = self.paths.get_mut(&id) else {
            return;
        };
        // A stalled path that is retried because no other is left has not recovered until it
        // delivers.
        let has_stalled = path.state == PathState::Stalled || path.stall.is_reported;
        if !has_stalled || !path.has_caught_up(now) {
            return;
        }
        let was_reported = std::mem::take(&mut path.stall.is_reported);
        if std::mem::replace(&mut path.state, PathState::Active) == PathState::Stalled {
            self.schedulers.paths_changed();
        }
        if was_reported {
            self.events.push_back(Event::PathRecovered { path: id });
            self.send_path_state(id, ReportedState::Delivers, now);
        }
    }

    /// Reports stalled paths. If a path's TCP only pauses to measure, it will continue; nothing has
    /// to be done, and the peer should not get a report.
    fn report_stalls(&mut self, now: Instant) {
        let unreported = self
            .paths
            .values_mut()
            .filter(|path| path.has_unreported_stall());
        let mut reported = Vec::new();
        for path in unreported.filter(|path| path.pauses_until().is_none_or(|until| until <= now)) {
            path.stall.is_reported = true;
            path.note_stall(now);
            self.events.push_back(Event::PathStalled {
                path: path.id,
                silent_for: now.saturating_sub(path.stall.oldest_sent_at),
            });
            reported.push(path.id);
        }
        for id in reported {
            self.send_path_state(id, ReportedState::Stalled, now);
        }
    }

    /// Reports a path's state to the peer over another path.
    pub(super) fn send_path_state(&mut self, id: PathId, state: ReportedState, now: Instant) {
        if let Some(path) = self.paths.get_mut(&id) {
            path.peer.state_version_sent += 1;
            let version = path.peer.state_version_sent;
            self.queue_path_state(id, version, state, now);
        }
    }

    /// Queues a report about a path that may have ended already. Older reports that have not left
    /// yet are obsolete.
    pub(super) fn queue_path_state(
        &mut self,
        path: PathId,
        version: u64,
        state: ReportedState,
        now: Instant,
    ) {
        if self.closed {
            return;
        }
        self.control.retain(
            |(_, frame)| !matches!(frame, Control::PathState { path: of, .. } if *of == path),
        );
        let frame = Control::PathState {
            path,
            version,
            state,
        };
        self.queue(frame, now);
    }

    /// The peer reports the state of a path, which may have joined there before it joins here.
    ///
    /// Frames of different paths overtake each other, and each may come twice. Only the newest
    /// counts, and only once.
    pub(super) fn on_path_state(
        &mut self,
        id: PathId,
        version: u64,
        state: ReportedState,
        now: Instant,
    ) {
        let Some(path) = self.paths.get_mut(&id) else {
            return self.unjoined.keep_state(id, version, state);
        };
        if version <= path.peer.state_version_received {
            return;
        }
        path.peer.state_version_received = version;
        match state {
            ReportedState::Delivers => {
                if path.peer.stalled_since.take().is_some() {
                    self.events
                        .push_back(Event::PathRecoveredAtPeer { path: id });
                }
            }
            ReportedState::Stalled => {
                // The other direction may be dead as well; an answer will show whether it is.
                if path.oldest_unacknowledged().is_none() {
                    path.outbound.last_asked = None;
                }
                if path.peer.stalled_since.is_none() {
                    path.peer.stalled_since = Some(now);
                    self.events.push_back(Event::PathStalledAtPeer { path: id });
                }
            }
            ReportedState::Left if !path.peer.is_abandoned => {
                path.peer.is_abandoned = true;
                self.events.push_back(Event::PathLeft { path: id });
            }
            ReportedState::Left => {}
        }
    }

    /// Only stalled paths are left, so all of them are tried. Those reported as stalled have not
    /// recovered until they deliver.
    pub(super) fn reactivate_all(&mut self, now: Instant) {
        for path in self.paths.values_mut() {
            path.state = PathState::Active;
            path.restart_patience(now);
        }
    }

    /// Number of delivering paths.
    fn delivering(&self) -> usize {
        self.paths
            .values()
            .filter(|path| path.state == PathState::Active)
            .count()
    }
}

impl Path {
    /// Time of the next PING if nothing else requests a report before; `idle` while no stream is
    /// open.
    pub(super) fn next_ping(&self, idle: bool) -> Instant {
        // Immediately on a path that has just joined: until it has delivered something, it gets no
        // urgent data.
        let Some(asked) = self.outbound.last_asked else {
            return self.joined;
        };
        match self.state {
            PathState::Stalled => asked + STALLED_PING_INTERVAL,
            PathState::Active if idle => {
                let interval = self.idle_interval();
                let of_peer = self.inbound.pinged.map(|at| at + interval + interval / 2);
                of_peer.map_or(asked + interval, |at| at.max(asked + interval))
            }
            PathState::Active => asked + PING_INTERVAL,
        }
    }

    fn idle_interval(&self) -> Duration {
        let doublings = self.outbound.idle_pings.saturating_sub(1).min(3);
        let doubled = IDLE_PING_INTERVAL * (1 << doublings);
        doubled.min(LONGEST_IDLE_PING_INTERVAL)
    }

    /// A PING has arrived at a server: this end lets the client ask while the session is idle,
    /// since each PING and its answer show that both directions deliver.
    pub(super) fn note_pinged(&mut self, now: Instant) {
        self.inbound.pinged = Some(now);
        self.outbound.idle_pings = self.outbound.idle_pings.saturating_add(1);
    }

    /// When the path stalls because its carrier does not even accept the PING that is due, so that
    /// nothing could be acknowledged.
    ///
    /// The remaining bytes in its socket, such as reports, hold nothing up, and may have been lost
    /// together with the connection: a NAT that dropped its state sends no error, and TCP needs up
    /// to a minute to give up.
    fn full_stalls_at(&self, idle: bool) -> Option<Instant> {
        let is_full = self.oldest_unacknowledged().is_none() && self.sample.full;
        is_full.then(|| self.next_ping(idle) + self.stall_patience())
    }

    /// Start of the current period in which data is unacknowledged and no acknowledgment has
    /// arrived.
    pub(super) fn unacknowledged_since(&self) -> Option<Instant> {
        match self.state {
            PathState::Stalled => Some(self.progress.acknowledged_at),
            PathState::Active => self
                .oldest_unacknowledged()
                .map(|sent| sent.max(self.progress.acknowledged_at)),
        }
    }

    /// Whether it has stalled without having been reported.
    fn has_unreported_stall(&self) -> bool {
        self.state == PathState::Stalled && !self.stall.is_reported
    }

    /// Time since when the path has been stalled, here or by the peer's report.
    pub(super) fn stalled_since(&self) -> Option<Instant> {
        let has_stalled = self.state == PathState::Stalled && self.stall.is_reported;
        let stalled = has_stalled.then_some(self.stall.began);
        let since = [stalled, self.peer.stalled_since];
        since.into_iter().flatten().min()
    }
}
