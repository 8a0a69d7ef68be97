//! The thread that moves packets.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::prctl;
use nix::sys::time::TimeSpec;
use sumlink_edge::Instant;
use tokio::sync::mpsc;

use crate::config::NodeConfig;
use crate::device::{Device, Input};
use crate::end::End;
pub use crate::end::Notice;
use crate::error::NodeError;
use crate::status::NodeStatus;
use crate::tunnel::{Inbox, Tunnel};
use crate::warnings::Warnings;

/// How often the status is written down for those who ask.
const STATUS: Duration = Duration::from_millis(100);

/// Packets that are taken from the device before the links get their turn, which give as many at once.
const TURN: usize = 32;

/// Notices that wait for somebody to take them; more are dropped.
const MOST_NOTICES: usize = 1000;

/// One end with its device and sockets, not yet at work.
pub struct Node {
    end: End,
}

/// One end at work.
#[derive(Debug)]
pub struct Running {
    /// What happens; ends when the thread does.
    pub notices: mpsc::Receiver<Notice>,
    handle: NodeHandle,
    /// Closing it ends the thread.
    stop: UnixStream,
    thread: JoinHandle<Result<(), NodeError>>,
}

/// Asks an end at work, and changes what its links carry.
#[derive(Clone, Debug)]
pub struct NodeHandle {
    shared: Arc<Shared>,
}

/// What the thread and those who ask it have in common.
#[derive(Debug)]
struct Shared {
    status: Mutex<NodeStatus>,
    /// The rates that links are to have, until the thread takes them.
    rates: Mutex<Vec<(usize, Option<u64>)>>,
    /// Writing a byte makes the thread look at them.
    wake: UnixStream,
}

impl NodeHandle {
    /// How it was a moment ago, 100 ms at the most.
    pub fn status(&self) -> NodeStatus {
        let status = self.shared.status.lock();
        status.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets the link of that name be given so many bits per second of UDP packets with their IP headers from now on; with 0 it
    /// waits, without a rate it takes what its socket takes. `false` when there is no such link.
    pub fn set_rate(&self, link: &str, rate: Option<u64>) -> bool {
        let links = self.status().links;
        let Some(number) = links.iter().position(|known| known.name == link) else {
            return false;
        };
        let rates = self.shared.rates.lock();
        rates
            .unwrap_or_else(PoisonError::into_inner)
            .push((number, rate));
        // A full pipe means that the thread is about to wake up anyway.
        let _ = (&self.shared.wake).write(&[0]);
        true
    }
}

impl Node {
    /// Makes the device and the sockets. Must be called inside a tokio runtime with I/O, on a thread in the network namespace
    /// where both belong.
    pub async fn open(config: NodeConfig) -> Result<Self, NodeError> {
        config.core.check()?;
        let tunnels = config.links.iter().map(|link| Tunnel::open(link, &config));
        let mut tunnels = tunnels.collect::<Result<Vec<_>, _>>()?;
        tunnels.iter_mut().for_each(Tunnel::watch_interface);
        // Last, as routes through it may hide those to the links' other ends.
        let device = Device::open(&config.tun).await?;
        let end = End::new(config, device, tunnels)?;
        Ok(Self { end })
    }

    /// Starts to move packets.
    pub fn start(self) -> Result<Running, NodeError> {
        let (stop, stopped) = UnixStream::pair().map_err(NodeError::system("making a pipe"))?;
        let (tell, notices) = mpsc::channel(MOST_NOTICES);
        let (wake, woken) = UnixStream::pair().map_err(NodeError::system("making a pipe"))?;
        for stream in [&wake, &woken] {
            let set = stream.set_nonblocking(true);
            set.map_err(NodeError::system("making a pipe"))?;
        }
        let shared = Arc::new(Shared {
            status: Mutex::new(self.end.status(Instant::ZERO)),
            rates: Mutex::default(),
            wake,
        });
        let handle = NodeHandle {
            shared: Arc::clone(&shared),
        };
        let mut end = self.end;
        let thread = std::thread::Builder::new().name("edge".to_owned());
        let thread = thread
            .spawn(move || {
                let clock = std::time::Instant::now();
                let streams = Streams { stopped, woken };
                let result = carry(&mut end, &streams, clock, &tell, &shared);
                shared.write(end.status(clock.elapsed()));
                result
            })
            .map_err(NodeError::system("starting a thread"))?;
        Ok(Running {
            notices,
            handle,
            stop,
            thread,
        })
    }
}

impl Running {
    /// For asking it.
    pub fn handle(&self) -> NodeHandle {
        self.handle.clone()
    }

