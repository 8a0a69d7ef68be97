//! Congestion controls over links: `congestion = "auto"` under random loss, and those in eBPF.

use std::sync::{Mutex, MutexGuard, PoisonError};

use sumlink_kernel::{TWINS, loaded};
use sumlink_lab::Side;
use sumlink_transport::SessionStatus;
use sumlink_transport::status::PathStatus;

use crate::bond::{Bond, Plan, active};
use sumlink_test_support::emulated::traffic::Transfer;

/// The server's congestion control on each of these links.
fn in_use(bond: &Bond, links: [&str; 2]) -> [String; 2] {
    let session = bond.status(Side::Server);
    links.map(|link| {
        let path = session.paths.iter().find(|path| path.link == link);
        path.map_or_else(String::new, |path| path.congestion.clone())
    })
}

#[test]
fn a_path_with_loss_but_no_queue_changes_to_bbr_and_back() {
    let plan = Plan::new(&[
        "clean:rate=20mbit,delay=10ms",
        "lossy:rate=20mbit,delay=10ms,loss=3%",
    ]);
    let Some(bond) = plan.server_lines("congestion = \"auto\"").start() else {
        return;
    };
    let links = ["clean", "lossy"];
    bond.until_active(&links);
    let uses = |clean: &str, lossy: &str| {
        sumlink_test_support::emulated::until(&format!("{clean} and {lossy} are in use"), || {
            (in_use(&bond, links) == [clean, lossy]).then_some(())
        });
    };
    uses("cubic", "cubic");
    let download = Transfer::download(&bond.bench, "10.99.0.1:8080".parse().unwrap());
    uses("cubic", "bbr");
    bond.bench.set("lossy", "loss=0%");
    uses("cubic", "cubic");
    let because = bond.server.lines_with("while no queue builds up");
    assert!(because > 0, "the log says why: {}", bond.server.log());
    assert!(download.finish() > 0);
    bond.stop();
}

static TURN: Mutex<()> = Mutex::new(());

