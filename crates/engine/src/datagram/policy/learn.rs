//! Learns the class of a flow.

use crate::{Class, Instant};

/// Learns the class of the datagrams that this side sends in a flow.
#[derive(Debug)]
pub(in crate::datagram) struct Learner {
    class: Class,
}

impl Learner {
    pub(in crate::datagram) fn new(_now: Instant) -> Self {
        Self {
            class: Class::Background,
        }
    }

    pub(in crate::datagram) fn sent(&mut self, _len: usize, _now: Instant) {}

    pub(in crate::datagram) fn class(&self) -> Class {
        self.class
    }
}