    /// Ends it, and waits until device and sockets are gone; how it was at the end.
    pub fn stop(self) -> Result<NodeStatus, NodeError> {
        drop(self.stop);
        match self.thread.join() {
            Ok(result) => result?,
            Err(panic) => std::panic::resume_unwind(panic),
        }
        Ok(self.handle.status())
    }
}

impl Shared {
    fn write(&self, now: NodeStatus) {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    fn take_rates(&self) -> Vec<(usize, Option<u64>)> {
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut rates)
    }
}

/// How others reach the thread.
struct Streams {
    /// Ends it when the other end is closed.
    stopped: UnixStream,
    /// Rates are to be changed.
    woken: UnixStream,
}

/// Moves packets until it is stopped.
fn carry(
    end: &mut End,
    streams: &Streams,
    clock: std::time::Instant,
    tell: &mpsc::Sender<Notice>,
    shared: &Shared,
) -> Result<(), NodeError> {
    // The kernel adds 50 us to every time to wait otherwise, which is the time of four packets at 1 Gbit/s.
    if let Err(error) = prctl::set_timerslack(1) {
        tracing::debug!(%error, "timer slack");
    }
    let (mut input, mut inbox) = (Input::new(), Inbox::new());
    let (mut next_status, mut warnings) = (Instant::ZERO, Warnings::default());
    loop {
        let now = clock.elapsed();
        end.handle_timeout(now);
        end.flush();
        for notice in end.notices.drain(..) {
            // Whoever does not listen does not stop the packets.
            let _ = tell.try_send(notice);
        }
        if next_status <= now {
            let status = end.status(now);
            warnings.say(&status, now);
            shared.write(status);
            next_status = now + STATUS;
        }
        let due = end.poll_timeout(now).min(next_status);
        let ready = wait(end, streams, due.saturating_sub(clock.elapsed()))?;
        if ready.stopped {
            return Ok(());
        }
        let now = clock.elapsed();
        if ready.woken {
            let _ = (&streams.woken).read(&mut [0; 64]);
            for (link, rate) in shared.take_rates() {
                end.set_rate(link, rate, now);
            }
        }
        for (link, &is_ready) in ready.links.iter().enumerate() {
            if is_ready && end.tunnels[link].receive(&mut inbox) {
                for datagram in inbox.datagrams() {
                    end.handle_datagram(link, datagram, now);
                }
                end.flush();
            }
        }
        if ready.device {
            from_device(end, &mut input, now)?;
        }
        if ready.room {
            end.settle(now);
        }
    }
}

/// What there is to do.
struct Ready {
    stopped: bool,
    woken: bool,
    device: bool,
    links: Vec<bool>,
    /// A socket that was full has room again.
    room: bool,
}

/// Waits for a packet, for room in a socket, for the end, and no longer than `limit`.
fn wait(end: &End, streams: &Streams, limit: Duration) -> Result<Ready, NodeError> {
    let mut fds = vec![
        PollFd::new(streams.stopped.as_fd(), PollFlags::POLLIN),
        PollFd::new(streams.woken.as_fd(), PollFlags::POLLIN),
        PollFd::new(end.device.as_fd(), PollFlags::POLLIN),
    ];
    for tunnel in &end.tunnels {
        let mut wanted = PollFlags::POLLIN;
        if tunnel.is_blocked() {
            wanted |= PollFlags::POLLOUT;
        }
        fds.push(PollFd::new(tunnel.as_fd(), wanted));
    }
    match ppoll(&mut fds, Some(TimeSpec::from(limit)), None) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(error) => return Err(NodeError::system("waiting for packets")(error.into())),
    }
    let happened = |fd: &PollFd<'_>| fd.revents().unwrap_or(PollFlags::empty());
    let links = &fds[3..];
    Ok(Ready {
        stopped: !happened(&fds[0]).is_empty(),
        woken: !happened(&fds[1]).is_empty(),
        device: !happened(&fds[2]).is_empty(),
        // An error that waits at a socket goes away by reading, too.
        links: links
            .iter()
            .map(|fd| happened(fd).intersects(PollFlags::POLLIN | PollFlags::POLLERR))
            .collect(),
        room: links
            .iter()
            .any(|fd| happened(fd).contains(PollFlags::POLLOUT)),
    })
}

fn from_device(end: &mut End, input: &mut Input, now: Instant) -> Result<(), NodeError> {
    let mut taken = 0;
    while taken < TURN {
        match end.device.read(input) {
            Ok(count) => {
                for number in 0..count {
                    end.handle_device(input.packet(number), now);
                }
                taken += count.max(1);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(NodeError::system("the TUN device is gone")(error)),
        }
    }
    end.flush();
    Ok(())
}
