//! Backlog of an interface's own queue, below TCP.
//!
//! The kernel reports it over rtnetlink as the backlog of the interface's root queueing discipline
//! (tc(8)), which includes the bytes of all programs. An interface without a queue (`noqueue`:
//! loopback, most virtual devices) always reports 0; only the backlog in the socket is left to
//! observe there.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::TryStreamExt;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::SockaddrStorage;
use rtnetlink::packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcStats2};
use socket2::SockRef;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// The queue of the interface over which a connection's packets leave.
#[derive(Debug)]
pub struct LocalQueue {
    shared: Arc<Shared>,
    tasks: [JoinHandle<()>; 2],
}

#[derive(Debug)]
struct Shared {
    /// Bytes at the last query, or [`UNKNOWN`].
    backlog: AtomicU64,
    /// Signaled when a caller asks for the backlog.
    wanted: Notify,
}

/// The kernel has not answered, or the interface is gone.
const UNKNOWN: u64 = u64::MAX;

/// Minimum interval between queries to the kernel, which are made only on demand.
const INTERVAL: Duration = Duration::from_millis(10);

impl LocalQueue {
    /// Finds the interface of a connected socket with this local address.
    ///
    /// Must be called inside a tokio runtime with I/O and time.
    ///
    /// # Errors
    ///
    /// The socket's interface cannot be determined, or rtnetlink cannot be opened.
    pub fn of(socket: &impl AsFd, local: IpAddr) -> io::Result<Self> {
        let index = interface_of(socket, local)?;
        let (connection, handle, _) = rtnetlink::new_connection()?;
        let shared = Arc::new(Shared {
            backlog: AtomicU64::new(UNKNOWN),
            wanted: Notify::new(),
        });
        // Query now, so that the first caller usually gets an answer.
        shared.wanted.notify_one();
        let of_task = Arc::clone(&shared);
        let asking = async move {
            loop {
                of_task.wanted.notified().await;
                let bytes = backlog(&handle, index).await.unwrap_or(UNKNOWN);
                of_task.backlog.store(bytes, Ordering::Relaxed);
                tokio::time::sleep(INTERVAL).await;
            }
        };
        Ok(Self {
            shared,
            tasks: [tokio::spawn(connection), tokio::spawn(asking)],
        })
    }

    /// Bytes queued at the last query; also requests a new query, at most every 10 ms. `None` until
    /// the kernel has answered, or if the interface is gone.
    pub fn bytes(&self) -> Option<u64> {
        self.shared.wanted.notify_one();
        Some(self.shared.backlog.load(Ordering::Relaxed)).filter(|bytes| *bytes != UNKNOWN)
    }
}

impl Drop for LocalQueue {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// The interface to which the socket is bound, or else the one that has its local address.
fn interface_of(socket: &impl AsFd, local: IpAddr) -> io::Result<u32> {
    let bound = SockRef::from(socket).device()?;
    if let Some(name) = bound
        .as_deref()
        .and_then(|name| std::str::from_utf8(name).ok())
    {
        return Ok(if_nametoindex(name)?);
    }
    let has_it = |address: &SockaddrStorage| {
        let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
        let v6 = address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip()));
        v4.or(v6) == Some(local.to_canonical())
    };
    let found = getifaddrs()?.find(|interface| interface.address.as_ref().is_some_and(has_it));
    let found = found.ok_or_else(|| io::Error::other("no interface has the local address"))?;
    Ok(if_nametoindex(found.interface_name.as_str())?)
}

/// The backlog of an interface's root queueing discipline (0 for `noqueue`); `None` if the
/// interface does not exist.
async fn backlog(handle: &rtnetlink::Handle, index: u32) -> Option<u64> {
    let index = i32::try_from(index).ok()?;
    let mut answers = handle.qdisc().get().index(index).execute();
    let mut found = None;
    // Read to the end: the rest of an answer would be mistaken for the next one.
    while let Some(message) = answers.try_next().await.ok()? {
        // The kernel reports all interfaces, regardless of the request.
        if message.header.index == index && message.header.parent == TcHandle::ROOT {
            found = backlog_in(&message);
        }
    }
    found
}

fn backlog_in(message: &TcMessage) -> Option<u64> {
    let stats = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            TcAttribute::Stats2(stats) => Some(stats),
            _ => None,
        })?;
    stats.iter().find_map(|stats| match stats {
        TcStats2::Queue(queue) => Some(u64::from(queue.backlog)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Instant;

    use sumlink_test_support::netns::Netns;

    use super::*;

    async fn until(queue: &LocalQueue, what: &str, wanted: impl Fn(u64) -> bool) {
        let end = Instant::now() + Duration::from_secs(10);
        while !queue.bytes().is_some_and(&wanted) {
            assert!(
                Instant::now() < end,
                "{what}: {:?} bytes wait",
                queue.bytes()
            );
            tokio::time::sleep(INTERVAL).await;
        }
    }

    #[test]
    fn a_backlog_is_reported_and_drains() {
        let Some(ns) = Netns::new() else { return };
        let ip = ns.commands();
        ip("link add q0 type veth peer name q1");
        ip("addr add 10.9.0.1/24 dev q0");
        ip("link set q0 up");
        ip("link set q1 up");
        let name = ns.name().to_owned();
        let tc = move |arguments: &str| {
            let words: Vec<&str> = ["-n", &name]
                .into_iter()
                .chain(arguments.split_whitespace())
                .collect();
            let output = std::process::Command::new("tc")
                .args(words)
                .output()
                .unwrap();
            assert!(output.status.success(), "tc {arguments}: {output:?}");
        };
        ns.run(async move || {
            let socket = std::net::UdpSocket::bind("10.9.0.1:0").unwrap();
            socket.set_broadcast(true).unwrap();
            socket.connect("10.9.0.255:9").unwrap();
            let queue = LocalQueue::of(&socket, "10.9.0.1".parse().unwrap()).unwrap();
            assert_eq!(queue.bytes(), None);
            until(&queue, "nothing was sent", |bytes| bytes == 0).await;
            tc("qdisc add dev q0 root tbf rate 160kbit burst 2kb limit 1mb");
            for _ in 0..40 {
                socket.send(&[7; 1000]).unwrap();
            }
            until(&queue, "40 kB are on a link of 20 kB/s", |bytes| {
                bytes > 10_000
            })
            .await;
            until(&queue, "the link is idle", |bytes| bytes == 0).await;
            ip("link del q0");
            let end = Instant::now() + Duration::from_secs(10);
            while queue.bytes().is_some() {
                assert!(Instant::now() < end, "the interface is gone");
                tokio::time::sleep(INTERVAL).await;
            }
        });
    }

    #[tokio::test]
    async fn an_interface_without_a_queue_has_no_backlog() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        let mut socket = std::net::TcpStream::connect(local).unwrap();
        let queue = LocalQueue::of(&socket, local.ip()).unwrap();
        socket.write_all(&[0; 10_000]).unwrap();
        until(&queue, "loopback has no queue", |bytes| bytes == 0).await;
    }

    #[test]
    fn the_interface_follows_the_binding_or_the_address() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let loopback = if_nametoindex("lo").unwrap();
        let of = |local: &str| interface_of(&socket, local.parse().unwrap());
        assert_eq!(of("127.0.0.1").unwrap(), loopback);
        assert_eq!(of("::ffff:127.0.0.1").unwrap(), loopback);
        assert!(of("203.0.113.77").is_err());
        SockRef::from(&socket).bind_device(Some(b"lo")).unwrap();
        assert_eq!(of("203.0.113.77").unwrap(), loopback);
    }
}
