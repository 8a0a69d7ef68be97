//! The pipe between a local program's end of a stream and the session's task.
//!
//! Whole chunks change hands, so that bytes are copied outside the lock. The lock belongs to one
//! stream; nothing is shared between paths. A program receives the very pages into which the
//! session has received data, and they return after it has read them. The session's task is
//! notified of a stream at most once until it has looked at it. The data held on both sides is
//! charged to the session's memory ([`memory`]); an idle stream holds none. A program that reads
//! slowly gets small pieces ([`piece`]), because data handed to it counts as read.

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

use crate::session::command::Command;
use chunk::Chunk;
use memory::{FLOOR, Holding};
use piece::Piece;
pub(crate) use pools::Pools;
use sumlink_exit::target::OpenError;

/// Both directions between one program and its session.
#[derive(Debug)]
pub(crate) struct Pipe {
    id: StreamId,
    /// The command channel of the session's task.
    session: UnboundedSender<Command>,
    /// The session was notified and has not looked yet.
    is_notified: AtomicBool,
    pools: Arc<Pools>,
    ends: Mutex<Ends>,
}

#[derive(Debug, Default)]
struct Ends {
    /// Written by the program, not yet taken by the session.
    up: VecDeque<Vec<u8>>,
    /// The capacity of all upstream chunks: reserved, waiting here, or with the session.
    up_holding: Holding,
    /// The program has written its last byte.
    up_finished: bool,
    /// Writing has failed, though data to read may remain.
    up_failed: Option<OpenError>,
    writer: Option<Waker>,
    /// Given by the session, not yet taken by the program.
    down: Received,
    /// The memory of downstream data: here and with the program.
    down_holding: Holding,
    /// The session has given the last byte.
    down_finished: bool,
    /// The session has more data than the program could be given.
    down_more: bool,
    /// The size of the next piece for the program.
    down_piece: Piece,
    reader: Option<Waker>,
    /// The stream was reset, by either side.
    failed: Option<OpenError>,
    /// The program has dropped the stream.
    dropped: bool,
}

