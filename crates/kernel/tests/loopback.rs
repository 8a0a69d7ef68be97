//! Every congestion control on this machine's kernel: loaded, chosen by a socket that moves bytes,
//! and unloaded.
//!
//! These tests need root and Linux 6.4 or later and fail without, unless `SUMLINK_SKIP_BPF=1` is
//! set. Names of congestion controls are unique per system, so the tests run one at a time.

#![allow(clippy::print_stderr, reason = "a test")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::ProgramType;
use libbpf_rs::query::{MapInfoIter, ProgInfoIter};
use nix::mount::MsFlags;
use nix::sched::{CloneFlags, unshare};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use sumlink_congestion::Settings;
use sumlink_kernel::{
    Bonds, Error, Filter, Group, MAX_SIBLINGS, Missing, Pins, Record, TWINS, Trace, Twin, keep,
    load, loaded, probe,
};

const BYTES: usize = 10_000_000;

/// Time limit for any operation of the kernel.
const PATIENCE: Duration = Duration::from_secs(60);

static TURN: Mutex<()> = Mutex::new(());

/// The lock for running one test at a time; `None` if these tests are skipped.
fn turn() -> Option<MutexGuard<'static, ()>> {
    if std::env::var_os("SUMLINK_SKIP_BPF").is_some_and(|value| value == "1") {
        eprintln!("skipped because SUMLINK_SKIP_BPF=1");
        return None;
    }
    let missing = probe();
    let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
    assert!(
        missing.is_empty(),
        "{}; set SUMLINK_SKIP_BPF=1 to leave these tests out",
        missing.join("; ")
    );
    Some(TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

fn load_plain(name: &str, bonds: &Bonds) -> sumlink_kernel::Loaded {
    match load(name, &Settings::default(), bonds) {
        Ok(loaded) => loaded,
        Err(Error::Refused { log, source, .. }) => panic!("{name}: {source}\n{log}"),
        Err(error) => panic!("{name}: {error}"),
    }
}

fn choose(socket: &TcpStream, name: &str) -> io::Result<()> {
    SockRef::from(socket).set_tcp_congestion(name.as_bytes())
}

fn chosen(socket: &TcpStream) -> String {
    let name = SockRef::from(socket).tcp_congestion().expect("a name");
    let name = String::from_utf8(name).expect("ASCII");
    name.trim_end_matches('\0').to_owned()
}

/// A connection over loopback: the connecting and the accepting end.
fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let connected = TcpStream::connect(listener.local_addr().expect("bound")).expect("loopback");
    (connected, listener.accept().expect("a connection").0)
}

/// A byte there and one back, which carries the acknowledgment.
fn exchange(mut from: &TcpStream, mut to: &TcpStream) {
    from.write_all(b"x").expect("writes");
    to.read_exact(&mut [0]).expect("reads");
    to.write_all(b"y").expect("answers");
    from.read_exact(&mut [0]).expect("reads");
}

/// Moves bytes and ends the connection; all of them arrive.
fn transfer((mut from, mut to): (TcpStream, TcpStream)) {
    let reader = thread::spawn(move || io::copy(&mut to, &mut io::sink()).expect("reads"));
    from.write_all(&vec![7; BYTES]).expect("writes");
    from.shutdown(Shutdown::Write).expect("ends");
    assert_eq!(reader.join().expect("the reader"), BYTES as u64);
    assert_eq!(from.read(&mut [0]).expect("the other end"), 0);
}

