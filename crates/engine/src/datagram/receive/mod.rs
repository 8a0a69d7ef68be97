//! The receiving side: packets, the datagrams in them, and the state of each flow.

mod fragments;
mod packet;
mod window;

pub(super) use fragments::Fragments;
use window::Window;

/// The receiving side of a flow.
#[derive(Debug, Default)]
pub(super) struct Inbound {
    /// The sequence numbers that have arrived.
    window: Window,
}
