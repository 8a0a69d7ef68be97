//! Corner cases: frames that overtake each other, paths that fail at the wrong moment.

use std::time::Duration;

use super::{Pair, Side};
use crate::frame::{Ack, Frame};
use crate::{
    Class, Config, Event, Instant, PathId, PathSample, PathState, Role, Session, StreamError,
    StreamId,
};

const PATH: PathId = PathId(0);

/// A session with one path whose peer permits everything; the time is constant unless a test
/// changes it.
pub(super) fn session(role: Role) -> (Session, Instant) {
    let now = Instant::from_secs(1);
    let mut session = Session::new(Config::new(role), now).unwrap();
    session.path_up(PATH, now);
    feed(
        &mut session,
        PATH,
        &[
            Frame::CreditSession { limit: 1 << 30 },
            Frame::CreditInitial { limit: 1 << 20 },
            Frame::CreditStreams { limit: 1000 },
        ],
        now,
    );
    drain(&mut session, PATH, now);
    while session.poll_event().is_some() {}
    (session, now)
}

pub(super) fn feed(session: &mut Session, path: PathId, frames: &[Frame<'_>], now: Instant) {
    let mut bytes = Vec::new();
    frames.iter().for_each(|frame| frame.encode(&mut bytes));
    session
        .handle_frames(path, &bytes, now)
        .expect("the frames are valid");
}

/// Everything that a path sends now, as text.
pub(super) fn drain(session: &mut Session, path: PathId, now: Instant) -> Vec<String> {
    let mut out = Vec::new();
    while session.poll_transmit(path, 1 << 16, now, &mut out) > 0 {}
    decoded(&out)
}

/// Frames as text.
pub(super) fn decoded(mut rest: &[u8]) -> Vec<String> {
    let mut frames = Vec::new();
    while let Some((frame, len)) = Frame::decode(rest).expect("own frames decode") {
        frames.push(format!("{frame:?}"));
        rest = &rest[len..];
    }
    frames
}

fn events(session: &mut Session) -> Vec<Event> {
    std::iter::from_fn(|| session.poll_event()).collect()
}

/// Reports to a session that everything sent on a path has arrived.
pub(super) fn confirm(session: &mut Session, path: PathId, now: Instant) {
    let received = session.paths[&path].outbound.sent;
    feed(
        session,
        path,
        &[Frame::Path {
            path: u64::from(path.0),
            received,
        }],
        now,
    );
}

/// A client that has just opened a stream.
fn client_with_stream() -> (Session, StreamId, Instant) {
    let (mut client, now) = session(Role::Client);
    let id = client.open_stream(b"t", Class::Background, now).unwrap();
    (client, id, now)
}

/// A client that has sent a request and its end, and has received no answer.
fn client_with_request() -> (Session, StreamId, Instant) {
    let (mut client, id, now) = client_with_stream();
    client.write(id, b"request", now).unwrap();
    client.finish(id, now).unwrap();
    drain(&mut client, PATH, now);
    (client, id, now)
}

/// The session credit that the peer has used, and the part of it that is read or dropped.
fn credit(session: &Session) -> (u64, u64) {
    let credit = &session.receive_credit;
    (credit.used, credit.released)
}

pub(super) fn open(stream: StreamId, class: u64) -> Frame<'static> {
    let target = b"t";
    Frame::Open {
        stream,
        class,
        target,
    }
}

pub(super) fn data(stream: StreamId, offset: u64, data: &[u8]) -> Frame<'_> {
    Frame::Data {
        stream,
        offset,
        data,
    }
}

fn fin(stream: StreamId, size: u64) -> Frame<'static> {
    Frame::Fin { stream, size }
}

fn reset(stream: StreamId, code: u64, size: u64) -> Frame<'static> {
    Frame::Reset { stream, code, size }
}

fn ack(stream: StreamId, complete: bool, cumulative: u64) -> Frame<'static> {
    Frame::Ack(Ack {
        stream,
        complete,
        cumulative,
        ranges: vec![],
    })
}

