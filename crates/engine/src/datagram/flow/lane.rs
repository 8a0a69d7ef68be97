//! What one flow has for one path: its place in the path's turns, and copies with fixed sequence
//! numbers.

use std::collections::VecDeque;

use bytes::Bytes;

use super::queue;
use crate::datagram::wire::Half;
use crate::{Instant, PathId};

/// The turn of a flow on a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Listed {
    #[default]
    No,
    Urgent,
    New,
    Old,
}

/// Why a datagram with a sequence number waits for a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyKind {
    /// It goes over several links.
    Duplicate,
    /// It should, but only one link may carry it.
    Single,
    /// The path that carried it may have lost it.
    Rescue,
    /// The second half of a datagram that is too big for a packet.
    Fragment,
}

/// A datagram with a sequence number.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) kind: CopyKind,
    pub(crate) sequence: u64,
    pub(crate) half: Option<Half>,
    pub(crate) payload: Bytes,
    /// When the program sent it.
    pub(crate) at: Instant,
    /// It is worthless after this time.
    pub(crate) expires: Instant,
}

/// A flow's part of a path.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) path: PathId,
    pub(crate) listed: Listed,
    /// Bytes that the flow may still send in its turn (RFC 8290, section 4.2).
    pub(crate) deficit: i64,
    /// When the flow last sent something on the path.
    pub(crate) used: Option<Instant>,
    copies: VecDeque<Copy>,
    bytes: usize,
}

impl Lane {
    pub(super) fn new(path: PathId) -> Self {
        Self {
            path,
            listed: Listed::No,
            deficit: 0,
            used: None,
            copies: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Memory of the copies in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The copy that leaves next.
    pub(crate) fn first(&self) -> Option<&Copy> {
        self.copies.front()
    }

    /// Appends a copy and returns older ones that exceed `limit` bytes, which are dropped.
    pub(crate) fn push(&mut self, copy: Copy, limit: usize) -> Vec<Copy> {
        self.bytes += queue::cost(&copy.payload);
        self.copies.push_back(copy);
        let mut dropped = Vec::new();
        while self.bytes > limit && self.copies.len() > 1 {
            dropped.extend(self.pop());
        }
        dropped
    }

    /// Adds a copy that leaves next.
    pub(crate) fn push_first(&mut self, copy: Copy) {
        self.bytes += queue::cost(&copy.payload);
        self.copies.push_front(copy);
    }

    /// Takes the copy that leaves next.
    pub(crate) fn pop(&mut self) -> Option<Copy> {
        let copy = self.copies.pop_front()?;
        self.bytes -= queue::cost(&copy.payload);
        Some(copy)
    }

    /// Takes all copies.
    pub(crate) fn take(&mut self) -> VecDeque<Copy> {
        self.bytes = 0;
        std::mem::take(&mut self.copies)
    }
}
