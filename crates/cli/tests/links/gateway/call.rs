//! A telephone call by SIP and RTP (RFC 3261, RFC 3550), as far as gateways break it: requests from
//! port 5060, answers from the address that was asked, and speech both ways on agreed ports.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use sumlink_lab::Side;
use sumlink_test_support::emulated::Bench;

use super::{CAPTURES, V4, V6, lan};

const SIP: u16 = 5060;
/// Speech in each direction, in frames of 20 ms, and their length with the RTP header.
const FRAMES: u16 = 150;
const FRAME: Duration = Duration::from_millis(20);
const LENGTH: usize = 172;
/// Time after which a request is repeated (RFC 3261, timer T1).
const REPEAT: Duration = Duration::from_millis(500);
/// Longest wait for an answer, and for the first frame.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time for frames on their way when an end stops to speak.
const LAST: Duration = Duration::from_secs(1);
/// Pause in which an end listens.
const LISTEN: Duration = Duration::from_millis(4);

/// Sends frames to `peer`, or to the sender of the first one, and counts the different ones that
/// arrive.
fn talk(socket: &UdpSocket, mut peer: Option<SocketAddr>) -> usize {
    socket.set_read_timeout(Some(LISTEN)).unwrap();
    let waiting = Instant::now();
    let mut begun = peer.map(|_| waiting);
    let (mut sent, mut heard, mut buffer) = (0, HashSet::new(), [0; 2048]);
    let mut last = waiting;
    loop {
        if let (Some(to), Some(begun)) = (peer, begun) {
            while sent < FRAMES && begun.elapsed() >= FRAME * sent.into() {
                let mut frame = [0; LENGTH];
                frame[0] = 0x80;
                frame[2..4].copy_from_slice(&sent.to_be_bytes());
                let _ = socket.send_to(&frame, to);
                (sent, last) = (sent + 1, Instant::now());
            }
            if sent == FRAMES && (heard.len() == usize::from(FRAMES) || last.elapsed() > LAST) {
                return heard.len();
            }
        }
        assert!(begun.is_some() || waiting.elapsed() < PATIENCE, "no speech");
        if let Ok((length, from)) = socket.recv_from(&mut buffer) {
            assert_eq!((length, buffer[0]), (LENGTH, 0x80));
            heard.insert([buffer[2], buffer[3]]);
            peer.get_or_insert(from);
            begun.get_or_insert_with(Instant::now);
        }
    }
}

/// The called end: frames heard, and the sources of the requests.
fn answer(sip: &UdpSocket, rtp: &UdpSocket) -> io::Result<(usize, HashSet<SocketAddr>)> {
    let (mut buffer, mut sources) = ([0; 2048], HashSet::new());
    loop {
        let (length, from) = sip.recv_from(&mut buffer)?;
        sources.insert(from);
        let request = String::from_utf8_lossy(&buffer[..length]).into_owned();
        if request.starts_with("INVITE") {
            sip.send_to(b"SIP/2.0 100 Trying\r\n", from)?;
            let port = rtp.local_addr()?.port();
            let ok = format!("SIP/2.0 200 OK\r\n\r\nm=audio {port} RTP/AVP 0\r\n");
            sip.send_to(ok.as_bytes(), from)?;
            return Ok((talk(rtp, None), sources));
        }
        sip.send_to(b"SIP/2.0 200 OK\r\n\r\n", from)?;
    }
}

/// Sends a request until an answer with `word` arrives from the same address.
fn request(sip: &UdpSocket, request: &str, word: &str) -> String {
    sip.set_read_timeout(Some(REPEAT)).unwrap();
    let begun = Instant::now();
    let mut buffer = [0; 2048];
    while begun.elapsed() < PATIENCE {
        sip.send(request.as_bytes()).unwrap();
        while let Ok(length) = sip.recv(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if text.contains(word) {
                return text;
            }
        }
    }
    panic!("no answer to {request}");
}

fn bind(bench: &Bench, side: Side, address: SocketAddr) -> UdpSocket {
    let bind = move || UdpSocket::bind(address).unwrap();
    let socket = bench.lab.run(side, bind).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// A call from one side to an address of the internet host: frames heard there, and here.
fn call(bench: &Bench, side: Side, to: IpAddr) -> [usize; 2] {
    let any: IpAddr = match to {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let at = |side, ip, port| bind(bench, side, SocketAddr::new(ip, port));
    let (sip, rtp) = (at(Side::Internet, to, SIP), at(Side::Internet, to, 0));
    let called = thread::spawn(move || answer(&sip, &rtp).unwrap());
    let (sip, rtp) = (at(side, any, SIP), at(side, any, 0));
    // A connected socket hears nothing from other addresses and ports.
    let connect = move |socket: UdpSocket, port| {
        socket.connect(SocketAddr::new(to, port)).unwrap();
        socket
    };
    let sip = bench.lab.run(side, move || connect(sip, SIP)).unwrap();
    request(&sip, "REGISTER sip:example.test SIP/2.0\r\n\r\n", "200 OK");
    let invite = "INVITE sip:someone@example.test SIP/2.0\r\n\r\n";
    let agreed = request(&sip, invite, "m=audio");
    let port = agreed.split("m=audio ").nth(1).unwrap();
    let port = port.split(' ').next().unwrap().parse().unwrap();
    let rtp = bench.lab.run(side, move || connect(rtp, port)).unwrap();
    let heard = talk(&rtp, rtp.peer_addr().ok());
    let (there, sources) = called.join().unwrap();
    assert_eq!(sources.len(), 1, "requests from several addresses");
    [there, heard]
}

#[test]
fn a_call_from_the_lan_and_one_from_the_gateway_are_heard_at_both_ends() {
    let Some(mut lan) = lan() else { return };
    for capture in CAPTURES {
        lan.up(&format!("capture = \"{capture}\"\n"));
        let calls = thread::scope(|scope| {
            let bench = &lan.bench;
            let calls = [(Side::Lan, V4), (Side::Client, V6)];
            calls
                .map(|(side, to)| scope.spawn(move || call(bench, side, to.parse().unwrap())))
                .map(|call| call.join().unwrap())
        });
        eprintln!("{capture}: of {FRAMES} frames, [there, back] arrived: {calls:?}");
        // A busy machine delays frames; it does not lose a direction.
        let least = usize::from(FRAMES) * 9 / 10;
        for call in calls {
            assert!(call.iter().all(|heard| *heard >= least), "{calls:?}");
        }
        assert_eq!(lan.end_gateway(), Some(0));
    }
}
