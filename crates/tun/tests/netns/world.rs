//! Three network namespaces: a LAN host, the gateway with its device, and the internet, to which
//! only the opener leads.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{geteuid, gettid};
use sumlink_exit::datagram::{PairSocket, pair};
use sumlink_exit::egress::EgressPolicy;
use sumlink_exit::relay::Buffered;
use sumlink_exit::udp::{UdpExit, UdpSettings};
use sumlink_proxy::{Class, DatagramOpener, OpenError, Opener, Origin, Side, Target};
use sumlink_transport::target::Host;
use sumlink_tun::{Device, DeviceConfig, Limits, Stats, StatsHandle, serve};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{oneshot, watch};

/// Longer than any step here takes; a test that reaches this time has failed.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Addresses of the internet's only host.
pub(crate) const HOST4: &str = "203.0.113.7";
pub(crate) const HOST6: &str = "2001:db8:7::7";
/// Another one, which is the same host.
pub(crate) const OTHER4: &str = "203.0.113.8";
pub(crate) const OTHER6: &str = "2001:db8:7::8";
/// Addresses that the opener refuses.
pub(crate) const FORBIDDEN: &str = "203.0.113.66";
pub(crate) const FAR: &str = "203.0.113.67";
/// An address at which the opener connects to the host after a while.
pub(crate) const SLOW: &str = "203.0.113.68";
/// That while.
pub(crate) const WHILE: Duration = Duration::from_millis(300);

/// The device's name.
pub(crate) const TUN: &str = "sumlink0";

/// A network namespace and a runtime in it.
pub(crate) struct Namespace {
    pub(crate) handle: Handle,
    thread: i32,
    stop: Option<oneshot::Sender<()>>,
    running: Option<JoinHandle<()>>,
}

impl Namespace {
    pub(crate) fn new(name: &str) -> Self {
        let (ready, is_ready) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let name = name.to_owned();
        let running = std::thread::Builder::new().name(name).spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
            ip("link set lo up");
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            ready
                .send((runtime.handle().clone(), gettid().as_raw()))
                .unwrap();
            let _ = runtime.block_on(stopped);
        });
        let (handle, thread) = is_ready.recv().unwrap();
        Self {
            handle,
            thread,
            stop: Some(stop),
            running: Some(running.unwrap()),
        }
    }

    /// Runs a future in the namespace, within the time that a test has.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let (sender, receiver) = std::sync::mpsc::channel();
        let task = self.handle.spawn(async move {
            let done = tokio::time::timeout(LONG, future).await;
            sender.send(done.expect("completes in time")).unwrap();
        });
        receiver
            .recv()
            .unwrap_or_else(|_| panic!("the test failed: {:?}", task.is_finished()))
    }

    /// Runs `ip` with these arguments.
    pub(crate) fn ip(&self, arguments: &'static str) {
        self.run(async move { ip(arguments) });
    }

    /// Runs a program to its end; returns whether it succeeded, and its output.
    pub(crate) fn program(&self, words: &[&str]) -> (bool, String) {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        self.run(program(words))
    }

    /// Sets a sysctl.
    pub(crate) fn sysctl(&self, path: &'static str, value: &'static str) {
        self.run(async move { std::fs::write(format!("/proc/sys/{path}"), value).unwrap() });
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(running) = self.running.take() {
            let _ = running.join();
        }
    }
}

pub(crate) async fn program(words: Vec<String>) -> (bool, String) {
    let mut command = tokio::process::Command::new(&words[0]);
    command
        .args(&words[1..])
        .env("LC_ALL", "C")
        .kill_on_drop(true);
    let output = command
        .output()
        .await
        .unwrap_or_else(|error| panic!("{}: {error}", words[0]));
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

/// Runs `ip` in the namespace of the calling thread.
fn ip(arguments: &str) {
    let done = Command::new("ip")
        .args(arguments.split(' '))
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "ip {arguments}: {error}");
}

