//! The commands of a session's task.
//!
//! This module is in a circle with `stream`: a command can ask for a stream, and a stream sends
//! commands. It is in a circle with `pipe` because a pipe is a stream's way to the session's task.

use std::time::Instant;

use sumlink_bond::Early;
use sumlink_engine::{Class, Hints, PathId, StreamId};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use crate::api::status::SessionStatus;
use crate::api::stream::Stream;
use crate::carrier::Carrier;
use crate::carrier::quic::DatagramCarrier;
use crate::links::policy::Terms;
use sumlink_exit::target::{OpenError, Target};

/// Receives the result of opening a stream.
pub(crate) type OpenReply = oneshot::Sender<Result<Stream, OpenError>>;

/// A stream to be opened.
#[derive(Debug)]
pub(crate) struct Opening {
    /// The target, encoded as in an OPEN frame.
    pub(crate) target: Vec<u8>,
    pub(crate) class: Option<Class>,
    /// When the stream is given out before the peer confirms it; `None` is always, for a stream of
    /// which the peer waits for the first bytes.
    pub(crate) early: Option<Early>,
    pub(crate) reply: OpenReply,
    /// When it was requested.
    pub(crate) since: Instant,
}

/// Opens a stream in the session with this command channel; `early` as in [`Opening`]. Dropping the
/// future cancels the request.
pub(crate) async fn open_in(
    commands: UnboundedSender<Command>,
    target: &Target,
    class: Option<Class>,
    early: impl Into<Option<Early>>,
) -> Result<Stream, OpenError> {
    let (reply, answer) = oneshot::channel();
    let command = Command::Open(Opening {
        target: target.encode(),
        class,
        early: early.into(),
        reply,
        since: Instant::now(),
    });
    commands
        .send(command)
        .map_err(|_| OpenError::SessionClosed)?;
    // Dropped with this future when its caller gives up, which notifies the session.
    let mut waiter = Waiter { answer, commands };
    (&mut waiter.answer)
        .await
        .unwrap_or(Err(OpenError::SessionClosed))
}

/// Waits for a stream to be opened; dropping it cancels the request.
struct Waiter {
    answer: oneshot::Receiver<Result<Stream, OpenError>>,
    commands: UnboundedSender<Command>,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let answered = self.answer.is_terminated();
        self.answer.close();
        if !answered {
            let _ = self.commands.send(Command::Cancelled);
        }
    }
}

/// A command for a session's task.
#[derive(Debug)]
pub(crate) enum Command {
    /// A program has written to, read from or dropped a stream.
    Touched(StreamId),
    /// Open a stream.
    Open(Opening),
    /// Sets a program's hints for a stream, beyond its class.
    Hint(StreamId, Hints),
    /// Sets the class of the data that a program sends on a stream; `None` lets the stream's
    /// behavior decide.
    Classify(StreamId, Option<Class>),
    /// A program no longer waits for a stream to be opened.
    Cancelled,
    /// The target of a stream opened by the peer is connected.
    Accept(StreamId),
    /// The target of a stream opened by the peer cannot be connected.
    Refuse(StreamId, OpenError),
    /// Adds a carrier as a path.
    Add(Box<Carrier>),
    /// Adds a datagram carrier to its link.
    AddDatagrams(Box<DatagramCarrier>),
    /// Ends the datagram carrier of a link, with the reason.
    RemoveDatagrams(String, String),
    /// A link has no datagram carrier, with the reason.
    NoDatagrams(String, String),
    /// Sets the terms of a path.
    Terms(PathId, Box<Terms>),
    /// Removes a path, with the reason.
    Remove(PathId, String),
    /// Requests the session's status.
    Status(oneshot::Sender<SessionStatus>),
    /// Asks what the session does at the moment.
    Look(oneshot::Sender<Use>),
    /// Ends the session, with the reason.
    Close(String),
}

/// The present use of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    /// Whether any path is known to deliver.
    pub(crate) delivers: bool,
    /// Whether it has neither a flow nor a stream, but for the requests of published ports.
    pub(crate) is_idle: bool,
}
