//! Many connections at a time: short ones as fast as possible, or open ones until the end. One
//! thread drives all of them at each side.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener as Listener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, LocalSet, spawn_local};
use tokio::time::{sleep, timeout};

use crate::prose::note;

use super::pattern::Pattern;
use super::record::Recorder;
use super::{Route, Window, many_beside};

/// Bytes of a question: the size of its answer, and whether the connection stays open.
const QUESTION: usize = 8;
/// Largest answer.
const LARGEST: u32 = 1_000_000;
/// Time for a connection to be answered.
const PATIENCE: Duration = Duration::from_secs(10);
/// Open connections that are made at the same time.
const AT_ONCE: usize = 64;
/// Pause after a failure, so that a refusing server is not flooded.
const PAUSE: Duration = Duration::from_millis(10);
/// Connections that wait for the server; more than any workload makes at once.
const BACKLOG: i32 = 4096;

/// The behavior of the connections.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// This number of short connections at a time.
    Short { parallel: u64, answer: u64 },
    /// This number of connections that stay open.
    Open { count: u64 },
}

/// Answers questions on a separate thread.
pub(crate) fn serve(address: SocketAddr) -> io::Result<()> {
    let socket = super::connection::socket(address, false)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    let listener = TcpListener::from(socket);
    let runtime = runtime()?;
    std::thread::spawn(move || {
        if let Err(error) = LocalSet::new().block_on(&runtime, accept(listener)) {
            note!("many connections: {error}");
        }
    });
    Ok(())
}

