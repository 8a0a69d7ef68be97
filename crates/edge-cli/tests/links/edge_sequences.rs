//! `sumlink-edge` with sequence numbers that wrap around, or that are reused for other data.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use sumlink_lab::Side;

use crate::edge::{Edge, MODES, NODE, USER, count};
use sumlink_test_support::emulated::segments::{ACK, FIN, SYN, Segment, raw_socket};
use sumlink_test_support::emulated::traffic::Pattern;
use sumlink_test_support::emulated::{Bench, PATIENCE, until};

const PORT: u16 = 9;

/// An unconnected TCP socket in the kernel of one side.
fn tcp_socket(bench: &Bench, side: Side) -> Socket {
    let open = || Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    bench.lab.run(side, open).unwrap()
}

fn set(socket: &Socket, name: libc::c_int, value: i32) {
    let len = size_of::<i32>() as u32;
    let value = (&raw const value).cast();
    // SAFETY: the value is a live integer of that size.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, name, value, len) };
    assert_eq!(result, 0, "{name}: {}", std::io::Error::last_os_error());
}

fn get(socket: &Socket, name: libc::c_int) -> u32 {
    let (mut value, mut len) = (0u32, size_of::<u32>() as u32);
    let place = (&raw mut value).cast();
    // SAFETY: both are live and have the given sizes.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            name,
            place,
            &raw mut len,
        )
    };
    assert_eq!(result, 0, "{name}: {}", std::io::Error::last_os_error());
    value
}

/// Sets the first sequence number of the connection that this socket will open (tcp(7),
/// TCP_REPAIR).
fn begin_at(socket: &Socket, number: u32) {
    const SEND_QUEUE: i32 = 2;
    const OFF_WITHOUT_A_PROBE: i32 = -1;
    set(socket, libc::TCP_REPAIR, 1);
    set(socket, libc::TCP_REPAIR_QUEUE, SEND_QUEUE);
    set(socket, libc::TCP_QUEUE_SEQ, number as i32);
    set(socket, libc::TCP_REPAIR, OFF_WITHOUT_A_PROBE);
}

#[test]
fn sequence_numbers_wrap_around_in_the_midst_of_a_transfer() {
    const BEFORE: u32 = 700_000;
    for mode in MODES {
        let Some(edge) = Edge::start(&format!("mode = \"{mode}\""), "") else {
            return;
        };
        for (from, to, address) in [
            (Side::Server, Side::Client, USER),
            (Side::Client, Side::Server, NODE),
        ] {
            let bind = move || TcpListener::bind((address, PORT)).unwrap();
            let listener = edge.bench.lab.run(to, bind).unwrap();
            let socket = tcp_socket(&edge.bench, from);
            let first = 0u32.wrapping_sub(BEFORE);
            begin_at(&socket, first);
            let contents = Pattern::bytes(1, 2_000_000);
            let expected = contents.clone();
            let sender = thread::spawn(move || {
                let to = SocketAddr::from((address, PORT));
                socket.connect_timeout(&to.into(), PATIENCE).unwrap();
                socket.set_write_timeout(Some(PATIENCE)).unwrap();
                (&socket).write_all(&contents).unwrap();
                // Sequence number of the next byte.
                let next = get(&socket, libc::TCP_QUEUE_SEQ);
                socket.shutdown(std::net::Shutdown::Write).unwrap();
                next
            });
            listener.set_nonblocking(true).unwrap();
            let stream = until("it connects", || listener.accept().ok()).0;
            stream.set_nonblocking(false).unwrap();
            let mut received = take(&stream, 1_000_000);
            let duplicates = || count(&edge.status("node"), "/core/duplicates");
            let before = duplicates();
            received.extend(take(&stream, u64::MAX));
            assert!(
                received == expected,
                "{mode}, from {from:?}: another content"
            );
            assert_eq!(sender.join().unwrap(), first.wrapping_add(1 + 2_000_000));
            // The node still knows the flow, because packets overtake each other on these links.
            if mode == "lwip+visible" && from == Side::Server {
                assert!(duplicates() > before + 10, "{before}");
            }
        }
        edge.stop();
    }
}