#[test]
fn each_is_loaded_chosen_moves_bytes_and_is_unloaded() {
    let Some(_turn) = turn() else { return };
    let bonds = Bonds::new().expect("maps");
    for twin in TWINS {
        let name = twin.system_name;
        let guard = load_plain(twin.algorithm, &bonds);
        assert_eq!(guard.twin().system_name, name);
        let sockets = connection();
        choose(&sockets.0, name).expect("it can be chosen");
        assert_eq!(chosen(&sockets.0), name);
        transfer(sockets);
        assert!(
            loaded()
                .expect("a list")
                .iter()
                .any(|one| one.system_name == name)
        );
        drop(guard);
        assert!(
            loaded().expect("a list").is_empty(),
            "{name} is still loaded"
        );
        let (late, _) = connection();
        let error = choose(&late, name).expect_err("it is gone");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}

#[test]
fn a_used_twin_works_until_its_sockets_close_and_is_then_unloaded() {
    let Some(_turn) = turn() else { return };
    let before = Ours::now();
    for twin in TWINS {
        let bonds = Bonds::new().expect("maps");
        let guard = load_plain(twin.algorithm, &bonds);
        let sockets = connection();
        choose(&sockets.0, twin.system_name).expect("it can be chosen");
        drop((guard, bonds));
        assert_eq!(chosen(&sockets.0), twin.system_name);
        let (late, _) = connection();
        choose(&late, twin.system_name).expect_err("it is gone");
        transfer(sockets);
    }
    before.wait_for();
}

#[test]
fn nothing_is_loaded_twice() {
    let Some(_turn) = turn() else { return };
    let bonds = Bonds::new().expect("maps");
    for twin in TWINS {
        let _guard = load_plain(twin.algorithm, &bonds);
        let again = load(twin.system_name, &Settings::default(), &bonds).expect_err("it is loaded");
        assert_eq!(
            again.to_string(),
            format!("{} is already loaded", twin.system_name)
        );
    }
}

#[test]
fn missing_type_information_is_reported_and_nothing_is_loaded() {
    let Some(_turn) = turn() else { return };
    let before = Ours::now();
    let without_btf = || {
        // Only this thread sees an empty folder in place of the kernel's types.
        unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace");
        let none = None::<&str>;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        nix::mount::mount(none, "/", none, private, none).expect("a private mount");
        let btf = "/sys/kernel/btf";
        nix::mount::mount(none, btf, Some("tmpfs"), MsFlags::empty(), none).expect("mounts");
        assert_eq!(probe(), [Missing::Btf]);
        let bonds = Bonds::new().expect("maps need no types");
        for twin in TWINS {
            let error = load(twin.algorithm, &Settings::default(), &bonds).expect_err("no types");
            assert!(matches!(error, Error::Missing(Missing::Btf)), "{error}");
        }
    };
    thread::scope(|scope| scope.spawn(without_btf).join().expect("agrees"));
    assert!(loaded().expect("a list").is_empty());
    before.wait_for();
}

#[test]
fn flows_of_a_group_are_in_the_table_until_they_close() {
    let Some(_turn) = turn() else { return };
    let bonds = Bonds::new().expect("maps");
    let _guard = load_plain("lia", &bonds);
    let group = Group::new(1).expect("a number");
    let pairs: Vec<_> = (0..3).map(|_| connection()).collect();
    for (at, (from, to)) in pairs.iter().enumerate() {
        choose(from, "sl_lia").expect("it can be chosen");
        if at > 0 {
            bonds.join(from, group).expect("joins");
        }
        exchange(from, to);
    }
    assert_eq!(bonds.flows(), 2, "the first one is in no group");
    bonds.leave(&pairs[1].0).expect("leaves");
    bonds.leave(&pairs[0].0).expect_err("it is in no group");
    for pair in pairs {
        transfer(pair);
    }
    assert_eq!(bonds.flows(), 0);
}

#[test]
fn a_thousand_connections_leave_nothing_behind() {
    let Some(_turn) = turn() else { return };
    let before = Ours::now();
    let bonds = Bonds::new().expect("maps");
    let load_one = |twin: &Twin| load_plain(twin.algorithm, &bonds);
    let guards: Vec<_> = TWINS.iter().map(load_one).collect();
    let mut open = Vec::new();
    for (number, twin) in (0..1000u64).zip(TWINS.iter().cycle()) {
        let (from, to) = connection();
        choose(&from, twin.system_name).expect("it can be chosen");
        // More sockets in each group than see each other.
        bonds
            .join(&from, Group::new(1 + number / 20).expect("a number"))
            .expect("joins");
        exchange(&from, &to);
        open.push((from, to));
        if open.len() == 40 {
            assert_eq!(bonds.flows(), 2 * MAX_SIBLINGS);
            open.clear();
            assert_eq!(bonds.flows(), 0);
        }
    }
    assert_ne!(Ours::now(), before);
    drop((guards, bonds));
    before.wait_for();
}

/// Maps and programs of twins in the kernel, by their numbers.
#[derive(Debug, PartialEq)]
struct Ours(BTreeSet<(String, u32)>);

impl Ours {
    fn now() -> Self {
        let maps = MapInfoIter::default().map(|map| (map.name, map.id));
        let programs = ProgInfoIter::default()
            .filter(|program| program.ty == ProgramType::StructOps)
            .map(|program| (program.name, program.id));
        // Programs have the names of the kernel's functions for congestion controls; shared maps
        // begin with sl_.
        let functions = ["init", "release", "cong_avoid", "ssthresh", "pkts_acked"];
        let all = maps
            .chain(programs)
            .map(|(name, id)| (name.to_string_lossy().into_owned(), id));
        let is_ours = |name: &str| name.starts_with("sl_") || functions.contains(&name);
        Self(all.filter(|(name, _)| is_ours(name)).collect())
    }

    /// Waits until only the recorded objects are left. The kernel frees maps and programs once no
    /// other processor can use them.
    fn wait_for(&self) {
        let start = Instant::now();
        loop {
            let now = Self::now();
            let stay: Vec<_> = now.0.difference(&self.0).collect();
            if stay.is_empty() {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{stay:?} stay");
            thread::yield_now();
        }
    }
}

#[test]
fn each_makes_mptcp_subflows_siblings_and_is_unloaded() {
    let Some(_turn) = turn() else { return };
    let before = Ours::now();
    for twin in TWINS {
        let bonds = Bonds::new().expect("maps");
        let guard = load_plain(twin.algorithm, &bonds);
        thread::scope(|scope| {
            let transfer = scope.spawn(|| transfer_over_two_subflows(twin.system_name, &bonds));
            transfer.join().expect("bytes arrive over two subflows");
        });
        let start = Instant::now();
        while bonds.flows() > 0 {
            let flows = bonds.flows();
            assert!(start.elapsed() < PATIENCE, "{flows} flows stay");
            thread::yield_now();
        }
        drop(guard);
        assert!(loaded().expect("a list").is_empty(), "{}", twin.algorithm);
    }
    before.wait_for();
}

/// Runs in a new network namespace, which ends with the calling thread.
fn transfer_over_two_subflows(congestion: &str, bonds: &Bonds) {
    unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
    // Seconds for which a closed connection keeps its subflows.
    fs::write("/proc/sys/net/mptcp/close_timeout", "1").expect("a sysctl of Linux 6.5");
    ip("link set lo up");
    ip("mptcp limits set subflow 1 add_addr_accepted 1");
    ip("mptcp endpoint add 127.0.0.2 dev lo subflow");
    let socket = || Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).expect("MPTCP");
    let (listener, connected) = (socket(), socket());
    listener
        .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
        .expect("a port");
    listener.listen(1).expect("listens");
    connected
        .set_tcp_congestion(congestion.as_bytes())
        .expect("it can be chosen");
    connected
        .connect(&listener.local_addr().expect("bound"))
        .expect("loopback");
    let mut from: TcpStream = connected.into();
    let mut to: TcpStream = listener.accept().expect("a connection").0.into();
    let start = Instant::now();
    while bonds.flows() < 2 {
        from.write_all(&[7; 10_000]).expect("writes");
        to.read_exact(&mut [0; 10_000]).expect("reads");
        let flows = bonds.flows();
        assert!(start.elapsed() < PATIENCE, "{flows} flows");
    }
    assert_eq!(bonds.flows(), 2);
    let trace = Trace::start(Filter::Mptcp).expect("traces");
    transfer((from, to));
    let mut records: Vec<Record> = Vec::new();
    trace
        .follow(|record| records.push(record), || false)
        .expect("follows");
    let sent = records
        .iter()
        .filter(|record| record.congestion == congestion);
    let tokens: BTreeSet<_> = sent.clone().map(|record| record.token).collect();
    let sockets: BTreeSet<_> = sent.map(|record| record.socket).collect();
    assert!(tokens.len() == 1 && !tokens.contains(&None), "{tokens:?}");
    assert_eq!(sockets.len(), 2, "both subflows are recorded");
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    assert!(status.expect("ip starts").success(), "ip {arguments}");
}

/// A BPF file system that is unmounted with the test.
struct BpfFs(tempfile::TempDir);

impl BpfFs {
    fn mount() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let flags = MsFlags::empty();
        let none = None::<&str>;
        nix::mount::mount(none, folder.path(), Some("bpf"), flags, none).expect("mounts");
        Self(folder)
    }
}

