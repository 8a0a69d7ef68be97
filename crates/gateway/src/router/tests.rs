//! A router between fake programs, a fake bond, and real sockets on loopback as its local exit.

use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use sumlink_exit::datagram::{DatagramSocket, FlowFailure, PairSocket, Received, pair};
use sumlink_exit::egress::EgressPolicy;
use sumlink_exit::relay::Buffered;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::{TcpListener, UdpSocket};
use tokio::time::timeout;

use super::*;
use crate::rules::{Keep, Mac, Rule};

/// Longer than any step takes; a test that reaches this time has failed.
const LONG: Duration = Duration::from_secs(30);

/// A bond in memory: its streams echo, and the far ends of its sources are kept.
#[derive(Clone, Default)]
struct Bond {
    inside: Arc<Inside>,
}

#[derive(Default)]
struct Inside {
    opened: Mutex<Vec<Target>>,
    sources: Mutex<Vec<PairSocket>>,
    /// Streams are not answered.
    is_silent: Mutex<bool>,
    /// The server has no route to IPv6 addresses.
    has_no_ipv6: Mutex<bool>,
}

impl Opener for Bond {
    type Stream = Buffered<DuplexStream>;

    async fn open(&self, target: Target, _: Option<Class>) -> Result<Self::Stream, OpenError> {
        let is_ipv6 = matches!(target.host, Host::Ip(IpAddr::V6(_)));
        self.inside.opened.lock().unwrap().push(target);
        if is_ipv6 && *self.inside.has_no_ipv6.lock().unwrap() {
            return Err(OpenError::Unreachable);
        }
        if *self.inside.is_silent.lock().unwrap() {
            std::future::pending::<()>().await;
        }
        let (near, far) = tokio::io::duplex(1024);
        tokio::spawn(async move {
            let (mut read, mut write) = tokio::io::split(far);
            tokio::io::copy(&mut read, &mut write).await
        });
        Ok(Buffered::new(near))
    }
}

impl DatagramOpener for Bond {
    type Socket = PairSocket;

    async fn bind(&self, _: Option<Class>) -> Result<PairSocket, OpenError> {
        let (near, far) = pair(64);
        self.inside.sources.lock().unwrap().push(far);
        Ok(near)
    }
}

/// Knows one program, one user and one machine.
#[derive(Debug)]
struct Known;

const PROGRAM: &str = "127.0.0.1:1111";
const MACHINE: &str = "192.168.9.7";

impl Inspector for Known {
    fn owner(&self, _: Protocol, source: SocketAddr, _: SocketAddr) -> Option<Owner> {
        (source.to_string() == PROGRAM).then_some(Owner {
            uid: 1000,
            cgroup: Some(5),
        })
    }

    fn user_name(&self, uid: u32) -> Option<Arc<str>> {
        (uid == 1000).then(|| "alice".into())
    }

    fn cgroup_path(&self, id: u64) -> Option<Arc<str>> {
        (id == 5).then(|| "/user.slice/game.scope".into())
    }

    fn mac(&self, ip: IpAddr) -> Option<Mac> {
        (ip.to_string() == MACHINE).then_some(Mac([2, 0, 0, 0, 0, 1]))
    }
}

struct Bench {
    router: Router<Bond>,
    bond: Bond,
    names: SharedNames,
    is_up: watch::Sender<bool>,
    links: Arc<Mutex<Vec<String>>>,
}

impl Bench {
    fn new(rules: &[&str], without_bond: WithoutBond) -> Self {
        let (bond, names) = (Bond::default(), SharedNames::default());
        let (is_up, up) = watch::channel(true);
        let allowed = "allow 127.0.0.0/8".parse().unwrap();
        let (_, policy) = watch::channel(Arc::new(EgressPolicy::new([allowed])));
        let links = Arc::new(Mutex::new(vec!["lo".to_owned()]));
        let listed = Arc::clone(&links);
        let usable = Arc::new(move || listed.lock().unwrap().clone());
        let local = LocalExits::new(usable, policy, LocalSettings::default());
        let router = Router::new(Parts {
            bond: bond.clone(),
            rules: Rules::new(rules.iter().map(|rule| rule.parse().unwrap()).collect()),
            names: names.clone(),
            local,
            inspector: Arc::new(Known),
            without_bond,
            is_up: up,
        });
        Self {
            router,
            bond,
            names,
            is_up,
            links,
        }
    }

    async fn open(
        &self,
        target: &Target,
    ) -> Result<RouterStream<Buffered<DuplexStream>>, OpenError> {
        timeout(LONG, self.router.open(target.clone(), None))
            .await
            .unwrap()
    }

