//! Handles the engine's events: for the streams' ends, the log and the subscribers.

use std::time::{Duration, Instant};

use sumlink_bond::LoggedState;
use sumlink_engine::{Event, PathId, Selection};

use super::Driver;
use crate::api::status::PathEvent;
use crate::carrier::Carrier;
use sumlink_exit::target::OpenError;

/// Time limit for sending a CLOSE frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

impl Driver {
    pub(super) fn events(&mut self) -> bool {
        let mut moved = false;
        while let Some(event) = self.engine.poll_event() {
            moved = true;
            match event {
                Event::Opened { stream, target, .. } => self.incoming(stream, target),
                Event::Accepted { stream } => self.accepted(stream),
                Event::Readable { stream } => self.give_down(stream),
                Event::Writable { stream } => self.serve_local(stream),
                Event::Reset { stream, code } => {
                    self.fail_local(stream, OpenError::from_code(code))
                }
                Event::StreamsAvailable => self.open_waiting(),
                Event::PathStalled { path, silent_for }
                    if self.note_state(path, LoggedState::Stalled, true) =>
                {
                    let reason = format!("nothing delivered for {} ms", silent_for.as_millis());
                    let link = self.link_of(path);
                    tracing::info!(path = path.0, %link, %reason, "path stalled");
                    self.totals.stalled(&link, silent_for);
                    let event = PathEvent::Stalled {
                        path: path.0,
                        link,
                        reason,
                    };
                    self.report(event);
                    self.look_for_silence_soon();
                }
                Event::PathStalledAtPeer { path }
                    if self.note_state(path, LoggedState::StalledAtPeer, true) =>
                {
                    let link = self.link_of(path);
                    tracing::info!(path = path.0, %link, "path stalled at the peer");
                    self.look_for_silence_soon();
                }
                Event::PathRecoveredAtPeer { path }
                    if self.note_state(path, LoggedState::StalledAtPeer, false) =>
                {
                    let link = self.link_of(path);
                    tracing::info!(path = path.0, %link, "path recovered at the peer");
                }
                Event::PathLeft { path } => {
                    let of_path = |carrier: &Carrier| carrier.id == path;
                    if let Some(index) = self.carriers.iter().position(of_path) {
                        self.end_carrier(index, "the peer has removed the path");
                    }
                }
                Event::PathRecovered { path }
                    if self.note_state(path, LoggedState::Stalled, false) =>
                {
                    let link = self.link_of(path);
                    self.notify_recovered(path);
                    tracing::info!(path = path.0, %link, "path recovered");
                    self.totals.returned(&link);
                    self.report(PathEvent::Recovered { path: path.0, link });
                }
                Event::PathLimited { path, rate } => self.limit(path, rate),
                Event::PathSelected {
                    path,
                    selection,
                    reason,
                } => self.report_selection(path, selection, reason),
                Event::FlowOpened {
                    flow,
                    source,
                    target,
                    class,
                } => self.flow_opened(flow, source, &target, class),
                Event::FlowClosed { flow, reason } => self.flow_closed(flow, reason),
                Event::FlowFailed { flow, code } => self.flow_failed(flow, code),
                Event::Closed { reason, .. } => self.end(reason.to_string()),
                _ => {}
            }
        }
        moved
    }

    /// Records whether the path is in this state; returns whether that is a change. Ended
    /// paths never change.
    fn note_state(&mut self, path: PathId, state: LoggedState, is_present: bool) -> bool {
        let carrier = self.carriers.iter_mut().find(|carrier| carrier.id == path);
        carrier.is_some_and(|carrier| carrier.logged_states.set(state, is_present))
    }

    /// Reports a selection. Lasting ones are logged at a higher level than trials.
    fn report_selection(&self, path: PathId, selection: Selection, reason: String) {
        let (link, path, name) = (self.link_of(path), path.0, selection.name());
        match selection {
            Selection::Parked | Selection::Active => {
                tracing::info!(path, %link, %reason, "path {name}");
            }
            Selection::Trial | Selection::Probing => {
                tracing::debug!(path, %link, %reason, "path {name}");
            }
        }
        self.report(PathEvent::Selected {
            path,
            link,
            selection: name.to_owned(),
            reason,
        });
    }

    fn end(&mut self, reason: String) {
        self.close_deadline = Some(Instant::now() + CLOSE_TIMEOUT);
        self.locals
            .drain()
            .for_each(|(_, local)| local.fail(OpenError::SessionClosed));
        for (_, opening) in self.waiting.take() {
            let _ = opening.reply.send(Err(OpenError::SessionClosed));
        }
        self.end_all_datagrams();
        tracing::info!(%reason, "session closed");
        self.report(PathEvent::Closed {
            reason: reason.clone(),
        });
        self.ended = Some(reason);
    }
}
