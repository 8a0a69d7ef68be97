//! The control socket, over which `sumlink status` queries a running client or server.
//!
//! A Unix socket with mode 0600. Each connection carries one request and one answer, each a JSON
//! object on one line:
//!
//! - `{"cmd":"status"}` is answered with a [`Report`].
//! - `{"cmd":"events"}` is answered with the program's events, one object on each line, until
//!   either side ends the connection.
//! - `{"cmd":"link","name":"wwan0"}`, with or without a `change`, is answered by a client with a
//!   [`LinkReport`].
//! - `{"cmd":"rate","name":"lte","rate_bps":12000000}` is answered by an edge node with a
//!   [`LinkRate`].
//! - `{"cmd":"route","op":"list"}` and its kin ([`RouteRequest`]) are answered by a gateway.
//! - `{"cmd":"clients","op":"list"}` and its kin ([`ClientsRequest`]) are answered by a server.
//! - `{"cmd":"stop"}` ends a gateway; the answer is a [`Stopping`].
//! - Everything else is answered with `{"error":"..."}`.
//!
//! Connections without a request block no others: each has 5 s, and a connection beyond the limit
//! ends the oldest one.

mod events;
mod request;

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
pub use sumlink_monitor::Report;
use sumlink_transport::accept::Accepting;
use sumlink_transport::slots::{Slot, Slots};
use sumlink_transport::{LinkReport, SetPolicyError};
use sumlink_util::plain;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::sync::broadcast;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::clients::ClientsRequest;
use crate::logging;
pub use request::{LinkChange, LinkRate, RouteRequest};
use request::{MAX_REQUEST, Request};

/// Longest path of a Unix socket, in bytes (unix(7): `sun_path`, less its NUL).
pub(crate) const LONGEST_PATH: usize = 107;

/// Longest accepted answer, in bytes: thousands of paths.
const MAX_ANSWER: u64 = 64 << 20;

/// Limit on connections that wait for their request, and separately on those being answered. One
/// more ends the oldest.
const MAX_CONNECTIONS: usize = 16;

/// Time for which either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(5);

/// A program that answers at its control socket. It refuses the requests that are not for it.
pub trait Controlled: Clone + Send + Sync + 'static {
    /// The report of `sumlink status`.
    fn report(&self) -> impl Future<Output = Report> + Send;

    /// The program's events from now on, each as one JSON object.
    fn events(&self) -> Option<broadcast::Receiver<Arc<str>>> {
        None
    }

    /// Shows the policy of a link, or changes it first.
    fn link(
        &self,
        _name: String,
        _change: Option<LinkChange>,
    ) -> impl Future<Output = Result<LinkReport, Refusal>> + Send {
        std::future::ready(Err(Refusal::not_here(
            "only a client has policies of links",
        )))
    }

    /// Sets the rate of a link.
    fn rate(&self, _asked: &LinkRate) -> Result<(), Refusal> {
        Err(Refusal::not_here(
            "only an edge node accepts rates; use --send-limit and --receive-limit at a client",
        ))
    }

    /// Shows, changes or tests the routing rules.
    fn route(
        &self,
        _asked: RouteRequest,
    ) -> impl Future<Output = Result<serde_json::Value, Refusal>> + Send {
        std::future::ready(Err(Refusal::not_here(
            "only a gateway has routing rules; start it with sumlink up",
        )))
    }

    /// Shows or changes the clients of a server, or makes an invitation.
    fn clients(
        &self,
        _asked: ClientsRequest,
    ) -> impl Future<Output = Result<serde_json::Value, Refusal>> + Send {
        std::future::ready(Err(Refusal::not_here("only a server has clients")))
    }

    /// Refuses new sessions from now on, or admits them again.
    fn drain(&self, _on: bool) -> Result<(), Refusal> {
        Err(Refusal::not_here("only a server has sessions to drain"))
    }

    /// Begins to end the program.
    fn stop(&self) -> Result<Stopping, Refusal> {
        Err(Refusal::not_here(
            "only a gateway ends on request; end others with SIGTERM",
        ))
    }
}

/// The answer to a request to stop.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Stopping {
    /// Process id of the program that is about to end.
    pub stopping: u32,
}

/// Why a running process refused to show or change a link's policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Refusal {
    /// Message for people.
    pub error: String,
    /// Cause.
    #[serde(default)]
    pub kind: RefusalKind,
}

/// The cause of a refusal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalKind {
    /// The link does not exist.
    NoSuchLink,
    /// The request is invalid.
    Usage,
    /// Any other cause.
    #[default]
    Other,
}

