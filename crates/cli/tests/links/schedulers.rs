//! Every scheduler of `sumlink` over two unequal links, with all its inputs from the kernel. The
//! tests of `sumlink-lab` have the research schedulers.

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
