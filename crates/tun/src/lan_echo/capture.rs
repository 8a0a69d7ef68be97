//! Packet sockets that receive the echo requests of one interface.

use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::sys::socket::{MsgFlags, recv};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use tokio::io::unix::AsyncFd;
use tokio::time::sleep;
use tracing::debug;

use crate::packet::{icmp, protocol};
use crate::system::{packet_address, register_socket};

/// Pause after a failure.
const PAUSE: Duration = Duration::from_millis(100);

/// Longest packet.
const MAX_PACKET: usize = 65_535;

/// Receives copies of echo requests, and of fragments of ICMP messages.
pub(super) struct Capture {
    v4: AsyncFd<Socket>,
    v6: AsyncFd<Socket>,
}

impl Capture {
    /// Captures on the interface with this index.
    pub(super) fn open(index: u32) -> io::Result<Self> {
        let open = |ethertype: u16, filter: &[SockFilter]| -> io::Result<AsyncFd<Socket>> {
            // Nothing is received before the socket is bound: protocol 0 (packet(7)).
            let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(Protocol::from(0)))?;
            socket.set_nonblocking(true)?;
            socket.attach_filter(filter)?;
            socket.bind(&packet_address(index, ethertype))?;
            register_socket(socket)
        };
        Ok(Self {
            v4: open(libc::ETH_P_IP as u16, &filter_v4())?,
            v6: open(libc::ETH_P_IPV6 as u16, &filter_v6())?,
        })
    }

    /// Waits for packets and takes up to `most` of them. Waits forever without a capture. Cancel
    /// safe.
    pub(super) async fn read(capture: Option<&Self>, most: usize) -> Vec<Vec<u8>> {
        let Some(capture) = capture else {
            return std::future::pending().await;
        };
        tokio::select! {
            packets = read(&capture.v4, most) => packets,
            packets = read(&capture.v6, most) => packets,
        }
    }
}

async fn read(socket: &AsyncFd<Socket>, most: usize) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    while packets.is_empty() {
        let Ok(mut ready) = socket.readable().await else {
            return std::future::pending().await;
        };
        let received = ready.try_io(|socket| {
            let fd = socket.get_ref().as_raw_fd();
            let mut buffer = vec![0; MAX_PACKET];
            while packets.len() < most {
                match recv(fd, &mut buffer, MsgFlags::MSG_DONTWAIT) {
                    Ok(len) => packets.push(buffer[..len].to_vec()),
                    Err(error) if packets.is_empty() => return Err(io::Error::from(error)),
                    Err(_) => break,
                }
            }
            Ok(())
        });
        match received {
            // The interface is down or has gone (ENETDOWN), which is reported once.
            Ok(Err(error)) if error.kind() != ErrorKind::WouldBlock => {
                debug!(%error, "cannot capture echo requests for now");
                sleep(PAUSE).await;
            }
            _ => {}
        }
    }
    packets
}

/// Packets from others to this host: neither its outgoing packets, nor packets to other hosts that
/// a bridge or a hub passed along.
const TO_HOST: u32 = libc::PACKET_HOST as u32;

/// The filter's load of the packet's type (`SKF_AD_OFF + SKF_AD_PKTTYPE`).
const PACKET_TYPE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;

const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
const LOAD_BYTE_INDEXED: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_IND) as u16;
const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
/// Loads four times the low half of a byte: the length of an IPv4 header.
const LOAD_HEADER_LENGTH: u16 = (libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IF_ANY_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// The part of an IPv4 header's third word that says where a fragment belongs.
const FRAGMENT_OFFSET: u32 = 0x1fff;

/// Echo requests of IPv4, and later fragments of ICMP messages. Jumps count from the next step.
fn filter_v4() -> [SockFilter; 11] {
    let step = SockFilter::new;
    [
        step(LOAD_WORD, 0, 0, PACKET_TYPE),
        step(IF_EQUAL, 0, 8, TO_HOST),
        step(LOAD_BYTE, 0, 0, 9),
        step(IF_EQUAL, 0, 6, u32::from(protocol::ICMP)),
        step(LOAD_HALF, 0, 0, 6),
        step(IF_ANY_BIT, 3, 0, FRAGMENT_OFFSET),
        step(LOAD_HEADER_LENGTH, 0, 0, 0),
        step(LOAD_BYTE_INDEXED, 0, 0, 0),
        step(IF_EQUAL, 0, 1, u32::from(icmp::ECHO_REQUEST)),
        step(RETURN, 0, 0, u32::MAX),
        step(RETURN, 0, 0, 0),
    ]
}

/// Echo requests of IPv6, and fragments of ICMPv6 messages.
fn filter_v6() -> [SockFilter; 11] {
    let step = SockFilter::new;
    [
        step(LOAD_WORD, 0, 0, PACKET_TYPE),
        step(IF_EQUAL, 0, 8, TO_HOST),
        step(LOAD_BYTE, 0, 0, 6),
        step(IF_EQUAL, 3, 0, u32::from(protocol::ICMP6)),
        step(IF_EQUAL, 0, 5, u32::from(protocol::FRAGMENT)),
        step(LOAD_BYTE, 0, 0, 40),
        step(IF_EQUAL, 2, 3, u32::from(protocol::ICMP6)),
        step(LOAD_BYTE, 0, 0, 40),
        step(IF_EQUAL, 0, 1, u32::from(icmp::ECHO_REQUEST6)),
        step(RETURN, 0, 0, u32::MAX),
        step(RETURN, 0, 0, 0),
    ]
}
