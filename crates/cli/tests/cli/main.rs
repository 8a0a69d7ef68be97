//! The program from outside, run the way a user runs it.

mod check;
mod common;
mod daemons;
mod sim;
mod verbs;
