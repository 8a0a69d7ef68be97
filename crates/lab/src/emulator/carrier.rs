//! Carriers of interfaces that change on a plan.

use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use crate::error::LabError;
use crate::tun::Tun;

/// Plugs cables in and pulls them on a thread of its own: the kernel may keep such a request waiting for
/// milliseconds, and the emulator's thread has packets to deliver.
#[derive(Debug)]
pub(super) struct Carriers {
    /// `None` only while dropping.
    requests: Option<Sender<(Tun, bool)>>,
    thread: Option<JoinHandle<()>>,
}

impl Carriers {
    pub(super) fn start() -> Result<Self, LabError> {
        let (requests, inbox) = mpsc::channel::<(Tun, bool)>();
        let serve = move || {
            for (end, carrier) in inbox {
                if let Err(error) = end.set_carrier(carrier) {
                    tracing::warn!("{error}");
                }
            }
        };
        let thread = thread::Builder::new()
            .name("carriers".to_owned())
            .spawn(serve)
            .map_err(|error| LabError::system("starting a thread", error))?;
        Ok(Self {
            requests: Some(requests),
            thread: Some(thread),
        })
    }

    /// Gives both ends of a link a carrier, or takes it away, soon.
    pub(super) fn set(&self, ends: &[Tun; 2], carrier: bool) {
        for end in ends {
            match (end.try_clone(), &self.requests) {
                (Ok(end), Some(requests)) => drop(requests.send((end, carrier))),
                (Err(error), _) => tracing::warn!("duplicating a file descriptor: {error}"),
                (_, None) => {}
            }
        }
    }
}

impl Drop for Carriers {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
