//! A bounded queue of lines in front of a descriptor that may be full, closed or blocked.
//!
//! A separate thread writes the lines, so no caller waits for the reader or sees an error. Lines
//! that do not fit in the queue and lines that cannot be written are dropped and counted. The count
//! is written once writing works again.

use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, SigmaskHow};

/// Capacity of the queue in bytes; further lines are dropped.
pub(crate) const CAPACITY: usize = 1 << 20;

/// Most bytes of whole lines in one write: a pipe takes them atomically (`PIPE_BUF`).
const PIECE: usize = 4096;

/// After a failed write, dropped lines are reported with the next line or after this time.
const RETRY: Duration = Duration::from_secs(5);

/// Pause when a non-blocking descriptor is full.
const FULL_PAUSE: Duration = Duration::from_millis(20);

/// Lines on their way to a descriptor. Clones share the queue.
#[derive(Clone)]
pub(crate) struct Spool {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Signals a change that the thread or [`Spool::finish`] waits for.
    changed: Condvar,
    /// Lines dropped since the beginning, before and while they were written.
    all_dropped: AtomicU64,
    name: &'static str,
    capacity: usize,
    /// Formats the line that reports a number of dropped lines.
    notice: fn(u64) -> String,
}

impl std::fmt::Debug for Spool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spool")
            .field("name", &self.shared.name)
            .finish_non_exhaustive()
    }
}

struct State {
    /// Whole lines that the thread has not taken yet.
    waiting: Vec<u8>,
    /// Lines dropped since the thread last took lines.
    dropped: u64,
    /// The thread holds lines that it has not written yet.
    is_writing: bool,
    /// The descriptor until the thread starts, at the first line. A late start matters to the
    /// laboratory, which enters namespaces before.
    sink: Option<Box<dyn Write + Send>>,
}

impl Spool {
    /// Makes a queue in front of `sink`. `notice` formats the line, with its newline, that reports
    /// the number of dropped lines; `name` names the thread.
    pub(crate) fn new(
        name: &'static str,
        sink: impl Write + Send + 'static,
        notice: fn(u64) -> String,
    ) -> Self {
        Self::with_capacity(CAPACITY, name, sink, notice)
    }

