//! Datagrams for the program.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::datagram::FlowId;

/// Bookkeeping of a datagram, which counts as memory.
const OVERHEAD: usize = 48;

/// The datagrams that the program has not taken.
#[derive(Debug, Default)]
pub(in crate::datagram) struct Outbox {
    waiting: VecDeque<(FlowId, Bytes)>,
    bytes: usize,
    /// Datagrams that were dropped because the program did not take them.
    pub(in crate::datagram) dropped: u64,
}

impl Outbox {
    /// Appends a datagram; the oldest ones make room for it.
    pub(super) fn push(&mut self, flow: FlowId, payload: Bytes, limit: usize) {
        self.bytes += payload.len() + OVERHEAD;
        self.waiting.push_back((flow, payload));
        while self.bytes > limit && self.waiting.len() > 1 {
            self.pop();
            self.dropped += 1;
        }
    }

    /// Takes the oldest datagram.
    pub(in crate::datagram) fn pop(&mut self) -> Option<(FlowId, Bytes)> {
        let (flow, payload) = self.waiting.pop_front()?;
        self.bytes -= payload.len() + OVERHEAD;
        Some((flow, payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_takes_nothing_gets_the_newest_datagrams() {
        let mut outbox = Outbox::default();
        for index in 0..100u8 {
            outbox.push(4, Bytes::from(vec![index; 1000 - OVERHEAD]), 10_000);
        }
        assert_eq!(outbox.dropped, 90);
        assert_eq!(outbox.pop().map(|(_, payload)| payload[0]), Some(90));
    }
}
