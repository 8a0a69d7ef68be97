//! Sending datagrams.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};

use super::{Packet, UdpIo};

/// Most datagrams of one call with `UDP_SEGMENT` (`UDP_MAX_SEGMENTS` before Linux 6.9).
const SEGMENTS: usize = 64;

/// Most bytes of one call with `UDP_SEGMENT`: an IP packet less the longest headers.
const SEGMENTS_BYTES: usize = 65_000;

impl UdpIo {
    /// Sends the packets in order, and returns how many were handled: sent, or passed to `failed`
    /// with their index. Fewer than all means that the send buffer is full; try the rest after
    /// [`SEND_PAUSE`](super::SEND_PAUSE).
    pub fn send(&self, packets: &[Packet<'_>], mut failed: impl FnMut(usize, io::Error)) -> usize {
        let mut handled = 0;
        // The kernel reports an ICMP error once in place of sending.
        let mut is_retry = false;
        while let Some(rest) = packets.get(handled..).filter(|rest| !rest.is_empty()) {
            match self.send_some(rest) {
                Ok(sent) => {
                    handled += sent;
                    is_retry = false;
                }
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => {}
                Err(_) if !is_retry => is_retry = true,
                Err(error) => {
                    failed(handled, error.into());
                    handled += 1;
                    is_retry = false;
                }
            }
        }
        handled
    }

    /// Sends at least the first packet with one successful system call.
    fn send_some(&self, packets: &[Packet<'_>]) -> Result<usize, Errno> {
        let run = self.run(packets);
        let Some((first, _)) = packets.split_first() else {
            return Ok(0);
        };
        if run > 1 {
            match self.send_run(&packets[..run]) {
                // Longer than the path's MTU, or without the device's checksums: one by one.
                Err(Errno::EINVAL | Errno::EIO | Errno::EMSGSIZE | Errno::EOPNOTSUPP) => {
                    let shorter = first.len().saturating_sub(1);
                    self.longest_segment.fetch_min(shorter, Ordering::Relaxed);
                }
                result => return result.map(|()| run),
            }
        }
        self.send_run(&packets[..1]).map(|()| 1)
    }

    /// How many of the first packets one call with `UDP_SEGMENT` can send: same addresses and same
    /// length; only the last may be shorter.
    fn run(&self, packets: &[Packet<'_>]) -> usize {
        let Some(first) = packets.first() else {
            return 0;
        };
        let length = first.len();
        if length == 0 || length > self.longest_segment.load(Ordering::Relaxed) {
            return 1;
        }
        let most = (SEGMENTS_BYTES / length).clamp(1, SEGMENTS);
        let mut count = 1;
        for packet in packets.iter().take(most).skip(1) {
            let same = (packet.remote, packet.local) == (first.remote, first.local);
            if !same || packet.len() > length || packet.is_empty() {
                break;
            }
            count += 1;
            if packet.len() < length {
                break;
            }
        }
        count
    }

    fn send_run(&self, packets: &[Packet<'_>]) -> Result<(), Errno> {
        let Some(first) = packets.first() else {
            return Ok(());
        };
        let slices: Vec<IoSlice<'_>> = packets.iter().flat_map(Packet::slices).collect();
        let remote = first.remote.map(|remote| self.storage(remote));
        let length = u16::try_from(first.len()).map_err(|_| Errno::EMSGSIZE)?;
        let (v4, v6);
        let mut control = Vec::with_capacity(2);
        if packets.len() > 1 {
            control.push(ControlMessage::UdpGsoSegments(&length));
        }
        match first.local {
            Some(IpAddr::V4(ip)) if !self.is_v6 => {
                v4 = libc::in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: libc::in_addr {
                        s_addr: u32::from_ne_bytes(ip.octets()),
                    },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                control.push(ControlMessage::Ipv4PacketInfo(&v4));
            }
            Some(ip) => {
                let ip = match ip {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                    IpAddr::V6(ip) => ip,
                };
                v6 = libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr {
                        s6_addr: ip.octets(),
                    },
                    ipi6_ifindex: 0,
                };
                control.push(ControlMessage::Ipv6PacketInfo(&v6));
            }
            None => {}
        }
        let flags = MsgFlags::MSG_DONTWAIT;
        sendmsg(
            self.socket.as_raw_fd(),
            &slices,
            &control,
            flags,
            remote.as_ref(),
        )?;
        Ok(())
    }

    /// The address in the family of the socket.
    fn storage(&self, remote: SocketAddr) -> SockaddrStorage {
        match remote {
            SocketAddr::V4(v4) if self.is_v6 => {
                SocketAddr::from((v4.ip().to_ipv6_mapped(), v4.port())).into()
            }
            remote => remote.into(),
        }
    }
}

impl<'a> Packet<'a> {
    /// Length of the datagram in bytes.
    pub fn len(&self) -> usize {
        self.head.len() + self.body.len()
    }

    /// Whether the datagram is empty, which UDP permits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn slices(&self) -> [IoSlice<'a>; 2] {
        [IoSlice::new(self.head), IoSlice::new(self.body)]
    }
}
