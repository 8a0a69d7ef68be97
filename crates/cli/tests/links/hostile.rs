//! Malicious peers against a server that serves a download of an honest client. Each attack is
//! answered or cut, causes one line of the log, and does not affect the honest client.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use rustls::client::ResolvesClientCert;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, SignatureScheme};
use sumlink_engine::frame::{Ack, Frame, RefuseCode, VERSION};
use sumlink_lab::Side;
use sumlink_transport::SecretKey;

use crate::bond::{Bond, Plan};
use crate::peer::{Answer, Peer, dial, encode, hello, tls_config};
use sumlink_test_support::emulated::traffic::{Pattern, Transfer};
use sumlink_test_support::emulated::until;

const LINKS: [&str; 2] = ["a:rate=16mbit,delay=2ms", "b:rate=16mbit,delay=4ms"];

/// A session id of the attacker.
const SESSION: [u8; 16] = [0x5a; 16];

/// A server with an honest client that downloads, and an attacker with an authorized key.
struct Scene {
    bond: Bond,
    good: Transfer,
    /// The attacker's TLS configuration.
    config: Arc<ClientConfig>,
    session: String,
}

impl Scene {
    fn new() -> Option<Self> {
        let plan = Plan::new(&LINKS).memory("8MiB", "4MiB");
        let bench = plan.bench()?;
        let offender = bench.key("offender.key");
        let tables = format!(
            "[[client]]\nkey = \"{offender}\"\nname = \"offender\"\n[limits]\nhalf_open = 16\n"
        );
        let bond = plan.server_tables(&tables).start_on(bench);
        bond.until_active(&["a", "b"]);
        let key = SecretKey::load(&bond.bench.path("offender.key")).unwrap();
        let config = tls_config(&bond.bench, &key);
        let good = Transfer::download(&bond.bench, "10.99.0.1:8080".parse().unwrap());
        good.goes_on(100_000);
        let session = bond.status(Side::Client).session;
        Some(Self {
            bond,
            good,
            config,
            session,
        })
    }

    fn join(&self, session: [u8; 16], new: bool, path: u64) -> (Peer, Answer) {
        Peer::join(&self.bond.bench, &self.config, session, new, path)
    }

    /// Checks that the honest client's download has continued and is complete.
    fn end(self) {
        self.good.goes_on(1_000_000);
        let now = self.bond.status(Side::Client);
        assert_eq!(
            now.session, self.session,
            "the good client's session was lost"
        );
        assert_eq!(
            now.paths
                .iter()
                .filter(|path| path.state == "active")
                .count(),
            2
        );
        self.good.finish();
        self.bond.stop();
    }

    /// Waits until the server has reported this number of refused connections, and no more.
    #[track_caller]
    fn refused(&self, times: usize) {
        let server = &self.bond.server;
        until(&format!("{times} refused connections are reported"), || {
            (refused(&server.log()) >= times).then_some(())
        });
        assert_eq!(refused(&server.log()), times, "{}", server.log());
    }

    /// Waits until the server's log has this number of lines with the words, and no more.
    #[track_caller]
    fn logged(&self, words: &str, times: usize) {
        let server = &self.bond.server;
        until(&format!("'{words}' is logged {times} times"), || {
            (server.lines_with(words) >= times).then_some(())
        });
        assert_eq!(server.lines_with(words), times, "{}", server.log());
    }
}

/// Number of refused connections without a key in a server's log: one line each, or a suppressed
/// line.
fn refused(log: &str) -> usize {
    let lines = log
        .lines()
        .map(|line| match line.split_once("suppressed=") {
            Some((_, rest)) => {
                let number = rest.split(|c: char| !c.is_ascii_digit()).next();
                number.unwrap().parse().unwrap()
            }
            None if line.contains("connection refused") => 1,
            None if line.contains("too many connections without a key") => 1,
            None => 0,
        });
    lines.sum()
}

/// Reads until the other end closes, and ignores the data.
fn drain(mut stream: TcpStream) {
    let _ = stream.read_to_end(&mut Vec::new());
}

