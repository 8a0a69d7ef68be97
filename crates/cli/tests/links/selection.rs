//! A selector parks a link that is far worse than the other one. Status and events give the reason,
//! and no data is lost.

use sumlink_lab::Side;
use sumlink_transport::SessionStatus;
use sumlink_transport::status::PathStatus;

use crate::bond::Plan;
use sumlink_test_support::emulated::traffic::Transfer;

const LINKS: [&str; 2] = ["good:rate=20mbit,delay=5ms", "bad:rate=500kbit,delay=250ms"];

/// Most bytes of a parked path, for pings and reports; the link would carry 125 kB in that time.
const CONTROL_BYTES: u64 = 30_000;

fn bad(session: &SessionStatus) -> &PathStatus {
    let mut paths = session.paths.iter();
    paths.find(|path| path.link == "bad").unwrap()
}

#[test]
fn a_parked_link_has_a_reason_and_carries_when_the_other_fails() {
    // No probe during this test.
    let plan = Plan::new(&LINKS).selector("linux", "base:probe=60s");
    let Some(bond) = plan.start() else { return };
    bond.until_active(&["bad", "good"]);
    let upload = Transfer::upload(&bond.bench, "10.99.0.1:8080".parse().unwrap());

    let parked = || {
        bond.until("the bad link is parked", |session| {
            (bad(session).selection == "parked").then(|| bad(session).clone())
        })
    };
    let reason = parked().selection_reason;
    assert!(reason.contains("below 20 % of the average"), "{reason}");
    let event = loop {
        let event = bond.client.event("selected");
        if event["selection"] == "parked" {
            break event;
        }
    };
    assert_eq!(event["link"], "bad", "{event}");
    let reason = event["reason"].as_str().unwrap();
    assert!(reason.contains("below 20 % of the average"), "{event}");
    assert_eq!(bond.client.lines_with(reason), 1);

    // On a busy machine the good link may pause, and the bad one helps.
    let carries_little = || {
        let before = parked().bytes_sent;
        upload.goes_on(5_000_000);
        let sent = bad(&bond.status(Side::Client)).bytes_sent;
        sent.saturating_sub(before) < CONTROL_BYTES
    };
    assert!((0..20).any(|_| carries_little()), "a parked path carries");

    let before = parked().bytes_sent;
    bond.bench.set("good", "state=blackhole");
    bond.until("the parked link carries", |session| {
        let sent = bad(session).bytes_sent.saturating_sub(before);
        (sent > 2 * CONTROL_BYTES).then_some(())
    });
    bond.bench.set("good", "state=up");
    upload.finish();
    bond.stop();
}
