//! Measures the capacity of an edge node. This program is both the far side and the users' end, at
//! minimal cost. It writes super-packets of TCP flows to a TUN device, which
//! `scripts/edge-capacity.sh` moves into the node's namespace. It receives the tunnels' datagrams
//! and acknowledges them like a receiver without SACK: every second segment, and out-of-order ones
//! at once. It does not implement TCP: each flow has a fixed window, and missing segments are sent
//! again.
//!
//! Arguments: PID of the node, flows, segments in flight per flow, seconds, and `LOCAL REMOTE` of
//! two links.

#![allow(clippy::print_stdout, reason = "an example")]

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};
use sumlink_edge_node::wire::{self, Kind};
use tun_rs::{DeviceBuilder, SyncDevice};

const FAR: [u8; 4] = [10, 99, 0, 1];
const USER: [u8; 4] = [10, 88, 0, 2];
/// Bytes of data in a segment: fits the node's device MTU of 1400 bytes.
const SEGMENT: usize = 1360;
/// Most segments of a super-packet.
const JOINED: usize = 46;
/// Missing data is sent again after this time.
const AGAIN: Duration = Duration::from_millis(50);
/// Excluded from the measurement.
const WARM: Duration = Duration::from_secs(1);
const SYN: u8 = 2;
const PUSH: u8 = 8;
const ACK: u8 = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [pid, flows, window, seconds, ways @ ..] = &arguments[..] else {
        return Err("replay PID FLOWS WINDOW SECONDS LOCAL REMOTE LOCAL REMOTE".into());
    };
    let mut replay = Replay::open(flows.parse()?, window.parse()?, ways)?;
    replay.shake_hands()?;
    replay.run(WARM)?;
    let before = (replay.seen, cpu(pid)?, Instant::now());
    replay.run(Duration::from_secs(seconds.parse()?))?;
    let took = before.2.elapsed().as_secs_f64();
    let (busy, seen) = (cpu(pid)? - before.1, replay.seen - before.0);
    println!(
        "{{\"gbps\":{:.3},\"node_share\":{:.3},\"us_per_packet\":{:.2},\"packets\":{},\
         \"out_of_order\":{},\"twice\":{},\"acks\":{},\"again\":{}}}",
        seen.bytes as f64 * 8e-9 / took,
        busy / took,
        busy * 1e6 / seen.packets as f64,
        seen.packets,
        seen.out_of_order,
        seen.twice,
        seen.acks,
        seen.again,
    );
    Ok(())
}

/// CPU time of a process in seconds, including system calls.
fn cpu(pid: &str) -> Result<f64, Box<dyn Error>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit(") ").next().unwrap_or_default();
    let ticks = fields.split(' ').skip(11).take(2).map(str::parse::<u64>);
    let ticks: u64 = ticks.sum::<Result<u64, _>>()?;
    // USER_HZ, equal on all current Linux architectures.
    Ok(ticks as f64 / 100.0)
}

/// Counters of received and sent packets.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// In-order data.
    bytes: u64,
    packets: u64,
    out_of_order: u64,
    twice: u64,
    acks: u64,
    again: u64,
}

impl std::ops::Sub for Seen {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            bytes: self.bytes - other.bytes,
            packets: self.packets - other.packets,
            out_of_order: self.out_of_order - other.out_of_order,
            twice: self.twice - other.twice,
            acks: self.acks - other.acks,
            again: self.again - other.again,
        }
    }
}

/// Both ends of a flow; positions are bytes of data.
#[derive(Default)]
struct Flow {
    sent: u64,
    came: u64,
    /// Data beyond a gap: begin and end.
    ahead: BTreeMap<u64, u64>,
    moved: Option<Instant>,
    /// An acknowledgment for one segment is due.
    delayed: bool,
}

struct Way {
    socket: UdpSocket,
    state: UdpSocketState,
    remote: SocketAddr,
}

struct Replay {
    device: SyncDevice,
    ways: Vec<Way>,
    flows: Vec<Flow>,
    window: u64,
    /// Datagrams for the first link, all of one size.
    up: Vec<u8>,
    buffers: Vec<Vec<u8>>,
    super_packet: Vec<u8>,
    seen: Seen,
}

impl Replay {
    fn open(flows: usize, window: u64, ways: &[String]) -> Result<Self, Box<dyn Error>> {
        let device = DeviceBuilder::new()
            .name("far0")
            .offload(true)
            .build_sync()?;
        println!("far0 is up");
        // Until the device is up in the node's namespace.
        let mut line = String::new();
        io::stdin().read_line(&mut line)?;
        device.set_nonblocking(true)?;
        let ways = ways.chunks_exact(2).map(|way| {
            let socket = UdpSocket::bind(&way[0])?;
            socket.set_nonblocking(true)?;
            let state = UdpSocketState::new((&socket).into())?;
            state.set_recv_buffer_size((&socket).into(), 8 << 20)?;
            let remote = way[1].parse()?;
            Ok::<_, Box<dyn Error>>(Way {
                socket,
                state,
                remote,
            })
        });
        Ok(Self {
            device,
            ways: ways.collect::<Result<_, _>>()?,
            flows: std::iter::repeat_with(Flow::default).take(flows).collect(),
            window: window * SEGMENT as u64,
            up: Vec::new(),
            buffers: vec![vec![0; 65_535]; BATCH_SIZE],
            super_packet: Vec::new(),
            seen: Seen::default(),
        })
    }

