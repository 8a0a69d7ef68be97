//! Decisions about a session: silent paths, waiting streams, joining carriers.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use sumlink_bond::opens::{OPEN_TIMEOUT, Unconfirmed, WAITING_PATIENCE, Waiting};
use sumlink_bond::{
    Health, Instant, LoggedState, LoggedStates, beside_calls, is_delivering, is_stalled, join,
};
use sumlink_engine::{
    Class, Config, DatagramCarrier, DatagramPolicy, FlowConfig, PathId, PathStats, Role, Session,
};

const START: Instant = Duration::from_secs(1000);
const MS: Duration = Duration::from_millis(1);

/// A session with `paths` paths, and its report about them.
fn session(paths: u32) -> Session {
    let mut session = Session::new(Config::new(Role::Client), START).unwrap();
    (0..paths).for_each(|path| session.path_up(PathId(path), START));
    session
}

fn stats(
    stalled: Option<u32>,
    no_progress: Option<u32>,
    unacknowledged: Option<u32>,
) -> Vec<PathStats> {
    let mut all = session(1).path_stats_all(START);
    let of = |ms: Option<u32>| ms.map(|ms| ms * MS);
    for path in &mut all {
        path.stalled_for = of(stalled);
        path.no_progress_for = of(no_progress);
        path.unacknowledged_for = of(unacknowledged);
    }
    all
}

#[test]
fn the_carriers_of_a_link_with_a_call_are_counted() {
    let mut session = session(3);
    let (call, other) = (7, 8);
    session.datagram_path_up(PathId(9), DatagramCarrier::Quic, call, false, START);
    let beside =
        |session: &Session, now| beside_calls(session, [call, other, call].into_iter(), now);
    assert!(beside(&session, START).is_empty());
    let flow = FlowConfig {
        class: Some(Class::Conversational),
        policy: DatagramPolicy::Pinned,
        ..FlowConfig::default()
    };
    let flow = session.open_flow(flow, START).unwrap();
    session
        .send_datagram(flow, vec![0; 100].into(), START)
        .unwrap();
    assert_eq!(beside(&session, START), [None; 3], "nothing has left");
    assert!(session.poll_datagram(PathId(9), 1200, START, &mut Vec::new()));
    assert_eq!(beside(&session, START), [Some(2), None, Some(2)]);
    assert!(beside(&session, START + 2000 * MS).is_empty());
}

#[test]
fn a_path_is_silent_when_it_has_no_acknowledgment_or_progress_for_long() {
    for (stalled, no_progress, unacknowledged, is_silent) in [
        (None, None, None, false),
        (None, None, Some(2999), false),
        (None, None, Some(3000), true),
        (Some(199), None, None, false),
        (Some(200), None, None, true),
        (Some(200), Some(199), None, false),
        (Some(200), Some(200), None, true),
    ] {
        let mut health = Health::new(START);
        health.look_soon(START);
        let now = START + 200 * MS;
        assert_eq!(health.due(), now);
        let paths = || stats(stalled, no_progress, unacknowledged);
        assert!(health.look(now - MS, paths).is_empty(), "no check is due");
        let silent = health.look(now, paths);
        assert_eq!(
            !silent.is_empty(),
            is_silent,
            "{stalled:?} {no_progress:?} {unacknowledged:?}"
        );
        let next = match (stalled, unacknowledged) {
            (Some(_), _) => 100,
            (None, Some(_)) => 500,
            (None, None) => 3000,
        };
        assert_eq!(health.due(), now + next * MS);
    }
}

#[test]
fn a_path_delivers_unless_it_is_stalled_or_unacknowledged() {
    assert!(is_delivering(&stats(None, None, Some(499))));
    assert!(!is_delivering(&stats(None, None, Some(500))));
    assert!(!is_delivering(&stats(Some(0), None, None)));
    assert!(!is_delivering(&[]));
    assert!(is_stalled(&stats(Some(0), None, None), PathId(0)));
    assert!(!is_stalled(&stats(Some(0), None, None), PathId(1)));
}

