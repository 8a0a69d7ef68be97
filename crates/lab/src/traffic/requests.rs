//! Questions and answers on one connection: interactive traffic.

use std::io;
use std::thread;
use std::time::Duration;

use super::connection::{End, Wire, read_full, write_all};
use super::pattern::Pattern;
use super::record::Recorder;
use super::{Window, now_ns};

/// Asks, waits for the whole answer, pauses, and asks again, until the run is over. The sizes are
/// those of a question and of its answer.
pub(super) fn ask(
    stream: &mut dyn Wire,
    (request, answer): (u64, u64),
    gap: Duration,
    window: Window,
    recorder: &mut Recorder,
) -> Result<End, String> {
    let pattern = Pattern::new();
    let mut question = vec![0; size(request)];
    let mut reply = vec![0; size(answer)];
    for number in 0u64.. {
        let start = number.wrapping_mul(request);
        pattern.fill(start, &mut question);
        let asked = now_ns();
        match write_all(stream, &question, window).map_err(|error| error.to_string())? {
            End::Done => {}
            end => return Ok(end),
        }
        match read_full(stream, &mut reply, window).map_err(|error| error.to_string())? {
            End::Done => {}
            end => return Ok(end),
        }
        recorder.count(reply.len());
        recorder.message(asked);
        if pattern
            .difference(number.wrapping_mul(answer), &reply)
            .is_some()
        {
            return Err(format!("answer {number} differs from the sent one"));
        }
        let Some(left) = window.left() else {
            break;
        };
        thread::sleep(gap.min(left));
    }
    Ok(End::Time)
}

/// Answers the questions from [`ask`].
pub(super) fn answer(
    stream: &mut dyn Wire,
    (request, answer): (u64, u64),
    window: Window,
) -> io::Result<End> {
    let pattern = Pattern::new();
    let mut question = vec![0; size(request)];
    let mut reply = vec![0; size(answer)];
    for number in 0u64.. {
        match read_full(stream, &mut question, window)? {
            End::Done => {}
            end => return Ok(end),
        }
        let start = number.wrapping_mul(request);
        if pattern.difference(start, &question).is_some() {
            let reason = format!("question {number} differs from the sent one");
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        pattern.fill(number.wrapping_mul(answer), &mut reply);
        match write_all(stream, &reply, window)? {
            End::Done => {}
            end => return Ok(end),
        }
    }
    Ok(End::Done)
}

/// Limits the size of a question or an answer, whatever the other side requests.
fn size(bytes: u64) -> usize {
    bytes.clamp(1, 1_000_000) as usize
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn every_answer_is_timed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        let window = Window {
            epoch_ns: now_ns(),
            duration_ms: 300,
        };
        let server = thread::spawn(move || answer(&mut other, (100, 1000), window));
        let mut recorder = Recorder::new(0, window, 100);
        let gap = Duration::from_millis(10);
        let end = ask(&mut stream, (100, 1000), gap, window, &mut recorder).unwrap();
        assert_eq!(end, End::Time);
        assert_eq!(server.join().unwrap().unwrap(), End::Time);
        let record = recorder.record;
        assert!((2..=30).contains(&record.messages.len()), "{record:?}");
        assert_eq!(
            record.buckets.iter().sum::<u64>(),
            1000 * record.messages.len() as u64
        );
        assert!(
            record
                .messages
                .iter()
                .all(|(_, ms)| *ms > 0.0 && *ms < 300.0)
        );
    }
}
