//! The asking end of the control socket: each function sends one request and returns the answer.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde::de::DeserializeOwned;
use sumlink_monitor::Report;
use sumlink_transport::LinkReport;
use sumlink_util::plain;

use super::clients_request::ClientsRequest;
use super::error::{ControlError, Refusal};
use super::request::{LinkChange, LinkRate, Request, RouteRequest};
use super::{PATIENCE, Stopping};

/// Longest accepted answer, in bytes: thousands of paths.
const MAX_ANSWER: u64 = 64 << 20;

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
    let line = exchange(&mut stream).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            ControlError::Silent { path: owned() }
        }
        _ => bad(plain(error).to_string()),
    })?;
    if let Ok(refusal) = serde_json::from_str::<Refusal>(&line) {
        return Err(ControlError::Refused(refusal));
    }
    serde_json::from_str(&line).map_err(|error| bad(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_answer_is_named_as_the_cause() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let _silent = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let error = ask(&path).unwrap_err();
        assert!(matches!(error, ControlError::Silent { .. }), "{error}");
        assert!(
            error.to_string().contains("no answer within 5 s"),
            "{error}"
        );
    }

    #[test]
    fn a_missing_process_is_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let error = ask(&dir.path().join("none.sock")).unwrap_err();
        assert!(matches!(error, ControlError::Nobody { .. }));
        assert_eq!(error.to_string().lines().count(), 1);
    }
}
