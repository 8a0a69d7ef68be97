//! A bulk download with curl, an unmodified program: its output is the traffic, and counts as it
//! comes out of curl.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::programs;

use super::connection::{self, CHUNK};
use super::pattern::Pattern;
use super::record::Recorder;
use super::{Route, Window, curl_beside, now_ns};

/// Longest download; a client ends it earlier.
const LONGEST: Duration = Duration::from_secs(2 * 3600);
/// Time for a request to arrive.
const PATIENCE: Duration = Duration::from_secs(60);
/// Largest request with its headers.
const REQUEST_LIMIT: u64 = 16 << 10;
/// Interval at which the client checks whether the run is over.
const POLL_MS: u16 = 50;

/// Answers every HTTP request with endless content, on a separate thread.
pub(crate) fn serve(address: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // An error is the end of the client.
            thread::spawn(move || answer(stream));
        }
    });
    Ok(())
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut request = BufReader::new(stream.try_clone()?.take(REQUEST_LIMIT));
    let mut line = String::new();
    // The headers end with an empty line.
    while request.read_line(&mut line)? > 2 {
        line.clear();
    }
    // Without a length the content ends with the connection (RFC 9112, section 6.3).
    stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
    let window = Window {
        epoch_ns: now_ns(),
        duration_ms: LONGEST.as_millis() as u64,
    };
    connection::send(&mut stream, None, window).map(drop)
}

/// A running curl; it is killed when dropped.
///
/// Its output is closed after that: curl would complain of a closed output, and it shares standard
/// error with the client, which prints its records there as well.
struct Download {
    curl: Child,
    output: File,
}

impl Drop for Download {
    fn drop(&mut self) {
        let _ = self.curl.kill();
        let _ = self.curl.wait();
    }
}

/// Downloads until the run is over.
pub(super) fn run(route: &Route, window: Window, recorder: &mut Recorder) -> Result<(), String> {
    let failed = |error: io::Error| format!("curl: {error}");
    let mut command = Command::new(programs::find("curl").map_err(|error| error.to_string())?);
    command.args(["--silent", "--show-error", "--noproxy", "", "--output", "-"]);
    if let Some(socks) = route.socks {
        command.args(["--socks5", &socks.to_string()]);
    }
    if let Some(link) = route.device() {
        command.args(["--interface", link]);
    }
    command.arg(format!("http://{}/", curl_beside(route.target)));
    for name in ["http_proxy", "all_proxy", "ALL_PROXY"] {
        command.env_remove(name);
    }
    let curl = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut curl = curl.map_err(failed)?;
    let output = curl.stdout.take().ok_or("curl has no output")?;
    let output = File::from(OwnedFd::from(output));
    let mut download = Download { curl, output };
    let pattern = Pattern::new();
    let mut buffer = vec![0; CHUNK];
    let mut offset = 0;
    while window.left().is_some() {
        let mut readable = [PollFd::new(download.output.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::from(POLL_MS);
        if poll(&mut readable, timeout).is_ok_and(|ready| ready == 0) {
            continue;
        }
        let length = download.output.read(&mut buffer).map_err(failed)?;
        if length == 0 {
            let status = download.curl.wait().map_err(failed)?;
            return Err(format!(
                "curl ended after {:.1} s ({status})",
                window.elapsed_s()
            ));
        }
        recorder.record.connected = true;
        recorder.count(length);
        if let Some(at) = pattern.difference(offset, &buffer[..length]) {
            return Err(format!("byte {at} differs from the sent one"));
        }
        offset += length as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::served;

    #[test]
    fn the_output_of_curl_is_counted() {
        if programs::find("curl").is_err() {
            return;
        }
        let route = served(curl_beside, serve);
        let window = Window {
            epoch_ns: now_ns(),
            duration_ms: 1500,
        };
        let mut recorder = Recorder::new(0, window, 100);
        run(&route, window, &mut recorder).unwrap();
        let bytes: u64 = recorder.record.buckets.iter().sum();
        assert!(bytes > 1_000_000, "{bytes}");
        assert!(recorder.record.connected);
    }
}
