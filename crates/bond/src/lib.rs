//! The decisions around an engine whose paths are carriers, for two drivers: the daemon with
//! sockets and the simulator with modeled TCP.
//!
//! The engine ([`sumlink_engine`]) chooses the bytes of each path. This crate holds the decisions
//! around it, each of them once:
//!
//! | question | answer |
//! | --- | --- |
//! | How much may a carrier's socket hold, and how much is handed over at once? | [`Carrier`] |
//! | How much may it hold if its TCP ends at a load balancer? | [`EndToEnd`] |
//! | When does TCP pace, begin slow start again, or acknowledge at once? | [`Carrier`] |
//! | How fast may a carrier send while a call uses its link? | [`CallCap`] |
//! | Which congestion control does `auto` use? | [`congestion`] |
//! | When has a path been silent for so long that its link is dialed again? | [`Health`] |
//! | When is a link dialed, after which pause, with which timeouts? | [`Link`], [`dial`] |
//! | How many carriers does a link get, and how large are their packets? | [`Width`], [`Packets`] |
//! | How much may a datagram carrier hold, in flight and before, and what stands in for it? | [`datagram`] |
//! | Which path makes room when a carrier joins a full session? | [`join`] |
//! | How long does a stream wait to be opened, and when not at all? | [`opens`], [`Known`] |
//!
//! The crate knows no socket, clock, thread or random source. A moment ([`Instant`]) is the time
//! since an epoch that the driver chooses; what TCP reports is a [`TcpInfo`]; a driver's socket is
//! a [`Socket`].

#![forbid(unsafe_code)]

mod acknowledgments;
mod budget;
mod call_cap;
mod carrier;
pub mod congestion;
pub mod datagram;
pub mod dial;
mod early;
mod end_to_end;
mod health;
pub mod join;
mod known;
mod large;
mod link;
mod low_water;
pub mod opens;
mod packets;
mod restart;
pub mod socket;
mod spacing;
mod tcp_info;
mod traffic;
pub mod turns;
mod width;

pub use budget::{RECORD, RECORD_OVERHEAD};
pub use call_cap::{CallCap, CallCapState, beside_calls};
pub use carrier::Carrier;
pub use early::Early;
pub use end_to_end::EndToEnd;
pub use health::{Health, LoggedState, LoggedStates, NOT_DELIVERING, is_delivering, is_stalled};
pub use known::Known;
pub use link::{Link, Silence};
pub use packets::Packets;
pub use socket::Socket;
pub use sumlink_engine::Instant;
pub use tcp_info::{CaState, TcpInfo, TcpState};
pub use traffic::{LinkTraffic, Traffic};
pub use width::{Carriers, Moved, Width};

/// Start time of the tests: long after the epoch, so that any earlier moment exists.
#[cfg(test)]
const START: Instant = Instant::from_secs(100_000);
