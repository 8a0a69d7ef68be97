//! Tests of two sessions that exchange datagrams.

mod basics;
mod flows;
mod model;
mod policies;
mod random;
mod stream;
mod transfer;