/// The driver of a server sends SERVER with WELCOME; a client counts it like every other frame.
#[test]
fn frames_that_the_driver_has_sent_are_part_of_the_reports() {
    let (mut server, now) = session(Role::Server);
    let other = PathId(1);
    server.path_up(other, now);
    server.path_sent(other, 21);
    let report = Frame::Path {
        path: 1,
        received: 21,
    };
    feed(&mut server, PATH, &[report], now);
    assert!(!server.is_closed());
    let (mut client, now) = session(Role::Client);
    let name = Frame::Server { name: b"a.example" };
    feed(&mut client, PATH, &[name], now);
    let later = now + Duration::from_millis(20);
    client.handle_timeout(later);
    let sent = drain(&mut client, PATH, later);
    assert!(
        sent.iter().any(|frame| frame.starts_with("Path {")),
        "{sent:?}"
    );
}

#[test]
fn data_and_the_end_may_overtake_the_open() {
    let (mut server, now) = session(Role::Server);
    feed(&mut server, PATH, &[data(0, 0, b"early"), fin(0, 5)], now);
    assert_eq!(events(&mut server), []);
    let open = open(0, 2);
    feed(&mut server, PATH, &[open.clone(), open], now);
    let target = b"t".to_vec();
    let opened = Event::Opened {
        stream: 0,
        class: Some(Class::Interactive),
        target,
    };
    assert_eq!(events(&mut server), [opened, Event::Readable { stream: 0 }]);
    let mut text = Vec::new();
    assert!(server.read(0, 10, &mut text, now).unwrap().finished);
    assert_eq!(text, b"early");
}

#[test]
fn a_reset_that_overtakes_the_open_leaves_nothing_behind() {
    let (mut server, now) = session(Role::Server);
    feed(&mut server, PATH, &[reset(0, 1, 700)], now);
    feed(
        &mut server,
        PATH,
        &[
            open(0, 0),
            data(0, 0, b"late"),
            fin(0, 900),
            reset(0, 1, 700),
        ],
        now,
    );
    assert_eq!(events(&mut server), []);
    assert_eq!(server.stats().streams_open, 0);
    assert_eq!(credit(&server), (700, 700));
}

#[test]
fn bytes_of_a_program_that_closes_before_the_open_arrives_are_delivered() {
    let (mut server, now) = session(Role::Server);
    feed(
        &mut server,
        PATH,
        &[data(0, 0, b"bye"), fin(0, 3), reset(0, 0, 3), open(0, 3)],
        now,
    );
    let mut text = Vec::new();
    assert!(matches!(
        events(&mut server)[..],
        [Event::Opened { .. }, Event::Readable { .. }]
    ));
    assert!(server.read(0, 10, &mut text, now).unwrap().finished);
    assert_eq!((&text[..], server.stats().streams_open), (&b"bye"[..], 0));
}

#[test]
fn a_reset_after_the_end_lets_the_reader_finish() {
    let (mut client, id, now) = client_with_stream();
    feed(
        &mut client,
        PATH,
        &[data(id, 0, b"answer"), fin(id, 6), reset(id, 0, 6)],
        now,
    );
    assert_eq!(client.write(id, b"more", now), Err(StreamError::Finished));
    assert_eq!(events(&mut client), [Event::Readable { stream: id }]);
    let mut text = Vec::new();
    assert!(!client.read(id, 3, &mut text, now).unwrap().finished);
    assert!(client.read(id, 10, &mut text, now).unwrap().finished);
    assert_eq!(text, b"answer");
    assert_eq!(
        events(&mut client),
        [Event::Reset {
            stream: id,
            code: 0
        }]
    );
    assert_eq!(client.stats().streams_open, 0);
}

#[test]
fn abandoning_a_stream_that_was_reset_late_frees_it() {
    for abandon in [true, false] {
        let (mut client, id, now) = client_with_stream();
        feed(
            &mut client,
            PATH,
            &[data(id, 0, b"answer"), fin(id, 6), reset(id, 0, 6)],
            now,
        );
        if abandon {
            client.abandon(id, now)
        } else {
            client.reset(id, 1, now)
        }
        let stats = client.stats();
        assert_eq!((stats.streams_open, stats.receive_memory), (0, 0));
        assert_eq!(client.receive_credit.used, client.receive_credit.released);
    }
}

