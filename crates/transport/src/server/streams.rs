//! The streams of a session, connected to their targets.

use std::sync::Arc;
use std::time::Duration;

use sumlink_engine::StreamId;
use sumlink_exit::dial::{Turn, Turns, dial_in_turn};
use sumlink_exit::pace::Paced;
use sumlink_exit::relay::{Upload, relay};
use sumlink_exit::speed;
use sumlink_exit::target::{OpenError, OwnService, Target};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::task::JoinSet;
use tracing::Instrument;

use super::Shared;
use super::sessions::SessionId;
use crate::local::tasks::spawn_begun;
use crate::session::command::Command;
use crate::session::driver::Incoming;
use crate::session::sources::Sources;

/// How long a dial to a target may take.
pub(super) const DIAL_TIMEOUT: Duration = Duration::from_secs(15);

/// Concurrent speed tests of a session: a download or an upload, and the server's load.
pub(super) const SPEED_TESTS: usize = 4;

/// A session, as the tasks of its streams use it.
#[derive(Debug)]
pub(super) struct Serving {
    pub(super) session: SessionId,
    pub(super) sources: Arc<Sources>,
    pub(super) commands: UnboundedSender<Command>,
    /// Limit on concurrent speed tests.
    pub(super) speed_tests: Semaphore,
}

impl Serving {
    /// The target of a stream is connected.
    pub(super) fn accept(&self, stream: StreamId) {
        let _ = self.commands.send(Command::Accept(stream));
    }

    /// The target of a stream cannot be connected.
    pub(super) fn refuse(&self, stream: StreamId, error: OpenError) {
        let _ = self.commands.send(Command::Refuse(stream, error));
    }
}

impl Shared {
    /// Connects the client's streams, in the order of its requests.
    pub(super) async fn serve_streams(
        self: Arc<Self>,
        serving: Arc<Serving>,
        mut incoming: UnboundedReceiver<Incoming>,
    ) {
        let mut tasks = JoinSet::new();
        let mut turns = Turns::default();
        let most = usize::try_from(self.config.session.max_streams).unwrap_or(usize::MAX);
        loop {
            tokio::select! {
                next = incoming.recv() => match next {
                    // A stream's task may briefly outlive the stream; the limit applies to the
                    // tasks.
                    Some(next) if tasks.len() >= most => {
                        serving.refuse(next.id, OpenError::LimitReached);
                    }
                    Some(next) => {
                        let (shared, serving) = (Arc::clone(&self), Arc::clone(&serving));
                        let turn = turns.next(&next.target);
                        let task = async move {
                            shared.serve_stream(&serving, next, turn).await;
                        };
                        spawn_begun(&mut tasks, task.in_current_span()).await;
                    }
                    None => break,
                },
                Some(_) = tasks.join_next() => {}
            }
        }
    }

    async fn serve_stream(&self, serving: &Serving, incoming: Incoming, turn: Turn) {
        let Incoming { id, target, stream } = incoming;
        let Ok(target) = Target::decode(&target) else {
            return serving.refuse(id, OpenError::BadTarget);
        };
        if let Some(handler) = &self.handler.0 {
            serving.accept(id);
            handler(serving.session.0, target, stream);
            return;
        }
        let service = target.own_service();
        if service == Some(OwnService::Publish) {
            serving.accept(id);
            return self.serve_lease(serving, stream).await;
        }
        if service == Some(OwnService::Speed) {
            let Ok(_place) = serving.speed_tests.try_acquire() else {
                return serving.refuse(id, OpenError::LimitReached);
            };
            serving.accept(id);
            let stream = Paced::new(stream, self.pace_of(&serving.session.0));
            if let Err(error) = speed::serve(stream).await {
                tracing::debug!(%error, "a speed test has ended");
            }
            return;
        }
        let policy = Arc::clone(&self.egress.borrow());
        let Ok(_place) = self.targets.try_acquire() else {
            return serving.refuse(id, OpenError::LimitReached);
        };
        let connect = async {
            match service {
                None => dial_in_turn(&target, &policy, DIAL_TIMEOUT, turn).await,
                Some(OwnService::Resolver) => self.resolvers.connect(DIAL_TIMEOUT).await,
                Some(_) => Err(OpenError::NameNotResolved),
            }
        };
        let connected = tokio::select! {
            connected = connect => connected,
            // The client has given up, and the dial ends with the stream; otherwise a client could
            // start any number of dials.
            _ = stream.failed() => return,
        };
        match &connected {
            Err(OpenError::NotAllowed) if service.is_none() => {
                tracing::info!(%target, "refused by the egress policy");
            }
            Err(error) => tracing::debug!(%target, %error, "cannot connect a stream to its target"),
            Ok(_) => {}
        }
        match connected {
            Ok(tcp) => {
                serving.accept(id);
                let stream = Paced::new(stream, self.pace_of(&serving.session.0));
                relay(tcp, stream, &[], Upload::Unlimited).await;
            }
            Err(error) => serving.refuse(id, error),
        }
    }
}