impl Refusal {
    /// The request is for another kind of program.
    pub(crate) fn not_here(reason: &str) -> Self {
        Self {
            error: reason.to_owned(),
            kind: RefusalKind::Usage,
        }
    }
}

impl From<SetPolicyError> for Refusal {
    fn from(error: SetPolicyError) -> Self {
        let kind = match error {
            SetPolicyError::NoSuchLink { .. } => RefusalKind::NoSuchLink,
            SetPolicyError::Policy(_) => RefusalKind::Usage,
            _ => RefusalKind::Other,
        };
        Self {
            error: error.to_string(),
            kind,
        }
    }
}

/// Failures of the control socket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// Caused by the user: another process uses the socket.
    #[error("{}: another sumlink already uses this control socket; choose another --control", .0.display())]
    InUse(PathBuf),
    /// Caused by the user: the path is a file and not a socket.
    #[error("{}: the file is not a socket; choose another --control", .0.display())]
    NotASocket(PathBuf),
    /// Caused by the system or the user: the socket cannot be created.
    #[error("{}: cannot create the control socket: {reason}; choose a --control of at most {LONGEST_PATH} bytes in a directory that exists and that you may write to", path.display(), reason = plain(.reason))]
    Create {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        reason: io::Error,
    },
    /// Caused by the user: no process listens there.
    #[error("{}: no sumlink answers at this control socket ({reason}); is it running with --control?", path.display(), reason = plain(.reason))]
    Nobody {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        reason: io::Error,
    },
    /// Caused by the user: no socket was named, and no service runs.
    #[error("no sumlink runs as a service here (no answer at {}): name the socket with --control", paths(.0))]
    NoService(Vec<PathBuf>),
    /// Caused by the user: no socket was named, and several services run.
    #[error("several sumlink services run here: choose one with --control, from {}", paths(.0))]
    Several(Vec<PathBuf>),
    /// Caused by the user: the socket belongs to another user.
    #[error("{}: not permitted: run this as the user of that sumlink, or as root", .0.display())]
    NotPermitted(PathBuf),
    /// Caused by the user: the other program refused the request.
    #[error("{}", .0.error)]
    Refused(Refusal),
    /// Caused by the other program: its answer is invalid.
    #[error("{}: invalid answer: {reason}; check that --control is the socket of a running sumlink of this version", path.display())]
    Answer {
        /// The socket.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
}

fn paths(paths: &[PathBuf]) -> String {
    let paths = paths.iter().map(|path| path.display().to_string());
    paths.collect::<Vec<_>>().join(", ")
}

/// The listening end; dropping it removes the socket file.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of this socket, so that a socket that replaced it is not removed.
    identity: (u64, u64),
}

impl ControlSocket {
    /// Creates the socket and replaces one that a dead process has left.
    pub fn bind(path: &Path) -> Result<Self, ControlError> {
        clear_stale(path)?;
        let create = |reason| ControlError::Create {
            path: path.to_owned(),
            reason,
        };
        // The mode is set between bind and listen: before listen no connection is possible.
        let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)
            .map_err(create)?;
        socket
            .bind(&socket2::SockAddr::unix(path).map_err(create)?)
            .map_err(create)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(create)?;
        socket.listen(16).map_err(create)?;
        socket.set_nonblocking(true).map_err(create)?;
        let identity = identity(path).map_err(create)?;
        let listener = UnixListener::from_std(socket.into()).map_err(create)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            identity,
        })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Answers requests without end.
    pub async fn serve(&self, program: impl Controlled) {
        let mut accepting = Accepting::new("the control socket");
        let mut connections = JoinSet::new();
        let slots = || Arc::new(Mutex::new(Slots::new(MAX_CONNECTIONS)));
        let mut asking = Slots::new(MAX_CONNECTIONS);
        let (answering, following) = (slots(), slots());
        loop {
            let stream = tokio::select! {
                stream = accepting.next(&self.listener) => stream,
                Some(_) = connections.join_next() => continue,
            };
            let program = program.clone();
            let slot = asking.enter();
            let (answering, following) = (Arc::clone(&answering), Arc::clone(&following));
            connections.spawn(async move {
                let served = serve_one(stream, slot, (&answering, &following), program);
                if let Err(error) = served.await {
                    tracing::debug!(%error, "control connection");
                }
            });
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|now| now == self.identity)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(%error, path = %self.path.display(), "cannot remove the control socket");
        }
    }
}