/// Reads up to `most` bytes or to the end.
fn take(stream: &TcpStream, most: u64) -> Vec<u8> {
    let mut received = Vec::new();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.take(most).read_to_end(&mut received).unwrap();
    received
}

/// Length of the stream below, in bytes. It has two versions, which differ in the highest bit.
const LEN: u32 = 300_000;
const VERSION: u8 = 0x80;

/// A server that sends different data under the same sequence numbers, as no kernel does.
struct TwoVersions {
    socket: Socket,
    /// Address of the user's program.
    user: SocketAddrV4,
    /// First sequence number of the user's data.
    acknowledgment: u32,
    contents: [Vec<u8>; 2],
    /// Every fourth segment is larger than an IP packet, so that the kernel sends it in fragments.
    fragments: bool,
    /// End of the data sent so far.
    sent: Cell<u32>,
}

/// Its own sequence numbers start here, so that they wrap around, too.
const FIRST: u32 = 0u32.wrapping_sub(100_000);

impl TwoVersions {
    /// Accepts the connection that is being opened.
    fn accept(socket: Socket, fragments: bool) -> Self {
        let contents = Pattern::bytes(1, LEN as usize);
        let with = |bit: u8| contents.iter().map(|byte| byte & !VERSION | bit).collect();
        let mut server = Self {
            socket,
            user: SocketAddrV4::new(USER, 0),
            acknowledgment: 0,
            contents: [with(0), with(VERSION)],
            fragments,
            sent: Cell::new(0),
        };
        let tick = Some(Duration::from_millis(100));
        server.socket.set_read_timeout(tick).unwrap();
        let start = Instant::now();
        let syn = loop {
            assert!(start.elapsed() < PATIENCE, "no connection is opened");
            match server.receive() {
                Some(segment) if segment.flags & SYN != 0 => break segment,
                _ => {}
            }
        };
        server.user.set_port(syn.port);
        server.acknowledgment = syn.sequence.wrapping_add(1);
        server.send(Segment {
            sequence: FIRST.wrapping_sub(1),
            flags: SYN | ACK,
            options: &[2, 4, 1000u16.to_be_bytes()[0], 1000u16.to_be_bytes()[1]],
            ..Segment::default()
        });
        server
    }

    fn send(&self, segment: Segment) {
        let segment = Segment {
            acknowledgment: self.acknowledgment,
            ..segment
        };
        let bytes = segment.between([(NODE, PORT), (*self.user.ip(), self.user.port())]);
        self.socket.send_to(&bytes, &self.user.into()).unwrap();
    }

    /// Sends these bytes of the stream in that version.
    fn send_data(&self, from: u32, to: u32, version: usize) {
        let (from, to) = (from.min(LEN), to.min(LEN));
        self.sent.set(self.sent.get().max(to));
        self.send(Segment {
            sequence: FIRST.wrapping_add(from),
            flags: ACK,
            payload: &self.contents[version][from as usize..to as usize],
            ..Segment::default()
        });
    }

