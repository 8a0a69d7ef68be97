//! A session: its task, and the pipes between the task and the programs' ends of the streams.

pub(crate) mod account;
pub(crate) mod command;
pub(crate) mod driver;
pub(crate) mod former;
pub(crate) mod pipe;
pub(crate) mod sources;
