//! An opener that connects directly, servers to connect to, and a proxy in front of them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use sumlink_exit::relay::Buffered;
use sumlink_proxy::{Class, Listener, OpenError, Opener, Service, Target};
use sumlink_transport::target::Host;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Longer than any step here takes; a test that reaches this time has failed.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Connects over TCP. Every name resolves to this machine, except those in [`FAILING`].
#[derive(Clone)]
pub(crate) struct Direct;

/// Names that cannot be opened, with their errors.
pub(crate) const FAILING: [(&str, OpenError); 7] = [
    ("forbidden.test", OpenError::NotAllowed),
    ("unknown.test", OpenError::NameNotResolved),
    ("closed.test", OpenError::Refused),
    ("far.test", OpenError::Unreachable),
    ("silent.test", OpenError::TimedOut),
    ("busy.test", OpenError::LimitReached),
    ("gone.test", OpenError::SessionClosed),
];

impl Opener for Direct {
    type Stream = Buffered<DirectStream>;

    async fn open(&self, target: Target, _: Option<Class>) -> Result<Self::Stream, OpenError> {
        let ip = match target.host {
            Host::Ip(ip) => ip,
            Host::Name(name) => match FAILING.iter().find(|(failing, _)| *failing == name) {
                Some((_, error)) => return Err(*error),
                None => IpAddr::from([127, 0, 0, 1]),
            },
        };
        let stream = TcpStream::connect((ip, target.port)).await;
        Ok(Buffered::new(DirectStream {
            stream: stream.map_err(|_| OpenError::Refused)?,
            read_ended: false,
            write_ended: false,
        }))
    }
}

/// A TCP connection that is reset when dropped early, as [`Opener`] requires.
pub(crate) struct DirectStream {
    stream: TcpStream,
    read_ended: bool,
    write_ended: bool,
}

impl Drop for DirectStream {
    fn drop(&mut self) {
        if !(self.read_ended && self.write_ended) {
            self.stream.set_zero_linger().unwrap();
        }
    }
}

impl AsyncRead for DirectStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.read_ended |= buf.filled().len() == before;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for DirectStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write_ended = true;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A served port; dropping it stops the service.
pub(crate) struct Proxy {
    /// Listening address.
    pub(crate) address: SocketAddr,
    /// Ends when the last connection has ended after `stop`.
    pub(crate) served: JoinHandle<()>,
    /// Starts the shutdown.
    pub(crate) stop: oneshot::Sender<()>,
}

impl Proxy {
    pub(crate) async fn start(listen: &str, service: Service) -> Self {
        let listener = Listener::bind(listen.parse().unwrap(), service).await;
        Self::serve(listener.unwrap())
    }

    pub(crate) fn serve(listener: Listener) -> Self {
        Self::serve_with(listener, Direct)
    }

    pub(crate) fn serve_with(listener: Listener, opener: impl Opener) -> Self {
        let address = listener.local_addr();
        let (stop, stopped) = oneshot::channel::<()>();
        let served = tokio::spawn(listener.serve(opener, async {
            let _ = stopped.await;
        }));
        Self {
            address,
            served,
            stop,
        }
    }

    /// URL for curl's `--proxy` and similar options.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

/// A port whose connections the test serves itself.
pub(crate) async fn origin(listen: &str) -> (TcpListener, Target) {
    let listener = TcpListener::bind(listen).await.unwrap();
    let target = listener.local_addr().unwrap().into();
    (listener, target)
}

/// A port that echoes its input.
pub(crate) async fn echo(listen: &str) -> Target {
    let (listener, target) = origin(listen).await;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    target
}

/// Writes `sent`, then expects exactly `expected`.
pub(crate) async fn exchange(stream: &mut TcpStream, sent: &[u8], expected: &[u8]) {
    stream.write_all(sent).await.unwrap();
    let mut received = vec![0; expected.len()];
    within(stream.read_exact(&mut received)).await.unwrap();
    assert_eq!(received, expected, "{}", String::from_utf8_lossy(&received));
}

/// All bytes until the end of the stream.
pub(crate) async fn rest(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut received = Vec::new();
    within(stream.read_to_end(&mut received)).await?;
    Ok(received)
}

/// Waits for a future that must complete.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future)
        .await
        .expect("completes in time")
}
