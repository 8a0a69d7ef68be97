//! 60 GHz Wi-Fi as a pure model: the channel, beams, reception in the contention for beam training
//! (A-BFT), and JPOC, which equalizes the received power of all clients there and adapts the number
//! of mini-slots.
//!
//! The model follows chapter 3 of the thesis "Fair Initial Access Design for mmWave Wireless"; our
//! choices for open points are documented next to the code. The crate uses no socket, clock, thread
//! or global source of randomness: the caller passes the seed.
//!
//! - [`channel`], [`codebook`] and [`budget`]: SNR of each sector of a client.
//! - [`mac`]: beacon intervals, the A-BFT of 802.11ad and 802.11ay, overlapping frames.
//! - [`mobility`]: walking clients.
//! - [`jpoc`]: power control and the number of mini-slots.
//! - [`cell`]: many clients over many beacon intervals; [`figures`]: the chapter's figures as data.
//! - [`experiment`]: experiments described by files, as tables and pictures.
//! - [`wigig`]: one of the clients as a link of a bond, its rate and its outages over time.
//!
//! ```
//! use sumlink_mmwave::cell::{Access, Cell, CellConfig, run};
//!
//! let config = CellConfig {
//!     stations: 4,
//!     intervals: 20,
//!     ..CellConfig::default()
//! };
//! let cell = Cell::draw(&config, 1)?;
//! let access = Access::named("jpoc").unwrap();
//! let outcome = run(&cell, &access, 1)?;
//! assert!(outcome.jain() > 0.25 && outcome.intervals[0].mini_slots == 64);
//! # Ok::<(), sumlink_mmwave::MmwaveError>(())
//! ```

#![forbid(unsafe_code)]

pub mod array;
pub mod budget;
pub mod cell;
pub mod channel;
pub mod codebook;
mod error;
pub mod experiment;
pub mod figures;
pub mod geometry;
pub mod jpoc;
pub mod mac;
pub mod mobility;
mod pattern;
pub mod phy;
pub mod units;
pub mod wigig;

pub use error::MmwaveError;
pub use pattern::Pattern;
