//! `congestion = "auto"`: chooses the congestion control of a carrier by measurement
//! ([`sumlink_bond::congestion`]).

pub use sumlink_bond::congestion::AUTO;
pub(crate) use sumlink_bond::congestion::{LOSS_BASED, MODEL_BASED};
