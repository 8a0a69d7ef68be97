//! The TUN device: created, given addresses and routes, and read and written many packets at a
//! time.
//!
//! With offload, the kernel passes TCP data in super-packets of up to 64 KiB, with incomplete
//! checksums. This module splits and joins them and completes the checksums, so that the other
//! modules see packets as on a wire. If the kernel has no offload, each call passes one packet.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use sumlink_tun_device::{Setup, create, set_up};
use tun_rs::{GROTable, SyncDevice, VIRTIO_NET_HDR_LEN};

use crate::config::TunConfig;
use crate::error::NodeError;

/// The largest packet or super-packet.
const PACKET: usize = 65_535;

/// Most packets per super-packet: first the number for a segment size of 536 bytes (RFC 9293,
/// section 3.7.1), and, once a larger one has been seen, the largest possible number.
const SEGMENTS: [usize; 2] = [128, 2048];

/// Packets written at once.
const WRITES: usize = 64;

/// A TUN device that is up. Dropping it removes the device with its addresses and routes.
pub(crate) struct Device {
    device: SyncDevice,
    /// Packets to be written, each after room for a super-packet header; the first `waiting` are in
    /// use.
    output: Vec<Vec<u8>>,
    waiting: usize,
    joined: GROTable,
    /// Packets that the kernel refused, and super-packets that could not be split.
    pub(crate) refused: u64,
}

/// Packets read from a device.
pub(crate) struct Input {
    whole: Vec<u8>,
    packets: Vec<Vec<u8>>,
    lengths: Vec<usize>,
}

impl Input {
    pub(crate) fn new() -> Self {
        let mut input = Self {
            whole: vec![0; VIRTIO_NET_HDR_LEN + PACKET],
            packets: Vec::new(),
            lengths: Vec::new(),
        };
        input.resize(SEGMENTS[0]);
        input
    }

    fn resize(&mut self, count: usize) {
        // Untouched pages use no memory.
        self.packets.resize_with(count, || vec![0; PACKET]);
        self.lengths.resize(count, 0);
    }

    /// The packet with this number.
    pub(crate) fn packet(&self, number: usize) -> &[u8] {
        &self.packets[number][..self.lengths[number]]
    }
}

impl Device {
    /// Creates the device in the network namespace of the calling thread. Must be called inside a
    /// tokio runtime with I/O.
    pub(crate) async fn open(config: &TunConfig) -> Result<Self, NodeError> {
        let created = create(&config.name, config.offload)?;
        let setup = Setup {
            mtu: config.mtu as u32,
            addresses: config.addresses.clone(),
            routes: config.routes.clone(),
        };
        set_up(&created, &setup).await?;
        let device = created.device;
        // Joined packets grow in place.
        let empty = || Vec::with_capacity(2 * VIRTIO_NET_HDR_LEN + PACKET);
        Ok(Self {
            device,
            output: std::iter::repeat_with(empty).take(WRITES).collect(),
            waiting: 0,
            joined: GROTable::new(),
            refused: 0,
        })
    }

    /// Reads once and returns the number of packets. The error kind is `WouldBlock` if none is
    /// available.
    pub(crate) fn read(&mut self, input: &mut Input) -> io::Result<usize> {
        let Input {
            whole,
            packets,
            lengths,
        } = &mut *input;
        match self.device.recv_multiple(whole, packets, lengths, 0) {
            // The super-packet cannot be split, or has too many segments.
            Err(error)
                if error.raw_os_error().is_none() && error.kind() != io::ErrorKind::WouldBlock =>
            {
                tracing::debug!(%error, "cannot split a super-packet from the device");
                self.refused += 1;
                input.resize(SEGMENTS[1]);
                Ok(0)
            }
            other => other,
        }
    }

    /// Queues a packet for the kernel; [`Device::flush`] writes it at the latest.
    pub(crate) fn write(&mut self, packet: &[u8]) {
        let buffer = &mut self.output[self.waiting];
        buffer.clear();
        buffer.resize(VIRTIO_NET_HDR_LEN, 0);
        buffer.extend_from_slice(packet);
        self.waiting += 1;
        if self.waiting == WRITES {
            self.flush();
        }
    }

    /// Writes the queued packets.
    pub(crate) fn flush(&mut self) {
        if self.waiting == 0 {
            return;
        }
        let packets = &mut self.output[..std::mem::take(&mut self.waiting)];
        let written = self
            .device
            .send_multiple(&mut self.joined, packets, VIRTIO_NET_HDR_LEN);
        if let Err(error) = written {
            self.refused += 1;
            tracing::debug!(%error, "the device refused a packet");
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}
