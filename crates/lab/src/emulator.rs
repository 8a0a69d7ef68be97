//! The emulator: one thread that carries the packets of all links, one by one.
//!
//! It reads packets that the kernel sends to one end's interface, passes them through a
//! [`Network`](sumlink_link::Network) and writes them to the other end's interface. It is
//! independent of addresses and namespaces.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Instant;

use sumlink_link::Counters;

use crate::addresses::Addresses;
use crate::config::{InterfaceState, LinkChange};
use crate::error::LabError;
use crate::health::Health;
use crate::tun::Tun;
use carrier::Carriers;
use exit::{Exit, Port};
use sumlink_scenario::model::Model;
use sumlink_scenario::plan::LabConfig;
use sumlink_scenario::timeline::Timeline;
use worker::Worker;

mod buffers;
mod carrier;
mod exit;
mod meter;
mod middlebox;
mod pace;
mod segment;
mod series;
mod worker;

/// The state of an emulated link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkReport {
    pub(crate) state: InterfaceState,
    /// Client to server, then server to client.
    pub(crate) counters: [Counters; 2],
    /// Bits per second.
    pub(crate) rates: [u64; 2],
}

enum Message {
    /// Apply to the link of that number.
    Change(usize, LinkChange),
    /// New ends for a link: client, server. `None` removes them.
    Replace(usize, Option<[Tun; 2]>),
    /// Set time zero of the timeline and of the series to now.
    Begin,
    /// Restart the measurement of lateness and CPU time.
    ResetHealth,
    /// Report links and health.
    Report(Sender<(Vec<LinkReport>, Health)>),
    /// Report the series of every link's directions.
    Series(Sender<Vec<Vec<u64>>>),
    Stop,
}

/// A handle of the running emulator; dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Emulator {
    messages: Sender<Message>,
    /// Writing a byte makes the thread read its messages.
    wake: UnixStream,
    thread: Option<thread::JoinHandle<()>>,
}

impl Emulator {
    /// Starts with the links of the description; ends are in the order (client, server).
    pub(crate) fn start(
        config: &LabConfig,
        ends: Vec<[Tun; 2]>,
        addresses: Arc<Addresses>,
    ) -> Result<Self, LabError> {
        let system = |error: io::Error| LabError::system("starting the emulator", error);
        let (wake, woken) = UnixStream::pair().map_err(system)?;
        wake.set_nonblocking(true).map_err(system)?;
        woken.set_nonblocking(true).map_err(system)?;
        let (messages, inbox) = mpsc::channel();
        let model = Model::build(config)?;
        let ports = config.links.iter().zip(ends).zip(&model.ids);
        let ports = ports.map(|((link, ends), ids)| Port::new(link, ends, *ids));
        let worker = Worker {
            exit: Exit::new(ports.collect(), config.gso, config.sample_interval),
            network: model.network,
            timeline: Timeline::new(model.actions),
            carriers: Carriers::start(addresses)?,
            inbox,
            woken,
            epoch: Instant::now(),
        };
        let thread = thread::Builder::new()
            .name("emulator".to_owned())
            .spawn(move || worker.run())
            .map_err(system)?;
        Ok(Self {
            messages,
            wake,
            thread: Some(thread),
        })
    }

    pub(crate) fn change(&self, link: usize, change: LinkChange) {
        self.send(Message::Change(link, change));
    }

    pub(crate) fn replace(&self, link: usize, ends: Option<[Tun; 2]>) {
        self.send(Message::Replace(link, ends));
    }

    /// Sets time zero of the timeline and of the series.
    pub(crate) fn begin(&self) {
        self.send(Message::Begin);
    }

    pub(crate) fn reset_health(&self) {
        self.send(Message::ResetHealth);
    }

    /// Links and health since the last reset. Overruns are not included.
    pub(crate) fn report(&self) -> Result<(Vec<LinkReport>, Health), LabError> {
        self.ask(Message::Report)
    }

    /// The wire bytes delivered in each complete interval since the beginning, for each direction
    /// of each link, in the order of the links and of [`Direction::BOTH`](crate::Direction::BOTH).
    pub(crate) fn series(&self) -> Result<Vec<Vec<u64>>, LabError> {
        self.ask(Message::Series)
    }

    fn ask<T>(&self, question: impl FnOnce(Sender<T>) -> Message) -> Result<T, LabError> {
        let (answer, report) = mpsc::channel();
        self.send(question(answer));
        report
            .recv()
            .map_err(|_| LabError::system("asking the emulator", "its thread has ended"))
    }

    fn send(&self, message: Message) {
        let _ = self.messages.send(message);
        // If the pipe is full, the thread is about to wake up anyway.
        let _ = (&self.wake).write(&[0]);
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.send(Message::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
