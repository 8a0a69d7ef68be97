//! Beacon intervals and the contention for beam training in them (A-BFT).
//!
//! A beacon interval has a sweep of the access point (BTI), the contention ([`slotted`] as in the
//! standards, [`mini`] as in JPOC), announcements (ATI), and data. [`air`] models overlapping
//! frames at the access point, and [`data`] the share of the data time that carries IP packets.

pub mod air;
pub mod data;
pub mod interval;
pub mod mini;
pub mod slotted;
pub mod trigger;

/// A sector of a client heard by the access point, with its SNR.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trained {
    /// Its number.
    pub sector: usize,
    /// SNR in dB at the access point.
    pub snr_db: f64,
}

impl Trained {
    /// The better of two.
    pub(crate) fn better(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(a), Some(b)) => Some(if b.snr_db > a.snr_db { b } else { a }),
            (a, b) => a.or(b),
        }
    }
}

/// A transmitted sector sweep frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transmission {
    /// Index of the contender.
    pub contender: usize,
    /// Its sector.
    pub sector: usize,
    /// Slot; 0 if there are only mini-slots.
    pub slot: u32,
    /// Channel.
    pub channel: u32,
    /// Mini-slot, counted within the slot.
    pub mini_slot: u32,
    /// Whether the access point decoded it.
    pub heard: bool,
}