#[test]
fn only_changes_of_an_ill_state_are_reported() {
    let mut logged_states = LoggedStates::default();
    assert!(
        !logged_states.set(LoggedState::Stalled, false),
        "the path was not stalled"
    );
    assert!(logged_states.set(LoggedState::Stalled, true));
    assert!(
        logged_states.set(LoggedState::StalledAtPeer, true),
        "another state"
    );
    assert!(
        !logged_states.set(LoggedState::StalledAtPeer, true),
        "already reported"
    );
    assert!(logged_states.set(LoggedState::StalledAtPeer, false));
    assert!(logged_states.set(LoggedState::Stalled, false));
}

#[test]
fn a_full_session_replaces_only_a_stalled_path() {
    let session = session(2);
    assert_eq!(join::path_to_replace(&session, false, 2, 2, START), None);
    assert_eq!(
        join::refusal(&session, false, 2, 2).as_deref(),
        Some("the session has too many paths")
    );
    assert_eq!(join::refusal(&session, false, 1, 2), None);
    let twice = join::refusal(&session, true, 1, 2);
    assert!(twice.is_some_and(|reason| reason.contains("another path")));
    let mut config = Config::new(Role::Client);
    config.scheduler = "musher".to_owned();
    config.own_schedulers = sumlink_schedulers::all();
    let mut musher = Session::new(config, START).unwrap();
    (0..2).for_each(|path| musher.path_up(PathId(path), START));
    let refusal = join::refusal(&musher, false, 2, 256);
    assert!(refusal.is_some_and(|reason| reason.contains("musher")));
}

#[test]
fn streams_wait_for_a_second_once_one_was_allowed() {
    let mut waiting = Waiting::default();
    waiting.push(START, 'a').unwrap();
    waiting.push(START + MS, 'b').unwrap();
    let late = START + WAITING_PATIENCE;
    assert_eq!(waiting.due(), None, "the peer has said nothing");
    assert_eq!(waiting.pop_overdue(late), None);
    waiting.opened();
    assert_eq!(waiting.due(), Some(late));
    assert_eq!(waiting.pop_overdue(late - MS), None);
    assert_eq!(waiting.pop_overdue(late), Some('a'));
    assert_eq!(waiting.pop_overdue(late), None);
    waiting.retain(|stream| *stream != 'b');
    assert!(waiting.is_empty());
}

#[test]
fn the_number_of_waiting_streams_is_bounded() {
    let mut waiting = Waiting::default();
    let taken = (0..10_000).filter(|n| waiting.push(START, *n).is_ok());
    assert_eq!(taken.count(), 4096);
    assert_eq!(waiting.take().count(), 4096);
    assert!(waiting.push(START, 0).is_ok());
}

proptest! {
    /// Each unconfirmed stream expires at its time, and once.
    #[test]
    fn unconfirmed_streams_expire_in_time(
        gaps in proptest::collection::vec(0u64..20_000, 1..40),
        confirmed in proptest::collection::vec(any::<bool>(), 40),
    ) {
        let mut unconfirmed = Unconfirmed::default();
        let (mut now, mut opened, mut given_up) = (START, Vec::new(), BTreeSet::new());
        for (id, gap) in gaps.iter().enumerate() {
            unconfirmed.push(now, id);
            opened.push(now);
            now += Duration::from_millis(*gap);
            while let Some(id) = unconfirmed.pop_overdue(|id| !confirmed[id], now) {
                prop_assert!(!confirmed[id] && now - opened[id] >= OPEN_TIMEOUT);
                prop_assert!(given_up.insert(id));
            }
            if let Some(due) = unconfirmed.due() {
                prop_assert!(due > now);
            }
        }
        now += OPEN_TIMEOUT;
        while let Some(id) = unconfirmed.pop_overdue(|id| !confirmed[id], now) {
            prop_assert!(given_up.insert(id));
        }
        let all = (0..gaps.len()).filter(|id| !confirmed[*id]).collect::<BTreeSet<_>>();
        prop_assert_eq!(given_up, all);
    }
}