    /// The next segment from the user, if one arrives within a tick.
    fn receive(&self) -> Option<Received> {
        let mut buffer = [0; 2048];
        let len = (&self.socket).read(&mut buffer).ok()?;
        let header = usize::from(buffer[0] & 15) * 4;
        let tcp = &buffer[header..len];
        let word = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().unwrap());
        let is_ours = buffer[12..16] == USER.octets() && tcp[2..4] == PORT.to_be_bytes();
        is_ours.then(|| Received {
            port: u16::from_be_bytes([tcp[0], tcp[1]]),
            sequence: word(4),
            acknowledgment: word(8),
            flags: tcp[13],
        })
    }

    /// Sends the whole stream: some of it twice with different contents, some of it late.
    fn send_all(&self) {
        let start = Instant::now();
        let (mut acked, mut next, mut duplicates, mut version) = (0, 0, 0, 0);
        while acked < LEN {
            assert!(
                start.elapsed() < PATIENCE,
                "{acked} of {LEN} were acknowledged"
            );
            while next < LEN && next < acked + 40_000 {
                // In the first third, one segment in ten is sent only when it is missed; later on,
                // late segments use another link.
                if next > LEN / 3 || !(next / 1000).is_multiple_of(10) {
                    let large = self.fragments && (next / 1000).is_multiple_of(4);
                    self.send_data(next, next + if large { 3000 } else { 1000 }, 0);
                }
                if (next / 1000) % 3 == 2 {
                    self.send_data(next - 500, next + 500, 1);
                }
                next += 1000;
            }
            let received = self.receive().filter(|segment| segment.flags & ACK != 0);
            let number = received.map(|segment| segment.acknowledgment.wrapping_sub(FIRST));
            if let Some(number) = number {
                let sent = self.sent.get();
                assert!(number <= sent, "{number} is acknowledged, {sent} were sent");
            }
            match number {
                Some(number) if number > acked => (acked, duplicates) = (number, 0),
                Some(_) => duplicates += 1,
                None => duplicates = 3,
            }
            if duplicates >= 3 {
                // Starts before the missing bytes, as senders do that change their segment
                // boundaries.
                version ^= 1;
                let from = acked.saturating_sub(300);
                self.send_data(from, from + 1000, version);
                duplicates = 0;
            }
        }
    }

    /// Ends the connection, with retransmissions.
    fn end(&self, user: &JoinHandle<Vec<u8>>) {
        let start = Instant::now();
        while !user.is_finished() {
            assert!(start.elapsed() < PATIENCE, "the user does not see the end");
            self.send(Segment {
                sequence: FIRST.wrapping_add(LEN),
                flags: FIN | ACK,
                ..Segment::default()
            });
            self.receive();
        }
    }
}

struct Received {
    port: u16,
    sequence: u32,
    acknowledgment: u32,
    flags: u8,
}

#[test]
fn data_retransmitted_with_other_content_arrives_as_one_of_the_two() {
    one_of_two_contents_arrives(false);
}

/// The node cannot parse fragments: it forwards them, and sees a flow with gaps that
/// acknowledgments cover.
#[test]
fn a_partly_fragmented_flow_arrives_complete() {
    one_of_two_contents_arrives(true);
}

fn one_of_two_contents_arrives(fragments: bool) {
    for mode in MODES {
        let lines = format!("mode = \"{mode}\"\nsteering = \"roundrobin\"");
        let Some(edge) = Edge::start(&lines, "") else {
            return;
        };
        // The kernel does not know the connection.
        let rules = "table ip quiet { chain out { type filter hook output priority 0; tcp sport 9 tcp flags rst drop\n}\n}\n";
        edge.bench.write("quiet.nft", rules);
        edge.bench.run(Side::Server, &["nft", "-f", "quiet.nft"]);
        let raw = raw_socket(&edge.bench, Side::Server);
        let socket = tcp_socket(&edge.bench, Side::Client);
        let user = thread::spawn(move || {
            let to = SocketAddr::from((NODE, PORT));
            socket.connect_timeout(&to.into(), PATIENCE).unwrap();
            take(&socket.into(), u64::MAX)
        });
        let server = TwoVersions::accept(raw, fragments);
        server.send_all();
        server.end(&user);
        let received = user.join().unwrap();
        let plain: Vec<u8> = received.iter().map(|byte| byte & !VERSION).collect();
        assert!(
            plain == server.contents[0],
            "{mode}: neither the one nor the other"
        );
        for version in &server.contents {
            let of_it = received.iter().zip(version).filter(|(a, b)| a == b).count();
            assert!(of_it > 1000, "{mode}: {of_it} bytes");
        }
        let status = edge.status("node");
        assert_eq!(count(&status, "/core/resets"), 0, "{status}");
        if fragments {
            let reassembled = edge
                .bench
                .run(Side::Client, &["nstat", "-asz", "IpReasmOKs"]);
            let reassembled = reassembled.split_whitespace().nth(2).unwrap();
            assert!(reassembled.parse::<u32>().unwrap() > 20, "{reassembled}");
        }
        if mode == "lwip+visible" {
            assert!(count(&status, "/core/boosted") > 0, "{status}");
            // Late packets are held, not repaired: nothing is lost here.
            assert!(count(&status, "/core/held") > 0, "{status}");
        }
        let expected = edge.offer(1_000_000);
        assert!(edge.curl().wait().unwrap().success(), "{mode}");
        assert_eq!(edge.copy(), expected, "{mode}");
        edge.stop();
    }
}
