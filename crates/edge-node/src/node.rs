//! The thread that forwards packets.

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

/// Interval at which the published status is updated.
const STATUS: Duration = Duration::from_millis(100);

/// Most packets taken from the device before the links have their turn, which take as many at once.
const TURN: usize = 32;

/// Most notices waiting for the receiver; further ones are dropped.
const MAX_NOTICES: usize = 1000;

/// One end with its device and sockets, not yet started.
pub struct Node {
    end: End,
}

/// One end at work.
#[derive(Debug)]
pub struct Running {
    /// Notices; the channel closes when the thread ends.
    pub notices: mpsc::Receiver<Notice>,
    handle: NodeHandle,
    /// Closing it ends the thread.
    stop: UnixStream,
    thread: JoinHandle<Result<(), NodeError>>,
}

/// Queries a running end, and changes the rates of its links.
#[derive(Clone, Debug)]
pub struct NodeHandle {
    shared: Arc<Shared>,
}

/// State shared between the thread and its handles.
#[derive(Debug)]
struct Shared {
    status: Mutex<NodeStatus>,
    /// New rates of links, until the thread applies them.
    rates: Mutex<Vec<(usize, Option<u64>)>>,
    /// Writing a byte wakes the thread.
    wake: UnixStream,
}

impl NodeHandle {
    /// The status, at most 100 ms old.
    pub fn status(&self) -> NodeStatus {
        let status = self.shared.status.lock();
        status.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the rate of a link in bits per second, for UDP packets with their IP headers. 0 pauses
    /// the link; without a rate, it takes as much as its socket accepts. Returns `false` if no link
    /// has this name.
    pub fn set_rate(&self, link: &str, rate: Option<u64>) -> bool {
        let links = self.status().links;
        let Some(number) = links.iter().position(|known| known.name == link) else {
            return false;
        };
        let rates = self.shared.rates.lock();
        rates
            .unwrap_or_else(PoisonError::into_inner)
            .push((number, rate));
        // If the pipe is full, the thread is about to wake up anyway.
        let _ = (&self.shared.wake).write(&[0]);
        true
    }
}

impl Node {
    /// Opens the device and the sockets. Must be called inside a tokio runtime with I/O, on a
    /// thread in their network namespace.
    pub async fn open(config: NodeConfig) -> Result<Self, NodeError> {
        config.core.check()?;
        let tunnels = config.links.iter().map(|link| Tunnel::open(link, &config));
        let mut tunnels = tunnels.collect::<Result<Vec<_>, _>>()?;
        tunnels.iter_mut().for_each(Tunnel::watch_interface);
        // Last, because routes through it may hide those to the links' remote ends.
        let device = Device::open(&config.tun).await?;
        let end = End::new(config, device, tunnels)?;
        Ok(Self { end })
    }

    /// Starts forwarding packets.
    pub fn start(self) -> Result<Running, NodeError> {
        let (stop, stopped) = UnixStream::pair().map_err(NodeError::system("making a pipe"))?;
        let (notify, notices) = mpsc::channel(MAX_NOTICES);
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
                let result = carry(&mut end, &streams, clock, &notify, &shared);
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
    /// A handle for queries.
    pub fn handle(&self) -> NodeHandle {
        self.handle.clone()
    }

    /// Stops the end, waits until its device and sockets are closed, and returns its final status.
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

/// Signals from other threads.
struct Streams {
    /// Closing the other end stops the thread.
    stopped: UnixStream,
    /// Signals new rates.
    woken: UnixStream,
}

/// Forwards packets until stopped.
fn carry(
    end: &mut End,
    streams: &Streams,
    clock: std::time::Instant,
    notify: &mpsc::Sender<Notice>,
    shared: &Shared,
) -> Result<(), NodeError> {
    // By default the kernel adds 50 us to every wait, the time of four packets at 1 Gbit/s.
    if let Err(error) = prctl::set_timerslack(1) {
        tracing::debug!(%error, "cannot lower the timer slack; packets may leave 50 us late");
    }
    let (mut input, mut inbox) = (Input::new(), Inbox::new());
    let (mut next_status, mut warnings) = (Instant::ZERO, Warnings::default());
    loop {
        let now = clock.elapsed();
        end.handle_timeout(now);
        end.flush();
        for notice in end.notices.drain(..) {
            // A full channel must not stop the packets.
            let _ = notify.try_send(notice);
        }
        if next_status <= now {
            let status = end.status(now);
            warnings.log(&status, now);
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

/// Sources that are ready.
struct Ready {
    stopped: bool,
    woken: bool,
    device: bool,
    links: Vec<bool>,
    /// A full socket has room again.
    room: bool,
}

/// Waits up to `limit` for a packet, for room in a socket, or for a signal.
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
        Err(error) => return Err(NodeError::system("cannot wait for packets")(error.into())),
    }
    let happened = |fd: &PollFd<'_>| fd.revents().unwrap_or(PollFlags::empty());
    let links = &fds[3..];
    Ok(Ready {
        stopped: !happened(&fds[0]).is_empty(),
        woken: !happened(&fds[1]).is_empty(),
        device: !happened(&fds[2]).is_empty(),
        // Reading also clears an error that is pending on a socket.
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
            Err(error) => return Err(NodeError::system("lost the TUN device")(error)),
        }
    }
    end.flush();
    Ok(())
}
