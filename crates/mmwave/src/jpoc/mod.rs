//! JPOC: power control and mini-slots (thesis, section 3.2).

pub mod control;
pub mod power;
pub mod slots;
