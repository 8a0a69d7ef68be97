//! Links that carry less than they seem to: behind a policer, and under a configured limit. They
//! are healthy, and no data is retransmitted.

use sumlink_lab::Side;
use sumlink_transport::status::PathStatus;

use crate::bond::{Bond, Plan, active};
use sumlink_test_support::emulated::traffic::Transfer;

/// Begin of the log lines about a path that is stalled at either end.
const STALLED: &str = "path stalled";

/// Begin of the log lines about its recovery.
const RECOVERED: &str = "path recovered";

/// Most stalls in a test: a busy machine delays a link now and then. A misjudged link stalls
/// several times per second.
const MAX_STALLS: usize = 8;

fn lines(bond: &Bond, words: &str) -> usize {
    let both = [&bond.client, &bond.server];
    both.map(|daemon| daemon.lines_with(words)).iter().sum()
}

/// Share of duplicates in the bytes of a download.
fn duplicates(bond: &Bond) -> f64 {
    let server = bond.status(Side::Server);
    let sent: u64 = active(&server).map(|path| path.bytes_sent).sum();
    server.duplicates_sent_bytes as f64 / sent as f64
}

fn path(bond: &Bond, side: Side, name: &str) -> PathStatus {
    let paths = bond.status(side).paths.into_iter();
    let mut of_link = paths.filter(|path| path.link == name);
    of_link.next().expect("a path")
}

/// The links are healthy, and each stall is followed by a recovery.
#[track_caller]
fn are_healthy(bond: &Bond) {
    let pairs = |_: &_| {
        let [stalls, recoveries] = [STALLED, RECOVERED].map(|words| lines(bond, words));
        (stalls == recoveries).then_some(stalls)
    };
    let stalls = bond.until("each stall has a recovery", pairs);
    assert!(
        stalls <= MAX_STALLS,
        "healthy links are reported as stalled {stalls} times"
    );
}

fn download(bond: &Bond) -> Transfer {
    Transfer::download(&bond.bench, "10.99.0.1:8080".parse().unwrap())
}

#[test]
fn a_policer_under_bbr_stalls_no_path() {
    let links = [
        "a:rate=20mbit,burst=32kB,queue=50ms",
        "b:rate=10mbit,burst=32kB,queue=50ms",
    ];
    let bbr = "congestion = \"bbr\"\nlinks = \"auto\"\n";
    let plan = Plan::new(&links).client(bbr);
    let Some(bond) = plan.server_lines("congestion = \"bbr\"").start() else {
        return;
    };
    bond.until_active(&["a", "b"]);
    let down = download(&bond);
    // At least 10 s: BBR measures the least round trip meanwhile, and the buckets fill.
    down.goes_on(45_000_000);
    let share = duplicates(&bond);
    down.finish();
    are_healthy(&bond);
    assert!(share <= 0.02, "{share} sent twice");
    bond.stop();
}

#[test]
fn a_limited_link_carries_its_limit_without_waste() {
    let links = ["a:rate=15mbit,delay=2ms", "b:rate=12mbit,delay=2ms"];
    let client = "[[link]]\nname = \"a\"\n[[link]]\nname = \"b\"\nreceive_limit = \"3mbit\"\n\
                  metered = true\npriority = \"primary\"\n";
    let Some(bond) = Plan::new(&links).client(client).start() else {
        return;
    };
    bond.until_active(&["a", "b"]);
    let down = download(&bond);
    down.goes_on(20_000_000);
    let (share, limited) = (duplicates(&bond), path(&bond, Side::Server, "b"));
    let carried = limited.send_rate_bps;
    down.finish();
    assert!(share <= 0.02, "{share} sent twice");
    assert_eq!(limited.duplicates_sent_bytes, 0, "paid for twice");
    assert!((2.2e6..3.2e6).contains(&carried), "{carried} bit/s");
    are_healthy(&bond);
    bond.stop();
}
