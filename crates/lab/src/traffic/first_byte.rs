//! The first byte through a system that has just been started.

use std::io::Read;
use std::time::{Duration, Instant};

use super::connection::{send_request, try_connect};
use super::{Job, Request, Route, now_ns};

/// Time for an attempt to connect, and the pause between two.
const ATTEMPT: Duration = Duration::from_millis(50);
const PAUSE: Duration = Duration::from_millis(2);

/// Repeats attempts to connect, for at most the time `to_connect`, and asks the server for a byte;
/// the time of its arrival. `None` if no attempt succeeded, or if the connection brought nothing
/// within the time `to_answer`.
pub(crate) fn first_byte(
    route: &Route,
    to_connect: Duration,
    to_answer: Duration,
) -> Option<Instant> {
    let start = Instant::now();
    let mut stream = loop {
        match try_connect(route, ATTEMPT) {
            Ok(stream) => break stream,
            Err(_) if start.elapsed() > to_connect => return None,
            Err(_) => std::thread::sleep(PAUSE),
        }
    };
    stream.set_read_timeout(Some(to_answer)).ok()?;
    let millis = u64::try_from(to_answer.as_millis()).unwrap_or(u64::MAX);
    let request = Request {
        flow: 0,
        epoch_ns: now_ns(),
        duration_ms: millis,
        interval_ms: millis,
        down: true,
        job: Job::Object { size: 1 },
    };
    send_request(&mut stream, &request).ok()?;
    stream.read_exact(&mut [0]).ok()?;
    Some(Instant::now())
}