#[test]
fn both_sides_agree_on_the_credit_of_a_stream_that_was_reset_in_flight() {
    // This side resets while the peer's end is announced and only a part of its bytes has arrived.
    let (mut client, id, now) = client_with_stream();
    feed(
        &mut client,
        PATH,
        &[data(id, 0, &[7; 300]), fin(id, 1000)],
        now,
    );
    client.reset(id, 1, now);
    assert_eq!(
        client.stats().streams_open,
        1,
        "700 bytes may still be counted"
    );
    feed(&mut client, PATH, &[reset(id, 1, 900)], now);
    assert_eq!(client.stats().streams_open, 0);
    assert_eq!(credit(&client), (900, 900));
}

#[test]
fn an_abandoned_stream_is_counted_to_its_end() {
    let (mut client, id, now) = client_with_stream();
    client.abandon(id, now);
    drain(&mut client, PATH, now);
    feed(&mut client, PATH, &[ack(id, true, 0), fin(id, 100)], now);
    assert_eq!(client.stats().streams_open, 1);
    feed(&mut client, PATH, &[data(id, 0, &[1; 100])], now);
    assert_eq!(client.stats().streams_open, 0);
    assert_eq!(credit(&client), (100, 100));
}

#[test]
fn credit_for_an_ended_stream_leaves_no_frame_in_flight() {
    let (mut client, now) = session(Role::Client);
    client.path_up(PathId(1), now);
    let id = client.open_stream(b"t", Class::Background, now).unwrap();
    client.finish(id, now).unwrap();
    drain(&mut client, PATH, now);
    let answer = [5; 400_000];
    for (i, part) in answer.chunks(10_000).enumerate() {
        feed(&mut client, PATH, &[data(id, 10_000 * i as u64, part)], now);
    }
    let mut text = Vec::new();
    client.read(id, 400_000, &mut text, now).unwrap();
    assert!(
        client.streams[&id].receive.credit_queued,
        "precondition of this test"
    );
    feed(
        &mut client,
        PATH,
        &[fin(id, 400_000), ack(id, true, 0)],
        now,
    );
    client.read(id, 1, &mut text, now).unwrap();
    assert_eq!(client.stats().streams_open, 0);
    confirm(&mut client, PATH, now);
    let sent = drain(&mut client, PATH, now);
    assert!(
        !sent.iter().any(|frame| frame.starts_with("Credit")),
        "{sent:?}"
    );
    confirm(&mut client, PATH, now);
    assert!(client.paths[&PATH].oldest_unacknowledged().is_none());
}

#[test]
fn the_end_is_known_from_path_reports_alone() {
    // The ACK for it was on a path that failed.
    let (mut client, id, now) = client_with_request();
    confirm(&mut client, PATH, now);
    assert!(events(&mut client).contains(&Event::Delivered { stream: id }));
    assert_eq!(client.stats().send_buffered, 0);
}

#[test]
fn acknowledgments_of_a_completed_or_forgotten_stream_are_harmless() {
    let (mut client, id, now) = client_with_request();
    let done = ack(id, true, 7);
    let beyond = ack(id, false, 1 << 40);
    feed(
        &mut client,
        PATH,
        &[done.clone(), beyond.clone(), done.clone()],
        now,
    );
    assert_eq!(events(&mut client), [Event::Delivered { stream: id }]);
    client.reset(id, 0, now);
    feed(
        &mut client,
        PATH,
        &[beyond.clone(), reset(id, 0, 0), done, beyond],
        now,
    );
    assert_eq!(client.stats().streams_open, 0);
}

#[test]
fn a_report_for_an_ended_path_is_ignored() {
    let (mut client, now) = session(Role::Client);
    client.path_up(PathId(1), now);
    client.path_down(PathId(1), now);
    feed(
        &mut client,
        PATH,
        &[Frame::Path {
            path: 1,
            received: 1 << 50,
        }],
        now,
    );
    feed(
        &mut client,
        PATH,
        &[Frame::Path {
            path: 1 << 40 >> 9,
            received: 5,
        }],
        now,
    );
}