#[test]
fn garbage_instead_of_tls_is_cut() {
    let Some(scene) = Scene::new() else { return };
    let garbage: [&[u8]; 6] = [
        &Pattern::bytes(3, 4096),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\xff\xff\x01",
        // A ClientHello that claims to be 16 MB long.
        b"\x16\x03\x01\x00\x05\x01\xff\xff\xff\x03",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        &[0; 1000],
    ];
    for bytes in garbage {
        let mut stream = dial(&scene.bond.bench);
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        drain(stream);
    }
    // And one that sends nothing.
    drop(dial(&scene.bond.bench));
    scene.refused(garbage.len() + 1);
    scene.end();
}

/// A client without a key.
#[derive(Debug)]
struct Keyless;

impl ResolvesClientCert for Keyless {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

#[test]
fn tls_with_a_wrong_key_no_key_or_another_protocol_is_refused() {
    let Some(scene) = Scene::new() else { return };
    let bench = &scene.bond.bench;
    let stranger = tls_config(bench, &SecretKey::generate().unwrap());
    let mut keyless = (*scene.config).clone();
    keyless.client_auth_cert_resolver = Arc::new(Keyless);
    let mut other = (*scene.config).clone();
    other.alpn_protocols = vec![b"sumlink/99".to_vec()];
    let mut none = (*scene.config).clone();
    none.alpn_protocols.clear();
    let configs = [stranger, Arc::new(keyless), Arc::new(other), Arc::new(none)];
    for config in configs {
        // In TLS 1.3 a client learns of a refusal after its own part of the handshake.
        if let Ok(mut peer) = Peer::new(bench, config) {
            let _ = peer.send(&hello(VERSION, true, SESSION, 0));
            assert_eq!(peer.next(), Answer::End);
        }
    }
    scene.refused(4);
    assert_eq!(scene.bond.sessions(Side::Server).len(), 1);
    scene.end();
}

#[test]
fn a_bad_first_frame_is_refused_with_its_reason() {
    let Some(scene) = Scene::new() else { return };
    let bench = &scene.bond.bench;
    let refuse = |code: RefuseCode| Answer::Refuse { code: code.code() };
    let mut wrong_length = hello(VERSION, true, SESSION, 0);
    wrong_length.truncate(8);
    wrong_length[1] = 6;
    let firsts = [
        (hello(VERSION + 1, true, SESSION, 0), RefuseCode::Version),
        (hello(1 << 60, true, SESSION, 0), RefuseCode::Version),
        (hello(VERSION, true, SESSION, 1 << 40), RefuseCode::Protocol),
        (encode(&Frame::Ping { token: 1 }), RefuseCode::Protocol),
        (
            encode(&Frame::Welcome { version: VERSION }),
            RefuseCode::Protocol,
        ),
        (wrong_length, RefuseCode::Protocol),
        // A length beyond all bounds, an unknown type, and more than a first frame may have.
        (
            vec![0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            RefuseCode::Protocol,
        ),
        (vec![0x3f, 0x00], RefuseCode::Protocol),
        (
            [&[0x01, 0x7f, 0xff][..], &[0; 3000]].concat(),
            RefuseCode::Protocol,
        ),
    ];
    let count = firsts.len();
    for (first, code) in firsts {
        let mut peer = Peer::new(bench, Arc::clone(&scene.config)).unwrap();
        peer.send(&first).unwrap();
        assert_eq!(peer.next(), refuse(code), "{first:02x?}");
        assert_eq!(peer.next(), Answer::End);
    }
    scene.refused(count);

    // The greeting, cut at every byte.
    let whole = hello(VERSION, true, SESSION, 0);
    for len in 0..whole.len() {
        let mut peer = Peer::new(bench, Arc::clone(&scene.config)).unwrap();
        peer.send(&whole[..len]).unwrap();
    }
    scene.refused(count + whole.len());
    assert_eq!(scene.bond.sessions(Side::Server).len(), 1);
    scene.end();
}

#[test]
fn a_session_is_opened_once_and_joined_only_by_its_client() {
    let Some(scene) = Scene::new() else { return };
    let refuse = |code: RefuseCode| Answer::Refuse { code: code.code() };
    let mut good = [0; 16];
    for (byte, hex) in good.iter_mut().zip(scene.session.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(hex).unwrap(), 16).unwrap();
    }
    let (_, answer) = scene.join(good, false, 9);
    assert_eq!(answer, refuse(RefuseCode::NoSuchSession));
    let (_, answer) = scene.join(SESSION, false, 0);
    assert_eq!(answer, refuse(RefuseCode::NoSuchSession));

    let (mut mine, answer) = scene.join(SESSION, true, 0);
    assert_eq!(answer, Answer::Welcome);
    let (_, answer) = scene.join(SESSION, true, 1);
    assert_eq!(answer, refuse(RefuseCode::SessionExists));
    // The same id names another session for another key.
    let (_same_id, answer) = scene.join(good, true, 0);
    assert_eq!(answer, Answer::Welcome);
    // A path's number is used once.
    let (mut twice, answer) = scene.join(SESSION, false, 0);
    assert_eq!(answer, Answer::Welcome);
    assert_eq!(twice.next(), Answer::End);
    // The refusals have not affected the attacker's own session either.
    mine.send(&encode(&Frame::Ping { token: 77 })).unwrap();
    assert_eq!(mine.next(), Answer::Pong { token: 77 });

    // Sessions of one client are limited; other clients are not affected.
    let mut held = Vec::new();
    let refused = loop {
        let mut id = SESSION;
        id[0] = held.len() as u8;
        let (peer, answer) = scene.join(id, true, 0);
        if answer != Answer::Welcome {
            break answer;
        }
        held.push(peer);
        assert!(held.len() < 100, "no limit");
    };
    assert_eq!(refused, refuse(RefuseCode::Limit));
    scene.end();
}

/// One frame of every kind that may follow the greeting.
fn every_kind() -> Vec<Frame<'static>> {
    let ranges = vec![20..30, 40..50];
    vec![
        Frame::Open {
            stream: 0,
            class: 1,
            target: b"\x01\x0a\x63\x00\x01\x00\x50",
        },
        Frame::Accept { stream: 1 },
        Frame::Data {
            stream: 0,
            offset: 70_000,
            data: b"0123456789",
        },
        Frame::Fin {
            stream: 0,
            size: 100_000,
        },
        Frame::Reset {
            stream: 0,
            code: 3,
            size: 100,
        },
        Frame::Ack(Ack {
            stream: 0,
            complete: false,
            cumulative: 10,
            ranges,
        }),
        Frame::CreditSession { limit: 1 << 30 },
        Frame::CreditStream {
            stream: 0,
            limit: 1 << 30,
        },
        Frame::CreditInitial { limit: 1 << 20 },
        Frame::CreditStreams { limit: 1 << 10 },
        Frame::Ping { token: 1 << 40 },
        Frame::Pong { token: 1 << 40 },
        Frame::Path {
            path: 0,
            received: 1 << 20,
        },
        Frame::Close {
            code: 9,
            reason: b"enough",
        },
    ]
}

