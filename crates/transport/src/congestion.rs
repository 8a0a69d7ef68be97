//! `congestion = "auto"`: which congestion control a carrier uses, by measurement ([`sumlink_bond::congestion`]).

pub use sumlink_bond::congestion::AUTO;
pub(crate) use sumlink_bond::congestion::{LOSS_BASED, MODEL_BASED};
