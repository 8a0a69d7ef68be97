//! TCP through the emulator compared with TCP through the kernel's own shaper, tbf.
//!
//! ```text
//! client ──veth── router ──veth── server          client ──emulated link── server
//!             tbf towards the client
//! ```
//!
//! Both have the same rate and the same queue, no delay, and a bottleneck that is not on an end
//! host's own interface. The shaper counts the Ethernet header of 14 bytes, which the emulator's
//! links do not have, so its rate is raised by that share.
//!
//! The difference is the depth of the token bucket. The emulator's rate server has none: it
//! computes the send time of each packet, and a late thread does not change it. The shaper needs a
//! bucket that covers the lateness of its timer. This timer has a high resolution regardless of the
//! kernel's HZ, but its softirq waits for a processor on a busy machine, and time beyond the
//! bucket's depth is lost to the rate (docs/notes/laboratory.md has figures). For a queue that
//! never runs empty the depth makes no other difference.
//!
//! The interfaces of the three namespaces keep their segmentation offload. Packet by packet this
//! chain carries only 200 to 300 Mbit/s on two processors even without a shaper, and the chain
//! itself would be measured.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::Figure;
use crate::error::LabError;
use crate::laboratory::{Lab, LabConfig};
use crate::netns::Namespace;
use crate::rundir::{self, RunDir};
use crate::topology::{self, Kernel, SERVER_V4, Side};

/// Rates that are compared, in Mbit/s.
pub(super) const RATES: [u64; 3] = [50, 200, 800];
const QUEUE: Duration = Duration::from_millis(40);
/// Depth of the shaper's token bucket.
const BURST: Duration = Duration::from_millis(20);
/// A shaper that gives TCP less than this share of its rate had to wait for a processor.
const SHAPER_KEPT_UP: f64 = 0.97;
/// TCP payload of a packet of 1500 bytes, with time stamps.
const SEGMENT: u64 = 1448;
const PORT: u16 = 5998;
/// Time for TCP to find its rate, and duration of the measurement.
const WARM_UP: Duration = Duration::from_millis(400);
const MEASURED: Duration = Duration::from_millis(1500);
/// Longest time for which TCP may deliver nothing.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of Ethernet frames and of IP packets.
const FRAME: [u64; 2] = [1514, 1500];

/// The laboratory for one rate.
pub(super) fn config(megabits: u64) -> Result<LabConfig, LabError> {
    let queue = QUEUE.as_millis();
    let link = format!("probe:rate={megabits}mbit,queue={queue}ms");
    Ok(LabConfig::new(vec![link.parse()?]))
}

/// Goodput through the emulator, in Mbit/s.
pub(super) fn emulated(lab: &Lab) -> Result<f64, LabError> {
    let listener = lab.run(Side::Server, move || listen(SERVER_V4))??;
    let client = lab.run(Side::Client, move || connect(SERVER_V4))??;
    goodput(&listener, client)
}

/// Three namespaces in a row with tbf in the middle one.
pub(super) struct Shaped {
    client: Namespace,
    server: Namespace,
    /// Contains the shaper.
    _router: Namespace,
    _run_dir: RunDir,
}

const SHAPED_SERVER: Ipv4Addr = Ipv4Addr::new(10, 88, 2, 2);

