//! Beacon intervals and the contention for beam training in them (A-BFT).
//!
//! A beacon interval has a sweep of the access point (BTI), the contention ([`slotted`] as in the standards, [`mini`] as
//! in JPOC), announcements (ATI), and data. What the access point makes of frames that overlap is in [`air`], what of the
//! data time carries IP packets in [`data`].

pub mod air;
pub mod data;
pub mod interval;
pub mod mini;
pub mod slotted;
pub mod trigger;

/// A sector of a client that the access point heard, and how well.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trained {
    /// Its number.
    pub sector: usize,
    /// SNR in dB at which it arrived.
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

/// A sector sweep frame that somebody sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transmission {
    /// Who: the index of the contender.
    pub contender: usize,
    /// With which sector.
    pub sector: usize,
    /// In which slot; 0 where there are only mini-slots.
    pub slot: u32,
    /// On which channel.
    pub channel: u32,
    /// In which mini-slot, counted over the slot.
    pub mini_slot: u32,
    /// Whether the access point decoded it.
    pub heard: bool,
}