impl Drop for BpfFs {
    fn drop(&mut self) {
        nix::mount::umount(self.0.path()).expect("unmounts");
    }
}

#[test]
fn a_pinned_twin_stays_until_it_is_unloaded() {
    let Some(_turn) = turn() else { return };
    let bpf = BpfFs::mount();
    let folder = bpf.0.path().join("sumlink");
    let pins = Pins::at(&folder);
    let names = || {
        pins.list()
            .iter()
            .map(|twin| twin.algorithm)
            .collect::<Vec<_>>()
    };

    pins.unload("lia").expect_err("nothing is loaded");
    assert!(!folder.exists());
    pins.load("lia", &Settings::default()).expect("loads");
    pins.load("uncoupled", &Settings::default()).expect("loads");
    let again = pins
        .load("lia", &Settings::default())
        .expect_err("it is loaded");
    assert!(
        matches!(again, Error::LoadedAlready { name: "sl_lia" }),
        "{again}"
    );
    let wrong = Settings::default().with("max_cwnd", "1").expect("a number");
    pins.load("lia", &wrong).expect_err("out of range");
    assert_eq!(names(), ["uncoupled", "lia"]);

    // Both share the maps with every process that opens them.
    let bonds = pins.bonds().expect("maps");
    let (from, to) = connection();
    choose(&from, "sl_lia").expect("it can be chosen");
    bonds
        .join(&from, Group::new(9).expect("a number"))
        .expect("joins");
    transfer((from, to));

    pins.unload("lia").expect("unloads");
    assert_eq!(names(), ["uncoupled"]);
    pins.unload("uncoupled").expect("unloads");
    assert!(!folder.exists(), "the folder goes with the last pin");
    assert!(loaded().expect("a list").is_empty());
    let gone = pins.unload("lia").expect_err("nothing is loaded");
    assert!(
        matches!(gone, Error::NotLoaded { name: "sl_lia" }),
        "{gone}"
    );
}

