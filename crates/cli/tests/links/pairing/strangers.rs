//! Strangers that guess invitations.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustls::ClientConnection;
use sumlink_engine::frame::{Frame, VERSION};
use sumlink_lab::Side;
use sumlink_test_support::emulated::traffic::Transfer;
use sumlink_test_support::emulated::{Bench, text, until};
use sumlink_transport::{SecretKey, join, tls};

use super::{SOURCE, Scene};
use crate::bond::SERVER;
use crate::peer::tls_config;

/// The first message of a client with an invitation of this secret.
fn client_hello(bench: &Bench, secret: &[u8; 16]) -> Vec<u8> {
    let mut hello = Vec::new();
    connection(bench, secret).write_tls(&mut hello).unwrap();
    hello
}

fn connection(bench: &Bench, secret: &[u8; 16]) -> ClientConnection {
    let mut config = (*tls_config(bench, &SecretKey::generate().unwrap())).clone();
    let tag = join::tag_protocol(&join::tag(secret));
    config.alpn_protocols = vec![tls::JOIN_ALPN.to_vec(), tag];
    ClientConnection::new(Arc::new(config), tls::server_name()).unwrap()
}

/// Processor time of a process, in seconds.
fn processor_time(pid: u64) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let fields: Vec<&str> = fields.split(' ').collect();
    let ticks: f64 = fields[11..13]
        .iter()
        .map(|field| field.parse::<f64>().unwrap())
        .sum();
    ticks / 100.0
}

/// Strangers that guess as fast as the machine can: on the server's machine, so that no link limits
/// them. Dropping it ends them.
struct Flood {
    on: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
}

impl Flood {
    fn new(bench: &Bench) -> Self {
        let (on, count) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
        let hello = client_hello(bench, &[0x5a; 16]);
        let flood = Self {
            on: Arc::clone(&on),
            count: Arc::clone(&count),
        };
        let start = move || {
            for _ in 0..4 {
                let (on, count, hello) = (Arc::clone(&on), Arc::clone(&count), hello.clone());
                thread::spawn(move || {
                    while on.load(Ordering::Relaxed) {
                        count.fetch_add(guess(&hello), Ordering::Relaxed);
                    }
                });
            }
        };
        // Threads stay in the namespace of the thread that starts them.
        bench.lab.run(Side::Server, start).unwrap();
        flood
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.on.store(false, Ordering::Relaxed);
    }
}

/// One guess; the number of answers.
fn guess(hello: &[u8]) -> u64 {
    let Ok(mut tcp) = TcpStream::connect(SERVER) else {
        return 0;
    };
    let _ = tcp.set_read_timeout(Some(Duration::from_secs(5)));
    let answered = tcp
        .write_all(hello)
        .and_then(|()| tcp.read_to_end(&mut Vec::new()));
    answered.is_ok().into()
}

#[test]
fn a_flood_of_guesses_locks_no_client_out() {
    let Some(scene) = Scene::new("") else { return };
    let client = scene.client("laptop");
    let transfer = Transfer::download(&scene.bench, SOURCE.parse().unwrap());
    transfer.goes_on(500_000);
    let pid = scene.asked(&["status"])["pid"].as_u64().unwrap();
    let invitation = scene.invite(&["--name", "second"]);
    let flood = Flood::new(&scene.bench);
    until("the flood is on", || (flood.count() > 2000).then_some(()));
    let (begun, before, used) = (Instant::now(), flood.count(), processor_time(pid));
    transfer.goes_on(2_000_000);
    let guesses = flood.count() - before;
    let each = (processor_time(pid) - used) / guesses as f64;
    let rate = guesses as f64 / begun.elapsed().as_secs_f64();
    println!(
        "{rate:.0} guesses/s, {:.0} us of the server each",
        each * 1e6
    );
    // With the download's own work, of which few guesses on a busy machine have a large part.
    assert!(each < 0.005, "{each} s of processor time for each guess");
    // The first attempt succeeds.
    text(scene.join(&invitation, &["--out", "second.toml"]));
    drop(flood);
    assert_eq!(client.lines_with("session closed"), 0);
    let log = scene.server().log();
    let lines = log
        .lines()
        .filter(|line| line.contains("no open invitation"))
        .count();
    assert!(lines < 200, "{lines} lines");
    drop((transfer, client));
    scene.stop();
}

#[test]
fn all_guesses_get_the_same_answer() {
    let Some(scene) = Scene::new("") else { return };
    let used = scene.invite(&["--name", "used"]);
    text(scene.join(&used, &["--out", "used.toml"]));
    let expired = scene.invite(&["--name", "expired", "--expires", "1s"]);
    thread::sleep(Duration::from_millis(1100));
    let secret = |invitation: &str| {
        let link: sumlink_store::InvitationLink = invitation.parse().unwrap();
        *link.secret.as_bytes()
    };
    let answers = [secret(&used), secret(&expired), [9; 16]].map(|secret| {
        let hello = client_hello(&scene.bench, &secret);
        let mut tcp = crate::peer::dial(&scene.bench);
        tcp.write_all(&hello).unwrap();
        let mut answer = Vec::new();
        tcp.read_to_end(&mut answer).unwrap();
        answer
    });
    assert_eq!(answers[0], [21, 3, 3, 0, 2, 2, 49]);
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    scene.stop();
}

/// An observer of an invited client's first message has its tag, and nothing else.
#[test]
fn a_tag_without_its_secret_reaches_nothing() {
    let Some(scene) = Scene::new("") else { return };
    let invitation = scene.invite(&["--name", "laptop"]);
    let link: sumlink_store::InvitationLink = invitation.parse().unwrap();
    let frames = [
        Frame::Join {
            version: VERSION,
            secret: [0; 16],
        },
        Frame::Join {
            version: VERSION + 1,
            secret: *link.secret.as_bytes(),
        },
        Frame::Ping { token: 1 },
    ];
    for frame in frames {
        let mut tcp = crate::peer::dial(&scene.bench);
        let mut tls = connection(&scene.bench, link.secret.as_bytes());
        while tls.is_handshaking() {
            tls.complete_io(&mut tcp).unwrap();
        }
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        tls.writer().write_all(&bytes).unwrap();
        let mut stream = rustls::Stream::new(&mut tls, &mut tcp);
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let (answer, _) = Frame::decode(&answer).unwrap().unwrap();
        assert!(matches!(answer, Frame::Refuse { .. }), "{answer:?}");
    }
    assert_eq!(scene.sessions(), 0);
    // The invitation still serves its owner.
    text(scene.join(&invitation, &["--out", "laptop.toml"]));
    scene.stop();
}