#[test]
fn the_last_path_is_used_even_if_it_was_stalled() {
    let mut pair = Pair::connected(&[(50.0, 10), (50.0, 10)]);
    let id = pair.open();
    pair.write(Side::Client, id, b"", true);
    pair.write(Side::Server, id, &[9; 5_000_000], true);
    pair.run_for(Duration::from_millis(100));
    pair.carriers.get_mut(&PathId(1)).unwrap().blackhole = true;
    pair.run_for(Duration::from_millis(500));
    assert_eq!(
        pair.server.path_stats_all(pair.now)[1].state,
        PathState::Stalled
    );
    pair.kill_path(PathId(0));
    assert_eq!(
        pair.server.path_stats_all(pair.now)[0].state,
        PathState::Active
    );
    pair.run_for(Duration::from_millis(500));
    pair.carriers.get_mut(&PathId(1)).unwrap().blackhole = false;
    pair.run_to_end(Duration::from_secs(20));
}

#[test]
fn two_silent_paths_do_not_cause_endless_timeouts() {
    let mut pair = Pair::connected(&[(50.0, 10), (50.0, 10)]);
    let id = pair.open();
    pair.write(Side::Server, id, &[9; 5_000_000], true);
    pair.run_for(Duration::from_millis(100));
    pair.carriers
        .values_mut()
        .for_each(|carrier| carrier.blackhole = true);
    let mut now = pair.now;
    let mut rounds = 0;
    while now < pair.now + Duration::from_secs(5) {
        pair.server.handle_timeout(now);
        let next = pair.server.poll_timeout().expect("a timeout is always due");
        assert!(next > now, "the time does not advance at {now:?}");
        now = next;
        rounds += 1;
    }
    assert!(rounds < 6000, "{rounds} timeouts in 5 s");
}

#[test]
fn a_close_is_sent_even_over_a_stalled_path() {
    let (mut client, now) = session(Role::Client);
    client.paths.get_mut(&PATH).unwrap().state = PathState::Stalled;
    client.close(u64::MAX, "over", now);
    assert!(client.is_close_pending());
    assert_eq!(drain(&mut client, PATH, now).len(), 1);
    assert!(!client.is_close_pending());
}

#[test]
fn a_close_is_sent_over_every_path() {
    let (mut client, now) = session(Role::Client);
    let second = PathId(PATH.0 + 1);
    client.path_up(second, now);
    client.close(0, "over", now);
    for path in [PATH, second] {
        assert!(client.is_close_pending());
        let frames = drain(&mut client, path, now);
        assert!(
            frames.len() == 1 && frames[0].starts_with("Close"),
            "{frames:?}"
        );
        assert!(drain(&mut client, path, now).is_empty(), "sent once");
    }
    assert!(!client.is_close_pending());
}

#[test]
fn a_repeated_accept_is_reported_once() {
    let (mut client, id, now) = client_with_stream();
    feed(
        &mut client,
        PATH,
        &[Frame::Accept { stream: id }, Frame::Accept { stream: id }],
        now,
    );
    assert_eq!(events(&mut client), [Event::Accepted { stream: id }]);
}

#[test]
fn a_reset_of_one_stream_wakes_writers_of_others() {
    let now = Instant::from_secs(1);
    let mut config = Config::new(Role::Client);
    config.max_streams = 2;
    config.memory = Config::min_memory(2);
    config.stream_memory = config.memory;
    let mut client = Session::new(config, now).unwrap();
    client.path_up(PATH, now);
    feed(&mut client, PATH, &[Frame::CreditStreams { limit: 2 }], now);
    let (hog, other) = (
        client.open_stream(b"t", Class::Background, now),
        client.open_stream(b"t", Class::Background, now),
    );
    let (hog, other) = (hog.unwrap(), other.unwrap());
    while client.write(hog, &[1; 100_000], now).unwrap() > 0 {}
    while client.write(other, &[2; 100_000], now).unwrap() > 0 {}
    events(&mut client);
    client.reset(hog, 0, now);
    assert!(events(&mut client).contains(&Event::Writable { stream: other }));
    assert_eq!(
        client.open_stream(b"t", Class::Background, now),
        Err(StreamError::NoMoreStreams)
    );
}