/// All three namespaces. The device is served until it is dropped.
pub(crate) struct World {
    pub(crate) lan: Namespace,
    pub(crate) gateway: Namespace,
    pub(crate) stats: Option<StatsHandle>,
    pub(crate) opener: Internet,
    stop: Option<oneshot::Sender<()>>,
    served: Option<tokio::task::JoinHandle<io::Result<()>>>,
    // Dropped last, because the opener's streams belong to it.
    pub(crate) internet: Namespace,
}

impl World {
    /// The namespaces with a device that is served; `None` if such tests are disabled. Without
    /// root, the calling test is run in a user namespace, and `None` is returned afterwards.
    pub(crate) fn new() -> Option<Self> {
        Self::with(DeviceConfig::default(), Limits::default())
    }

    pub(crate) fn with(config: DeviceConfig, limits: Limits) -> Option<Self> {
        let mut world = Self::without_device()?;
        let opener = world.opener.clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let (stats, served) = world.gateway.run(async move {
            let device = Device::open(&config).await.unwrap();
            assert!(device.has_ipv6() && device.offload().tcp == config.offload);
            let stats = device.stats();
            let shutdown = async {
                let _ = stopped.await;
            };
            let served = serve(device, opener, limits, Arc::default(), shutdown);
            (stats, tokio::spawn(served))
        });
        (world.stats, world.served) = (Some(stats), Some(served));
        world.stop = Some(stop);
        for family in ["-4", "-6"] {
            let route = format!("{family} route add default dev {TUN}");
            world.gateway.run(async move { ip(&route) });
        }
        Some(world)
    }

    pub(crate) fn without_device() -> Option<Self> {
        if std::env::var_os("SUMLINK_SKIP_NETNS").is_some_and(|value| value == "1") {
            eprintln!("skipped because SUMLINK_SKIP_NETNS=1");
            return None;
        }
        if !geteuid().is_root() {
            again_as_root();
            return None;
        }
        let internet = Namespace::new("internet");
        for address in [HOST4, OTHER4, SLOW] {
            internet.run(async move { ip(&format!("addr add {address}/32 dev lo")) });
        }
        for address in [HOST6, OTHER6] {
            internet.run(async move { ip(&format!("addr add {address}/128 dev lo nodad")) });
        }
        let (lan, gateway) = (Namespace::new("lan"), Namespace::new("gateway"));
        gateway.sysctl("net/ipv4/ip_forward", "1");
        gateway.sysctl("net/ipv6/conf/all/forwarding", "1");
        let opener = Internet::new(internet.handle.clone());
        let world = Self {
            lan,
            gateway,
            stats: None,
            opener,
            stop: None,
            served: None,
            internet,
        };
        world.join_lan();
        Some(world)
    }

    /// Connects the LAN host to the gateway's interface `lan`.
    pub(crate) fn join_lan(&self) {
        let host = self.lan.thread;
        self.gateway.run(async move {
            ip(&format!(
                "link add lan type veth peer name eth0 netns {host}"
            ));
            ip("addr add 192.168.77.1/24 dev lan");
            ip("addr add fd77::1/64 dev lan nodad");
            ip("link set lan up");
        });
        self.lan.run(async {
            ip("addr add 192.168.77.2/24 dev eth0");
            ip("addr add fd77::2/64 dev eth0 nodad");
            ip("link set eth0 up");
            ip("-4 route add default via 192.168.77.1");
            ip("-6 route add default via fd77::1");
        });
    }

    /// The programs' namespaces: the gateway's and the LAN host's.
    pub(crate) fn sides(&self) -> [&Namespace; 2] {
        [&self.gateway, &self.lan]
    }

    pub(crate) fn stats(&self) -> Stats {
        self.stats.as_ref().unwrap().stats()
    }