async fn accept(listener: TcpListener) -> io::Result<()> {
    let listener = Listener::from_std(listener)?;
    let pattern = Rc::new(Pattern::new());
    loop {
        // Without a free descriptor the connection waits.
        let Ok((stream, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let pattern = Rc::clone(&pattern);
        // A connection that ends early is counted by the other side.
        spawn_local(async move { answer(stream, &pattern).await });
    }
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

async fn answer(mut stream: TcpStream, pattern: &Pattern) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let size = stream.read_u32().await?;
    let stays_open = stream.read_u32().await? != 0;
    let mut content = vec![0; size.min(LARGEST) as usize];
    pattern.fill(0, &mut content);
    stream.write_all(&content).await?;
    drop(content);
    if stays_open {
        // Until the other side closes it.
        stream.read_u8().await?;
    }
    Ok(())
}

/// Makes the connections until the run is over.
pub(super) fn run(
    route: &Route,
    kind: Kind,
    window: Window,
    recorder: &mut Recorder,
) -> Result<(), String> {
    let runtime = runtime().map_err(|error| error.to_string())?;
    recorder.record.connections = Some(Default::default());
    let own = std::mem::replace(recorder, Recorder::new(0, window, 1_000));
    let run = Rc::new(Run {
        target: many_beside(route.target),
        socks: route.socks,
        window,
        pattern: Pattern::new(),
        recorder: RefCell::new(own),
    });
    LocalSet::new().block_on(&runtime, async {
        let mut tasks = JoinSet::new();
        match kind {
            Kind::Short { parallel, answer } => {
                for number in 0..parallel {
                    tasks.spawn_local(Rc::clone(&run).short_ones(answer, number == 0));
                }
            }
            Kind::Open { count } => {
                let places = Rc::new(Semaphore::new(AT_ONCE));
                for _ in 0..count {
                    tasks.spawn_local(Rc::clone(&run).open_one(Rc::clone(&places)));
                }
            }
        }
        while tasks.join_next().await.is_some() {}
    });
    std::mem::swap(recorder, &mut run.recorder.borrow_mut());
    Ok(())
}

struct Run {
    target: SocketAddr,
    socks: Option<SocketAddr>,
    window: Window,
    pattern: Pattern,
    recorder: RefCell<Recorder>,
}

impl Run {
    /// One connection after another; `timed` ones are recorded with their durations.
    async fn short_ones(self: Rc<Self>, size: u64, timed: bool) {
        while let Some(left) = self.window.left() {
            let begun = super::now_ns();
            let end = timeout(left.min(PATIENCE), self.ask(size, false)).await;
            if self.window.left().is_none() {
                return;
            }
            let is_answered = matches!(end, Ok(Ok(_)));
            self.count(is_answered, size);
            if is_answered && timed {
                self.recorder.borrow_mut().message(begun);
            }
            if !is_answered {
                sleep(PAUSE).await;
            }
        }
    }

    /// A connection that is open until the end.
    async fn open_one(self: Rc<Self>, places: Rc<Semaphore>) {
        let place = places.acquire().await;
        let Some(left) = self.window.left() else {
            return;
        };
        let opened = timeout(left.min(PATIENCE), self.ask(1, true)).await;
        drop(place);
        let Ok(Ok(mut stream)) = opened else {
            // An attempt that the end of the run cuts off has not failed.
            if self.window.left().is_some() {
                self.count(false, 0);
            }
            return;
        };
        self.count(true, 1);
        let Some(left) = self.window.left() else {
            return;
        };
        // The server sends nothing more: any end of this is an early end.
        let early = timeout(left, stream.read_u8()).await.is_ok();
        let mut recorder = self.recorder.borrow_mut();
        let connections = recorder.record.connections.get_or_insert_default();
        match early {
            true => connections.failed += 1,
            false => connections.open += 1,
        }
    }

    fn count(&self, is_answered: bool, bytes: u64) {
        let mut recorder = self.recorder.borrow_mut();
        let connections = recorder.record.connections.get_or_insert_default();
        match is_answered {
            true => connections.answered += 1,
            false => connections.failed += 1,
        }
        recorder.record.connected |= is_answered;
        recorder.count(usize::try_from(bytes).unwrap_or(usize::MAX));
    }

    /// Connects, asks, and compares the whole answer.
    async fn ask(&self, size: u64, stays_open: bool) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(self.socks.unwrap_or(self.target)).await?;
        stream.set_nodelay(true)?;
        if self.socks.is_some() {
            socks_connect(&mut stream, self.target).await?;
        }
        let size = u32::try_from(size).unwrap_or(LARGEST).min(LARGEST);
        let mut question = [0; QUESTION];
        question[..4].copy_from_slice(&size.to_be_bytes());
        question[7] = u8::from(stays_open);
        stream.write_all(&question).await?;
        let mut content = vec![0; size as usize];
        stream.read_exact(&mut content).await?;
        if self.pattern.difference(0, &content).is_some() {
            return Err(io::Error::other("the answer differs from the sent one"));
        }
        if !stays_open && stream.read(&mut [0]).await? != 0 {
            return Err(io::Error::other("the answer is too long"));
        }
        Ok(stream)
    }
}

/// RFC 1928 without authentication.
async fn socks_connect(stream: &mut TcpStream, target: SocketAddr) -> io::Result<()> {
    let refused = |code: u8| io::Error::other(format!("the proxy replied {code}"));
    stream.write_all(&[5, 1, 0]).await?;
    let mut method = [0; 2];
    stream.read_exact(&mut method).await?;
    if method[1] != 0 {
        return Err(refused(method[1]));
    }
    let mut request = vec![5, 1, 0];
    match target.ip() {
        IpAddr::V4(ip) => request.extend([&[1][..], &ip.octets()].concat()),
        IpAddr::V6(ip) => request.extend([&[4][..], &ip.octets()].concat()),
    }
    request.extend(target.port().to_be_bytes());
    stream.write_all(&request).await?;
    let mut reply = [0; 4];
    stream.read_exact(&mut reply).await?;
    let address = match reply {
        [_, 0, _, 1] => 4,
        [_, 0, _, 4] => 16,
        [_, code, ..] => return Err(refused(code)),
    };
    stream.read_exact(&mut [0; 18][..address + 2]).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::{now_ns, served};

    /// A server on a free port, and a run of that duration.
    fn run_for(duration_ms: u64, kind: Kind) -> Recorder {
        let route = served(many_beside, serve);
        let window = Window {
            epoch_ns: now_ns(),
            duration_ms,
        };
        let mut recorder = Recorder::new(0, window, 100);
        run(&route, kind, window, &mut recorder).unwrap();
        recorder
    }

    #[test]
    fn short_connections_are_counted() {
        let kind = Kind::Short {
            parallel: 4,
            answer: 500,
        };
        let record = run_for(500, kind).record;
        let connections = record.connections.unwrap();
        assert!(connections.answered > 0, "{connections:?}");
        assert_eq!((connections.failed, connections.open), (0, 0));
        let bytes: u64 = record.buckets.iter().sum();
        assert_eq!(bytes, 500 * connections.answered);
        assert!(record.connected && !record.messages.is_empty());
    }

    #[test]
    fn open_connections_stay_open() {
        let record = run_for(1500, Kind::Open { count: 100 }).record;
        let connections = record.connections.unwrap();
        assert_eq!((connections.answered, connections.open), (100, 100));
        assert_eq!(connections.failed, 0);
    }

    #[test]
    fn a_refused_connection_has_failed() {
        let probe = TcpListener::bind("127.0.0.1:0").unwrap();
        let route = Route::direct(probe.local_addr().unwrap());
        drop(probe);
        let window = Window {
            epoch_ns: now_ns(),
            duration_ms: 100,
        };
        let mut recorder = Recorder::new(0, window, 100);
        run(&route, Kind::Open { count: 3 }, window, &mut recorder).unwrap();
        let connections = recorder.record.connections.unwrap();
        assert_eq!((connections.failed, connections.open), (3, 0));
        assert!(!recorder.record.connected);
    }
}
