//! The descriptor of the device: packets with their super-packet headers.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tracing::debug;
use tun_rs::{SyncDevice, VIRTIO_NET_HDR_GSO_UDP_L4, VIRTIO_NET_HDR_LEN, VirtioNetHdr};

use crate::packet::build::{self, UDP_HEADER};
use crate::packet::header::{MIN_MTU6, header_len};
use crate::sink::Sink;
use crate::stats::Counters;
use crate::system::register_device;

/// The largest packet or super-packet.
pub(crate) const MAX_PACKET: usize = 65_535;

/// Flags of a header (linux/virtio_net.h, `VIRTIO_NET_HDR_F_*`): the checksum covers only the
/// pseudo header; it was verified.
const NEEDS_CHECKSUM: u8 = 1;
const DATA_VALID: u8 = 2;

/// Most datagrams of a super-packet: the limit of Linux before 6.9 (`UDP_MAX_SEGMENTS`).
const MAX_SEGMENTS: usize = 64;

/// Reads and writes packets. All methods work on a shared reference, from any task.
pub(crate) struct Port {
    device: AsyncFd<SyncDevice>,
    has_headers: bool,
    /// Whether the kernel splits super-packets of UDP.
    splits_datagrams: bool,
    mtu: usize,
    next_id: AtomicU32,
    counters: Arc<Counters>,
}

/// A packet that was read, with its header.
pub(crate) struct Input {
    bytes: Vec<u8>,
    header: VirtioNetHdr,
    start: usize,
    len: usize,
}

impl Input {
    pub(crate) fn new() -> Self {
        Self {
            bytes: vec![0; VIRTIO_NET_HDR_LEN + MAX_PACKET],
            header: VirtioNetHdr::default(),
            start: 0,
            len: 0,
        }
    }

    /// The packet.
    pub(crate) fn packet(&self) -> &[u8] {
        &self.bytes[self.start..self.len]
    }

    pub(crate) fn packet_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.len]
    }

    /// The header and the packet, as they are written back.
    pub(crate) fn whole(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Whether the checksum of TCP or UDP covers the pseudo header only.
    pub(crate) fn is_partial(&self) -> bool {
        self.header.flags & NEEDS_CHECKSUM != 0
    }

    /// Whether the checksum need not be verified: nothing has transmitted the packet, or the kernel
    /// has verified it.
    pub(crate) fn is_trusted(&self) -> bool {
        self.header.flags & (NEEDS_CHECKSUM | DATA_VALID) != 0
    }

    /// Length of each datagram but the last, if the packet consists of several.
    pub(crate) fn segment(&self) -> Option<usize> {
        let is_datagrams = self.header.gso_type == VIRTIO_NET_HDR_GSO_UDP_L4;
        (is_datagrams && self.header.gso_size > 0).then(|| usize::from(self.header.gso_size))
    }
}

impl Port {
    /// Takes a device that does not block. Must be called within a tokio runtime.
    pub(crate) fn new(device: SyncDevice, mtu: usize, counters: Arc<Counters>) -> io::Result<Self> {
        Ok(Self {
            has_headers: device.tcp_gso(),
            splits_datagrams: device.udp_gso(),
            device: register_device(device)?,
            mtu,
            next_id: AtomicU32::new(1),
            counters,
        })
    }

    /// Reads the next packet, and waits for one. Cancel safe.
    pub(crate) async fn read(&self, input: &mut Input) -> io::Result<()> {
        // A device that was deleted is not readable, but has an error.
        let interest = Interest::READABLE | Interest::ERROR;
        loop {
            let mut ready = self.device.ready(interest).await?;
            match ready.try_io(|device| self.read_from(device.get_ref(), input)) {
                Ok(read) => return read,
                Err(_) => continue,
            }
        }
    }

    /// Reads a packet if there is one.
    pub(crate) fn try_read(&self, input: &mut Input) -> io::Result<()> {
        self.read_from(self.device.get_ref(), input)
    }

    fn read_from(&self, device: &SyncDevice, input: &mut Input) -> io::Result<()> {
        let len = device.recv(&mut input.bytes)?;
        (input.start, input.len) = (0, len);
        input.header = VirtioNetHdr::default();
        if self.has_headers {
            input.header = VirtioNetHdr::decode(&input.bytes[..len])?;
            input.start = VIRTIO_NET_HDR_LEN;
        }
        self.counters.received(len - input.start);
        Ok(())
    }

    /// A packet as if it had been read, without offloads.
    pub(crate) fn input(&self, packet: &[u8]) -> Input {
        let start = if self.has_headers {
            VIRTIO_NET_HDR_LEN
        } else {
            0
        };
        let mut bytes = vec![0; start];
        bytes.extend_from_slice(packet);
        Input {
            len: bytes.len(),
            bytes,
            header: VirtioNetHdr::default(),
            start,
        }
    }

