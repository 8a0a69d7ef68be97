//! The answering end of the control socket: the connections, their requests and the answers.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use sumlink_monitor::Report;
use sumlink_transport::accept::Accepting;
use sumlink_transport::slots::{Slot, Slots};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::error::Refusal;
use super::request::{MAX_REQUEST, Request};
use super::{Controlled, PATIENCE, events};
use crate::logging;

/// Limit on connections that wait for their request, and separately on those being answered. One
/// more ends the oldest.
const MAX_CONNECTIONS: usize = 16;

/// Answers the requests of all connections, without end.
pub(super) async fn connections(listener: &UnixListener, program: impl Controlled) {
    let mut accepting = Accepting::new("the control socket");
    let mut connections = JoinSet::new();
    let slots = || Arc::new(Mutex::new(Slots::new(MAX_CONNECTIONS)));
    let mut asking = Slots::new(MAX_CONNECTIONS);
    let (answering, following) = (slots(), slots());
    loop {
        let stream = tokio::select! {
            stream = accepting.next(listener) => stream,
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

/// Serves one connection: its request and the answer, each within [`PATIENCE`] and until another
/// connection needs its slot.
async fn serve_one(
    mut stream: UnixStream,
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
async fn read_request(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let limited = stream.take(MAX_REQUEST as u64);
    BufReader::new(limited).read_until(b'\n', &mut line).await?;
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use sumlink_transport::LinkReport;

    use super::*;
    use crate::control::{ControlError, ControlSocket, LinkChange, RefusalKind, ask, link};

    async fn ask_raw(path: &Path, request: impl AsRef<[u8]>) -> String {
        let mut stream = UnixStream::connect(path).await.unwrap();
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
                let stream = UnixStream::connect(&path).await;
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
                let mut stream = UnixStream::connect(&path).await.unwrap();
                stream.write_all(b"{\"cmd\":\"status\"}\n").await.unwrap();
                unread.push(stream);
            }
            let status = timeout(PATIENCE / 2, ask_raw(&path, "{\"cmd\":\"status\"}\n"));
            assert!(status.await.unwrap().contains("xxx"));
        };
        tokio::select! { () = socket.serve(long) => unreachable!(), () = client => {} }
    }
}