    /// Opens a stream to an echo; whether it takes the bond.
    async fn takes_bond(&self, target: &Target) -> bool {
        let mut stream = self.open(target).await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        stream.flush().await.unwrap();
        let mut answer = [0; 5];
        timeout(LONG, stream.read_exact(&mut answer))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(&answer, b"hello");
        stream.is_bond()
    }

    async fn source(&self) -> RouterSocket<Bond> {
        self.router.bind(None).await.unwrap()
    }

    /// The far end of the first source over the bond, once it is open.
    fn far(&self) -> PairSocket {
        self.bond
            .inside
            .sources
            .lock()
            .unwrap()
            .pop()
            .expect("a source over the bond")
    }
}

/// A TCP port that echoes.
async fn echo() -> Target {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap().into();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    target
}

/// A UDP port that echoes.
async fn udp_echo() -> Target {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let target = socket.local_addr().unwrap().into();
    tokio::spawn(async move {
        let mut buffer = vec![0; 2048];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            let _ = socket.send_to(&buffer[..length], from).await;
        }
    });
    target
}

fn target(text: &str) -> Target {
    text.parse().unwrap()
}

async fn next(socket: &mut impl DatagramSocket) -> (Target, Received) {
    let mut events = Vec::new();
    let received = timeout(LONG, socket.receive(&mut events, 1)).await;
    assert_eq!(received.expect("an event"), 1);
    events.remove(0)
}

fn datagram(payload: &'static [u8]) -> Received {
    Received::Datagram(Bytes::from_static(payload))
}

/// Lets a source open its exits: nothing arrives.
async fn settle(socket: &mut impl DatagramSocket) {
    let brief = Duration::from_millis(20);
    let nothing = timeout(brief, socket.receive(&mut Vec::new(), 1)).await;
    assert!(nothing.is_err());
}

#[tokio::test]
async fn streams_take_the_way_of_their_rule() {
    let (one, other) = (echo().await, echo().await);
    let direct = format!("port={} direct", one.port);
    let link = format!("port={} link lo", other.port);
    let bench = Bench::new(
        &[
            &direct,
            &link,
            "domain=a.org block",
            "port=9 link no-such-link",
        ],
        WithoutBond::Block,
    );
    assert!(!bench.takes_bond(&one).await);
    assert!(!bench.takes_bond(&other).await);
    assert!(bench.takes_bond(&target("192.0.2.1:80")).await);
    let blocked = bench.open(&target("www.a.org:443")).await;
    assert_eq!(blocked.unwrap_err(), OpenError::NotAllowed);
    let missing = bench.open(&target("127.0.0.1:9")).await;
    assert_eq!(missing.unwrap_err(), OpenError::Unreachable);
    let streams = bench.router.stats().streams;
    assert_eq!((streams.bond, streams.link), (1, 2));
    assert_eq!(
        (streams.direct, streams.blocked, streams.without_bond),
        (1, 1, 0)
    );
    // Without a usable link there is no exit.
    bench.links.lock().unwrap().clear();
    assert_eq!(bench.open(&one).await.unwrap_err(), OpenError::Unreachable);
}

#[tokio::test]
async fn a_refused_connection_stays_refused_over_a_link() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed: Target = listener.local_addr().unwrap().into();
    drop(listener);
    let bench = Bench::new(&["direct"], WithoutBond::Block);
    assert_eq!(bench.open(&closed).await.unwrap_err(), OpenError::Refused);
    // The services of this machine are not among the targets of a local exit.
    let policy = LocalExits::policy();
    assert!(policy.check("192.168.8.1".parse().unwrap(), 80).is_ok());
    assert!(policy.check("fd00::1".parse().unwrap(), 80).is_ok());
    assert!(policy.check("127.0.0.1".parse().unwrap(), 80).is_err());
    assert!(
        policy
            .check("169.254.169.254".parse().unwrap(), 80)
            .is_err()
    );
}

#[tokio::test]
async fn names_of_answers_decide_about_addresses() {
    let bench = Bench::new(&["domain=a.org block"], WithoutBond::Block);
    let address = target("192.0.2.1:443");
    assert!(bench.takes_bond(&address).await);
    let ip = "192.0.2.1".parse().unwrap();
    bench.names.learn(ip, "WWW.A.org.", Duration::from_secs(60));
    assert_eq!(
        bench.open(&address).await.unwrap_err(),
        OpenError::NotAllowed
    );
    let decision = bench.router.decide(Protocol::Tcp, &address, None);
    assert_eq!(decision.reason, "rule 1: www.a.org is in the domain a.org");
}

