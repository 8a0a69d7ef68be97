//! The server's side of the traffic.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::error::LabError;
use crate::prose::note;

use super::connection::{self, End, Wire};
use super::record::Recorder;
use super::requests;
use super::{Channel, Job, Request, Window, tls};

/// Time limit for a connection's request.
const REQUEST_TIME: Duration = Duration::from_secs(60);

/// Serves the requests of connections until the process is killed.
pub(crate) fn serve(address: SocketAddr, mptcp: bool, channel: &Channel) -> Result<(), LabError> {
    let secured = match channel {
        Channel::Tls(keys) => Some(tls::acceptor(keys).map_err(LabError::Usage)?),
        _ => None,
    };
    let failed = |error: io::Error| LabError::system(format!("listening on {address}"), error);
    let socket = connection::socket(address, mptcp).map_err(failed)?;
    socket.set_reuse_address(true).map_err(failed)?;
    socket.bind(&address.into()).map_err(failed)?;
    socket.listen(1024).map_err(failed)?;
    let listener = TcpListener::from(socket);
    for stream in listener.incoming() {
        let stream = stream.map_err(failed)?;
        let secured = secured.clone();
        thread::spawn(move || {
            let answered = stream.set_nodelay(true).and_then(|()| match secured {
                Some(config) => answer(&mut tls::accept(config, stream)?),
                None => answer(&mut { stream }),
            });
            if let Err(error) = answered {
                note!("a connection: {error}");
            }
        });
    }
    Ok(())
}

fn answer(stream: &mut dyn Wire) -> io::Result<()> {
    stream.tcp().set_read_timeout(Some(REQUEST_TIME))?;
    let request = connection::read_request(stream)?;
    let window = Window {
        epoch_ns: request.epoch_ns,
        duration_ms: request.duration_ms,
    };
    if request.down {
        return send(stream, &request, window);
    }
    let mut recorder = Recorder::new(request.flow, window, request.interval_ms);
    if let Job::Bulk = request.job {
        recorder = recorder.with_arrivals();
    }
    recorder.record.connected = true;
    let result = match request.job {
        Job::Bulk => connection::receive(stream, None, window, &mut recorder),
        Job::Object { size } => connection::receive(stream, Some(size), window, &mut recorder),
        // The answering side sends, so this is never an upload.
        Job::Answers { .. } => Err("a question is not an upload".to_owned()),
        Job::Datagrams { .. } | Job::Echo => Err(OVER_UDP.to_owned()),
        Job::Cbr { message, .. } => {
            let size = usize::try_from(message).unwrap_or(connection::STAMP);
            connection::receive_messages(stream, size, window, &mut recorder)
        }
    };
    match result {
        Ok(End::Closed) if window.left().is_some_and(|left| left > CLOSING) => {
            recorder.record.error = Some(early(window));
        }
        Ok(_) => {}
        Err(error) => recorder.record.error = Some(error),
    }
    let complete = recorder.record.error.is_none();
    report(&recorder)?;
    if complete && matches!(request.job, Job::Object { .. }) {
        stream.write_all(&[1])?;
    }
    Ok(())
}

/// Tolerance for clients that close shortly before the end by their own clock.
const CLOSING: Duration = Duration::from_millis(500);

/// Error text of a flow that ended prematurely.
pub(crate) fn early(window: Window) -> String {
    format!("the connection ended after {:.1} s", window.elapsed_s())
}

fn send(stream: &mut dyn Wire, request: &Request, window: Window) -> io::Result<()> {
    match request.job {
        Job::Bulk => connection::send(stream, None, window),
        Job::Object { size } => connection::send(stream, Some(size), window),
        Job::Answers { request, answer } => requests::answer(stream, (request, answer), window),
        Job::Cbr { rate, message } => {
            let size = usize::try_from(message).unwrap_or(connection::STAMP);
            connection::send_messages(stream, rate, size.max(connection::STAMP), window)
        }
        Job::Datagrams { .. } | Job::Echo => Err(io::Error::other(OVER_UDP)),
    }
    .map(drop)
}

/// Error text of a request for datagrams on a connection.
const OVER_UDP: &str = "datagrams do not travel on a connection";

/// Prints one line of JSON; lines of several threads do not mix.
pub(super) fn report(recorder: &Recorder) -> io::Result<()> {
    static OUTPUT: Mutex<()> = Mutex::new(());
    let line = serde_json::to_string(&recorder.record)?;
    let _alone = OUTPUT.lock().unwrap_or_else(PoisonError::into_inner);
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