#[test]
fn without_a_bpf_file_system_nothing_is_pinned() {
    let Some(_turn) = turn() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let pins = Pins::at(folder.path().join("sumlink"));
    pins.load("lia", &Settings::default())
        .expect_err("no file system for pins");
    assert_eq!(folder.path().read_dir().expect("a folder").count(), 0);
    assert!(loaded().expect("a list").is_empty());
}

/// Waits until none of the twins is loaded.
fn until_nothing_is_loaded() {
    let start = Instant::now();
    while !loaded().expect("a list").is_empty() {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{:?} stay",
            loaded()
        );
        thread::yield_now();
    }
}

#[test]
fn processes_share_a_twin_until_the_last_one_ends() {
    let Some(_turn) = turn() else { return };
    let first = keep("lia", None).expect("loads");
    let second = keep("sl_lia", None).expect("shares");
    assert_eq!((first.is_own(), second.is_own()), (true, false));
    let group = Group::new(7).expect("a number");
    let pairs = [connection(), connection()];
    for ((from, to), kept) in pairs.iter().zip([&first, &second]) {
        choose(from, "sl_lia").expect("it can be chosen");
        kept.join(from, group).expect("joins");
        exchange(from, to);
    }
    assert_eq!((first.flows(), second.flows()), (2, 2));
    drop(first);
    assert_eq!(
        loaded().expect("a list").len(),
        1,
        "the second one keeps it"
    );
    let other = keep("olia", Some(&second)).expect("loads");
    assert_eq!(other.flows(), 2, "both share the table of flows");
    drop((second, other, pairs));
    until_nothing_is_loaded();
}

