//! What a path sends next.

use std::ops::Range;
use std::time::Duration;

use super::liveness::MAX_STALLED_PINGS;
use super::{ReceiveCredit, Session};
use crate::frame::{Frame, MAX_DATA, encode_data_head};
use crate::path::{Control, Flight, Path, PathState, Sent};
use crate::scheduler::{ClassSet, Pick, View, may_work};
use crate::share::Share;
use crate::{Instant, PathId, StreamId};

/// Control frames go over the path of least delay; after this time over any. An OPEN may take this much longer so as
/// not to overtake the one before.
const CONTROL_WAIT: Duration = Duration::from_millis(10);

/// Control frames on a path that the peer has not confirmed: the others wait. What waits is bounded by the number of
/// streams.
const MAX_CONTROL: usize = 8192;

impl Session {
    /// Appends what path `id` sends next, about `budget` bytes, and returns how many they are; 0 means nothing for
    /// now.
    pub fn poll_transmit(
        &mut self,
        id: PathId,
        budget: usize,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> usize {
        self.latest = self.latest.max(now);
        self.review_policies(now);
        let Some(path) = self.paths.get(&id) else {
            return 0;
        };
        // Who drives the session asks until nothing more comes, often where nothing has changed, not even the time.
        let asked = (now, budget, self.schedulers.changes());
        if path.idle == Some(asked) {
            return 0;
        }
        let len = self.transmit(id, budget, now, out);
        if len > 0 {
            self.schedulers.note_change();
        } else if let Some(path) = self.paths.get_mut(&id) {
            path.idle = Some(asked);
        }
        len
    }

    fn transmit(&mut self, id: PathId, budget: usize, now: Instant, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        let Some(path) = self.paths.get(&id) else {
            return 0;
        };
        if path.state == PathState::Stalled && !self.closed {
            let before = path.sent;
            self.write_ping(id, before, start, now, out);
            self.finish_transmit(id, (out.len() - start) as u64, now);
            return out.len() - start;
        }
        let best = self.best_path(now);
        let before = path.sent;
        let written = |out: &Vec<u8>| (out.len() - start) as u64;
        if self.closed {
            self.write_farewell(id, out);
            self.finish_transmit(id, written(out), now);
            return out.len() - start;
        }
        if let Some(path) = self.paths.get_mut(&id)
            && let Some(token) = path.pong_due.take()
        {
            Frame::Pong { token }.encode(out);
        }
        self.write_control(id, best == Some(id), budget, before, start, now, out);
        let due = self
            .paths
            .get(&id)
            .and_then(|path| self.reports.due(path, best == Some(id)));
        if due.is_some_and(|due| due <= now) {
            self.reports
                .write(id, &mut self.paths, &self.streams, budget, now, out);
        }
        self.write_ping(id, before, start, now, out);
        while out.len() - start < budget {
            let left = (budget - (out.len() - start)) as u64;
            match self.pick(id, left, written(out), now) {
                Pick::Send { stream, range } => {
                    self.write_data(id, stream, range, false, before, start, now, out)
                }
                Pick::Repeat { stream, range } | Pick::Race { stream, range } => {
                    self.write_data(id, stream, range, true, before, start, now, out)
                }
                Pick::Idle => break,
            }
        }
        self.finish_transmit(id, written(out), now);
        out.len() - start
    }

    /// The delivering path on which a byte handed over now arrives first; one that has never delivered anything, or that
    /// is late, only where all are such.
    pub(super) fn best_path(&self, now: Instant) -> Option<PathId> {
        let active = self
            .paths
            .values()
            .filter(|path| path.state == PathState::Active);
        active
            .min_by_key(|path| (!path.is_proven(), path.is_late(now), path.delay(), path.id))
            .map(|path| path.id)
    }

    /// When a control frame that waits for the best path goes over any.
    pub(super) fn control_deadline(&self) -> Option<Instant> {
        self.control.front().map(|(since, _)| *since + CONTROL_WAIT)
    }

    #[expect(clippy::too_many_arguments, reason = "as write_data")]
    fn write_control(
        &mut self,
        id: PathId,
        best: bool,
        budget: usize,
        before: u64,
        start: usize,
        now: Instant,
        out: &mut Vec<u8>,
    ) {
        while let Some((since, frame)) = self.control.front() {
            let preferred = match frame {
                Control::Open { .. } => self.path_of_opens(now).map_or(best, |path| path == id),
                _ => best,
            };
            let full = self
                .paths
                .get(&id)
                .is_none_or(|path| path.control.len() >= MAX_CONTROL);
            if out.len() - start >= budget || full || !preferred && now < *since + CONTROL_WAIT {
                break;
            }
            let Some((_, frame)) = self.control.pop_front() else {
                break;
            };
            let frame_start = out.len();
            self.encode_control(&frame, out);
            // Credit for a stream that is over meanwhile is no frame, and nothing would ever confirm it.
            if out.len() > frame_start
                && let Some(path) = self.paths.get_mut(&id)
            {
                let path_end = before + (out.len() - start) as u64;
                path.note_outstanding(now);
                if matches!(frame, Control::Open { .. }) {
                    self.opened_on = Some((id, path_end));
                }
                path.control.push_back(Sent {
                    path_end,
                    sent_at: now,
                    frame: Some(frame),
                });
            }
        }
    }

    /// The path on which the newest OPEN is still under way, unless another one is better by more than order is worth.
    ///
    /// The peer connects streams in the order in which they reach it, and programs make connections in an order that
    /// means something to them. Where paths are alike, the best one changes from one frame to the next.
    fn path_of_opens(&self, now: Instant) -> Option<PathId> {
        let (id, end) = self.opened_on?;
        let path = self.paths.get(&id)?;
        let best = self.paths.get(&self.best_path(now)?)?;
        let worth_it = !path.is_late(now) && path.delay() <= best.delay() + CONTROL_WAIT;
        (path.state == PathState::Active && path.confirmed < end && worth_it).then_some(id)
    }

    fn write_farewell(&mut self, id: PathId, out: &mut Vec<u8>) {
        if let (Some((code, reason)), Some(path)) = (&self.farewell, self.paths.get_mut(&id))
            && !std::mem::replace(&mut path.farewell_said, true)
        {
            Frame::Close {
                code: *code,
                reason,
            }
            .encode(out);
        }
    }

    fn write_ping(
        &mut self,
        id: PathId,
        before: u64,
        start: usize,
        now: Instant,
        out: &mut Vec<u8>,
    ) {
        let token = self.next_token;
        let idle = self.streams.is_empty();
        let Some(path) = self.paths.get_mut(&id) else {
            return;
        };
        let waits = match path.state {
            PathState::Active => path.oldest_unconfirmed().is_some(),
            // What TCP has not sent yet does for it.
            PathState::Stalled => path.sample.unsent > 0 || path.control.len() >= MAX_STALLED_PINGS,
        };
        if now < path.next_ping(idle) || waits {
            return;
        }
        self.next_token += 1;
        Frame::Ping { token }.encode(out);
        let path_end = before + (out.len() - start) as u64;
        path.note_outstanding(now);
        path.control.push_back(Sent {
            path_end,
            sent_at: now,
            frame: Some(Control::Ping { token }),
        });
    }

    fn encode_control(&mut self, frame: &Control, out: &mut Vec<u8>) {
        match frame {
            Control::Open {
                stream,
                class,
                target,
            } => {
                Frame::Open {
                    stream: *stream,
                    class: *class,
                    target,
                }
                .encode(out);
            }
            Control::Accept { stream } => Frame::Accept { stream: *stream }.encode(out),
            Control::Fin { stream, size } => Frame::Fin {
                stream: *stream,
                size: *size,
            }
            .encode(out),
            Control::Reset { stream, code, size } => {
                Frame::Reset {
                    stream: *stream,
                    code: *code,
                    size: *size,
                }
                .encode(out);
            }
            Control::CreditSession => {
                self.receive_credit.session_queued = false;
                Frame::CreditSession {
                    limit: self.receive_credit.granted,
                }
                .encode(out);
            }
            Control::CreditStream { stream } => {
                if let Some(state) = self.streams.get_mut(stream) {
                    state.receive.credit_queued = false;
                    Frame::CreditStream {
                        stream: *stream,
                        limit: state.receive.granted,
                    }
                    .encode(out);
                }
            }
            Control::CreditInitial => {
                Frame::CreditInitial {
                    limit: self.receive_credit.initial,
                }
                .encode(out);
            }
            Control::CreditStreams => {
                let ReceiveCredit {
                    streams,
                    streams_queued,
                    ..
                } = &mut self.receive_credit;
                *streams_queued = false;
                *streams = (*streams).max(self.retired.total() + self.config.max_streams);
                Frame::CreditStreams { limit: *streams }.encode(out);
            }
            Control::Policy { path } => {
                let told = self.paths.get(path).and_then(|path| path.told_policy);
                if let Some((version, policy)) = told {
                    Frame::Policy {
                        path: u64::from(path.0),
                        version,
                        policy,
                    }
                    .encode(out);
                }
            }
            Control::Ping { token } => Frame::Ping { token: *token }.encode(out),
            Control::PathState { path, state } => Frame::PathState {
                path: u64::from(path.0),
                state: *state,
            }
            .encode(out),
        }
    }

    fn pick(&mut self, id: PathId, budget: u64, handed: u64, now: Instant) -> Pick {
        let Some(path) = self.paths.get(&id) else {
            return Pick::Idle;
        };
        if path.is_crowded() || !may_work(&self.paths, path) {
            return Pick::Idle;
        }
        let mut view = View {
            now,
            paths: &self.paths,
            streams: &self.streams,
            ready: &self.ready,
            blocked: &self.blocked,
            classes: ClassSet::ALL,
            last_served: 0,
            credit: self
                .send_credit
                .session
                .saturating_sub(self.send_credit.used),
            share: Share::new(self.send_credit.peer_memory, self.send_credit.peer_streams),
            repeat_balance: 0,
            advance: Duration::ZERO,
            race_budget: 0,
            handed,
            memory: self.config.memory,
            fbdt: &self.config.fbdt,
        };
        let pick = self.schedulers.pick(id, budget, &mut view);
        if pick == Pick::Idle {
            view.classes = ClassSet::ALL;
            self.waits_since = view.can_send().then_some(now);
        }
        pick
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one call site, and the alternative is a struct for it"
    )]
    fn write_data(
        &mut self,
        id: PathId,
        stream_id: StreamId,
        range: Range<u64>,
        repeat: bool,
        before: u64,
        start: usize,
        now: Instant,
        out: &mut Vec<u8>,
    ) {
        let Some(stream) = self.streams.get_mut(&stream_id) else {
            return;
        };
        debug_assert!(!range.is_empty() && range.end <= stream.send.written);
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min(at + MAX_DATA as u64);
            encode_data_head(stream_id, at, (end - at) as usize, out);
            stream.send.read(at..end, out);
            at = end;
        }
        let len = range.end - range.start;
        let unsent = stream.send.unsent.remove(range.clone());
        debug_assert!(repeat || unsent == len, "a scheduler sends what is unsent");
        let growth = range.end.saturating_sub(stream.send.highest);
        stream.send.highest = stream.send.highest.max(range.end);
        self.send_credit.used += growth;
        self.counters.data_sent += len;
        // What comes again because its path failed is a duplicate as well, unless it never arrived: nobody knows.
        let twice = if repeat {
            len
        } else {
            stream.send.again.remove(range.clone())
        };
        self.counters.duplicates_sent += twice;
        if stream.send.unsent.is_empty() {
            self.ready.remove(&stream_id);
        }
        if repeat {
            self.mark_repeated(id, stream_id, &range);
        }
        let Some(path) = self.paths.get_mut(&id) else {
            return;
        };
        path.data_sent += len;
        path.duplicates_sent += twice;
        let path_end = before + (out.len() - start) as u64;
        path.note_outstanding(now);
        let handed = (out.len() - start) as f64;
        let expected_at = now + path.delay() + Duration::from_secs_f64(handed / path.shown_rate());
        let flight = Flight {
            stream: stream_id,
            range,
            sent_at: now,
            expected_at,
            repeated: repeat,
            path_end,
        };
        path.flights.push_back(flight);
    }

    fn mark_repeated(&mut self, by: PathId, stream: StreamId, range: &Range<u64>) {
        for path in self.paths.values_mut().filter(|path| path.id != by) {
            path.mark_repeated(stream, range);
        }
    }

    fn finish_transmit(&mut self, id: PathId, len: u64, now: Instant) {
        if let Some(path) = self.paths.get_mut(&id)
            && len > 0
        {
            path.sent += len;
            path.send_meter.add(len, now);
        }
    }
}

impl Path {
    /// Something that asks for a report leaves: from now on the peer owes one.
    fn note_outstanding(&mut self, now: Instant) {
        if self.flights.is_empty() && self.control.is_empty() {
            self.last_progress = now;
        }
        self.last_asked = Some(now);
    }
}
