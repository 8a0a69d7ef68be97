//! Two sessions connected to each other, in virtual time.

mod ahead;
mod answers;
mod asked;
mod corners;
mod coupling;
mod failover;
mod half_dead;
mod hints;
mod hostile;
mod pair;
mod policy;
mod progress;
mod promise;
mod random;
mod readers;
mod schedulers;
mod selection;
mod small;
mod transfer;
mod windows;

pub(crate) use pair::{Pair, Side};
