//! Two sessions connected to each other, in virtual time.
//!
//! With the feature `testing`, other crates run the rules in `every` and `random` with their own
//! schedulers.

#[cfg(test)]
mod ahead;
#[cfg(test)]
mod answers;
#[cfg(test)]
mod asked;
#[cfg(test)]
mod corners;
#[cfg(test)]
mod coupling;
pub(crate) mod every;
#[cfg(test)]
mod failover;
#[cfg(test)]
mod half_dead;
#[cfg(test)]
mod hints;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod idle;
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "some of it serves only the tests of this crate")
)]
mod pair;
#[cfg(test)]
mod policy;
#[cfg(test)]
mod progress;
#[cfg(test)]
mod promise;
pub(crate) mod random;
#[cfg(test)]
mod readers;
#[cfg(test)]
mod schedulers;
#[cfg(test)]
mod selection;
#[cfg(test)]
mod small;
#[cfg(test)]
mod transfer;
#[cfg(test)]
mod turns;
#[cfg(test)]
mod windows;

pub(crate) use pair::{Pair, Side};
