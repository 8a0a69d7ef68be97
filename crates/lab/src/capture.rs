//! Captures the packets of a side's interfaces, for tests of leaks.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::net::if_::if_nametoindex;
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::LabError;
use crate::laboratory::Lab;
use crate::topology::Side;

/// Bytes of a packet that are kept.
const KEPT: usize = 192;
/// Room for packets that wait for the reader.
const BUFFER: usize = 64 << 20;
/// Interval at which the reader checks whether it shall stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A packet as it passed an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Whether the side sent it; otherwise it arrived.
    pub outgoing: bool,
    /// Its source address.
    pub source: IpAddr,
    /// Its destination address.
    pub destination: IpAddr,
    /// The protocol: 1 ICMP, 6 TCP, 17 UDP, 58 ICMPv6.
    pub protocol: u8,
    /// Source and destination port of TCP and UDP.
    pub ports: Option<[u16; 2]>,
    /// The beginning of the packet, from its IP header on.
    pub bytes: Vec<u8>,
}

impl Packet {
    /// Parses an IP packet; `None` for any other.
    fn parse(bytes: &[u8], outgoing: bool) -> Option<Self> {
        let (source, destination, protocol, header) = match bytes.first()? >> 4 {
            4 => {
                let octets = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(v4);
                let header = usize::from(bytes[0] & 15) * 4;
                (octets(12)?, octets(16)?, *bytes.get(9)?, header)
            }
            6 => {
                let octets = |at: usize| bytes.get(at..at + 16)?.try_into().ok().map(v6);
                (octets(8)?, octets(24)?, *bytes.get(6)?, 40)
            }
            _ => return None,
        };
        let has_ports = protocol == libc::IPPROTO_TCP as u8 || protocol == libc::IPPROTO_UDP as u8;
        let port = |at: usize| {
            bytes
                .get(at..at + 2)?
                .try_into()
                .ok()
                .map(u16::from_be_bytes)
        };
        let ports = port(header).zip(port(header + 2)).filter(|_| has_ports);
        Some(Self {
            outgoing,
            source,
            destination,
            protocol,
            ports: ports.map(|(source, destination)| [source, destination]),
            bytes: bytes.to_vec(),
        })
    }
}

fn v4(octets: [u8; 4]) -> IpAddr {
    Ipv4Addr::from(octets).into()
}

fn v6(octets: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(octets).into()
}

/// A running capture; it ends when dropped.
#[derive(Debug)]
pub struct Capture {
    socket: Arc<Socket>,
    packets: Arc<Mutex<Vec<Packet>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Capture {
    /// Captures all IP packets of one interface of a side, or of all its interfaces that exist now
    /// or later.
    ///
    /// Packets are taken next to the device: outgoing ones after all rules of a firewall and all
    /// address translation, arriving ones before.
    pub fn start(lab: &Lab, side: Side, interface: Option<&str>) -> Result<Self, LabError> {
        let failed = |error: io::Error| LabError::system("capturing packets", error);
        let interface = interface.map(str::to_owned);
        let socket = lab.run(side, move || open(interface.as_deref()))?;
        let socket = Arc::new(socket.map_err(failed)?);
        let packets = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let (socket, packets) = (Arc::clone(&socket), Arc::clone(&packets));
            let stop = Arc::clone(&stop);
            let read = move || while read(&socket, &packets) || !stop.load(Ordering::Acquire) {};
            let builder = thread::Builder::new().name("capture".to_owned());
            builder.spawn(read).map_err(failed)?
        };
        Ok(Self {
            socket,
            packets,
            stop,
            thread: Some(thread),
        })
    }

    /// The packets that were read so far; the newest may be missing.
    pub fn so_far(&self) -> Vec<Packet> {
        let packets = self.packets.lock().unwrap_or_else(PoisonError::into_inner);
        packets.clone()
    }

