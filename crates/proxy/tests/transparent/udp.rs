//! Captured datagrams.

use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc;

use bytes::Bytes;
use sumlink_exit::datagram::{DatagramSocket, FlowFailure, PairSocket, Received};
use sumlink_proxy::{Class, Side, SourceLimit, Target, TransparentUdp};
use tokio::task::JoinHandle;

use crate::{LONG, Network, Running, Session};

/// Entries for both families.
fn entries(session: &Session) -> ([SocketAddr; 2], Vec<JoinHandle<()>>) {
    let limit = SourceLimit::new(64);
    let (mut ports, mut tasks) = (Vec::new(), Vec::new());
    for listen in ["127.0.0.1:0", "[::1]:0"] {
        let entry = TransparentUdp::bind(listen.parse().unwrap()).unwrap();
        let entry = entry.with_sources(limit.clone());
        ports.push(entry.local_addr());
        tasks.push(tokio::spawn(
            entry.serve(session.clone(), std::future::pending()),
        ));
    }
    (ports.try_into().unwrap(), tasks)
}

/// A captured network, and a handle for what happens at the far ends of the sources.
struct Bench {
    network: Network,
    session: Session,
    far: mpsc::Receiver<(Target, Received)>,
    _running: Running,
}

impl Bench {
    /// `answer` sees each datagram at the far end of its source.
    fn new(answer: impl Fn(&PairSocket, &Target, &Bytes) + Clone + Send + 'static) -> Option<Self> {
        let network = Network::new()?;
        let session = Session::default();
        let of_entries = session.clone();
        let (sender, far) = mpsc::channel();
        let start = async move || {
            let (ports, mut tasks) = entries(&of_entries);
            tasks.push(tokio::spawn(async move {
                loop {
                    let source = of_entries.sources.lock().unwrap().pop();
                    let Some(mut source) = source else {
                        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                        continue;
                    };
                    let (sender, answer) = (sender.clone(), answer.clone());
                    tokio::spawn(async move {
                        let mut events = Vec::new();
                        while source.receive(&mut events, 1).await > 0 {
                            for (target, event) in events.drain(..) {
                                if let Received::Datagram(payload) = &event {
                                    answer(&source, &target, payload);
                                }
                                let _ = sender.send((target, event));
                            }
                        }
                    });
                }
            }));
            (ports, tasks)
        };
        let (running, [v4, v6]) = Running::start(&network.gateway, start);
        network.capture("udp", v4, v6);
        Some(Self {
            network,
            session,
            far,
            _running: running,
        })
    }

    /// A socket of the machine on the network.
    fn socket(&self, is_v6: bool) -> UdpSocket {
        let any = if is_v6 { "[::]:0" } else { "0.0.0.0:0" };
        let socket = self.network.machine.enter(|| UdpSocket::bind(any).unwrap());
        socket.set_read_timeout(Some(LONG)).unwrap();
        socket
    }
}

fn hear(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = vec![0; 1 << 16];
    let (length, from) = socket.recv_from(&mut buffer).expect("a datagram");
    buffer.truncate(length);
    (buffer, from)
}

#[test]
fn answers_come_from_the_address_that_was_asked() {
    let echo = |source: &PairSocket, target: &Target, payload: &Bytes| {
        source.send(target, payload.clone(), None).unwrap();
    };
    let Some(bench) = Bench::new(echo) else {
        return;
    };
    for (is_v6, remotes) in [
        (
            false,
            ["198.51.100.7:53", "198.51.100.8:4500", "203.0.113.1:53"],
        ),
        (
            true,
            [
                "[2001:db8::7]:53",
                "[2001:db8::8]:4500",
                "[2001:db8:1::1]:53",
            ],
        ),
    ] {
        let socket = bench.socket(is_v6);
        let tos = socket2::SockRef::from(&socket);
        match is_v6 {
            false => tos.set_tos_v4(46 << 2).unwrap(),
            true => tos.set_tclass_v6(46 << 2).unwrap(),
        }
        for remote in remotes {
            let remote: SocketAddr = remote.parse().unwrap();
            for payload in [&b"question"[..], b"", &[7; 1400]] {
                socket.send_to(payload, remote).unwrap();
                assert_eq!(hear(&socket), (payload.to_vec(), remote));
            }
        }
        // One source for all remotes.
        let bound = std::mem::take(&mut *bench.session.bound.lock().unwrap());
        let [(origin, _, class)] = bound.as_slice() else {
            panic!("{bound:?}");
        };
        assert_eq!(origin.from, Side::Lan);
        assert_eq!(origin.source.port(), socket.local_addr().unwrap().port());
        assert_eq!(*class, Some(Class::Conversational));
    }
}

#[test]
fn a_burst_and_datagrams_of_strangers_reach_the_program() {
    const BURST: usize = 100;
    let burst = |source: &PairSocket, target: &Target, payload: &Bytes| {
        for number in 0..BURST {
            let mut payload = payload.to_vec();
            payload.push(number as u8);
            source.send(target, payload.into(), None).unwrap();
        }
        let stranger: Target = "203.0.113.9:99".parse().unwrap();
        let payload = Bytes::from_static(b"stranger");
        source.send(&stranger, payload, None).unwrap();
    };
    let Some(bench) = Bench::new(burst) else {
        return;
    };
    let socket = bench.socket(false);
    let remote: SocketAddr = "198.51.100.7:53".parse().unwrap();
    socket.send_to(&[1; 500], remote).unwrap();
    for number in 0..BURST {
        let (payload, from) = hear(&socket);
        assert_eq!(
            (payload.len(), payload[500], from),
            (501, number as u8, remote)
        );
    }
    let stranger = "203.0.113.9:99".parse().unwrap();
    assert_eq!(hear(&socket), (b"stranger".to_vec(), stranger));
}

#[test]
fn failures_are_icmp_errors_for_the_program() {
    let refuse = |source: &PairSocket, target: &Target, _: &Bytes| {
        let failure = match target.port {
            1 => FlowFailure::Refused,
            _ => FlowFailure::Filtered,
        };
        source.report(target, failure);
    };
    let Some(bench) = Bench::new(refuse) else {
        return;
    };
    for (remote, expected) in [
        ("198.51.100.7:1", libc::ECONNREFUSED),
        ("[2001:db8::7]:1", libc::ECONNREFUSED),
        ("198.51.100.7:2", libc::EHOSTUNREACH),
        ("[2001:db8::7]:2", libc::EACCES),
    ] {
        let remote: SocketAddr = remote.parse().unwrap();
        let socket = bench.socket(remote.is_ipv6());
        socket.connect(remote).unwrap();
        socket.send(b"anybody?").unwrap();
        let error = socket.recv(&mut [0]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(expected), "{remote}: {error}");
        let (target, _) = bench.far.recv_timeout(LONG).unwrap();
        assert_eq!(target, remote.into());
    }
}
