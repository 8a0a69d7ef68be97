//! Questions to a name server, one after another.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, UdpSocket};
use std::thread;
use std::time::Duration;

use crate::lan::{answered, question};
use crate::results::Connections;

use super::record::Recorder;
use super::{Route, Window, now_ns};

/// Time after which a question counts as lost.
const PATIENCE: Duration = Duration::from_secs(2);
/// Names that are asked for in turn if they may come from a cache.
const CACHED: u64 = 4;
/// Largest answer.
const LARGEST: usize = 4096;

/// Asks until the run is over. Each answer is timed; lost questions are counted.
pub(super) fn run(
    route: &Route,
    cached: bool,
    gap: Duration,
    window: Window,
    recorder: &mut Recorder,
) -> Result<(), String> {
    let server = route.resolver.ok_or("the route has no name server")?;
    let failed = |error: io::Error| format!("asking for names: {error}");
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(failed)?;
    socket.connect(server).map_err(failed)?;
    let mut counts = Connections::default();
    for number in 0.. {
        let Some(left) = window.left() else {
            break;
        };
        let asked = now_ns();
        let name = match cached {
            true => format!("cached-{}.names.test", number % CACHED),
            // No name of an earlier run.
            false => format!("new-{number}-{}.names.test", window.epoch_ns),
        };
        let id = number as u16;
        match ask(&socket, &question(id, &name), id, left).map_err(failed)? {
            Some(bytes) => {
                recorder.message(asked);
                recorder.count(bytes);
                counts.answered += 1;
            }
            // A question that the end of the run cut off is not lost.
            None if window.left().is_none() => break,
            None => counts.failed += 1,
        }
        recorder.record.connected = counts.answered > 0;
        thread::sleep(gap.min(window.left().unwrap_or_default()));
    }
    recorder.record.connections = Some(counts);
    Ok(())
}

/// Sends the question; the length of its answer, or `None` if there was none in time.
fn ask(socket: &UdpSocket, message: &[u8], id: u16, left: Duration) -> io::Result<Option<usize>> {
    let deadline = now_ns() + left.min(PATIENCE).as_nanos() as u64;
    let mut buffer = [0; LARGEST];
    let mut sent = socket.send(message);
    loop {
        // A server that does not listen yet refuses the previous datagram.
        if let Err(error) = sent {
            let is_refused = error.kind() == ErrorKind::ConnectionRefused;
            return if is_refused { Ok(None) } else { Err(error) };
        }
        let left = deadline.saturating_sub(now_ns());
        if left == 0 {
            return Ok(None);
        }
        socket.set_read_timeout(Some(Duration::from_nanos(left)))?;
        sent = match socket.recv(&mut buffer) {
            // Late answers to earlier questions are ignored.
            Ok(length) if answered(&buffer[..length]) == Some(id) => return Ok(Some(length)),
            Ok(length) => Ok(length),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(None);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(error),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_timed_and_lost_questions_counted() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let route = Route {
            resolver: Some(server.local_addr().unwrap()),
            ..Route::direct(([127, 0, 0, 1], 1).into())
        };
        let window = Window {
            epoch_ns: now_ns(),
            duration_ms: 3000,
        };
        // Answers all but the first question, each with a record.
        let answering = thread::spawn(move || {
            let mut buffer = [0; LARGEST];
            server.recv_from(&mut buffer).unwrap();
            loop {
                let (length, from) = server.recv_from(&mut buffer).unwrap();
                if length == 0 {
                    return;
                }
                buffer[2] |= 0x80;
                buffer[7] = 1;
                server.send_to(&buffer[..length], from).unwrap();
            }
        });
        let mut recorder = Recorder::new(0, window, 100);
        let gap = Duration::from_millis(50);
        run(&route, false, gap, window, &mut recorder).unwrap();
        let stop = UdpSocket::bind("127.0.0.1:0").unwrap();
        stop.send_to(&[], route.resolver.unwrap()).unwrap();
        answering.join().unwrap();
        let record = recorder.record;
        let counts = record.connections.unwrap();
        assert!(counts.answered > 0, "{counts:?}");
        assert_eq!(counts.failed, 1);
        assert_eq!(record.messages.len() as u64, counts.answered);
        assert!(record.connected);
    }
}
