//! Every scheduler over two unequal links, with all its inputs from the kernel.

use sumlink_engine::scheduler;
use sumlink_lab::Side;
use sumlink_transport::SessionStatus;

use crate::bond::{Plan, active};
use sumlink_test_support::emulated::traffic::Transfer;

#[test]
fn every_scheduler_completes_a_download() {
    for name in scheduler::NAMES {
        let plan = Plan::new(&["a:rate=20mbit,delay=5ms", "b:rate=10mbit,delay=15ms"]);
        let Some(bond) = plan.scheduler(name).start() else {
            return;
        };
        bond.until_active(&["a", "b"]);
        assert_eq!(bond.status(Side::Server).scheduler, *name);
        let download = Transfer::download(&bond.bench, "10.99.0.1:8080".parse().unwrap());
        // The faster path alone would need 0.5 s for this, and some schedulers wait for it first.
        bond.until(&format!("{name} uses both links"), |session| {
            let mut paths = active(session);
            paths
                .all(|path| path.bytes_received > 100_000)
                .then_some(())
        });
        download.goes_on(500_000);
        download.finish();
        bond.stop();
    }
}

/// A queue in the client's interface, which only two schedulers read.
#[test]
fn schedulers_that_use_the_interface_queue_read_it() {
    for name in ["qaware", "qdepl", "minrtt"] {
        let plan = Plan::new(&["a:rate=20mbit,delay=5ms", "b:rate=20mbit,delay=5ms"]);
        let Some(bond) = plan.scheduler(name).start() else {
            return;
        };
        bond.until_active(&["a", "b"]);
        let shaper = "tc qdisc replace dev a root tbf rate 4mbit burst 10kb latency 4s";
        let words: Vec<&str> = shaper.split(' ').collect();
        bond.bench.run(Side::Client, &words);
        let upload = Transfer::upload(&bond.bench, "10.99.0.1:8080".parse().unwrap());
        let queue_of = |session: &SessionStatus, link: &str| -> u64 {
            let mut paths = active(session).filter(|path| path.link == link);
            paths.next().map_or(0, |path| path.local_queue_bytes)
        };
        if name == "minrtt" {
            upload.goes_on(2_000_000);
            assert_eq!(
                queue_of(&bond.status(Side::Client), "a"),
                0,
                "no scheduler reads it"
            );
        } else {
            bond.until(&format!("{name} sees the queue of a"), |session| {
                assert_eq!(queue_of(session, "b"), 0, "b has none");
                (queue_of(session, "a") > 1000).then_some(())
            });
        }
        upload.finish();
        bond.stop();
    }
}

#[test]
fn musher_refuses_a_third_link() {
    let links = [
        "a:rate=20mbit,delay=5ms",
        "b:rate=20mbit,delay=5ms",
        "c:rate=20mbit,delay=5ms",
    ];
    let Some(bond) = Plan::new(&links).scheduler("musher").start() else {
        return;
    };
    bond.until("one link is refused with the reason", |session| {
        let refused = session.paths.iter().filter(|path| path.state == "down");
        let reasons: Vec<_> = refused.map(|path| path.reason.as_str()).collect();
        let is_logged =
            matches!(reasons[..], [reason] if reason.contains("scheduler musher takes 2 paths"));
        (is_logged && active(session).count() == 2).then_some(())
    });
    let download = Transfer::download(&bond.bench, "10.99.0.1:8080".parse().unwrap());
    download.goes_on(1_000_000);
    download.finish();
    bond.stop();
}

/// Two streams of the same kind; a rule names one of them.
#[test]
fn only_traffic_of_a_racing_class_goes_over_two_links() {
    let plan = Plan::new(&["a:rate=16mbit,delay=5ms", "b:rate=16mbit,delay=5ms"]);
    let plan = plan
        .class_scheduler("conversational", "redundant")
        .client("links = \"auto\"\n[[class]]\nport = \"8080\"\nclass = \"conversational\"\n");
    let Some(bond) = plan.start() else { return };
    bond.until_active(&["a", "b"]);
    let twice = |session: &SessionStatus| -> u64 {
        let paths = active(session);
        paths.map(|path| path.duplicates_sent_bytes).sum()
    };
    let other = Transfer::upload(&bond.bench, "10.99.0.1:8081".parse().unwrap());
    other.goes_on(4_000_000);
    other.finish();
    let before = twice(&bond.status(Side::Client));
    assert!(before < 400_000, "{before} bytes went twice");
    let named = Transfer::upload(&bond.bench, "10.99.0.1:8080".parse().unwrap());
    let arrived = bond.until("what was sent went over both", |session| {
        (twice(session) > before + 2_000_000).then(|| named.received())
    });
    assert!(arrived < 4_000_000, "{arrived} bytes for 2 million twice");
    named.finish();
    bond.stop();
}
