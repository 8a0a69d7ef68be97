//! Shared by configuration files, command lines and scenarios: quantities with units, and the
//! settings of a session.
//!
//! - [`units`] parses and formats quantities such as `20mbit`, `200ms` and `10GB`.
//! - [`session`] has the settings of `[session]` in a configuration file; the name of a measured
//!   system may contain them, too.
//! - [`unquoted`] explains a frequent mistake in TOML files: text without quotes.

#![forbid(unsafe_code)]

pub mod session;
pub mod units;
pub mod unquoted;
