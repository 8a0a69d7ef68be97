//! Scheduled changes of interface carriers and addresses.

use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use crate::addresses::Addresses;
use crate::error::LabError;
use crate::tun::Tun;

/// A change to make.
#[derive(Debug)]
enum Request {
    Carrier(Tun, bool),
    Take(usize),
    GiveBack(usize),
    ChooseOthers(usize),
    Renew(usize),
}

/// Switches interface carriers and addresses on a separate thread: the kernel may block such a
/// request for milliseconds, and the emulator's thread must deliver packets on time.
#[derive(Debug)]
pub(super) struct Carriers {
    /// `None` only during drop.
    requests: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

impl Carriers {
    pub(super) fn start(addresses: Arc<Addresses>) -> Result<Self, LabError> {
        let (requests, inbox) = mpsc::channel::<Request>();
        let serve = move || {
            for request in inbox {
                let done = match request {
                    Request::Carrier(end, carrier) => end.set_carrier(carrier),
                    Request::Take(link) => addresses.take(link),
                    Request::GiveBack(link) => addresses.give_back(link),
                    Request::ChooseOthers(link) => {
                        addresses.choose_others(link);
                        Ok(())
                    }
                    Request::Renew(link) => addresses.renew(link),
                };
                if let Err(error) = done {
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

    /// Switches the carrier of both ends of a link on or off, asynchronously.
    pub(super) fn set(&self, ends: &[Tun; 2], carrier: bool) {
        for end in ends {
            match (end.try_clone(), &self.requests) {
                (Ok(end), Some(requests)) => drop(requests.send(Request::Carrier(end, carrier))),
                (Err(error), _) => tracing::warn!("cannot duplicate a file descriptor: {error}"),
                (_, None) => {}
            }
        }
    }

    /// Removes the client's addresses on a link, asynchronously.
    pub(super) fn take_addresses(&self, link: usize) {
        self.ask(Request::Take(link));
    }

    /// Restores them, asynchronously.
    pub(super) fn give_addresses_back(&self, link: usize) {
        self.ask(Request::GiveBack(link));
    }

    /// Replaces the client's addresses on a link, asynchronously; an end without addresses gets the
    /// new ones when its addresses are restored.
    pub(super) fn renew_addresses(&self, link: usize, has_any: bool) {
        self.ask(match has_any {
            true => Request::Renew(link),
            false => Request::ChooseOthers(link),
        });
    }

    fn ask(&self, request: Request) {
        if let Some(requests) = &self.requests {
            let _ = requests.send(request);
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
