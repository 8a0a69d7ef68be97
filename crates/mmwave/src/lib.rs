//! 60 GHz Wi-Fi as a pure model: the channel, beams, who is heard in the contention for beam training (A-BFT), and
//! JPOC, which gives everybody the same power there and adapts the number of mini-slots.
//!
//! It follows chapter 3 of the thesis "Fair Initial Access Design for mmWave Wireless"; what the thesis leaves open is
//! decided where it is written down. The crate knows no socket, no clock, no thread and no global source of randomness:
//! the caller passes the seed.

#![forbid(unsafe_code)]

pub mod array;
pub mod budget;
pub mod channel;
pub mod codebook;
mod error;
pub mod geometry;
pub mod jpoc;
pub mod mac;
mod pattern;
pub mod phy;
pub mod units;

pub use error::MmwaveError;
pub use pattern::Pattern;
