//! Two sessions against each other, in virtual time.

mod corners;
mod hostile;
mod pair;
mod progress;
mod random;
mod transfer;

pub(crate) use pair::{Pair, Side};
