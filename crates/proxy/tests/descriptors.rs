//! A process that runs out of file descriptors continues to serve when some are free again. This
//! test has its own file because the limit applies to the whole process.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sumlink_exit::relay::Buffered;
use sumlink_proxy::{Class, Listener, OpenError, Opener, Service, Target};
use tokio::io::DuplexStream;

/// Opens streams that use no descriptor and echo their input.
#[derive(Clone)]
struct Echo;

impl Opener for Echo {
    type Stream = Buffered<DuplexStream>;

    async fn open(&self, _: Target, _: Option<Class>) -> Result<Self::Stream, OpenError> {
        let (near, far) = tokio::io::duplex(1024);
        tokio::spawn(async move {
            let (mut read, mut write) = tokio::io::split(far);
            tokio::io::copy(&mut read, &mut write).await
        });
        Ok(Buffered::new(near))
    }
}

fn exchange(stream: &mut TcpStream, sent: &[u8], expected: &[u8]) {
    stream.write_all(sent).unwrap();
    let mut received = vec![0; expected.len()];
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    stream.read_exact(&mut received).unwrap();
    assert_eq!(received, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn service_resumes_after_a_shortage_of_descriptors() {
    let service = Service::Forward("echo.test:7".parse().unwrap());
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), service)
        .await
        .unwrap();
    let address = listener.local_addr();
    tokio::spawn(listener.serve(Echo, std::future::pending()));
    let mut before = TcpStream::connect(address).unwrap();
    exchange(&mut before, b"before", b"before");

    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, 256, hard).unwrap();
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
    }
    // One descriptor, for this end of a connection; none is left for the proxy's.
    files.pop();
    let mut during = TcpStream::connect(address).unwrap();
    during.write_all(b"during").unwrap();
    exchange(&mut before, b"during", b"during");
    files.clear();
    exchange(&mut during, b"", b"during");
}