#[test]
fn a_kept_twin_outlives_its_pin() {
    let Some(_turn) = turn() else { return };
    let bpf = BpfFs::mount();
    let pins = Pins::at(bpf.0.path().join("sumlink"));
    pins.load("lia", &Settings::default()).expect("loads");
    let kept = keep("lia", None).expect("shares");
    assert!(!kept.is_own());
    assert!(!pins.unload("lia").expect("unpins"), "it is still there");
    assert_eq!(loaded().expect("a list").len(), 1);
    drop(kept);
    until_nothing_is_loaded();
}

/// The records of a trace of a transfer.
fn traced(filter: impl Fn(&TcpStream) -> Filter) -> (SocketAddr, Vec<Record>) {
    let sockets = connection();
    let trace = Trace::start(filter(&sockets.0)).unwrap_or_else(|error| match error {
        Error::Refused { log, .. } => panic!("{log}"),
        error => panic!("{error}"),
    });
    let address = sockets.0.local_addr().expect("bound");
    // Read concurrently: a fast loopback has more acknowledgments than fit the buffer.
    let (mut records, moving) = (Vec::new(), thread::spawn(move || transfer(sockets)));
    trace
        .follow(|record| records.push(record), || !moving.is_finished())
        .expect("follows");
    moving.join().expect("the transfer");
    assert_eq!(trace.lost(), 0);
    (address, records)
}

#[test]
fn a_trace_has_exactly_the_acknowledgments_of_a_port() {
    let Some(_turn) = turn() else { return };
    let (address, records) =
        traced(|socket| Filter::Port(socket.local_addr().expect("bound").port()));
    let ports = |record: &Record| [record.local.port(), record.remote.port()];
    assert!(
        records
            .iter()
            .all(|record| ports(record).contains(&address.port()))
    );
    let sender: Vec<_> = records
        .iter()
        .filter(|record| record.local == address)
        .collect();
    assert!(sender.len() > 20, "{}", sender.len());
    for pair in sender.windows(2) {
        assert!(pair[0].time <= pair[1].time && pair[0].socket == pair[1].socket);
        assert!(pair[0].delivered <= pair[1].delivered);
    }
    let last = sender.last().expect("some");
    assert!(last.delivered > 0, "{last:?}");
    for record in sender {
        assert!(
            record.cwnd >= 1
                && !record.srtt.is_zero()
                && record.in_flight > 0
                && record.rto > record.srtt,
            "{record:?}"
        );
        assert!(
            record.token.is_none() && !record.congestion.is_empty(),
            "{record:?}"
        );
        assert!(record.time < Duration::from_secs(60), "{record:?}");
    }
}

#[test]
fn a_trace_of_a_process_has_exactly_its_sockets() {
    let Some(_turn) = turn() else { return };
    let (address, records) = traced(|_| Filter::Process(std::process::id()));
    assert!(records.iter().any(|record| record.local == address));
    let mut other = Command::new("sleep")
        .arg("60")
        .spawn()
        .expect("sleep starts");
    let (_, records) = traced(|_| Filter::Process(other.id()));
    assert_eq!(records, []);
    other.kill().and_then(|()| other.wait()).expect("ends");
    let (_, records) = traced(|_| Filter::Mptcp);
    assert_eq!(records, []);
}