/// Runs one test at a time, because loaded programs are global to the system; `None` if these tests
/// are disabled.
fn turn() -> Option<MutexGuard<'static, ()>> {
    if std::env::var_os("SUMLINK_SKIP_BPF").is_some_and(|value| value == "1") {
        eprintln!("skipped because SUMLINK_SKIP_BPF=1");
        return None;
    }
    Some(TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

fn until_nothing_is_loaded() {
    sumlink_test_support::emulated::until("it is unloaded", || {
        loaded().unwrap().is_empty().then_some(())
    });
}

#[test]
fn each_algorithm_carries_a_session_at_both_ends_and_is_unloaded() {
    let Some(_turn) = turn() else { return };
    for twin in TWINS {
        let plan = Plan::new(&["a:rate=50mbit,delay=2ms", "b:rate=50mbit,delay=2ms"]);
        let line = format!("congestion = \"{}\"\n", twin.algorithm);
        let plan = plan.client(&format!("{line}links = \"auto\"\n"));
        let Some(bond) = plan.server_lines(&line).start() else {
            return;
        };
        let links = ["a", "b"];
        bond.until_active(&links);
        assert_eq!(in_use(&bond, links), [twin.system_name; 2]);
        let client = bond.status(Side::Client);
        let is_it = |path: &PathStatus| path.congestion == twin.system_name;
        assert!(client.paths.iter().all(is_it), "{client:?}");
        let target = "10.99.0.1:8080".parse().unwrap();
        for transfer in [Transfer::download, Transfer::upload] {
            let transfer = transfer(&bond.bench, target);
            transfer.goes_on(500_000);
            assert!(transfer.finish() > 0);
        }
        bond.stop();
        until_nothing_is_loaded();
    }
}

#[test]
fn coupled_paths_are_siblings_at_each_end_and_leave_nothing_behind() {
    let Some(_turn) = turn() else { return };
    let plan = Plan::new(&["a:rate=20mbit,delay=5ms", "b:rate=20mbit,delay=5ms"]);
    // Any coupled congestion control couples; the key `coupled` accepts no others.
    let plan = plan.client("coupled = \"lia\"\nlinks = \"auto\"\n");
    let Some(bond) = plan.server_lines("congestion = \"lia\"").start() else {
        return;
    };
    let links = ["a", "b"];
    bond.until_active(&links);
    assert_eq!(in_use(&bond, links), ["sl_lia", "sl_lia"]);
    let client = bond.status(Side::Client);
    assert!(client.paths.iter().all(|path| path.congestion == "sl_lia"));
    // Shares it with the daemons, and so sees the flows of both ends.
    let kept = sumlink_kernel::keep("lia", None).expect("shares");
    assert!(!kept.is_own());
    let download = Transfer::download(&bond.bench, "10.99.0.1:8080".parse().unwrap());
    sumlink_test_support::emulated::until("both paths of both ends are in groups", || {
        (kept.flows() == 4).then_some(())
    });
    download.goes_on(1_000_000);
    assert!(download.finish() > 0);
    bond.stop();
    sumlink_test_support::emulated::until("the sockets are closed", || {
        (kept.flows() == 0).then_some(())
    });
    drop(kept);
    until_nothing_is_loaded();
}

/// Number of the client's active paths on the link.
fn carriers(session: &SessionStatus, link: &str) -> usize {
    active(session).filter(|path| path.link == link).count()
}

#[test]
fn a_link_has_the_configured_carriers_and_replaces_a_broken_one() {
    let plan = Plan::new(&["a:rate=20mbit,delay=5ms", "b:rate=20mbit,delay=5ms"]);
    let lines = "carriers = 3\n[[link]]\nname = \"a\"\n[[link]]\nname = \"b\"\ncarriers = 1\n";
    let Some(bond) = plan.client(lines).start() else {
        return;
    };
    let complete = |session: &SessionStatus| {
        let counts = ["a", "b"].map(|link| carriers(session, link));
        (counts == [3, 1]).then_some(())
    };
    bond.until("three paths on one link", complete);
    let download = Transfer::download(&bond.bench, "10.99.0.1:8080".parse().unwrap());
    let first = bond.status(Side::Client).paths[0].clone();
    let port = first.local.rsplit_once(':').unwrap().1.to_owned();
    bond.bench.run(
        Side::Client,
        &["ss", "-HKtn", "sport", "=", &format!(":{port}")],
    );
    bond.until("the broken one is replaced", |session| {
        let is_gone = session.paths.iter().all(|path| path.id != first.id);
        complete(session).filter(|()| is_gone)
    });
    assert!(download.finish() > 0);
    bond.stop();
}

#[test]
fn a_link_gets_more_carriers_under_loss_and_fewer_with_a_queue() {
    let plan = Plan::new(&["lossy:rate=50mbit,delay=25ms,loss=3%"]);
    let plan = plan.server_lines("congestion = \"cubic\"");
    let Some(bond) = plan
        .client("links = \"auto\"\ncarriers = \"auto\"\n")
        .start()
    else {
        return;
    };
    assert_eq!(carriers(&bond.status(Side::Client), "lossy"), 1);
    let download = Transfer::download(&bond.bench, "10.99.0.1:8080".parse().unwrap());
    // The final number depends on random losses; the rule has its own tests.
    sumlink_test_support::emulated::until("a second connection carries", || {
        let session = bond.status(Side::Server);
        let carrying = active(&session).filter(|path| path.bytes_sent > 1 << 20);
        (carrying.count() >= 2).then_some(())
    });
    // From here on only a full queue drops packets, and one connection gets as much as several.
    bond.bench.set("lossy", "loss=0%");
    bond.until("one connection is left", |session| {
        (carriers(session, "lossy") == 1).then_some(())
    });
    assert!(download.finish() > 0);
    bond.stop();
}

/// Whether TCP paces the client's packets on this link: `ss` then prints the limit after the rate.
fn is_spaced(bond: &Bond, link: &str) -> bool {
    let session = bond.status(Side::Client);
    let Some(path) = session.paths.iter().find(|path| path.link == link) else {
        return false;
    };
    let port = path.local.rsplit_once(':').unwrap().1;
    let filter = format!(":{port}");
    let output = (bond.bench).run(Side::Client, &["ss", "-Htin", "sport", "=", &filter]);
    let rate = output
        .split_whitespace()
        .skip_while(|word| *word != "pacing_rate")
        .nth(1);
    rate.is_some_and(|rate| rate.contains('/'))
}

#[test]
fn a_high_rtt_path_is_paced() {
    let plan = Plan::new(&["near:rate=20mbit,delay=5ms", "far:rate=20mbit,delay=80ms"]);
    let plan = plan.client("congestion = \"cubic\"\nlinks = \"auto\"\n");
    let Some(bond) = plan.start() else { return };
    bond.until_active(&["far", "near"]);
    let upload = Transfer::upload(&bond.bench, "10.99.0.1:8080".parse().unwrap());
    sumlink_test_support::emulated::until("it is spaced", || is_spaced(&bond, "far").then_some(()));
    upload.goes_on(500_000);
    assert!(!is_spaced(&bond, "near"));
    assert!(upload.finish() > 0);
    bond.stop();
}