#[test]
fn a_frame_cut_at_any_byte_closes_only_its_path() {
    let Some(scene) = Scene::new() else { return };
    let (mut first, answer) = scene.join(SESSION, true, 0);
    assert_eq!(answer, Answer::Welcome);
    let mut path = 0;
    for frame in every_kind() {
        let whole = encode(&frame);
        for len in 1..whole.len() {
            path += 1;
            let (mut cut, answer) = scene.join(SESSION, false, path);
            assert_eq!(answer, Answer::Welcome, "{frame:?} after {len} bytes");
            cut.send(&whole[..len]).unwrap();
        }
    }
    first.send(&encode(&Frame::Ping { token: 5 })).unwrap();
    assert_eq!(first.next(), Answer::Pong { token: 5 });
    assert_eq!(scene.bond.server.lines_with("broke the protocol"), 0);
    scene.end();
}

#[test]
fn a_broken_frame_closes_the_session_of_its_sender() {
    let Some(scene) = Scene::new() else { return };
    let stream = |frames: &[Frame<'_>]| frames.iter().flat_map(encode).collect::<Vec<u8>>();
    let open = Frame::Open {
        stream: 0,
        class: 0,
        target: b"\x01\x0a\x63\x00\x01\x00\x50",
    };
    const END: u64 = (1 << 62) - 1;
    let offences = [
        (
            "a length beyond the limit",
            vec![0x06, 0x80, 0xff, 0xff, 0xff],
        ),
        ("a type that does not exist", vec![0x3e, 0x00]),
        ("an empty frame that must not be", vec![0x06, 0x00]),
        ("a second greeting", hello(VERSION, true, SESSION, 0)),
        (
            "the server's own greeting",
            encode(&Frame::Welcome { version: VERSION }),
        ),
        (
            "a stream of the server's",
            stream(&[Frame::Open {
                stream: 1,
                class: 0,
                target: b"x",
            }]),
        ),
        (
            "a stream beyond the limit",
            stream(&[Frame::Open {
                stream: 1 << 40,
                class: 0,
                target: b"x",
            }]),
        ),
        (
            "a class that does not exist",
            vec![0x04, 0x03, 0x00, 0x09, 0x00],
        ),
        (
            "data beyond a stream's credit",
            stream(&[
                open.clone(),
                Frame::Data {
                    stream: 0,
                    offset: 5 << 20,
                    data: b"x",
                },
            ]),
        ),
        (
            "data at the end of all offsets",
            stream(&[
                open.clone(),
                Frame::Data {
                    stream: 0,
                    offset: END,
                    data: b"x",
                },
            ]),
        ),
        (
            "an end before what was sent",
            stream(&[
                open.clone(),
                Frame::Data {
                    stream: 0,
                    offset: 0,
                    data: b"0123456789",
                },
                Frame::Fin { stream: 0, size: 3 },
            ]),
        ),
        (
            "an answer to what was never sent",
            stream(&[
                open.clone(),
                Frame::Ack(Ack {
                    stream: 0,
                    complete: false,
                    cumulative: END,
                    ranges: Vec::new(),
                }),
            ]),
        ),
        (
            "a report about more than was sent",
            stream(&[Frame::Path {
                path: 0,
                received: END,
            }]),
        ),
    ];
    for (number, (offence, bytes)) in offences.iter().enumerate() {
        let mut id = SESSION;
        id[0] = number as u8;
        let (mut peer, answer) = scene.join(id, true, 0);
        assert_eq!(answer, Answer::Welcome, "{offence}");
        peer.send(bytes).unwrap();
        let answer = peer.next();
        assert!(
            matches!(answer, Answer::Close { .. }),
            "{offence}: {answer:?}"
        );
        assert_eq!(peer.next(), Answer::End, "{offence}");
        until(&format!("{offence} is reported"), || {
            (scene.bond.server.lines_with("broke the protocol") > number).then_some(())
        });
    }
    scene.logged("broke the protocol", offences.len());
    until("the offender's sessions are gone", || {
        (scene.bond.sessions(Side::Server).len() == 1).then_some(())
    });
    scene.end();
}

#[test]
fn connections_without_a_proved_key_are_limited_and_cut() {
    let Some(scene) = Scene::new() else { return };
    let bench = &scene.bond.bench;
    let held: Vec<TcpStream> = (0..16 + 20).map(|_| dial(bench)).collect();
    // Each connection beyond the limit replaces the oldest.
    scene.refused(20);
    scene.good.goes_on(500_000);
    // A connection that proves a key does so too, and then frees its slot.
    let (mut peer, answer) = scene.join(SESSION, true, 0);
    assert_eq!(answer, Answer::Welcome);
    scene.refused(21);
    // The others are closed after a timeout.
    held.into_iter().for_each(drain);
    scene.refused(16 + 20);
    peer.send(&encode(&Frame::Ping { token: 1 })).unwrap();
    assert_eq!(peer.next(), Answer::Pong { token: 1 });
    scene.end();
}
