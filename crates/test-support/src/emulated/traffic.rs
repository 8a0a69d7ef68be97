//! Transfers by curl of unlimited length, checked by SHA-256.
//!
//! They use HTTP with chunked transfer coding (RFC 9112, section 7.1): without its last chunk a
//! copy is incomplete, and curl fails.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ring::digest::{Context, SHA256};
use sumlink_lab::Side;

use super::{Bench, finish, until};

/// Number and SHA-256 of the bytes that passed a place.
#[derive(Debug, PartialEq, Eq)]
pub struct Sum {
    bytes: u64,
    sha256: Vec<u8>,
}

/// A transfer by curl; the copy must equal the source.
#[derive(Debug)]
pub struct Transfer {
    /// `download` or `upload`.
    what: &'static str,
    curl: Child,
    stop: Arc<AtomicBool>,
    /// Bytes that have arrived at the far end.
    received: Arc<AtomicU64>,
    /// Bytes that passed curl's pipe, and those that passed the server's side.
    near: JoinHandle<io::Result<Sum>>,
    far: JoinHandle<io::Result<Sum>>,
}

/// A reproducible sequence of bytes without repetition.
#[derive(Debug)]
pub struct Pattern(u64);

impl Pattern {
    /// Starts a sequence with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(2).wrapping_add(1))
    }

    /// Fills the buffer.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for word in bytes.chunks_mut(8) {
            // Marsaglia, "Xorshift RNGs", 2003.
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            word.copy_from_slice(&self.0.to_le_bytes()[..word.len()]);
        }
    }

    /// The first `len` bytes of the sequence with this seed.
    pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        Self::new(seed).fill(&mut bytes);
        bytes
    }
}

/// The client's SOCKS5 entry.
const SOCKS: &str = "127.0.0.1:1080";

const CHUNK: usize = 16 * 1024;

/// Measures the longest pause of a counter, until it is dropped.
#[derive(Debug)]
pub struct Pauses {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Duration>>,
}

impl Pauses {
    /// Interval at which the counter is read.
    const TICK: Duration = Duration::from_millis(2);

    /// Starts to measure.
    pub fn of(counter: Arc<AtomicU64>) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let stopping = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let (mut last, mut since) = (counter.load(Ordering::Relaxed), Instant::now());
            let mut longest = Duration::ZERO;
            while !stopping.load(Ordering::Relaxed) {
                thread::sleep(Self::TICK);
                let now = counter.load(Ordering::Relaxed);
                longest = longest.max(since.elapsed());
                if now != last {
                    (last, since) = (now, Instant::now());
                }
            }
            longest
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }

    /// The longest pause so far; ends the measurement.
    pub fn longest(mut self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take();
        thread.map_or(Duration::ZERO, |thread| thread.join().unwrap())
    }
}

impl Drop for Pauses {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Transfer {
    /// Starts a download through SOCKS; the source listens at `server` in the server's namespace.
    pub fn download(bench: &Bench, server: SocketAddr) -> Self {
        let proxy = ["--socks5-hostname", SOCKS];
        Self::download_to(bench, Side::Client, &proxy, Side::Server, server)
    }

    /// Starts a download without a proxy, from `server` on one side to a program on another.
    pub fn plain_download(bench: &Bench, program: Side, source: Side, server: SocketAddr) -> Self {
        Self::download_to(bench, program, &[], source, server)
    }

    fn download_to(
        bench: &Bench,
        program: Side,
        proxy: &[&str],
        source: Side,
        server: SocketAddr,
    ) -> Self {
        let listener = listen_on(bench, source, server);
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let far = thread::spawn(move || {
            let (mut stream, _) = listener.accept()?;
            read_head(&mut BufReader::new(&stream))?;
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
            let sum = produce(&stopping, |bytes| write_chunk(&mut stream, bytes))?;
            stream.write_all(b"0\r\n\r\n")?;
            Ok(sum)
        });
        let mut curl = bench.spawn(program, &curl(&format!("http://{server}/"), proxy));
        let received = Arc::new(AtomicU64::new(0));
        let (output, counter) = (curl.stdout.take().unwrap(), Arc::clone(&received));
        let near = thread::spawn(move || consume(output, &counter));
        Self {
            what: "download",
            curl,
            stop,
            received,
            near,
            far,
        }
    }

