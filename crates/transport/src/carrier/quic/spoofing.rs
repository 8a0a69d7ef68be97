//! A flood of connection attempts with forged source addresses.

use std::collections::HashMap;
use std::io::IoSliceMut;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::crypto::rustls::QuicClientConfig;
use quinn::udp::{RecvMeta, Transmit, UdpSocketState};
use socket2::SockRef;

use super::fixture::{Ends, SOON, key};
use crate::carrier::tls::{DATAGRAM_ALPN, Identity};

/// Attempts of the flood, as many as should arrive in a second.
const ATTEMPTS: u32 = 10_000;

/// Initial packets of that many connections, as quinn sends them to `server`.
fn initials(server: SocketAddr, count: u32) -> Vec<Vec<u8>> {
    let tls = Identity::new(&key()).client_config(&key().public(), DATAGRAM_ALPN, None);
    let tls = QuicClientConfig::try_from(tls).unwrap();
    let config = quinn::ClientConfig::new(Arc::new(tls));
    let endpoint = quinn::EndpointConfig::default();
    let mut endpoint = quinn_proto::Endpoint::new(Arc::new(endpoint), None, false, None);
    let mut attempt = || {
        let now = Instant::now();
        let connected = endpoint.connect(now, config.clone(), server, "sumlink.invalid");
        let (handle, mut connection) = connected.unwrap();
        let mut packet = Vec::new();
        let _sent = connection.poll_transmit(now, 1, &mut packet).unwrap();
        endpoint.handle_event(handle, quinn_proto::EndpointEvent::drained());
        packet
    };
    (0..count).map(|_| attempt()).collect()
}

/// A socket that sends from every address of loopback, and receives the datagrams to them.
struct Forger {
    socket: UdpSocket,
    state: UdpSocketState,
    /// Number and bytes of the packets received, by the address that they were sent to.
    replies: HashMap<IpAddr, (u32, usize)>,
}

impl Forger {
    fn new() -> Self {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let state = UdpSocketState::new((&socket).into()).unwrap();
        Self {
            socket,
            state,
            replies: HashMap::new(),
        }
    }

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 1, 0, 0)) + number).into()
    }

    fn send(&self, from: IpAddr, to: SocketAddr, packet: &[u8]) {
        let transmit = Transmit {
            destination: to,
            ecn: None,
            contents: packet,
            segment_size: None,
            src_ip: Some(from),
        };
        self.state.send((&self.socket).into(), &transmit).unwrap();
    }

    fn receive(&mut self) {
        let mut buffer = [0; 65536];
        let mut meta = [RecvMeta::default()];
        loop {
            let mut buffers = [IoSliceMut::new(&mut buffer)];
            let received = self
                .state
                .recv((&self.socket).into(), &mut buffers, &mut meta);
            if received.is_err() {
                return;
            }
            let [
                RecvMeta {
                    len,
                    stride,
                    dst_ip,
                    ..
                },
            ] = meta;
            let reply = self.replies.entry(dst_ip.unwrap()).or_default();
            reply.0 += u32::try_from(len.div_ceil(stride)).unwrap();
            reply.1 += len;
            // A Retry packet (RFC 9000, section 17.2.5).
            assert_eq!(buffer[0] & 0b1111_0000, 0b1111_0000, "{:02x}", buffer[0]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_from_forged_addresses_leaves_nothing_behind_and_is_not_amplified() {
    let ends = Arc::new(Ends::new());
    let server = ends.address();
    let packets = initials(server, ATTEMPTS);
    let flooding = tokio::task::spawn_blocking(move || {
        let mut forger = Forger::new();
        SockRef::from(&forger.socket)
            .set_recv_buffer_size(1 << 22)
            .unwrap();
        let begun = Instant::now();
        for (number, packet) in (0..).zip(&packets) {
            let due = begun + Duration::from_secs(1) * number / ATTEMPTS;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            forger.send(Forger::address(number), server, packet);
            forger.receive();
        }
        (forger, packets)
    });
    // Clients join during the flood.
    let mut joined = Vec::new();
    while !flooding.is_finished() {
        let join = ends.join(server);
        joined.push(tokio::time::timeout(SOON, join).await.expect("a carrier"));
    }
    assert!(!joined.is_empty());
    let (mut forger, packets) = flooding.await.unwrap();
    // The last packets may still be on their way; a connection that is made after them proves that
    // they have been handled.
    joined.push(ends.join(server).await);
    assert_eq!(ends.listener.connections(), joined.len(), "no state");
    forger.receive();
    assert!(forger.replies.len() > 1000, "{}", forger.replies.len());
    let least = packets.iter().map(Vec::len).min().unwrap();
    for (address, (count, bytes)) in &forger.replies {
        assert_eq!(*count, 1, "{address}");
        assert!(*bytes < least / 3, "{bytes} bytes to {address}");
    }
}