#[tokio::test]
async fn a_server_without_ipv6_connects_to_the_name_of_an_address() {
    let bench = Bench::new(&[], WithoutBond::Block);
    let (address, unknown) = (target("[2001:db8::1]:443"), target("[2001:db8::2]:443"));
    let ip = "2001:db8::1".parse().unwrap();
    bench.names.learn(ip, "a.org", Duration::from_secs(60));
    let opened = || {
        let opened = std::mem::take(&mut *bench.bond.inside.opened.lock().unwrap());
        let opened = opened.iter().map(ToString::to_string);
        opened.collect::<Vec<_>>()
    };
    assert!(bench.takes_bond(&address).await);
    assert_eq!(opened(), ["[2001:db8::1]:443"]);
    *bench.bond.inside.has_no_ipv6.lock().unwrap() = true;
    assert!(bench.takes_bond(&address).await);
    assert_eq!(opened(), ["[2001:db8::1]:443", "a.org:443"]);
    assert!(bench.takes_bond(&address).await);
    assert_eq!(
        opened(),
        ["a.org:443"],
        "no stream waits for a second failure"
    );
    let refused = bench.open(&unknown).await.unwrap_err();
    assert_eq!(refused, OpenError::Unreachable, "an address without a name");
}

#[tokio::test]
async fn users_groups_and_machines_decide() {
    let rules = [
        "user=alice port=1 block",
        "user=1000 port=2 block",
        "cgroup=/user.slice port=3 block",
        "device=02:00:00:00:00:01 port=4 block",
        "device=192.168.9.0/24 port=5 block",
    ];
    let bench = Bench::new(&rules, WithoutBond::Block);
    let program = Origin::host(PROGRAM.parse().unwrap());
    let machine = Origin::lan(SocketAddr::new(MACHINE.parse().unwrap(), 1111));
    let other = Origin::host("127.0.0.1:2222".parse().unwrap());
    let blocked = |origin: Option<Origin>| -> Vec<u16> {
        let ports = (1..=5).filter(|port| {
            let target = target(&format!("192.0.2.1:{port}"));
            let decision = bench.router.decide(Protocol::Udp, &target, origin);
            decision.action == Action::Block
        });
        ports.collect()
    };
    assert_eq!(blocked(Some(program)), [1, 2, 3]);
    assert_eq!(blocked(Some(machine)), [4, 5]);
    assert!(blocked(Some(other)).is_empty() && blocked(None).is_empty());
}