/// Requests the report of the process at the other end of `path`.
pub fn ask(path: &Path) -> Result<Report, ControlError> {
    request(path, &Request::Status {})
}

/// Shows or changes the policy of a link of the client at the other end of `path`.
pub(crate) fn link(
    path: &Path,
    name: &str,
    change: Option<LinkChange>,
) -> Result<LinkReport, ControlError> {
    let name = name.to_owned();
    request(path, &Request::Link { name, change })
}

/// Passes each event of the program at the other end of `path` to `show`, as a JSON object on one
/// line with its end, until that program or `show` ends it.
pub(crate) fn follow(
    path: &Path,
    mut show: impl FnMut(&str) -> io::Result<()>,
) -> Result<io::Result<()>, ControlError> {
    let mut stream = connect(path)?;
    let failed = |reason: io::Error| ControlError::Answer {
        path: path.to_owned(),
        reason: plain(reason).to_string(),
    };
    let request = serde_json::to_string(&Request::Events {}).map_err(|e| failed(e.into()))?;
    let asked = stream.write_all(format!("{request}\n").as_bytes());
    asked.map_err(failed)?;
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    loop {
        line.clear();
        let limited = io::Read::take(&mut lines, MAX_ANSWER).read_line(&mut line);
        if limited.map_err(failed)? == 0 {
            return Ok(Ok(()));
        }
        if let Ok(refusal) = serde_json::from_str::<Refusal>(&line) {
            return Err(ControlError::Refused(refusal));
        }
        if let Err(error) = show(&line) {
            return Ok(Err(error));
        }
    }
}

/// Sets the rate of a link of the edge node at the other end of `path`.
pub fn set_rate(path: &Path, rate: LinkRate) -> Result<LinkRate, ControlError> {
    request(path, &Request::Rate(rate))
}

/// Shows, changes or tests the routing rules of the gateway at the other end of `path`.
pub(crate) fn route(path: &Path, asked: RouteRequest) -> Result<serde_json::Value, ControlError> {
    request(path, &Request::Route(asked))
}

/// Shows or changes the clients of the server at the other end of `path`.
pub(crate) fn clients(
    path: &Path,
    asked: ClientsRequest,
) -> Result<serde_json::Value, ControlError> {
    request(path, &Request::Clients(asked))
}

/// Has the server at the other end of `path` refuse new sessions, or admit them again.
pub(crate) fn drain(path: &Path, on: bool) -> Result<(), ControlError> {
    let _: serde_json::Value = request(path, &Request::Drain { on })?;
    Ok(())
}

/// Ends the gateway at the other end of `path`.
pub(crate) fn stop(path: &Path) -> Result<Stopping, ControlError> {
    request(path, &Request::Stop {})
}

fn connect(path: &Path) -> Result<UnixStream, ControlError> {
    UnixStream::connect(path).map_err(|reason| match reason.kind() {
        io::ErrorKind::PermissionDenied => ControlError::NotPermitted(path.to_owned()),
        _ => ControlError::Nobody {
            path: path.to_owned(),
            reason,
        },
    })
}

/// Sends one request and reads its answer.
fn request<T: DeserializeOwned>(path: &Path, request: &Request) -> Result<T, ControlError> {
    let owned = || path.to_owned();
    let bad = |reason: String| ControlError::Answer {
        path: owned(),
        reason,
    };
    let mut stream = connect(path)?;
    let exchange = |stream: &mut UnixStream| -> io::Result<String> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(format!("{}\n", serde_json::to_string(request)?).as_bytes())?;
        let mut line = String::new();
        BufReader::new(io::Read::take(stream, MAX_ANSWER)).read_line(&mut line)?;
        Ok(line)
    };
    let line = exchange(&mut stream).map_err(|error| bad(plain(error).to_string()))?;
    if let Ok(refusal) = serde_json::from_str::<Refusal>(&line) {
        return Err(ControlError::Refused(refusal));
    }
    serde_json::from_str(&line).map_err(|error| bad(error.to_string()))
}

