//! Control frames: the choice of their path, and their encoding.

use std::time::Duration;

use super::Batch;
use crate::frame::Frame;
use crate::path::{Control, PathState, Sent};
use crate::session::liveness::MAX_STALLED_PINGS;
use crate::session::{ReceiveCredit, Session};
use crate::{Instant, PathId};

/// Control frames go over the path with the least delay, and after this time over any. An OPEN may
/// take this much longer so as not to overtake the one before.
const CONTROL_WAIT: Duration = Duration::from_millis(10);

/// Most unacknowledged control frames on a path; the others wait. The number of streams bounds the
/// number that wait.
const MAX_CONTROL: usize = 8192;

impl Session {
    /// Time from which a control frame that waits for the best path goes over any path.
    pub(in crate::session) fn control_deadline(&self) -> Option<Instant> {
        self.control.front().map(|(since, _)| *since + CONTROL_WAIT)
    }

    /// Writes waiting control frames that may go over the path of `batch`; `best` if it is the best
    /// path.
    pub(super) fn write_control(&mut self, batch: &Batch, best: bool, out: &mut Vec<u8>) {
        let Batch { path: id, now, .. } = *batch;
        // Computed once for a batch of OPENs: an OPEN on this path is a reason to send the next one
        // there, too.
        let mut opens_preferred = None;
        while let Some((since, frame)) = self.control.front() {
            let preferred = match frame {
                Control::Open { .. } => *opens_preferred
                    .get_or_insert_with(|| self.path_of_opens(now).map_or(best, |path| path == id)),
                _ => best,
            };
            let full = self
                .paths
                .get(&id)
                .is_none_or(|path| path.outbound.control.len() >= MAX_CONTROL);
            if batch.left(out) == 0 || full || !preferred && now < *since + CONTROL_WAIT {
                break;
            }
            let Some((_, frame)) = self.control.pop_front() else {
                break;
            };
            let frame_start = out.len();
            self.encode_control(&frame, out);
            // Credit for a stream that has ended meanwhile encodes to nothing, and no
            // acknowledgment would ever follow.
            if out.len() > frame_start
                && let Some(path) = self.paths.get_mut(&id)
            {
                let path_end = batch.path_end(out);
                path.note_outstanding(now);
                if matches!(frame, Control::Open { .. }) {
                    self.newest_open = Some((id, path_end));
                    opens_preferred = opens_preferred.filter(|preferred| *preferred);
                }
                path.outbound.control.push_back(Sent {
                    path_end,
                    sent_at: now,
                    frame: Some(frame),
                });
            }
        }
    }

    /// The path on which the newest OPEN is still in flight, unless another path is faster by more
    /// than the order is worth.
    ///
    /// The peer connects streams in the order in which their OPENs arrive, and programs open
    /// connections in an order that matters to them. With similar paths, the best path changes from
    /// frame to frame.
    fn path_of_opens(&self, now: Instant) -> Option<PathId> {
        let (id, end) = self.newest_open?;
        let path = self.paths.get(&id)?;
        let best = self.paths.get(&self.best_path(now)?)?;
        let worth_it =
            !path.is_late(now) && path.likely_delay() <= best.likely_delay() + CONTROL_WAIT;
        (path.state == PathState::Active && path.outbound.confirmed < end && worth_it).then_some(id)
    }

    /// Writes the CLOSE of a session that this side has ended, once on each path.
    pub(super) fn write_close(&mut self, id: PathId, out: &mut Vec<u8>) {
        if let (Some((code, reason)), Some(path)) = (&self.pending_close, self.paths.get_mut(&id))
            && !std::mem::replace(&mut path.outbound.close_sent, true)
        {
            Frame::Close {
                code: *code,
                reason,
            }
            .encode(out);
        }
    }

    /// Writes a PING if one is due, to find out whether the path still delivers.
    pub(super) fn write_ping(&mut self, batch: &Batch, out: &mut Vec<u8>) {
        let Batch { path: id, now, .. } = *batch;
        let token = self.next_token;
        let idle = self.streams.is_empty();
        let Some(path) = self.paths.get_mut(&id) else {
            return;
        };
        let waits = match path.state {
            PathState::Active => path.oldest_unacknowledged().is_some(),
            // Unsent data in TCP serves the same purpose.
            PathState::Stalled => {
                path.sample.unsent > 0 || path.outbound.control.len() >= MAX_STALLED_PINGS
            }
        };
        if now < path.next_ping(idle) || waits {
            return;
        }
        self.next_token += 1;
        Frame::Ping { token }.encode(out);
        let path_end = batch.path_end(out);
        let pings = path.outbound.idle_pings.saturating_add(1);
        path.note_outstanding(now);
        path.outbound.idle_pings = if idle { pings } else { 0 };
        path.outbound.control.push_back(Sent {
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
                let sent = match self.paths.get(path) {
                    Some(path) => path.standing.sent_policy,
                    None => self.datagrams.sent_policy(*path).copied().flatten(),
                };
                if let Some((version, policy)) = sent {
                    Frame::Policy {
                        path: u64::from(path.0),
                        version,
                        policy,
                    }
                    .encode(out);
                }
            }
            Control::Ping { token } => Frame::Ping { token: *token }.encode(out),
            Control::PathState {
                path,
                version,
                state,
            } => Frame::PathState {
                path: u64::from(path.0),
                version: *version,
                state: *state,
            }
            .encode(out),
        }
    }
}