    /// Opens all flows, so that the node sees each from its start.
    fn shake_hands(&mut self) -> io::Result<()> {
        // By then, both ends have answered a probe.
        self.run_without_data(Duration::from_secs(2))?;
        for flow in 0..self.flows.len() {
            self.segment_up(flow, SYN, 0, 0);
            self.flush()?;
            self.run_without_data(Duration::from_millis(20))?;
            self.segments_down(flow, SYN | ACK, 0, 0)?;
            self.run_without_data(Duration::from_millis(20))?;
            self.segment_up(flow, ACK, 1, 1);
            self.flush()?;
        }
        self.run_without_data(Duration::from_millis(100))
    }

    fn run_without_data(&mut self, time: Duration) -> io::Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.receive()?;
            self.flush()?;
        }
        Ok(())
    }

    fn run(&mut self, time: Duration) -> io::Result<()> {
        let end = Instant::now() + time;
        loop {
            let now = Instant::now();
            if now >= end {
                return Ok(());
            }
            self.receive()?;
            self.flush()?;
            for flow in 0..self.flows.len() {
                self.send(flow, now)?;
            }
        }
    }

    /// Sends new data up to the flow's window, or missing data.
    fn send(&mut self, number: usize, now: Instant) -> io::Result<()> {
        let segment = SEGMENT as u64;
        let flow = &mut self.flows[number];
        let moved = *flow.moved.get_or_insert(now);
        if flow.sent > flow.came && now - moved > AGAIN {
            flow.moved = Some(now);
            let at = flow.came;
            self.seen.again += 1;
            return self.segments_down(number, ACK, at, 1);
        }
        let room = (flow.came + self.window - flow.sent) / segment;
        let room = (room as usize).min(JOINED);
        // As TCP does: waits until a super-packet is worthwhile.
        if room >= JOINED.min(self.window as usize / SEGMENT / 2) {
            let at = flow.sent;
            flow.sent += (room * SEGMENT) as u64;
            self.segments_down(number, ACK | PUSH, at, room)?;
        }
        Ok(())
    }

    fn receive(&mut self) -> io::Result<()> {
        for way in 0..self.ways.len() {
            let mut buffers = std::mem::take(&mut self.buffers);
            let mut metas = [RecvMeta::default(); BATCH_SIZE];
            let mut slices: Vec<IoSliceMut<'_>> =
                buffers.iter_mut().map(|one| IoSliceMut::new(one)).collect();
            let Way { socket, state, .. } = &self.ways[way];
            let read = state.recv(socket.into(), &mut slices, &mut metas);
            drop(slices);
            let count = match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                other => other?,
            };
            for (buffer, meta) in buffers.iter().zip(&metas).take(count) {
                for datagram in buffer[..meta.len].chunks(meta.stride.max(1)) {
                    self.datagram(way, datagram)?;
                }
            }
            self.buffers = buffers;
        }
        Ok(())
    }

    fn datagram(&mut self, way: usize, datagram: &[u8]) -> io::Result<()> {
        let Some((header, packet)) = wire::Header::read(datagram) else {
            return Ok(());
        };
        match header.kind {
            Kind::Probe => {
                let mut answer = Vec::new();
                let kind = Kind::Answer;
                wire::Header { kind, ..header }.write(packet, &mut answer);
                let Way { socket, remote, .. } = &self.ways[way];
                socket.send_to(&answer, remote).map(|_| ())
            }
            Kind::Packet => {
                self.packet(packet);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Handles a packet that has arrived at the user's end.
    fn packet(&mut self, packet: &[u8]) {
        let offset = usize::from(packet[32] >> 4) * 4;
        let data = packet.len().saturating_sub(20 + offset) as u64;
        let number = usize::from(u16::from_be_bytes([packet[22], packet[23]])) - 10_000;
        if data == 0 || number >= self.flows.len() {
            return;
        }
        let flow = &mut self.flows[number];
        let sequence = u32::from_be_bytes(packet[24..28].try_into().unwrap_or_default());
        let distance = sequence.wrapping_sub((flow.came + 1) as u32) as i32;
        self.seen.packets += 1;
        let begin = flow.came as i64 + i64::from(distance);
        let end = begin + data as i64;
        if end <= flow.came as i64 {
            self.seen.twice += 1;
        } else if begin > flow.came as i64 {
            self.seen.out_of_order += 1;
            if flow.ahead.insert(begin as u64, end as u64).is_some() {
                self.seen.twice += 1;
            }
        } else {
            let before = flow.came;
            flow.came = end as u64;
            while let Some(entry) = flow.ahead.first_entry() {
                if *entry.key() > flow.came {
                    break;
                }
                flow.came = flow.came.max(entry.remove());
            }
            flow.moved = Some(Instant::now());
            self.seen.bytes += flow.came - before;
            flow.delayed = !flow.delayed && flow.ahead.is_empty() && end as u64 == flow.came;
            if flow.delayed {
                return;
            }
        }
        let next = (flow.came + 1) as u32;
        self.segment_up(number, ACK, 1, next);
    }

    /// A segment without data from the user, sent together with others.
    fn segment_up(&mut self, flow: usize, flags: u8, sequence: u32, acknowledged: u32) {
        self.seen.acks += 1;
        let ports = (10_000 + flow as u16, 80);
        let mut packet = Vec::with_capacity(60);
        tcp(
            &mut packet,
            (USER, FAR),
            ports,
            (sequence, acknowledged),
            flags,
            0,
        );
        let sum = checksum(&packet[20..], pseudo(USER, FAR, packet.len() - 20));
        packet[36..38].copy_from_slice(&sum.to_be_bytes());
        let header = wire::Header {
            kind: Kind::Packet,
            tunnel: 0,
            epoch: 1,
        };
        header.write(&packet, &mut self.up);
    }

    fn flush(&mut self) -> io::Result<()> {
        // A SYN has options, and is sent alone.
        let size = if self.up.len() == 56 { 56 } else { 48 };
        let Way {
            socket,
            state,
            remote,
        } = &self.ways[0];
        for contents in self.up.chunks(size * 60) {
            let transmit = Transmit {
                destination: *remote,
                ecn: None,
                contents,
                segment_size: Some(size),
                src_ip: None,
            };
            match state.try_send(socket.into(), &transmit) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                other => other?,
            }
        }
        self.up.clear();
        Ok(())
    }

    /// Data from the far side as one super-packet with an incomplete checksum.
    fn segments_down(
        &mut self,
        flow: usize,
        flags: u8,
        position: u64,
        segments: usize,
    ) -> io::Result<()> {
        let out = &mut self.super_packet;
        out.clear();
        let ports = (80, 10_000 + flow as u16);
        let sequence = match flags & SYN {
            0 => (position + 1) as u32,
            _ => 0,
        };
        let header = 20 + if flags & SYN == 0 { 20 } else { 28 };
        // virtio_net_hdr: partial checksum; segmented TCP over IPv4 if there are several.
        let kind = u8::from(segments > 1);
        out.extend_from_slice(&[1, kind]);
        out.extend_from_slice(&(header as u16).to_le_bytes());
        out.extend_from_slice(&(if segments > 1 { SEGMENT as u16 } else { 0 }).to_le_bytes());
        out.extend_from_slice(&20u16.to_le_bytes());
        out.extend_from_slice(&16u16.to_le_bytes());
        let data = segments * SEGMENT;
        tcp(out, (FAR, USER), ports, (sequence, 1), flags, data);
        out.resize(10 + header + data, 0);
        let partial = fold(pseudo(FAR, USER, header - 20 + data));
        out[10 + 36..10 + 38].copy_from_slice(&partial.to_be_bytes());
        match self.device.send(out) {
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Headers of IPv4 and TCP, with a TCP checksum of 0.
fn tcp(
    out: &mut Vec<u8>,
    (from, to): ([u8; 4], [u8; 4]),
    (source, destination): (u16, u16),
    (sequence, acknowledged): (u32, u32),
    flags: u8,
    data: usize,
) {
    let begin = out.len();
    // An MSS of 1360, and windows in units of 128 bytes.
    let options: &[u8] = match flags & SYN {
        0 => &[],
        _ => &[2, 4, 5, 80, 1, 3, 3, 7],
    };
    let total = 40 + options.len() + data;
    out.extend_from_slice(&[0x45, 0]);
    out.extend_from_slice(&(total as u16).to_be_bytes());
    out.extend_from_slice(&[0, 0, 0x40, 0, 64, 6, 0, 0]);
    out.extend_from_slice(&from);
    out.extend_from_slice(&to);
    let sum = checksum(&out[begin..], 0);
    out[begin + 10..begin + 12].copy_from_slice(&sum.to_be_bytes());
    out.extend_from_slice(&source.to_be_bytes());
    out.extend_from_slice(&destination.to_be_bytes());
    out.extend_from_slice(&sequence.to_be_bytes());
    out.extend_from_slice(&acknowledged.to_be_bytes());
    let window = if flags & SYN == 0 { 0x4000u16 } else { 0xffff };
    out.extend_from_slice(&[(20 + options.len() as u8) << 2, flags]);
    out.extend_from_slice(&window.to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(options);
}

fn pseudo(from: [u8; 4], to: [u8; 4], length: usize) -> u32 {
    let addresses = [from, to].concat();
    words(&addresses) + 6 + length as u32
}

fn words(bytes: &[u8]) -> u32 {
    let pairs = bytes.chunks_exact(2);
    pairs
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn checksum(bytes: &[u8], pseudo: u32) -> u16 {
    !fold(words(bytes) + pseudo)
}