/// Serves one connection: its request and the answer, each within [`PATIENCE`] and until another
/// connection needs its slot.
async fn serve_one(
    mut stream: tokio::net::UnixStream,
    slot: Slot,
    (answering, following): (&Mutex<Slots>, &Mutex<Slots>),
    program: impl Controlled,
) -> io::Result<()> {
    let asked = tokio::select! {
        asked = timeout(PATIENCE, read_request(&mut stream)) => match asked {
            Ok(line) => Request::decode(&line?),
            Err(_) => Err(format!("no request arrived within {} s", PATIENCE.as_secs())),
        },
        Ok(()) = slot => {
            Err("no request arrived, and other connections need the slot".to_owned())
        }
    };
    let enter = |slots: &Mutex<Slots>| {
        let mut slots = slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.enter()
    };
    if let (Ok(Request::Events {}), Some(events)) = (&asked, program.events()) {
        return events::write(stream, events, enter(following)).await;
    }
    let slot = enter(answering);
    let exchange = async {
        let answer = match asked {
            Ok(request) => answer(request, program).await?,
            Err(error) => serde_json::json!({ "error": error }),
        };
        stream.write_all(format!("{answer}\n").as_bytes()).await?;
        stream.shutdown().await
    };
    tokio::select! {
        answered = timeout(PATIENCE, exchange) => {
            answered.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        }
        Ok(()) = slot => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Reads up to the end of the first line, of the connection, or to the longest request.
async fn read_request(stream: &mut tokio::net::UnixStream) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let limited = stream.take(MAX_REQUEST as u64);
    tokio::io::BufReader::new(limited)
        .read_until(b'\n', &mut line)
        .await?;
    Ok(line)
}

/// The whole report of a program.
pub(crate) async fn report(program: &impl Controlled) -> Report {
    Report {
        log: logging::counts(),
        ..program.report().await
    }
}

async fn answer(request: Request, program: impl Controlled) -> io::Result<serde_json::Value> {
    fn of<T: Serialize>(result: Result<T, Refusal>) -> serde_json::Result<serde_json::Value> {
        match result {
            Ok(answer) => serde_json::to_value(answer),
            Err(refusal) => serde_json::to_value(refusal),
        }
    }
    let answer = match request {
        Request::Status {} => serde_json::to_value(report(&program).await),
        Request::Events {} => serde_json::to_value(Refusal::not_here(
            "only a client, a server or a gateway has events",
        )),
        Request::Link { name, change } => of(program.link(name, change).await),
        Request::Rate(asked) => of(program.rate(&asked).map(|()| asked)),
        Request::Route(asked) => of(program.route(asked).await),
        Request::Clients(asked) => of(program.clients(asked).await),
        Request::Drain { on } => of(program.drain(on).map(|()| serde_json::json!({}))),
        Request::Stop {} => of(program.stop()),
    };
    Ok(answer?)
}

/// Removes the socket of a dead process; any other file is an error.
fn clear_stale(path: &Path) -> Result<(), ControlError> {
    let create = |reason| ControlError::Create {
        path: path.to_owned(),
        reason,
    };
    let metadata = match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(create)?,
    };
    if !metadata.file_type().is_socket() {
        return Err(ControlError::NotASocket(path.to_owned()));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(create)
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(ControlError::NotPermitted(path.to_owned()))
        }
        _ => Err(ControlError::InUse(path.to_owned())),
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = path.symlink_metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask_raw(path: &Path, request: impl AsRef<[u8]>) -> String {
        let mut stream = tokio::net::UnixStream::connect(path).await.unwrap();
        stream.write_all(request.as_ref()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// A client with this text as its note.
    #[derive(Clone)]
    struct Program(String);

    impl Controlled for Program {
        async fn report(&self) -> Report {
            Report::new("client", self.0.clone(), Vec::new())
        }

        async fn link(&self, name: String, _: Option<LinkChange>) -> Result<LinkReport, Refusal> {
            Err(Refusal {
                error: format!("no {name} here"),
                kind: RefusalKind::NoSuchLink,
            })
        }
    }

    fn program() -> Program {
        Program("connecting".to_owned())
    }

    #[tokio::test]
    async fn the_socket_is_private_answers_and_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let socket = ControlSocket::bind(&path).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        let client = async {
            let asked = path.clone();
            let report = tokio::task::spawn_blocking(move || ask(&asked))
                .await
                .unwrap()
                .unwrap();
            assert_eq!(
                (report.role.as_str(), report.note.as_str()),
                ("client", "connecting")
            );
            let asked = path.clone();
            let refused = tokio::task::spawn_blocking(move || link(&asked, "eth7", None));
            match refused.await.unwrap() {
                Err(ControlError::Refused(refusal)) => {
                    assert_eq!(refusal.kind, RefusalKind::NoSuchLink);
                    assert_eq!(refusal.error, "no eth7 here");
                }
                other => panic!("{other:?}"),
            }
            let rate = "{\"cmd\":\"rate\",\"name\":\"lte\",\"rate_bps\":1000}\n";
            let answer = ask_raw(&path, rate).await;
            assert!(answer.contains("only an edge node"), "{answer}");
            assert!(
                ask_raw(&path, "{\"cmd\":\"format\"}\n")
                    .await
                    .contains("unknown request")
            );
            assert!(
                ask_raw(&path, "garbage\n")
                    .await
                    .contains("unknown request")
            );
            let endless = "x".repeat(MAX_REQUEST);
            assert!(ask_raw(&path, &endless).await.contains("is longer than"));
            for strange in [
                &b"\xff\xfe\n"[..],
                b"{\"cmd\":\"status\xff\"}\n",
                b"\n",
                b"\0\n",
            ] {
                let answer = ask_raw(&path, strange).await;
                assert!(answer.contains("unknown request"), "{strange:?}: {answer}");
            }
        };
        tokio::select! { () = socket.serve(program()) => unreachable!(), () = client => {} }
        drop(socket);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn connections_without_a_request_block_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let socket = ControlSocket::bind(&path).unwrap();
        let client = async {
            let mut idle = Vec::new();
            for _ in 0..10 * MAX_CONNECTIONS {
                let stream = tokio::net::UnixStream::connect(&path).await;
                idle.push(stream.unwrap());
            }
            let status = ask_raw(&path, "{\"cmd\":\"status\"}\n").await;
            assert!(status.contains("\"role\":\"client\""), "{status}");
            // The oldest connections were ended, each with a reason.
            let mut reason = String::new();
            let read = idle[0].read_to_string(&mut reason);
            timeout(PATIENCE / 2, read).await.unwrap().unwrap();
            assert!(reason.contains("need the slot"), "{reason}");
            // The newest may still send a request.
            let newest = idle.last_mut().unwrap();
            newest.write_all(b"{\"cmd\":\"status\"}\n").await.unwrap();
            let mut status = String::new();
            newest.read_to_string(&mut status).await.unwrap();
            assert!(status.contains("\"role\":\"client\""), "{status}");
        };
        tokio::select! { () = socket.serve(program()) => unreachable!(), () = client => {} }
    }

    #[tokio::test]
    async fn unread_answers_block_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let socket = ControlSocket::bind(&path).unwrap();
        // More than a socket's buffer holds.
        let long = Program("x".repeat(4 << 20));
        let client = async {
            let mut unread = Vec::new();
            for _ in 0..2 * MAX_CONNECTIONS {
                let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
                stream.write_all(b"{\"cmd\":\"status\"}\n").await.unwrap();
                unread.push(stream);
            }
            let status = timeout(PATIENCE / 2, ask_raw(&path, "{\"cmd\":\"status\"}\n"));
            assert!(status.await.unwrap().contains("xxx"));
        };
        tokio::select! { () = socket.serve(long) => unreachable!(), () = client => {} }
    }

    #[test]
    fn a_request_that_cannot_be_read_is_answered_with_the_reason() {
        let decode = |line: &[u8]| Request::decode(line).unwrap_err();
        assert!(decode(b"").contains("ended first"));
        assert!(decode(b"\xff\n").contains("unknown request"));
        let cut = [b"{\"cmd\":".as_slice(), &[b' '; MAX_REQUEST]].concat();
        assert!(decode(&cut[..MAX_REQUEST]).contains("longer than 4096 bytes"));
        // The end of the connection ends a line, too.
        assert_eq!(
            Request::decode(b"{\"cmd\":\"status\"}"),
            Ok(Request::Status {})
        );
    }

    #[tokio::test]
    async fn a_live_socket_is_an_error_and_a_stale_one_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let living = ControlSocket::bind(&path).unwrap();
        assert!(matches!(
            ControlSocket::bind(&path),
            Err(ControlError::InUse(_))
        ));
        drop(living);
        std::fs::write(&path, "precious").unwrap();
        assert!(matches!(
            ControlSocket::bind(&path),
            Err(ControlError::NotASocket(_))
        ));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    }

    #[tokio::test]
    async fn a_socket_that_replaced_ours_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let ours = ControlSocket::bind(&path).unwrap();
        std::fs::rename(&path, dir.path().join("moved")).unwrap();
        let theirs = ControlSocket::bind(&path).unwrap();
        drop(ours);
        assert!(path.exists());
        drop(theirs);
    }

    #[test]
    fn a_missing_process_is_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let error = ask(&dir.path().join("none.sock")).unwrap_err();
        assert!(matches!(error, ControlError::Nobody { .. }));
        assert_eq!(error.to_string().lines().count(), 1);
    }
}
