//! What waits for a path: control frames, and what a path that failed leaves to the others.

use std::collections::VecDeque;

use super::Session;
use crate::Instant;
use crate::path::{Control, Flight, Path};

impl Session {
    /// Everything unconfirmed on `path`, which has ended, has to go over others.
    pub(super) fn take_back(&mut self, path: Path, now: Instant) {
        self.requeue(
            path.flights,
            path.control.into_iter().filter_map(|sent| sent.frame),
            now,
        );
        self.reports.path_lost(path.id);
        self.reports.tell_again(&mut self.streams, &mut self.paths);
    }

    /// Stream bytes and control frames that a path does not deliver go over others.
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
        // The oldest first, and before what waits already: a FIN may hold up a program.
        for frame in control.rev() {
            if !matches!(frame, Control::Ping { .. }) && self.is_to_be_queued(&frame) {
                self.control.push_front((now, frame));
            }
        }
    }

    /// Has a control frame wait for a path.
    pub(super) fn queue(&mut self, frame: Control, now: Instant) {
        self.schedulers.note_change();
        if self.is_to_be_queued(&frame) {
            self.control.push_back((now, frame));
        }
    }

    /// Credit waits at most once, however often it is raised meanwhile: the frame tells the newest.
    fn is_to_be_queued(&mut self, frame: &Control) -> bool {
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
            // A newer one says what counts.
            Control::PathState { path, version, .. } => self
                .paths
                .get(path)
                .is_none_or(|path| path.said <= *version),
            _ => true,
        }
    }
}
