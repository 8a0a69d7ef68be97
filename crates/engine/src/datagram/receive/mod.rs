//! The receiving side: packets, the datagrams in them, and the state of each flow.

mod deliver;
mod fragments;
mod order;
mod outbox;
mod packet;
mod report;
mod window;

pub(super) use deliver::Deliveries;
pub(super) use fragments::Fragments;
use order::Order;
pub(super) use order::Wait;
pub(super) use outbox::Outbox;
use window::Window;

/// The receiving side of a flow.
#[derive(Debug, Default)]
pub(super) struct Inbound {
    /// The sequence numbers that have arrived.
    window: Window,
    /// Present while the order is restored.
    order: Option<Box<Order>>,
    /// Numbers that were given up, and datagrams that came later, of past orders.
    given_up: u64,
    late: u64,
}

impl Inbound {
    /// Memory of the datagrams that wait for earlier ones.
    pub(super) fn held_bytes(&self) -> usize {
        self.order.as_ref().map_or(0, |order| order.bytes())
    }

    /// Datagrams that did not come in time, and those that came later than that.
    pub(super) fn given_up_and_late(&self) -> (u64, u64) {
        let (given_up, late) = (self.given_up, self.late);
        match &self.order {
            Some(order) => (given_up + order.given_up, late + order.late),
            None => (given_up, late),
        }
    }
}