/// The state of a pipe as found by the session.
#[derive(Debug)]
pub(crate) struct Taken {
    /// The program has written its last byte; data may still wait in the pipe.
    pub(crate) finished: bool,
    /// The pipe is empty.
    pub(crate) drained: bool,
    /// The program has dropped the stream.
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
            is_notified: AtomicBool::new(false),
            pools,
            ends,
        })
    }

    /// Reserves an empty chunk for the program, with a capacity of at least one and at most `want`
    /// bytes (at least one). [`Pipe::push`] returns it.
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

    /// Writes the content of a chunk from [`Pipe::poll_reserve`], or returns it empty.
    pub(crate) fn push(&self, mut chunk: Vec<u8>) {
        let reserved = chunk.capacity();
        // A small write does not keep the whole reservation.
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
            self.notify();
        }
    }

    /// The program has written its last byte.
    pub(crate) fn finish(&self) -> Result<(), OpenError> {
        let mut ends = self.lock();
        ends.up_finished = true;
        let failed = ends.failed.or(ends.up_failed);
        drop(ends);
        self.notify();
        failed.map_or(Ok(()), Err)
    }

    /// Takes received data for the program; an empty value at the end of the stream.
    /// [`Pipe::give_back`] returns it.
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
            self.notify();
        }
        outcome
    }

    /// Returns data that the program has read.
    pub(crate) fn give_back(&self, read: Received) {
        let mut ends = self.lock();
        ends.down_holding.give_back(&self.pools.down, read.memory());
        let more = ends.down_more && !ends.down.has_remaining();
        ends.down_more &= !more;
        drop(ends);
        self.pools.has_read(read);
        if more {
            self.notify();
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

    /// Sends a command about the program's stream; the session sees earlier writes first.
    pub(crate) fn command(&self, command: impl FnOnce(StreamId) -> Command) {
        // A session that has ended has failed the pipe already.
        let _ = self.session.send(command(self.id));
    }

    /// The program drops the stream.
    pub(crate) fn abandon(&self) {
        self.lock().dropped = true;
        self.notify();
    }

    /// Takes data written by the program, in exchange for a chunk that the engine has consumed
    /// completely. Data that the engine has not consumed stays with the session. From now on the
    /// program may be `ahead` bytes ahead of the session, within the pool's limits.
    pub(crate) fn take_up(&self, chunk: &mut Chunk, ahead: usize) -> Taken {
        let mut ends = self.lock();
        ends.up_holding.set_limit(ahead);
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

    /// The number of pages, of `has` available ones, that the session may hand over. If it is less
    /// than `has`, the session is notified when it may hand over more.
    pub(crate) fn space_down(&self, has: usize) -> usize {
        let mut ends = self.lock();
        let mut space = 0;
        if !ends.down.has_remaining() {
            let want = (has * PAGE).min(ends.down_piece.size(Instant::now()));
            let granted = ends.down_holding.take(&self.pools.down, want);
            space = granted / PAGE;
            ends.down_holding
                .give_back(&self.pools.down, granted % PAGE);
        }
        ends.down_more |= space < has;
        space
    }

    /// Hands over the number of pages that [`Pipe::space_down`] returned, or the end of the stream.
    pub(crate) fn give_down(&self, received: Received, finished: bool) {
        let mut ends = self.lock();
        if received.has_remaining() {
            debug_assert!(!ends.down.has_remaining(), "space_down comes first");
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

    /// Stops the upstream direction: the peer has reset the stream after its last byte.
    pub(crate) fn fail_up(&self, error: OpenError) {
        let mut ends = self.lock();
        ends.up_failed.get_or_insert(error);
        let writer = ends.writer.take();
        drop(ends);
        writer.into_iter().for_each(Waker::wake);
    }

    /// The session looks now; later changes notify it again.
    pub(crate) fn clear_notification(&self) {
        self.is_notified.store(false, Ordering::Release);
    }

    fn notify(&self) {
        if !self.is_notified.swap(true, Ordering::AcqRel) {
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
        assert!(pipe.take_up(&mut chunk, usize::MAX).drained);
        assert_eq!(chunk.rest(), &(0..100).collect::<Vec<u8>>());
        chunk.discard();
        pipe.take_up(&mut chunk, usize::MAX);
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
        pipe.take_up(&mut chunk, usize::MAX);
        assert_eq!(reserved(&pipe, 1), None, "the session still holds the data");
        chunk.discard();
        pipe.take_up(&mut chunk, usize::MAX);
        let kept = reserved(&pipe, 1).unwrap();
        assert_eq!(pipe.space_down(5), 1);
        drop((pipe, kept));
        assert_eq!((pools.up.held(), pools.down.held()), (0, 0));
    }

    #[test]
    fn a_writer_is_as_far_ahead_as_its_session_permits() {
        let pools = Pools::new(1 << 20);
        let pipe = Pipe::new(0, unbounded_channel().0, pools);
        let mut chunk = Chunk::default();
        pipe.take_up(&mut chunk, 4 * FLOOR);
        let mut written = reserved(&pipe, 60_000).unwrap();
        assert_eq!(written.capacity(), 4 * FLOOR);
        written.resize(4 * FLOOR, 1);
        pipe.push(written);
        assert_eq!(reserved(&pipe, 1), None);
        pipe.take_up(&mut chunk, 6 * FLOOR);
        let more = reserved(&pipe, 60_000).unwrap();
        assert_eq!(more.capacity(), 2 * FLOOR);
        pipe.push(more);
    }

    fn take(pipe: &Pipe) -> Received {
        match pipe.poll_take(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(taken) => taken.unwrap(),
            Poll::Pending => panic!("data is available"),
        }
    }

    #[test]
    fn the_session_is_notified_when_the_program_has_made_room() {
        let pools = Pools::new(0);
        let (sender, mut session) = unbounded_channel();
        let pipe = Pipe::new(0, sender, Arc::clone(&pools));
        assert_eq!(pipe.space_down(5), 1, "a floor is a page");
        pipe.give_down(Received::from([0; PAGE].as_slice()), false);
        assert_eq!(pipe.space_down(5), 0);
        let mut received = take(&pipe);
        assert!(session.try_recv().is_ok());
        pipe.clear_notification();
        assert_eq!(pipe.space_down(5), 0, "the program still holds the page");
        received.advance(PAGE);
        pipe.give_back(received);
        assert!(session.try_recv().is_ok());
        assert_eq!(pipe.space_down(5), 1);
    }
}
