//! The parts of a SOCKS5 port for datagrams, and the stand-in for openers without them.

use bytes::Bytes;
use sumlink_exit::datagram::{DatagramSocket, FlowFailure, Received, SendError};

use crate::{Class, DatagramOpener, OpenError, Origin, SourceLimit, Target, Usage};

/// What SOCKS5 associations need.
pub(crate) struct Associations<D> {
    /// `None` if there are none.
    pub(crate) opener: Option<D>,
    /// The program at the other end of the connection.
    pub(crate) origin: Origin,
    pub(crate) limit: SourceLimit,
    /// The use of the connection's place.
    pub(crate) usage: Option<Usage>,
}

/// The datagrams of an opener of streams only.
#[derive(Clone)]
pub(crate) enum NoDatagrams {}

impl DatagramOpener for NoDatagrams {
    type Socket = Self;

    async fn bind(&self, _class: Option<Class>) -> Result<Self, OpenError> {
        match *self {}
    }
}

impl DatagramSocket for NoDatagrams {
    fn send(
        &self,
        _remote: &Target,
        _payload: Bytes,
        _class: Option<Class>,
    ) -> Result<(), SendError> {
        match *self {}
    }

    async fn receive(&mut self, _out: &mut Vec<(Target, Received)>, _limit: usize) -> usize {
        match *self {}
    }

    fn report(&self, _remote: &Target, _failure: FlowFailure) {
        match *self {}
    }
}