    /// Waits until the counters satisfy a condition.
    pub(crate) fn until(&self, what: &str, condition: impl Fn(&Stats) -> bool) {
        let start = std::time::Instant::now();
        while !condition(&self.stats()) {
            assert!(start.elapsed() < LONG, "{what}: {:?}", self.stats());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts the shutdown.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits until the device is no longer served.
    pub(crate) fn served(&mut self) -> io::Result<()> {
        let served = self.served.take().unwrap();
        self.gateway.run(async move { served.await.unwrap() })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(served) = &self.served {
            served.abort();
        }
    }
}

fn again_as_root() {
    let test = std::thread::current().name().unwrap().to_owned();
    let status = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--mount", "--"])
        .arg(std::env::current_exe().unwrap())
        .args([&test, "--exact", "--nocapture"])
        .status();
    let advice = "run as root, allow unprivileged user namespaces, or set SUMLINK_SKIP_NETNS=1 to \
                  skip these tests";
    assert!(
        status.is_ok_and(|status| status.success()),
        "{test} failed in a user namespace; {advice}"
    );
}

/// Opens streams and sources in the internet.
#[derive(Clone)]
pub(crate) struct Internet {
    handle: Handle,
    exit: UdpExit,
    // Keeps the policy.
    _policy: Arc<watch::Sender<Arc<EgressPolicy>>>,
    /// The origins of all sources so far.
    pub(crate) origins: Arc<std::sync::Mutex<Vec<Origin>>>,
}

impl Internet {
    fn new(handle: Handle) -> Self {
        let rules = ["allow 0.0.0.0/0", "allow [::]/0"].map(|rule| rule.parse().unwrap());
        let (policy, updates) = watch::channel(Arc::new(EgressPolicy::new(rules)));
        Self {
            handle,
            exit: UdpExit::new(updates, UdpSettings::default(), None),
            _policy: Arc::new(policy),
            origins: Arc::default(),
        }
    }
}

impl Opener for Internet {
    type Stream = Buffered<Direct>;

    async fn open(&self, target: Target, _: Option<Class>) -> Result<Self::Stream, OpenError> {
        let Host::Ip(ip) = target.host else {
            panic!("the device knows no names");
        };
        let is = |text: &str| text.parse::<IpAddr>().unwrap() == ip;
        if is(FORBIDDEN) {
            return Err(OpenError::NotAllowed);
        }
        if is(FAR) {
            return Err(OpenError::Unreachable);
        }
        if is(SLOW) {
            tokio::time::sleep(WHILE).await;
        }
        let connecting = self.handle.spawn(TcpStream::connect((ip, target.port)));
        let stream = connecting
            .await
            .unwrap()
            .map_err(|error| match error.kind() {
                io::ErrorKind::ConnectionRefused => OpenError::Refused,
                io::ErrorKind::TimedOut => OpenError::TimedOut,
                _ => OpenError::Unreachable,
            })?;
        Ok(Buffered::new(Direct {
            stream,
            read_ended: false,
            write_ended: false,
        }))
    }

    async fn open_from(
        &self,
        origin: Origin,
        target: Target,
        class: Option<Class>,
    ) -> Result<Self::Stream, OpenError> {
        self.origins.lock().unwrap().push(origin);
        self.open(target, class).await
    }
}

impl DatagramOpener for Internet {
    type Socket = PairSocket;

    async fn bind(&self, _: Option<Class>) -> Result<PairSocket, OpenError> {
        let (near, far) = pair(4096);
        let exit = self.exit.clone();
        self.handle.spawn(async move { exit.serve(far).await });
        Ok(near)
    }

    async fn bind_from(
        &self,
        origin: Origin,
        class: Option<Class>,
    ) -> Result<PairSocket, OpenError> {
        self.origins.lock().unwrap().push(origin);
        self.bind(class).await
    }
}

/// A TCP connection that is reset when dropped early, as [`Opener`] requires.
pub(crate) struct Direct {
    stream: TcpStream,
    read_ended: bool,
    write_ended: bool,
}

impl Drop for Direct {
    fn drop(&mut self) {
        if !(self.read_ended && self.write_ended) {
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Direct {
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

impl AsyncWrite for Direct {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write_ended = true;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Which side an origin was taken for.
pub(crate) fn side(origins: &[Origin], source: SocketAddr) -> Option<Side> {
    let own = origins.iter().find(|origin| origin.source == source);
    own.map(|origin| origin.from)
}