impl Shaped {
    pub(super) fn start(megabits: u64, congestion: &str) -> Result<Self, LabError> {
        crate::programs::find("tc")?;
        let run_dir = RunDir::create()?;
        let namespace = |name: &str| Namespace::create(&rundir::namespace_name(run_dir.id(), name));
        let client = namespace("client")?;
        let server = namespace("server")?;
        let router = namespace("router")?;
        let kernel = Kernel::probe();
        let lock = run_dir.lock();
        let hosts = [client, server];
        for host in hosts.iter().chain([&router]) {
            topology::set_sysctls(host, kernel)?;
        }
        topology::set_congestion(&hosts, congestion, &lock)?;
        let [client, server] = hosts;
        router
            .run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1"))?
            .map_err(LabError::file("/proc/sys/net/ipv4/ip_forward"))?;
        // Names of namespaces are unique on the machine, so these interface names cannot collide.
        router.ip_batch(format!(
            "link add left type veth peer name eth netns {}\n\
             link add right type veth peer name eth netns {}\n\
             link set dev left up\nlink set dev right up\n\
             addr add 10.88.1.1/24 dev left\naddr add 10.88.2.1/24 dev right\n",
            client.name(),
            server.name()
        ))?;
        for (host, network) in [(&client, 1), (&server, 2)] {
            host.ip_batch(format!(
                "link set lo up\nlink set dev eth up\n\
                 addr add 10.88.{network}.2/24 dev eth\n\
                 route add default via 10.88.{network}.1\n"
            ))?;
        }
        let rate = megabits * 1_000_000 * FRAME[0] / FRAME[1];
        let burst = (rate / 8 * BURST.as_millis() as u64 / 1000).max(2 * FRAME[0]);
        let limit = megabits * 1_000_000 / 8 * QUEUE.as_millis() as u64 / 1000;
        tc(
            &router,
            format!("qdisc add dev left root tbf rate {rate}bit burst {burst} limit {limit}"),
        )?;
        Ok(Self {
            client,
            server,
            _router: router,
            _run_dir: run_dir,
        })
    }

    /// Goodput in Mbit/s.
    pub(super) fn goodput(&self) -> Result<f64, LabError> {
        let listener = self.server.run(|| listen(SHAPED_SERVER))??;
        let client = self.client.run(|| connect(SHAPED_SERVER))??;
        goodput(&listener, client)
    }
}

/// Whether the shaper got a processor when it needed one: with a queue far larger than the
/// bandwidth-delay product, TCP cannot be that slow for another reason.
pub(super) fn shaper_kept_up(megabits: u64, shaped: f64) -> bool {
    let expected = (megabits * SEGMENT) as f64 / FRAME[1] as f64;
    shaped >= expected * SHAPER_KEPT_UP
}

pub(super) fn figure(megabits: u64, shaped: f64, emulated: f64) -> Figure {
    Figure::new(
        format!("TCP over {megabits} Mbit/s, tbf against emulator"),
        "Mbit/s",
        shaped,
        emulated,
    )
}

fn tc(namespace: &Namespace, arguments: String) -> Result<(), LabError> {
    let output = namespace
        .run(move || {
            Command::new("tc")
                .args(arguments.split(' '))
                .stdin(Stdio::null())
                .output()
        })?
        .map_err(|error| LabError::system("running tc", error))?;
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr);
    Err(LabError::system("setting up tbf", reason.trim()))
}

fn network(error: std::io::Error) -> LabError {
    LabError::system("measuring TCP", error)
}

fn listen(address: Ipv4Addr) -> Result<TcpListener, LabError> {
    TcpListener::bind((address, PORT)).map_err(network)
}

fn connect(address: Ipv4Addr) -> Result<TcpStream, LabError> {
    TcpStream::connect_timeout(&SocketAddrV4::new(address, PORT).into(), PATIENCE).map_err(network)
}

/// Goodput of a client from a server that sends as fast as TCP allows.
fn goodput(listener: &TcpListener, mut client: TcpStream) -> Result<f64, LabError> {
    let (mut server, _) = listener.accept().map_err(network)?;
    client.set_read_timeout(Some(PATIENCE)).map_err(network)?;
    server.set_write_timeout(Some(PATIENCE)).map_err(network)?;
    // Ends when the client closes.
    let sender = thread::spawn(move || {
        let block = vec![7; 256 << 10];
        while server.write_all(&block).is_ok() {}
    });
    let mut buffer = vec![0; 256 << 10];
    let start = Instant::now();
    let (mut bytes, mut since) = (0, None);
    let measured = loop {
        let len = match client.read(&mut buffer) {
            Ok(0) => break Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => len,
            Err(error) => break Err(error),
        };
        match since {
            None if start.elapsed() >= WARM_UP => since = Some(Instant::now()),
            None => {}
            Some(since) => {
                bytes += len;
                let time: Duration = Instant::now() - since;
                if time >= MEASURED {
                    break Ok(bytes as f64 * 8e-6 / time.as_secs_f64());
                }
            }
        }
    };
    drop(client);
    let _ = sender.join();
    measured.map_err(network)
}