    /// Ends the capture; all packets up to now. It fails if the kernel had no room for some: a test
    /// that looks for a leak must have seen every packet.
    pub fn finish(mut self) -> Result<Vec<Packet>, LabError> {
        self.end();
        match dropped(&self.socket) {
            Ok(0) => Ok(self.so_far()),
            Ok(lost) => Err(LabError::system(
                "capturing packets",
                format!("{lost} packets came faster than they were read"),
            )),
            Err(error) => Err(LabError::system("reading the counters of a capture", error)),
        }
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.end();
    }
}

/// Reads a packet; whether there was one, or anything else but the end of the waiting time.
fn read(socket: &Socket, packets: &Mutex<Vec<Packet>>) -> bool {
    let mut buffer = [0; KEPT];
    // SAFETY: a sockaddr_ll of zeros is valid.
    let mut from: libc::sockaddr_ll = unsafe { zeroed() };
    let mut length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: buffer and address are writable for the given lengths.
    let read = unsafe {
        libc::recvfrom(
            socket.as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            0,
            (&raw mut from).cast(),
            &raw mut length,
        )
    };
    let Ok(read) = usize::try_from(read) else {
        return false;
    };
    let outgoing = from.sll_pkttype == libc::PACKET_OUTGOING;
    if let Some(packet) = Packet::parse(&buffer[..read], outgoing) {
        let mut packets = packets.lock().unwrap_or_else(PoisonError::into_inner);
        packets.push(packet);
    }
    true
}

/// A packet socket without the headers of the link layer, in the calling thread's namespace.
fn open(interface: Option<&str>) -> io::Result<Socket> {
    let protocol = (libc::ETH_P_ALL as u16).to_be();
    let index = match interface {
        Some(name) => if_nametoindex(name)?,
        None => 0,
    };
    let kind = Protocol::from(i32::from(protocol));
    let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(kind))?;
    socket.set_read_timeout(Some(POLL_INTERVAL))?;
    // The limit for ordinary users is too small for a burst; root is not bound by it.
    set_option(
        &socket,
        libc::SOL_SOCKET,
        libc::SO_RCVBUFFORCE,
        BUFFER as libc::c_int,
    )
    .or_else(|_| socket.set_recv_buffer_size(BUFFER))?;
    // SAFETY: a sockaddr_ll of zeros is valid.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol;
    address.sll_ifindex = index as i32;
    // SAFETY: the address is a sockaddr_ll of that length.
    let bound = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if bound < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(socket)
}

fn set_option(socket: &Socket, level: i32, name: i32, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the option takes an int, which is readable for its length.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if set < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Packets that found no room in the socket since the last call (packet(7), PACKET_STATISTICS).
fn dropped(socket: &Socket) -> io::Result<u32> {
    // struct tpacket_stats: packets, drops.
    let mut stats = [0_u32; 2];
    let mut length = size_of::<[u32; 2]>() as libc::socklen_t;
    // SAFETY: the option fills a struct of two u32.
    let read = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            stats.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if read < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(stats[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_both_versions_are_parsed() {
        let mut bytes = vec![0; 24];
        bytes[0] = 0x45;
        bytes[9] = 17;
        bytes[12..16].copy_from_slice(&[192, 168, 8, 2]);
        bytes[16..20].copy_from_slice(&[203, 0, 113, 1]);
        bytes[20..24].copy_from_slice(&[0x30, 0x39, 0, 53]);
        let packet = Packet::parse(&bytes, true).unwrap();
        assert!(packet.outgoing);
        assert_eq!(packet.source.to_string(), "192.168.8.2");
        assert_eq!(packet.destination.to_string(), "203.0.113.1");
        assert_eq!((packet.protocol, packet.ports), (17, Some([12345, 53])));
        let mut bytes = vec![0; 44];
        (bytes[0], bytes[6], bytes[23]) = (0x60, 58, 9);
        let packet = Packet::parse(&bytes, false).unwrap();
        assert_eq!(packet.source.to_string(), "::9");
        assert_eq!((packet.protocol, packet.ports), (58, None));
        for garbage in [&[][..], &[0x45; 12], &[0x60; 30], &[0xff; 60]] {
            assert_eq!(Packet::parse(garbage, false), None);
        }
    }
}