#[test]
fn this_side_opens_no_more_streams_than_its_memory_permits() {
    let now = Instant::from_secs(1);
    let mut config = Config::new(Role::Client);
    config.max_streams = 2;
    let mut client = Session::new(config, now).unwrap();
    client.path_up(PATH, now);
    feed(
        &mut client,
        PATH,
        &[Frame::CreditStreams { limit: 1 << 40 }],
        now,
    );
    let id = client.open_stream(b"t", Class::Background, now).unwrap();
    client.open_stream(b"t", Class::Background, now).unwrap();
    assert_eq!(
        client.open_stream(b"t", Class::Background, now),
        Err(StreamError::NoMoreStreams)
    );
    assert_eq!(
        client.open_stream(&[0; 513], Class::Background, now),
        Err(StreamError::TargetTooLong)
    );
    events(&mut client);
    client.reset(id, 0, now);
    feed(&mut client, PATH, &[reset(id, 0, 0)], now);
    assert_eq!(events(&mut client), [Event::StreamsAvailable]);
    client.open_stream(b"t", Class::Background, now).unwrap();
}

#[test]
fn reports_lost_with_their_path_are_repeated() {
    let (mut client, id, now) = client_with_stream();
    feed(&mut client, PATH, &[data(id, 0, b"x")], now);
    let later = now + Duration::from_millis(100);
    let reported = |frames: &[String]| frames.iter().any(|frame| frame.starts_with("Ack"));
    assert!(reported(&drain(&mut client, PATH, later)));
    assert!(!reported(&drain(
        &mut client,
        PATH,
        later + Duration::from_secs(1)
    )));
    client.path_up(PathId(1), later);
    client.path_down(PATH, later);
    assert!(reported(&drain(
        &mut client,
        PathId(1),
        later + Duration::from_secs(1)
    )));
}

/// Two paths that differ in the bytes queued before the next one: a millisecond for every 1460
/// bytes.
fn queue_on(session: &mut Session, queues: [u64; 2], now: Instant) {
    for (id, unsent) in queues.into_iter().enumerate() {
        let sample = PathSample {
            srtt: Duration::from_millis(10),
            cwnd: 14_600,
            unsent,
            ..PathSample::default()
        };
        session.path_stats(PathId(id as u32), sample, now);
    }
}

/// A carrier is given whole segments, because one more byte would cost another packet.
#[test]
fn a_batch_fills_its_budget_for_any_stream_number() {
    let (mut client, now) = session(Role::Client);
    let sample = PathSample {
        srtt: Duration::from_millis(10),
        cwnd: 1 << 20,
        ..PathSample::default()
    };
    client.path_stats(PATH, sample, now);
    let open = |client: &mut Session| client.open_stream(b"", Class::Background, now).unwrap();
    let streams: Vec<_> = (0..80).map(|_| open(&mut client)).collect();
    drain(&mut client, PATH, now);
    for stream in [streams[0], streams[79]] {
        assert_eq!(client.write(stream, &[7; 200_000], now), Ok(200_000));
        for budget in [1_448, 14_480, 16_384, 28_960] {
            let mut out = Vec::new();
            let len = client.poll_transmit(PATH, budget, now, &mut out);
            assert!(len <= budget && budget - len < 10, "{len} of {budget}");
        }
        drain(&mut client, PATH, now);
    }
}

#[test]
fn chunks_are_shared_while_streams_are_few() {
    let (mut client, now) = session(Role::Client);
    let chunk = || bytes::Bytes::from(vec![7; 8192]);
    let write = |client: &mut Session| {
        let stream = client.open_stream(b"", Class::Background, now).unwrap();
        let written = chunk();
        assert_eq!(client.write_chunk(stream, &written, now), Ok(8192));
        !written.is_unique()
    };
    let shared: Vec<bool> = (0..40).map(|_| write(&mut client)).collect();
    assert_eq!(shared, [vec![true; 32], vec![false; 8]].concat());
}

