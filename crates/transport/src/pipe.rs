//! What passes between a stream's program and the task of its session.
//!
//! Whole chunks change hands, so that bytes are copied outside the lock, and the lock belongs to one stream: nothing
//! is shared between paths. To a program go the very pages in which the session has received; they come back when it has
//! read them. The session's task is told of a stream at most once until it has looked at it. What both
//! sides hold is taken from the session's memory ([`memory`]); a stream on which nothing moves holds nothing. A program that
//! reads slowly gets small pieces ([`piece`]): what it has been given counts as read.

pub(crate) mod chunk;
pub(crate) mod memory;
mod piece;
mod pools;

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Buf;
use sumlink_engine::{PAGE, Received, StreamId};
use tokio::sync::mpsc::UnboundedSender;

use crate::driver::Command;
use crate::target::OpenError;
use chunk::Chunk;
use memory::{FLOOR, Holding};
use piece::Piece;
pub(crate) use pools::Pools;

/// The two directions between one program and its session.
#[derive(Debug)]
pub(crate) struct Pipe {
    id: StreamId,
    /// Where the session's task listens.
    session: UnboundedSender<Command>,
    /// The session has been told and has not looked yet.
    told: AtomicBool,
    pools: Arc<Pools>,
    ends: Mutex<Ends>,
}

