//! The program from outside, run the way a user runs it.

mod cc;
mod check;
mod common;
mod daemons;
mod edge;
mod files;
mod mmwave;
mod sim;
mod units;
mod verbs;
