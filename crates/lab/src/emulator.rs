//! The emulator: one thread that carries the packets of all links, one by one.
//!
//! It reads what the kernel sends to one end's interface, puts it through a [`Link`] and writes what comes
//! out to the other end's. Nothing here knows addresses or namespaces.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::prctl;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use sumlink_link::{Counters, Link};

use crate::config::{Direction, InterfaceState, LinkChange, LinkSpec, Setting};
use crate::error::LabError;
use crate::health::{Health, Histogram};
use crate::tun::Tun;

/// Packets read from one interface before the other ones get their turn.
const BATCH: usize = 32;
/// Pause after a round in which something happened, so that the packets of a busy link are carried
/// several at a time; a wake-up for each costs twice the CPU time. Packets are at most so much later.
const QUANTUM: Duration = Duration::from_micros(40);
/// Longest wait without anything to do; only bounds what a lost wake-up could cost.
const IDLE: Duration = Duration::from_secs(1);
/// A packet of a TUN device is never longer.
const MAX_PACKET: usize = 65_536;

/// What is emulated of one link at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkReport {
    pub(crate) state: InterfaceState,
    /// Client to server, then server to client.
    pub(crate) counters: [Counters; 2],
}

enum Message {
    /// Apply to the link of that number.
    Change(usize, LinkChange),
    /// New ends for a link: client, server. `None` takes them away.
    Replace(usize, Option<[Tun; 2]>),
    /// Count lateness and CPU time from now on.
    ResetHealth,
    /// Report links and health.
    Report(Sender<(Vec<LinkReport>, Health)>),
    Stop,
}

/// A handle of the running emulator; dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Emulator {
    messages: Sender<Message>,
    /// Writing a byte makes the thread look at its messages.
    wake: UnixStream,
    thread: Option<thread::JoinHandle<()>>,
}