#[tokio::test]
async fn streams_take_a_link_while_the_bond_is_down() {
    let echo = echo().await;
    let bench = Bench::new(&[], WithoutBond::Direct);
    assert!(bench.takes_bond(&echo).await);
    bench.is_up.send_replace(false);
    assert!(!bench.takes_bond(&echo).await);
    bench.is_up.send_replace(true);
    assert!(bench.takes_bond(&echo).await);
    // The bond goes down while a stream waits for its answer.
    *bench.bond.inside.is_silent.lock().unwrap() = true;
    let opening = bench.router.open(echo.clone(), None);
    let (opened, ()) = tokio::join!(opening, async {
        while bench.bond.inside.opened.lock().unwrap().len() < 3 {
            tokio::task::yield_now().await;
        }
        bench.is_up.send_replace(false);
    });
    assert!(!opened.unwrap().is_bond());
    let streams = bench.router.stats().streams;
    assert_eq!((streams.bond, streams.without_bond), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_kill_switch_keeps_streams_and_flows_from_the_links() {
    let (echo, udp) = (echo().await, udp_echo().await);
    let bench = Bench::new(&[], WithoutBond::Block);
    bench.is_up.send_replace(false);
    *bench.bond.inside.is_silent.lock().unwrap() = true;
    let opening = timeout(Duration::from_secs(60), bench.router.open(echo, None)).await;
    assert!(opening.is_err(), "it waits for the bond");
    let mut source = bench.source().await;
    source.send(&udp, Bytes::new(), None).unwrap();
    settle(&mut source).await;
    let stats = bench.router.stats();
    assert_eq!((stats.flows.bond, stats.flows.without_bond), (1, 0));
    assert_eq!(stats.streams.without_bond, 0);
}

#[tokio::test]
async fn remotes_of_one_source_take_different_ways() {
    let direct = udp_echo().await;
    let rule = format!("port={} direct", direct.port);
    let bench = Bench::new(&[&rule, "port=7 block"], WithoutBond::Block);
    let mut source = bench.source().await;
    let (bonded, blocked) = (target("192.0.2.1:53"), target("192.0.2.1:7"));
    source
        .send(&blocked, Bytes::from_static(b"no"), None)
        .unwrap();
    let refused = Received::Failed(FlowFailure::Filtered);
    assert_eq!(next(&mut source).await, (blocked.clone(), refused));
    source
        .send(&bonded, Bytes::from_static(b"query"), None)
        .unwrap();
    settle(&mut source).await;
    let mut far = bench.far();
    assert_eq!(next(&mut far).await, (bonded.clone(), datagram(b"query")));
    for _ in 0..3 {
        source
            .send(&direct, Bytes::from_static(b"ping"), None)
            .unwrap();
        assert_eq!(next(&mut source).await, (direct.clone(), datagram(b"ping")));
        far.send(&bonded, Bytes::from_static(b"answer"), None)
            .unwrap();
        assert_eq!(
            next(&mut source).await,
            (bonded.clone(), datagram(b"answer"))
        );
    }
    let flows = bench.router.stats().flows;
    assert_eq!((flows.bond, flows.direct, flows.blocked), (1, 1, 1));
}

#[tokio::test]
async fn a_busy_exit_does_not_silence_the_other() {
    let direct = udp_echo().await;
    let rule = format!("port={} direct", direct.port);
    let bench = Bench::new(&[&rule], WithoutBond::Block);
    let (mut source, bonded) = (bench.source().await, target("192.0.2.1:53"));
    source.send(&bonded, Bytes::new(), None).unwrap();
    settle(&mut source).await;
    let mut far = bench.far();
    next(&mut far).await;
    source
        .send(&direct, Bytes::from_static(b"ping"), None)
        .unwrap();
    loop {
        // The bond always has something.
        far.send(&bonded, Bytes::from_static(b"more"), None)
            .unwrap();
        if next(&mut source).await.0 == direct {
            break;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn flows_follow_changed_rules() {
    let echo = udp_echo().await;
    let bench = Bench::new(&[], WithoutBond::Block);
    let mut source = bench.source().await;
    source.send(&echo, Bytes::from_static(b"1"), None).unwrap();
    settle(&mut source).await;
    let mut far = bench.far();
    assert_eq!(next(&mut far).await.1, datagram(b"1"));
    let rule: Rule = "direct".parse().unwrap();
    let id = bench.router.rules().add(rule, Keep::No).unwrap();
    source.send(&echo, Bytes::from_static(b"2"), None).unwrap();
    assert_eq!(next(&mut source).await, (echo.clone(), datagram(b"2")));
    bench.router.rules().remove(id).unwrap();
    source.send(&echo, Bytes::from_static(b"3"), None).unwrap();
    assert_eq!(next(&mut far).await.1, datagram(b"3"));
}

#[tokio::test]
async fn a_flow_over_a_missing_link_is_unreachable() {
    let echo = udp_echo().await;
    let bench = Bench::new(&["direct"], WithoutBond::Block);
    bench.links.lock().unwrap().clear();
    let mut source = bench.source().await;
    let unreachable = Received::Failed(FlowFailure::NetworkUnreachable);
    source.send(&echo, Bytes::new(), None).unwrap();
    assert_eq!(next(&mut source).await, (echo.clone(), unreachable.clone()));
    bench.links.lock().unwrap().push("no-such-link".to_owned());
    let mut other = bench.source().await;
    other.send(&echo, Bytes::new(), None).unwrap();
    assert_eq!(next(&mut other).await, (echo.clone(), unreachable));
    // The failure makes the source look for another link at once.
    *bench.links.lock().unwrap() = vec!["lo".to_owned()];
    other
        .send(&echo, Bytes::from_static(b"ping"), None)
        .unwrap();
    assert_eq!(next(&mut other).await, (echo, datagram(b"ping")));
}

#[tokio::test(start_paused = true)]
async fn flows_leave_a_bond_that_is_down_and_return_after_a_silence() {
    let echo = udp_echo().await;
    let bench = Bench::new(&[], WithoutBond::Direct);
    let mut source = bench.source().await;
    source.send(&echo, Bytes::from_static(b"1"), None).unwrap();
    settle(&mut source).await;
    let mut far = bench.far();
    assert_eq!(next(&mut far).await.1, datagram(b"1"));
    bench.is_up.send_replace(false);
    source.send(&echo, Bytes::from_static(b"2"), None).unwrap();
    assert_eq!(next(&mut source).await, (echo.clone(), datagram(b"2")));
    bench.is_up.send_replace(true);
    // A call goes on where it is.
    for _ in 0..20 {
        tokio::time::advance(Duration::from_secs(1)).await;
        source.send(&echo, Bytes::from_static(b"3"), None).unwrap();
        assert_eq!(next(&mut source).await, (echo.clone(), datagram(b"3")));
    }
    tokio::time::advance(Duration::from_secs(10)).await;
    source.send(&echo, Bytes::from_static(b"4"), None).unwrap();
    assert_eq!(next(&mut far).await.1, datagram(b"4"));
    let flows = bench.router.stats().flows;
    assert_eq!((flows.bond, flows.without_bond), (2, 1));
}