    /// A packet that was read before, with its header.
    pub(crate) fn input_with_header(&self, whole: &[u8]) -> Input {
        let start = if self.has_headers {
            VIRTIO_NET_HDR_LEN
        } else {
            0
        };
        let header = match self.has_headers {
            true => VirtioNetHdr::decode(whole).unwrap_or_default(),
            false => VirtioNetHdr::default(),
        };
        Input {
            bytes: whole.to_vec(),
            header,
            start: start.min(whole.len()),
            len: whole.len(),
        }
    }

    /// Writes a packet that was read, with its header, after it was changed.
    pub(crate) fn write_back(&self, whole: &[u8]) {
        let header = if self.has_headers {
            VIRTIO_NET_HDR_LEN
        } else {
            0
        };
        self.written(
            self.device.get_ref().send(whole),
            whole.len().saturating_sub(header),
        );
    }

    /// Writes a packet in several parts.
    fn write(&self, header: VirtioNetHdr, parts: &[IoSlice<'_>]) {
        let len = parts.iter().map(|part| part.len()).sum();
        let device = self.device.get_ref();
        if !self.has_headers {
            self.written(device.send_vectored(parts), len);
            return;
        }
        let mut bytes = [0; VIRTIO_NET_HDR_LEN];
        if header.encode(&mut bytes).is_err() {
            return;
        }
        let mut all = Vec::with_capacity(1 + parts.len());
        all.push(IoSlice::new(&bytes));
        all.extend_from_slice(parts);
        self.written(device.send_vectored(&all), len);
    }

    fn written(&self, result: io::Result<usize>, len: usize) {
        match result {
            Ok(_) => self.counters.sent(len),
            Err(error) => {
                debug!(%error, "the device refused a packet");
                self.counters.dropped.refused_by_kernel.increment();
            }
        }
    }

    fn id(&self) -> u32 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// How many of the datagrams, from the first on, one super-packet can carry.
    fn run(&self, payloads: &[Bytes], headers: usize) -> usize {
        let Some(first) = payloads.first().map(Bytes::len) else {
            return 0;
        };
        if !self.splits_datagrams || first == 0 || headers + first > self.mtu {
            return 1;
        }
        let mut total = headers;
        let mut count = 0;
        for payload in payloads.iter().take(MAX_SEGMENTS) {
            total += payload.len();
            let fits = payload.len() <= first && !payload.is_empty() && total <= MAX_PACKET;
            if !fits {
                break;
            }
            count += 1;
            // Only the last one may be shorter.
            if payload.len() < first {
                break;
            }
        }
        count.max(1)
    }
}

impl Sink for Port {
    fn packet(&self, packet: &[u8]) {
        // The kernel fragments IPv4 packets when it forwards them. Those of IPv6 are never
        // fragmented on the way, so their fragments fit every link.
        let is_v6 = packet.first().is_some_and(|byte| byte >> 4 == 6);
        match is_v6 && packet.len() > self.mtu {
            true => build::fragments(packet, MIN_MTU6, self.id(), |fragment| {
                self.write(VirtioNetHdr::default(), &[IoSlice::new(fragment)]);
            }),
            false => self.write(VirtioNetHdr::default(), &[IoSlice::new(packet)]),
        }
    }

    fn next_id(&self) -> u16 {
        self.id() as u16
    }

    fn datagrams(&self, source: SocketAddr, destination: SocketAddr, payloads: &[Bytes]) {
        let ip = header_len(source.ip());
        let headers = ip + UDP_HEADER;
        let mut rest = payloads;
        let mut head = Vec::with_capacity(headers);
        while let Some(first) = rest.first() {
            let (run, later) = rest.split_at(self.run(rest, headers));
            rest = later;
            let is_long = headers + first.len() > self.mtu;
            if !self.has_headers || (is_long && source.is_ipv6()) {
                for payload in run {
                    let packet =
                        crate::sink::datagram(source, destination, self.next_id(), payload);
                    self.packet(&packet);
                }
                continue;
            }
            let parts: Vec<&[u8]> = run.iter().map(|payload| &payload[..]).collect();
            head.clear();
            build::udp_headers(&mut head, source, destination, self.next_id(), &parts, true);
            let mut slices = Vec::with_capacity(1 + run.len());
            slices.push(IoSlice::new(&head));
            slices.extend(run.iter().map(|payload| IoSlice::new(payload)));
            let (gso_type, gso_size) = match run.len() {
                // No super-packet (`VIRTIO_NET_HDR_GSO_NONE`).
                1 => (0, 0),
                _ => (VIRTIO_NET_HDR_GSO_UDP_L4, first.len() as u16),
            };
            let header = VirtioNetHdr {
                flags: NEEDS_CHECKSUM,
                gso_type,
                hdr_len: headers as u16,
                gso_size,
                csum_start: ip as u16,
                csum_offset: 6,
            };
            self.write(header, &slices);
        }
    }
}