impl Emulator {
    /// Starts with links whose ends are (client, server).
    pub(crate) fn start(links: Vec<(LinkSpec, [Tun; 2])>, seed: u64) -> Result<Self, LabError> {
        let system = |error: io::Error| LabError::system("starting the emulator", error);
        let (wake, woken) = UnixStream::pair().map_err(system)?;
        wake.set_nonblocking(true).map_err(system)?;
        woken.set_nonblocking(true).map_err(system)?;
        let (messages, inbox) = mpsc::channel();
        let ports = links
            .into_iter()
            .enumerate()
            .map(|(i, (spec, ends))| Port::new(&spec, ends, seed.wrapping_add(2 * i as u64)))
            .collect();
        let worker = Worker {
            ports,
            inbox,
            woken,
            epoch: Instant::now(),
            health: Meter::new(),
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

    pub(crate) fn reset_health(&self) {
        self.send(Message::ResetHealth);
    }

    /// Links and health; the health counts since the last reset. It does not know about overruns.
    pub(crate) fn report(&self) -> Result<(Vec<LinkReport>, Health), LabError> {
        let (answer, report) = mpsc::channel();
        self.send(Message::Report(answer));
        report
            .recv()
            .map_err(|_| LabError::system("asking the emulator", "its thread has ended"))
    }

    fn send(&self, message: Message) {
        let _ = self.messages.send(message);
        // A full pipe means that the thread is about to wake up anyway.
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

/// One link with its two ends.
struct Port {
    state: InterfaceState,
    /// Client, server. `None` while the interfaces do not exist.
    ends: Option<[Tun; 2]>,
    /// By [`Direction::index`]: `Up` is read from the client's end and written to the server's.
    links: [Link<Box<[u8]>>; 2],
}

impl Port {
    fn new(spec: &LinkSpec, ends: [Tun; 2], seed: u64) -> Self {
        let link = |d: Direction| {
            Link::new(spec.shapes[d.index()].link_config(seed.wrapping_add(d.index() as u64)))
        };
        Self {
            state: InterfaceState::Up,
            ends: Some(ends),
            links: [link(Direction::Up), link(Direction::Down)],
        }
    }

    fn set_state(&mut self, now: Duration, state: InterfaceState) {
        self.state = state;
        for link in &mut self.links {
            link.set_state(now, state.link_state());
        }
    }

    fn apply(&mut self, now: Duration, change: LinkChange) {
        if let Setting::State(state) = change.setting {
            return self.set_state(now, state);
        }
        for direction in change.directions() {
            let link = &mut self.links[direction.index()];
            match change.setting {
                Setting::Rate(rate) => link.set_rate(now, rate),
                Setting::Delay(delay) => link.set_delay(now, delay),
                Setting::Loss(loss) => link.set_loss(now, loss),
                Setting::Queue(queue) => link.set_queue(now, queue),
                Setting::State(_) => {}
            }
        }
    }

    /// Hands over everything that is due; returns whether there was anything.
    fn deliver(&mut self, clock: impl Fn() -> Duration, lateness: &mut Histogram) -> bool {
        let before = lateness.total();
        for direction in Direction::BOTH {
            loop {
                let now = clock();
                let Some(delivery) = self.links[direction.index()].poll(now) else {
                    break;
                };
                lateness.record(now - delivery.due);
                let Some(ends) = &self.ends else { continue };
                let far = ends[1 - direction.index()].file();
                match (&mut &*far).write(&delivery.packet) {
                    Err(error) if is_gone(&error) => self.lose_ends(now),
                    // EIO: the interface is administratively down. ENOBUFS, EAGAIN: the host is out of
                    // memory. A real adapter drops the packet as well.
                    _ => {}
                }
            }
        }
        lateness.total() > before
    }

    /// Takes in what the kernel has sent to the end at which packets of this direction start; returns
    /// how many packets that were, at most [`BATCH`].
    fn take_in(
        &mut self,
        direction: Direction,
        clock: impl Fn() -> Duration,
        buffer: &mut [u8],
    ) -> usize {
        for taken in 0..BATCH {
            let Some(ends) = &self.ends else { return taken };
            match (&mut ends[direction.index()].file()).read(buffer) {
                Ok(len) => {
                    self.links[direction.index()].enqueue(clock(), Box::from(&buffer[..len]));
                }
                Err(error) => {
                    if is_gone(&error) {
                        self.lose_ends(clock());
                    }
                    return taken;
                }
            }
        }
        BATCH
    }

    /// Somebody deleted an interface; the other end goes too.
    fn lose_ends(&mut self, now: Duration) {
        self.ends = None;
        self.set_state(now, InterfaceState::Removed);
    }
}

/// EBADFD: the descriptor is not attached to an interface any more.
fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EBADFD)
}

struct Worker {
    ports: Vec<Port>,
    inbox: Receiver<Message>,
    woken: UnixStream,
    /// Time zero of the links.
    epoch: Instant,
    health: Meter,
}

impl Worker {
    fn run(mut self) {
        // The kernel may otherwise round waits of ordinary threads up by 50 us.
        let _ = prctl::set_timerslack(1);
        become_punctual();
        let mut buffer = vec![0; MAX_PACKET];
        // The most packets that one end had in the last round.
        let mut taken = 0;
        loop {
            let epoch = self.epoch;
            let clock = || epoch.elapsed();
            let mut delivered = false;
            for port in &mut self.ports {
                delivered |= port.deliver(clock, &mut self.health.lateness);
            }
            if taken < BATCH && (taken > 0 || delivered) {
                thread::sleep(QUANTUM);
            }
            let (ready, woken) = self.wait();
            taken = 0;
            for (port, directions) in self.ports.iter_mut().zip(ready) {
                for direction in Direction::BOTH {
                    if directions[direction.index()] {
                        taken = taken.max(port.take_in(direction, clock, &mut buffer));
                    }
                }
            }
            if woken && self.handle_messages() {
                return;
            }
        }
    }

    /// Waits until a packet arrives, one is due, or a message comes. Says which ends are readable, and
    /// whether there are messages.
    fn wait(&self) -> (Vec<[bool; 2]>, bool) {
        let deadline = self
            .ports
            .iter()
            .flat_map(|p| &p.links)
            .filter_map(Link::next_deadline)
            .min();
        let now = self.epoch.elapsed();
        let timeout = deadline.map_or(IDLE, |deadline| deadline.saturating_sub(now).min(IDLE));
        let mut fds = vec![PollFd::new(self.woken.as_fd(), PollFlags::POLLIN)];
        for ends in self.ports.iter().filter_map(|port| port.ends.as_ref()) {
            fds.extend(
                ends.iter()
                    .map(|e| PollFd::new(e.file().as_fd(), PollFlags::POLLIN)),
            );
        }
        // EINTR and ENOMEM are answered by trying again in the next round.
        let polled = ppoll(&mut fds, Some(TimeSpec::from_duration(timeout)), None).unwrap_or(0);
        let mut events = fds.iter().map(|fd| polled > 0 && fd.any().unwrap_or(false));
        let woken = events.next().unwrap_or(false);
        let mut next = || events.next().unwrap_or(false);
        let ready = self
            .ports
            .iter()
            .map(|port| {
                if port.ends.is_some() {
                    [next(), next()]
                } else {
                    [false; 2]
                }
            })
            .collect();
        (ready, woken)
    }

    /// Returns whether to stop.
    fn handle_messages(&mut self) -> bool {
        let mut sink = [0; 64];
        while matches!((&self.woken).read(&mut sink), Ok(n) if n > 0) {}
        while let Ok(message) = self.inbox.try_recv() {
            let now = self.epoch.elapsed();
            match message {
                Message::Change(link, change) => self.ports[link].apply(now, change),
                Message::Replace(link, ends) => {
                    let state = if ends.is_some() {
                        InterfaceState::Up
                    } else {
                        InterfaceState::Removed
                    };
                    self.ports[link].ends = ends;
                    self.ports[link].set_state(now, state);
                }
                Message::ResetHealth => self.health = Meter::new(),
                Message::Report(answer) => {
                    let links = self.ports.iter().map(|port| LinkReport {
                        state: port.state,
                        counters: port.links.each_ref().map(Link::counters),
                    });
                    let _ = answer.send((links.collect(), self.health.read()));
                }
                Message::Stop => return true,
            }
        }
        false
    }
}

/// Measures the emulator itself. Made and read on its thread.
struct Meter {
    since: Instant,
    /// CPU time of the thread at `since`; `None` before the thread's first reset or report.
    cpu_at_since: Option<Duration>,
    lateness: Histogram,
}

impl Meter {
    fn new() -> Self {
        let on_thread = thread::current().name() == Some("emulator");
        Self {
            since: Instant::now(),
            cpu_at_since: on_thread.then(thread_cpu),
            lateness: Histogram::new(),
        }
    }

    fn read(&self) -> Health {
        let cpu = thread_cpu().saturating_sub(self.cpu_at_since.unwrap_or_default());
        Health {
            packets: self.lateness.total(),
            lateness_p50_us: self.lateness.percentile_us(0.5),
            lateness_p99_us: self.lateness.percentile_us(0.99),
            cpu_share: cpu.as_secs_f64() / self.since.elapsed().as_secs_f64().max(1e-9),
            overruns: 0,
        }
    }
}

/// Lets the calling thread run as soon as something is due, whatever else the machine does: programs at
/// both ends of the links compete for the same cores, and a late emulator is a slower link. Without the
/// privilege everything stays as it is, and [`Health`] tells whether that was good enough.
///
/// The kernel stops such a thread for 50 ms of each second in which it leaves nothing to others; then it
/// is the bottleneck, and [`Health`] tells that too.
fn become_punctual() {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: 0 is the calling thread, and `lowest` is a whole sched_param that outlives the call.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &lowest) };
    if result != 0 {
        tracing::debug!("real-time scheduling: {}", io::Error::last_os_error());
    }
}

fn thread_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map(Duration::from)
        .unwrap_or_default()
}