#[derive(Debug, Default)]
struct Ends {
    /// Written by the program, not yet taken by the session.
    up: VecDeque<Vec<u8>>,
    /// The capacity of all chunks on their way up: reserved, waiting here, or with the session.
    up_holding: Holding,
    /// The program has written its last byte.
    up_finished: bool,
    /// Nothing more can be written, though there may be something to read.
    up_failed: Option<OpenError>,
    writer: Option<Waker>,
    /// Given by the session, not yet taken by the program.
    down: Received,
    /// The memory of what is on its way down: here and with the program.
    down_holding: Holding,
    /// The session has given the last byte.
    down_finished: bool,
    /// The session has more than it could give.
    down_more: bool,
    /// How much of it goes down at once.
    down_piece: Piece,
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
        pools: Arc<Pools>,
    ) -> Arc<Self> {
        let ends = Mutex::new(Ends::default());
        Arc::new(Self {
            id,
            session,
            told: AtomicBool::new(false),
            pools,
            ends,
        })
    }

    /// The program wants to write up to `want` bytes (at least one): an empty chunk with a capacity of at least one.
    /// It comes back by [`Pipe::push`].
    pub(crate) fn poll_reserve(
        &self,
        cx: &mut Context<'_>,
        want: usize,
    ) -> Poll<Result<Vec<u8>, OpenError>> {
        let mut ends = self.lock();
        if let Some(error) = ends.failed.or(ends.up_failed) {
            return Poll::Ready(Err(error));
        }
        let want = want.next_multiple_of(FLOOR);
        match ends.up_holding.take(&self.pools.up, want) {
            0 => {
                ends.writer = Some(cx.waker().clone());
                Poll::Pending
            }
            granted => Poll::Ready(Ok(Vec::with_capacity(granted))),
        }
    }

    /// The program writes what is in a chunk of [`Pipe::poll_reserve`], or gives it back empty.
    pub(crate) fn push(&self, mut chunk: Vec<u8>) {
        let reserved = chunk.capacity();
        // What is small does not keep what it might have been.
        if chunk.len() < reserved / 2 {
            chunk.shrink_to(chunk.len().next_multiple_of(FLOOR));
        }
        let mut ends = self.lock();
        let mut kept = chunk.capacity();
        match ends.up.back_mut() {
            Some(last) if last.capacity() - last.len() >= chunk.len() => {
                last.extend_from_slice(&chunk);
                kept = 0;
            }
            _ if chunk.is_empty() => kept = 0,
            _ => ends.up.push_back(chunk),
        }
        ends.up_holding.give_back(&self.pools.up, reserved - kept);
        let any = !ends.up.is_empty();
        drop(ends);
        if any {
            self.tell();
        }
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

    /// The program takes what has arrived, nothing at the end of the stream. It comes back by [`Pipe::give_back`].
    pub(crate) fn poll_take(&self, cx: &mut Context<'_>) -> Poll<Result<Received, OpenError>> {
        let mut ends = self.lock();
        let received = mem::take(&mut ends.down);
        let more = mem::take(&mut ends.down_more);
        let outcome = if received.has_remaining() || ends.down_finished {
            Poll::Ready(Ok(received))
        } else if let Some(error) = ends.failed {
            Poll::Ready(Err(error))
        } else {
            ends.reader = Some(cx.waker().clone());
            Poll::Pending
        };
        drop(ends);
        if more {
            self.tell();
        }
        outcome
    }

    /// The program has read what it had taken.
    pub(crate) fn give_back(&self, read: Received) {
        let mut ends = self.lock();
        ends.down_holding.give_back(&self.pools.down, read.memory());
        let more = ends.down_more && !ends.down.has_remaining();
        ends.down_more &= !more;
        drop(ends);
        self.pools.has_read(read);
        if more {
            self.tell();
        }
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

    /// The program wants something of its stream; what it has written before is known by then.
    pub(crate) fn command(&self, command: impl FnOnce(StreamId) -> Command) {
        // A session that has ended has failed the pipe already.
        let _ = self.session.send(command(self.id));
    }

    /// The program lets go.
    pub(crate) fn abandon(&self) {
        self.lock().dropped = true;
        self.tell();
    }

    /// The session takes what the program wrote, in exchange for a chunk of which the engine has taken everything. What it
    /// has not taken, the session keeps.
    pub(crate) fn take_up(&self, chunk: &mut Chunk) -> Taken {
        let mut ends = self.lock();
        if chunk.is_empty() {
            let next = ends.up.pop_front().map(Chunk::from);
            let done = mem::replace(chunk, next.unwrap_or_default());
            ends.up_holding.give_back(&self.pools.up, done.memory());
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

    /// How many pages the session may give, of so many that it has; if not all, it is told when it may give more.
    pub(crate) fn room_down(&self, has: usize) -> usize {
        let mut ends = self.lock();
        let mut room = 0;
        if !ends.down.has_remaining() {
            let want = (has * PAGE).min(ends.down_piece.size(Instant::now()));
            let granted = ends.down_holding.take(&self.pools.down, want);
            room = granted / PAGE;
            ends.down_holding
                .give_back(&self.pools.down, granted % PAGE);
        }
        ends.down_more |= room < has;
        room
    }

    /// The session gives as many pages as [`Pipe::room_down`] told, or the end.
    pub(crate) fn give_down(&self, received: Received, finished: bool) {
        let mut ends = self.lock();
        if received.has_remaining() {
            debug_assert!(!ends.down.has_remaining(), "room_down comes first");
            ends.down_piece.given(received.remaining(), Instant::now());
            ends.down = received;
        }
        ends.down_finished |= finished;
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

impl Drop for Pipe {
    fn drop(&mut self) {
        let mut ends = self.lock();
        ends.up_holding.end(&self.pools.up);
        ends.down_holding.end(&self.pools.down);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    fn reserved(pipe: &Pipe, want: usize) -> Option<Vec<u8>> {
        match pipe.poll_reserve(&mut Context::from_waker(Waker::noop()), want) {
            Poll::Ready(chunk) => Some(chunk.unwrap()),
            Poll::Pending => None,
        }
    }

    #[test]
    fn small_writes_share_a_chunk_and_hold_little() {
        let pools = Pools::new(1 << 20);
        let pipe = Pipe::new(0, unbounded_channel().0, Arc::clone(&pools));
        for byte in 0..100 {
            let mut chunk = reserved(&pipe, 60_000).unwrap();
            chunk.push(byte);
            pipe.push(chunk);
        }
        assert_eq!(pools.up.held(), FLOOR as u64);
        let mut chunk = Chunk::default();
        assert!(pipe.take_up(&mut chunk).drained);
        assert_eq!(chunk.rest(), &(0..100).collect::<Vec<u8>>());
        chunk.discard();
        pipe.take_up(&mut chunk);
        assert_eq!(pools.up.held(), 0);
    }

    #[test]
    fn a_writer_waits_for_room_and_a_pipe_that_is_dropped_holds_nothing() {
        let pools = Pools::new(0);
        let pipe = Pipe::new(0, unbounded_channel().0, Arc::clone(&pools));
        let mut chunk = reserved(&pipe, 60_000).unwrap();
        chunk.resize(FLOOR, 1);
        pipe.push(chunk);
        assert_eq!(reserved(&pipe, 1), None);
        let mut chunk = Chunk::default();
        pipe.take_up(&mut chunk);
        assert_eq!(reserved(&pipe, 1), None, "the session has not sent it yet");
        chunk.discard();
        pipe.take_up(&mut chunk);
        let kept = reserved(&pipe, 1).unwrap();
        assert_eq!(pipe.room_down(5), 1);
        drop((pipe, kept));
        assert_eq!((pools.up.held(), pools.down.held()), (0, 0));
    }

    fn take(pipe: &Pipe) -> Received {
        match pipe.poll_take(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(taken) => taken.unwrap(),
            Poll::Pending => panic!("there is something to read"),
        }
    }

    #[test]
    fn the_session_is_told_when_the_program_has_made_room() {
        let pools = Pools::new(0);
        let (sender, mut session) = unbounded_channel();
        let pipe = Pipe::new(0, sender, Arc::clone(&pools));
        assert_eq!(pipe.room_down(5), 1, "a floor is a page");
        pipe.give_down(Received::from([0; PAGE].as_slice()), false);
        assert_eq!(pipe.room_down(5), 0);
        let mut received = take(&pipe);
        assert!(session.try_recv().is_ok());
        pipe.heard();
        assert_eq!(pipe.room_down(5), 0, "the program still holds it");
        received.advance(PAGE);
        pipe.give_back(received);
        assert!(session.try_recv().is_ok());
        assert_eq!(pipe.room_down(5), 1);
    }
}
