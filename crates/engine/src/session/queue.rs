//! Work that waits for a path: control frames, and the unacknowledged data of a failed path.

use std::collections::VecDeque;

use super::Session;
use crate::Instant;
use crate::path::{Control, Flight, Path};

impl Session {
    /// Requeues everything unacknowledged on `path`, which has ended.
    pub(super) fn take_back(&mut self, path: Path, now: Instant) {
        self.requeue(
            path.outbound.flights,
            path.outbound
                .control
                .into_iter()
                .filter_map(|sent| sent.frame),
            now,
        );
        self.reports.path_lost(path.id);
        self.reports
            .report_again(&mut self.streams, &mut self.paths);
    }

    /// Requeues stream bytes and control frames that a path does not deliver, so that others carry
    /// them.
    pub(super) fn requeue(
        &mut self,
        flights: VecDeque<Flight>,
        control: impl DoubleEndedIterator<Item = Control>,
        now: Instant,
    ) {
        self.schedulers.note_change();
        for flight in flights {
            if let Some(stream) = self.streams.get_mut(&flight.stream)
                && !stream.send.complete
            {
                stream.send.requeue(flight.range);
                if !stream.send.unsent.is_empty() {
                    self.ready.insert(flight.stream);
                    self.schedulers.stream_ready(flight.stream);
                }
            }
        }
        // The oldest first, and before the frames that already wait: a FIN may hold up a program.
        for frame in control.rev() {
            if !matches!(frame, Control::Ping { .. }) && self.needs_queueing(&frame) {
                self.control.push_front((now, frame));
            }
        }
    }

    /// Queues a control frame.
    pub(super) fn queue(&mut self, frame: Control, now: Instant) {
        self.schedulers.note_change();
        if self.needs_queueing(&frame) {
            self.control.push_back((now, frame));
        }
    }

    /// Whether the frame must be queued. Credit is queued at most once, however often it is raised
    /// meanwhile, because the frame is encoded with the newest value.
    fn needs_queueing(&mut self, frame: &Control) -> bool {
        match frame {
            Control::CreditSession => {
                !std::mem::replace(&mut self.receive_credit.session_queued, true)
            }
            Control::CreditStreams => {
                !std::mem::replace(&mut self.receive_credit.streams_queued, true)
            }
            Control::CreditStream { stream } => self
                .streams
                .get_mut(stream)
                .is_some_and(|state| !std::mem::replace(&mut state.receive.credit_queued, true)),
            // A newer frame for the path replaces it.
            Control::PathState { path, version, .. } => self
                .paths
                .get(path)
                .is_none_or(|path| path.peer.state_version_sent <= *version),
            _ => true,
        }
    }
}