    fn with_capacity(
        capacity: usize,
        name: &'static str,
        sink: impl Write + Send + 'static,
        notice: fn(u64) -> String,
    ) -> Self {
        let state = State {
            waiting: Vec::new(),
            dropped: 0,
            is_writing: false,
            sink: Some(Box::new(sink)),
        };
        let shared = Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            all_dropped: AtomicU64::new(0),
            name,
            capacity,
            notice,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Queues whole lines, or drops and counts them; returns whether they were queued. Never waits
    /// for the reader.
    pub(crate) fn push(&self, lines: &[u8]) -> bool {
        if lines.is_empty() {
            return true;
        }
        let mut state = self.shared.lock();
        let fits = state.waiting.len() + lines.len() <= self.shared.capacity;
        if fits {
            state.waiting.extend_from_slice(lines);
        } else {
            state.dropped += count(lines);
            self.shared
                .all_dropped
                .fetch_add(count(lines), Ordering::Relaxed);
        }
        if let Some(sink) = state.sink.take() {
            self.start(sink, &mut state);
        }
        self.shared.changed.notify_all();
        fits
    }

    /// Lines dropped since the beginning.
    pub(crate) fn dropped(&self) -> u64 {
        self.shared.all_dropped.load(Ordering::Relaxed)
    }

    /// Waits up to `patience` until everything has been written or dropped; returns whether it has.
    pub(crate) fn finish(&self, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        let mut state = self.shared.lock();
        while !state.is_idle() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn start(&self, sink: Box<dyn Write + Send>, state: &mut State) {
        let shared = Arc::clone(&self.shared);
        if !spawn(self.shared.name, move || shared.write_all(sink)) {
            // The system has no thread to spare; the log is the lesser problem.
            state.waiting = Vec::new();
            state.dropped = 0;
        }
    }
}

impl State {
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.dropped == 0 && !self.is_writing
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The body of the thread.
    fn write_all(&self, sink: Box<dyn Write + Send>) {
        let mut out = Lines {
            sink,
            is_open: false,
        };
        // Lines dropped and not reported yet.
        let mut lost = 0;
        loop {
            let (lines, dropped) = self.take(lost > 0);
            lost = self.report(&mut out, lost);
            let unwritten = out.write(&lines);
            self.all_dropped.fetch_add(unwritten, Ordering::Relaxed);
            lost += unwritten + dropped;
            // The dropped lines came after the lines that were waiting.
            if unwritten == 0 {
                lost = self.report(&mut out, lost);
            }
            self.lock().is_writing = false;
            self.changed.notify_all();
        }
    }

    /// Takes the waiting lines and the number of lines dropped behind them. Waits for either, at
    /// most until the next attempt to report dropped lines.
    fn take(&self, has_lost: bool) -> (Vec<u8>, u64) {
        let mut state = self.lock();
        while state.is_idle() {
            if has_lost {
                let waited = self.changed.wait_timeout(state, RETRY);
                let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                state = woken;
                if timeout.timed_out() {
                    break;
                }
            } else {
                let woken = self.changed.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
            }
        }
        state.is_writing = true;
        let dropped = std::mem::take(&mut state.dropped);
        (std::mem::take(&mut state.waiting), dropped)
    }

    /// Writes the number of dropped lines, if any; returns the number that remains to be reported.
    fn report(&self, out: &mut Lines, lost: u64) -> u64 {
        if lost == 0 || out.write((self.notice)(lost).as_bytes()) == 0 {
            0
        } else {
            lost
        }
    }
}

/// A sink that receives whole lines.
struct Lines {
    sink: Box<dyn Write + Send>,
    /// A write failed in the middle of a line, which must end before the next one.
    is_open: bool,
}

impl Lines {
    /// Writes whole lines; returns the number of lines that could not be written.
    fn write(&mut self, mut lines: &[u8]) -> u64 {
        if self.is_open && !lines.is_empty() {
            if self.put(b"\n").is_err() {
                return count(lines);
            }
            self.is_open = false;
        }
        while !lines.is_empty() {
            let (piece, rest) = lines.split_at(piece(lines));
            if let Err(written) = self.put(piece) {
                self.is_open = !matches!(piece[..written].last(), None | Some(b'\n'));
                return count(&lines[written..]);
            }
            lines = rest;
        }
        0
    }

    /// Writes all of `piece`; the error is the number of bytes written before the failure.
    fn put(&mut self, piece: &[u8]) -> Result<(), usize> {
        let mut written = 0;
        while written < piece.len() {
            match self.sink.write(&piece[written..]) {
                Ok(0) => return Err(written),
                Ok(more) => written += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(FULL_PAUSE),
                Err(_) => return Err(written),
            }
        }
        Ok(())
    }
}

/// Length of the whole lines, at least one, that go into the next write.
fn piece(lines: &[u8]) -> usize {
    let is_end = |byte: &u8| *byte == b'\n';
    let fitting = &lines[..lines.len().min(PIECE)];
    match fitting.iter().rposition(is_end) {
        Some(end) => end + 1,
        None => lines
            .iter()
            .position(is_end)
            .map_or(lines.len(), |end| end + 1),
    }
}

fn count(lines: &[u8]) -> u64 {
    let ends = lines.iter().filter(|byte| **byte == b'\n').count();
    let is_open = !matches!(lines.last(), None | Some(b'\n'));
    ends as u64 + u64::from(is_open)
}

/// Starts a thread that blocks all signals from its first instruction: other threads wait for them.
/// Returns whether it started.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> bool {
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let started = thread::Builder::new().name(name.to_owned()).spawn(run);
    if let Ok(mask) = mask {
        let _ = mask.thread_set_mask();
    }
    started.is_ok()
}

/// A descriptor of this process without the lock and the buffer of the standard library. A thread
/// blocked in a write must not block other writers.
pub(crate) fn unlocked(descriptor: impl std::os::fd::AsFd) -> io::Result<std::fs::File> {
    Ok(descriptor.as_fd().try_clone_to_owned()?.into())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn notice(lines: u64) -> String {
        format!("{lines} dropped\n")
    }

    /// A sink with permits: each write waits for one, which names the bytes to accept; a permit of
    /// 0 fails.
    struct Sink {
        permits: mpsc::Receiver<usize>,
        permitted: usize,
        text: Arc<Mutex<String>>,
    }

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.permitted == 0 {
                self.permitted = self.permits.recv().map_err(io::Error::other)?;
            }
            if self.permitted == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            let length = bytes.len().min(self.permitted);
            self.permitted -= length;
            let text = str::from_utf8(&bytes[..length]).unwrap();
            self.text.lock().unwrap().push_str(text);
            Ok(length)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn spool(capacity: usize) -> (Spool, mpsc::Sender<usize>, Arc<Mutex<String>>) {
        let (permit, permits) = mpsc::channel();
        let text = Arc::new(Mutex::new(String::new()));
        let sink = Sink {
            permits,
            permitted: 0,
            text: Arc::clone(&text),
        };
        (
            Spool::with_capacity(capacity, "spool", sink, notice),
            permit,
            text,
        )
    }

    /// Waits until the thread has taken the waiting lines.
    fn until_taken(spool: &Spool) {
        while !spool.shared.lock().waiting.is_empty() {
            thread::yield_now();
        }
    }

    #[test]
    fn a_blocked_reader_blocks_no_writer_and_dropped_lines_are_counted() {
        let (spool, permit, text) = spool(8);
        spool.push(b"first\n");
        until_taken(&spool);
        // The thread is blocked in the first line; two more fit, one does not, and no caller waits.
        for line in ["a 1\n", "a 2\n", "a 3\n", "a 4\na 5\n"] {
            spool.push(line.as_bytes());
        }
        assert!(!spool.finish(Duration::from_millis(1)));
        permit.send(1000).unwrap();
        assert!(spool.finish(PATIENCE));
        spool.push(b"last\n");
        assert!(spool.finish(PATIENCE));
        assert_eq!(*text.lock().unwrap(), "first\na 1\na 2\n3 dropped\nlast\n");
    }

    #[test]
    fn errors_are_ignored_and_lost_lines_are_reported_before_the_next() {
        let (spool, permit, text) = spool(1000);
        // The disk is full in the middle of a line, for the lines after it and for the next one.
        for bytes in [9, 0, 0] {
            permit.send(bytes).unwrap();
        }
        spool.push(b"whole\nbroken\nlost\n");
        assert!(spool.finish(PATIENCE));
        spool.push(b"lost\n");
        permit.send(0).unwrap();
        assert!(spool.finish(PATIENCE));
        permit.send(1000).unwrap();
        spool.push(b"again\n");
        assert!(spool.finish(PATIENCE));
        let written = "whole\nbro\n3 dropped\nagain\n";
        assert_eq!(*text.lock().unwrap(), written);
    }

    #[test]
    fn a_write_takes_whole_lines() {
        let long = [vec![b'x'; 2 * PIECE], b"\nshort\n".to_vec()].concat();
        assert_eq!(piece(&long), 2 * PIECE + 1);
        assert_eq!(piece(b"one\ntwo\n"), 8);
        let many = b"0123456\n".repeat(1000);
        assert_eq!(piece(&many), PIECE);
        assert_eq!((count(b""), count(b"a\nb"), count(b"a\nb\n")), (0, 2, 2));
    }
}