    /// Starts an upload; the sink listens at `server` in the server's namespace.
    pub fn upload(bench: &Bench, server: SocketAddr) -> Self {
        let listener = listen(bench, server);
        let received = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&received);
        let far = thread::spawn(move || {
            let (mut stream, _) = listener.accept()?;
            let mut reader = BufReader::new(stream.try_clone()?);
            read_head(&mut reader)?;
            let sum = consume(
                Chunks {
                    reader,
                    left: 0,
                    ended: false,
                },
                &counter,
            )?;
            stream.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")?;
            Ok(sum)
        });
        let url = format!("http://{server}/");
        let more = ["--socks5-hostname", SOCKS, "-T", "-", "-H", "Expect:"];
        let mut command = bench.command(&curl(&url, &more));
        command.stdin(Stdio::piped());
        let mut curl = bench.lab.spawn(Side::Client, command).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (input, stopping) = (curl.stdin.take().unwrap(), Arc::clone(&stop));
        let near = thread::spawn(move || feed(input, &stopping));
        Self {
            what: "upload",
            curl,
            stop,
            received,
            near,
            far,
        }
    }

    /// Bytes that have arrived at the far end.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// The counter behind [`Self::received`].
    pub fn counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.received)
    }

    /// Waits until this number of further bytes has arrived.
    #[track_caller]
    pub fn goes_on(&self, bytes: u64) {
        grows(&format!("the {} goes on", self.what), &self.received, bytes);
    }

    /// Ends the transfer: curl must succeed and the copy must be identical.
    #[track_caller]
    pub fn finish(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let near = self.near.join().unwrap().unwrap();
        finish(&["curl", self.what], self.curl);
        assert_eq!(near, self.far.join().unwrap().unwrap());
        near.bytes
    }
}

/// A listener in the server's namespace for any thread.
pub fn listen(bench: &Bench, address: SocketAddr) -> TcpListener {
    listen_on(bench, Side::Server, address)
}

/// The same on any side.
pub fn listen_on(bench: &Bench, side: Side, address: SocketAddr) -> TcpListener {
    let bind = move || TcpListener::bind(address).unwrap();
    bench.lab.run(side, bind).unwrap()
}

fn curl<'a>(url: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut words = vec!["curl", "-sSf", "--no-buffer"];
    words.extend(more);
    words.push(url);
    words
}

#[track_caller]
fn grows(what: &str, counter: &AtomicU64, by: u64) {
    let goal = counter.load(Ordering::Relaxed) + by;
    until(what, || {
        (counter.load(Ordering::Relaxed) >= goal).then_some(())
    });
}

fn produce(stop: &AtomicBool, mut give: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<Sum> {
    let (mut pattern, mut context, mut bytes) = (Pattern::new(7), Context::new(&SHA256), 0);
    let mut chunk = vec![0; CHUNK];
    while !stop.load(Ordering::Relaxed) {
        pattern.fill(&mut chunk);
        context.update(&chunk);
        bytes += chunk.len() as u64;
        give(&chunk)?;
    }
    Ok(Sum {
        bytes,
        sha256: context.finish().as_ref().to_vec(),
    })
}

fn consume(mut from: impl Read, counter: &AtomicU64) -> io::Result<Sum> {
    let (mut context, mut bytes, mut chunk) = (Context::new(&SHA256), 0, vec![0; CHUNK]);
    loop {
        let len = from.read(&mut chunk)?;
        if len == 0 {
            return Ok(Sum {
                bytes,
                sha256: context.finish().as_ref().to_vec(),
            });
        }
        context.update(&chunk[..len]);
        bytes += len as u64;
        counter.store(bytes, Ordering::Relaxed);
    }
}

fn feed(mut input: ChildStdin, stop: &AtomicBool) -> io::Result<Sum> {
    produce(stop, |bytes| input.write_all(bytes))
}

fn write_chunk(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    stream.write_all(&chunk)
}

fn read_head(reader: &mut impl BufRead) -> io::Result<()> {
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    Ok(())
}

/// The contents of a chunked body.
struct Chunks<R> {
    reader: R,
    /// Remaining bytes of the current chunk.
    left: usize,
    ended: bool,
}

impl<R: BufRead> Read for Chunks<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut line = String::new();
        while self.left == 0 {
            if self.ended {
                return Ok(0);
            }
            line.clear();
            if self.reader.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let size = line.trim();
            if !size.is_empty() {
                self.left = usize::from_str_radix(size, 16).map_err(io::Error::other)?;
                self.ended = self.left == 0;
            }
        }
        let most = bytes.len().min(self.left);
        let len = self.reader.read(&mut bytes[..most])?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= len;
        Ok(len)
    }
}