#[test]
fn opens_do_not_overtake_each_other_on_similar_paths() {
    let (mut client, mut now) = session(Role::Client);
    let paths = [PATH, PathId(1)];
    client.path_up(paths[1], now);
    for path in paths {
        drain(&mut client, path, now);
        confirm(&mut client, path, now);
    }
    // The path that a new stream's OPEN takes. Both are asked, the first one again after the
    // second.
    let open = |client: &mut Session, queues, now| {
        queue_on(client, queues, now);
        client.open_stream(b"t", Class::Background, now).unwrap();
        let asked = [paths[0], paths[1], paths[0]].into_iter();
        let mut opens = asked.filter(|path| {
            let frames = drain(client, *path, now);
            frames.iter().any(|frame| frame.starts_with("Open"))
        });
        let path = opens.next().expect("one of them carries it");
        assert_eq!(opens.next(), None);
        path
    };
    assert_eq!(open(&mut client, [1500, 0], now), paths[1]);
    // Somewhat longer than over the other path: the order is worth the delay.
    assert_eq!(open(&mut client, [0, 10_000], now), paths[1]);
    // Much longer: the order is not worth it; from here on it is kept on that path.
    assert_eq!(open(&mut client, [0, 20_000], now), paths[0]);
    assert_eq!(open(&mut client, [10_000, 0], now), paths[0]);
    // An OPEN that has arrived cannot be overtaken, and a path that stalls or ends does not hold up
    // the next one.
    now += Duration::from_millis(10);
    confirm(&mut client, PATH, now);
    assert_eq!(open(&mut client, [1500, 0], now), paths[1]);
    client.path_down(paths[1], now);
    let again = drain(&mut client, PATH, now);
    let again = again.iter().filter(|frame| frame.starts_with("Open"));
    assert_eq!(again.count(), 3);
}

/// A path of 1 MB/s with a lowest round trip of 40 ms, in whose queue the last bytes have waited
/// for 100 ms.
fn after_bulk(in_flight: u64) -> PathSample {
    PathSample {
        srtt: Duration::from_millis(140),
        min_rtt: Duration::from_millis(40),
        mss: 1448,
        in_flight,
        delivery_rate: 1_000_000,
        delivered: 1000,
        ..PathSample::default()
    }
}

fn likely_delay(session: &Session, id: PathId) -> Duration {
    let mut paths = session.paths();
    paths.find(|path| path.id() == id).unwrap().likely_delay()
}

#[test]
fn the_queue_of_one_carrier_delays_the_others_of_its_link() {
    let (mut session, now) = session(Role::Client);
    let (same, other) = (PathId(1), PathId(2));
    session.path_up(same, now);
    session.path_up(other, now);
    for (path, link) in [(PATH, 7), (same, 7), (other, 8)] {
        session.path_link(path, link);
        session.path_stats(path, after_bulk(140_000), now);
        session.path_stats(path, after_bulk(0), now);
        assert_eq!(likely_delay(&session, path), Duration::from_millis(20));
    }
    session.path_stats(PATH, after_bulk(140_000), now);
    assert_eq!(likely_delay(&session, same), Duration::from_millis(70));
    assert_eq!(likely_delay(&session, other), Duration::from_millis(20));
    session.path_stats(PATH, after_bulk(0), now);
    assert_eq!(likely_delay(&session, same), Duration::from_millis(20));
}

#[test]
fn the_end_of_a_download_is_detected_with_an_unchanged_sample() {
    let (mut session, now) = session(Role::Client);
    let id = session.open_stream(b"t:1", Class::Background, now).unwrap();
    drain(&mut session, PATH, now);
    session.path_stats(PATH, after_bulk(0), now);
    let data = Frame::Data {
        stream: id,
        offset: 0,
        data: &[7; 5000],
    };
    feed(&mut session, PATH, &[data], now);
    let mut sample = after_bulk(0);
    sample.delivered += 1;
    session.path_stats(PATH, sample, now);
    let later = now + Duration::from_millis(139);
    session.path_stats(PATH, sample, later);
    assert_eq!(likely_delay(&session, PATH), Duration::from_millis(70));
    session.path_stats(PATH, sample, later + Duration::from_millis(1));
    assert_eq!(likely_delay(&session, PATH), Duration::from_millis(20));
}
