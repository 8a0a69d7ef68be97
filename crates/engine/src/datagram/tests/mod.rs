//! Tests of two sessions that exchange datagrams.

mod basics;
mod model;
mod policies;
