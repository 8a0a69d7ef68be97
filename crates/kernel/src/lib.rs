//! Congestion controls of multipath TCP as eBPF programs, for any TCP socket of an unmodified Linux
//! kernel (6.4 or later).
//!
//! Each is the twin of an algorithm of `sumlink-congestion`, with a name on the system that begins
//! with `sl_` ([`TWINS`]). Once it is loaded, a program chooses it by `setsockopt(TCP_CONGESTION)`
//! like `cubic`. MPTCP subflows inherit it from their connection, and find each other by its token.
//!
//! ```no_run
//! use sumlink_congestion::Settings;
//! use sumlink_kernel::{Bonds, Group, load};
//!
//! let bonds = Bonds::new()?;
//! let lia = load("lia", &Settings::default(), &bonds)?;
//! # let wifi = std::net::TcpStream::connect("a:1").unwrap();
//! # let cellular = std::net::TcpStream::connect("b:1").unwrap();
//! // Two connections that share the rate of one, once they use sl_lia.
//! let group = Group::new(1).expect("not zero");
//! bonds.join(&wifi, group)?;
//! bonds.join(&cellular, group)?;
//! # Ok::<(), sumlink_kernel::Error>(())
//! ```
//!
//! [`keep`] shares a congestion control with other processes that need it; [`Trace`] records the
//! windows of sockets.
//!
//! A congestion control is unloaded when its [`Loaded`] is dropped. If it is pinned ([`Pins`]) it
//! stays until it is unloaded explicitly. Sockets that use it keep it until they close.
//!
//! Windows are those of the reference, rounded down to whole packets; docs/congestion.md describes
//! the precision and its tests.

mod bonds;
mod error;
mod load;
mod log;
mod pins;
mod probe;
mod share;
mod trace;
mod twin;

pub use bonds::{Bonds, Group, MAX_SIBLINGS, Member};
pub use error::Error;
#[doc(hidden)]
pub use load::load_forgetful;
pub use load::{Loaded, load, loaded};
pub use pins::Pins;
pub use probe::{Missing, probe};
pub use share::{Kept, keep};
pub use trace::{Filter, Record, State, Trace};
pub use twin::{TWINS, Twin};
