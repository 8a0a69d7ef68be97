//! What passes between a stream's program and the task of its session.
//!
//! Whole chunks change hands, so that bytes are copied outside the lock, and the lock belongs to one stream: nothing
//! is shared between paths. The session's task is told of a stream at most once until it has looked at it.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use sumlink_engine::StreamId;
use tokio::sync::mpsc::UnboundedSender;

use crate::driver::Command;
use crate::target::OpenError;

/// Bytes that wait in each direction of a pipe at most, by how many streams share the session: few streams are to be
/// fast, many must not take memory beside the session's.
#[derive(Debug, Default)]
pub(crate) struct ChunkSize(AtomicUsize);

impl ChunkSize {
    const RANGE: std::ops::RangeInclusive<usize> = 16 * 1024..=256 * 1024;

    /// The session has so many streams and so much memory.
    pub(crate) fn set(&self, memory: u64, streams: usize) {
        let share = memory as usize / (32 * streams.max(1));
        let size = share.clamp(*Self::RANGE.start(), *Self::RANGE.end());
        self.0.store(size, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed).max(*Self::RANGE.start())
    }
}

/// The two directions between one program and its session.
#[derive(Debug)]
pub(crate) struct Pipe {
    id: StreamId,
    /// Where the session's task listens.
    session: UnboundedSender<Command>,
    /// The session has been told and has not looked yet.
    told: AtomicBool,
    chunk: Arc<ChunkSize>,
    ends: Mutex<Ends>,
}

#[derive(Debug, Default)]
struct Ends {
    /// Written by the program, not yet taken by the session.
    up: Vec<u8>,
    /// The program has written its last byte.
    up_finished: bool,
    /// Nothing more can be written, though there may be something to read.
    up_failed: Option<OpenError>,
    writer: Option<Waker>,
    /// Given by the session, not yet taken by the program.
    down: Vec<u8>,
    /// The session has given the last byte.
    down_finished: bool,
    /// The session has more than it could give.
    down_more: bool,
    reader: Option<Waker>,
    /// The stream was reset, by either side.
    failed: Option<OpenError>,
    /// The program has let go of the stream.
    dropped: bool,
}

/// What the session found in a pipe.
#[derive(Debug)]
pub(crate) struct Taken {
    /// The program has written its last byte; some may still wait in the pipe.
    pub(crate) finished: bool,
    /// Nothing waits in the pipe any more.
    pub(crate) drained: bool,
    /// The program has let go.
    pub(crate) dropped: bool,
}

impl Pipe {
    pub(crate) fn new(
        id: StreamId,
        session: UnboundedSender<Command>,
        chunk: Arc<ChunkSize>,
    ) -> Arc<Self> {
        let ends = Mutex::new(Ends::default());
        Arc::new(Self {
            id,
            session,
            told: AtomicBool::new(false),
            chunk,
            ends,
        })
    }

    /// The program writes.
    pub(crate) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<Result<usize, OpenError>> {
        let mut ends = self.lock();
        if let Some(error) = ends.failed.or(ends.up_failed) {
            return Poll::Ready(Err(error));
        }
        let room = self.chunk.get().saturating_sub(ends.up.len());
        if room == 0 {
            ends.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let len = data.len().min(room);
        ends.up.extend_from_slice(&data[..len]);
        drop(ends);
        self.tell();
        Poll::Ready(Ok(len))
    }

    /// The program has written its last byte.
    pub(crate) fn finish(&self) -> Result<(), OpenError> {
        let mut ends = self.lock();
        ends.up_finished = true;
        let failed = ends.failed.or(ends.up_failed);
        drop(ends);
        self.tell();
        failed.map_or(Ok(()), Err)
    }

    /// The program takes a chunk in exchange for an empty buffer; false at the end of the stream.
    pub(crate) fn poll_take(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Poll<Result<bool, OpenError>> {
        let mut ends = self.lock();
        if !ends.down.is_empty() {
            buffer.clear();
            mem::swap(buffer, &mut ends.down);
            let more = mem::take(&mut ends.down_more);
            drop(ends);
            if more {
                self.tell();
            }
            return Poll::Ready(Ok(true));
        }
        if ends.down_finished {
            return Poll::Ready(Ok(false));
        }
        if let Some(error) = ends.failed {
            return Poll::Ready(Err(error));
        }
        ends.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Waits until the stream is reset, by either side.
    pub(crate) fn poll_failed(&self, cx: &mut Context<'_>) -> Poll<OpenError> {
        let mut ends = self.lock();
        match ends.failed {
            Some(error) => Poll::Ready(error),
            None => {
                ends.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// The program lets go.
    pub(crate) fn abandon(&self) {
        self.lock().dropped = true;
        self.tell();
    }

    /// The session takes what the program wrote, in exchange for an empty buffer.
    pub(crate) fn take_up(&self, buffer: &mut Vec<u8>) -> Taken {
        let mut ends = self.lock();
        if buffer.is_empty() {
            mem::swap(buffer, &mut ends.up);
        }
        let taken = Taken {
            finished: ends.up_finished,
            drained: ends.up.is_empty(),
            dropped: ends.dropped,
        };
        let writer = ends.writer.take();
        drop(ends);
        writer.into_iter().for_each(Waker::wake);
        taken
    }

    /// Whether the session may give a chunk; if not it is told when it may.
    pub(crate) fn wants_down(&self) -> bool {
        let mut ends = self.lock();
        let wants = ends.down.is_empty();
        ends.down_more |= !wants;
        wants
    }

    /// The session gives a chunk and gets an empty buffer for it.
    pub(crate) fn give_down(&self, buffer: &mut Vec<u8>, finished: bool, more: bool) {
        let mut ends = self.lock();
        debug_assert!(ends.down.is_empty(), "wants_down comes first");
        mem::swap(buffer, &mut ends.down);
        ends.down_finished |= finished;
        ends.down_more |= more;
        let reader = ends.reader.take();
        drop(ends);
        reader.into_iter().for_each(Waker::wake);
    }

    /// The session ends the stream.
    pub(crate) fn fail(&self, error: OpenError) {
        let mut ends = self.lock();
        ends.failed.get_or_insert(error);
        let wakers = [ends.reader.take(), ends.writer.take()];
        drop(ends);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    /// The session takes no more: the peer has reset the stream after its last byte.
    pub(crate) fn fail_up(&self, error: OpenError) {
        let mut ends = self.lock();
        ends.up_failed.get_or_insert(error);
        let writer = ends.writer.take();
        drop(ends);
        writer.into_iter().for_each(Waker::wake);
    }

    /// The session looks now; from here on it wants to be told again.
    pub(crate) fn heard(&self) {
        self.told.store(false, Ordering::Release);
    }

    fn tell(&self) {
        if !self.told.swap(true, Ordering::AcqRel) {
            // A session that has ended has failed the pipe already.
            let _ = self.session.send(Command::Touched(self.id));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
