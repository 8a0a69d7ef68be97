//! Frames that leave beside an answer. A window has space for a number of packets, however small
//! they are. Each packet of a few bytes takes the place of a full one, and in slow start of two in
//! the next round trip.

use std::time::Duration;

use super::corners::{confirm, data, decoded, drain, feed, open, session};
use crate::{Instant, PathId, Role, Session, StreamId};

const PATH: PathId = PathId(0);
const OTHER: PathId = PathId(1);
const MS: Duration = Duration::from_millis(1);

/// A server that received a request after a pause; its program has read it.
fn asked(question: &[u8]) -> (Session, StreamId, Instant) {
    let (mut server, now) = session(Role::Server);
    let stream = 0;
    feed(&mut server, PATH, &[open(stream, 0)], now);
    server.accept(stream, now).unwrap();
    drain(&mut server, PATH, now + 10 * MS);
    let now = now + Duration::from_secs(1);
    // A PING is due after such a pause, and does not matter here.
    drain(&mut server, PATH, now);
    let frames: Vec<_> = (question.chunks(8192).zip(0..))
        .map(|(chunk, index)| data(stream, index * 8192, chunk))
        .collect();
    feed(&mut server, PATH, &frames, now);
    let mut read = Vec::new();
    server
        .read(stream, question.len(), &mut read, now)
        .expect("the stream exists");
    assert_eq!(read, question);
    (server, stream, now)
}

/// A server that received a request half a second ago, has reported it on both of its paths, and
/// has acknowledgments for all of that.
fn with_another_path() -> (Session, StreamId, Instant) {
    let (mut server, stream, now) = asked(b"question");
    server.path_up(OTHER, now);
    drain(&mut server, OTHER, now);
    drain(&mut server, PATH, now + 400 * MS);
    drain(&mut server, OTHER, now + 420 * MS);
    for path in [PATH, OTHER] {
        confirm(&mut server, path, now + 430 * MS);
    }
    (server, stream, now + 500 * MS)
}

/// Whether one of the frames acknowledges stream bytes.
fn reports(frames: &[String]) -> bool {
    frames.iter().any(|frame| frame.starts_with("Ack"))
}

#[test]
fn a_request_gets_no_separate_report_before_the_answer() {
    let (mut server, _, now) = asked(b"question");
    assert_eq!(drain(&mut server, PATH, now), [] as [String; 0]);
    assert_eq!(drain(&mut server, PATH, now + 4 * MS), [] as [String; 0]);
}

#[test]
fn the_report_of_a_request_is_sent_with_the_answer() {
    let (mut server, stream, now) = asked(b"question");
    let now = now + MS;
    server.write(stream, b"answer", now).unwrap();
    let mut out = Vec::new();
    assert!(server.poll_transmit(PATH, 1 << 16, now, &mut out) > 0);
    let with_answer = decoded(&out);
    assert!(with_answer[0].starts_with("Data"), "{with_answer:?}");
    assert!(reports(&with_answer), "{with_answer:?}");
    assert!(!reports(&drain(&mut server, PATH, now + 10 * MS)));
}

#[test]
fn an_included_report_does_not_exceed_the_batch() {
    for answer in 1300..1400 {
        let (mut server, stream, now) = asked(b"question");
        server.write(stream, &vec![7; answer], now).unwrap();
        let mut out = Vec::new();
        server.poll_transmit(PATH, 1400, now, &mut out);
        assert!(out.len() <= 1400, "{answer}: {}", out.len());
    }
}

#[test]
fn without_an_answer_the_report_is_sent_alone() {
    let (mut server, _, now) = asked(b"question");
    let frames = drain(&mut server, PATH, now + 5 * MS);
    assert!(reports(&frames), "{frames:?}");
}

#[test]
fn a_request_earns_no_credit_and_a_transfer_does() {
    for (question, is_credited) in [(327_000, false), (328_000, true)] {
        let (mut server, _, now) = asked(&vec![1; question]);
        let frames = drain(&mut server, PATH, now + 10 * MS);
        let credited = frames.iter().any(|f| f.starts_with("CreditStream"));
        assert_eq!(credited, is_credited, "{question} bytes: {frames:?}");
    }
}

#[test]
fn the_copy_of_a_report_after_a_pause_is_not_early() {
    let (mut server, stream, now) = with_another_path();
    feed(&mut server, PATH, &[data(stream, 8, b"another")], now);
    server.write(stream, b"answer", now).unwrap();
    assert!(reports(&drain(&mut server, PATH, now)));
    assert!(!reports(&drain(&mut server, OTHER, now + 14 * MS)));
    assert!(reports(&drain(&mut server, OTHER, now + 15 * MS)));
}

#[test]
fn every_path_copies_reports_however_fast_bytes_arrive() {
    for order in [[PATH, OTHER], [OTHER, PATH]] {
        let (mut server, stream, mut now) = asked(b"question");
        server.path_up(OTHER, now);
        let (mut last, mut longest) = (now, Duration::ZERO);
        for index in 0..1000 {
            now += Duration::from_micros(500);
            let bytes = data(stream, 8 + index, b"x");
            feed(&mut server, PATH, &[bytes], now);
            for path in order {
                if reports(&drain(&mut server, path, now)) && path == OTHER {
                    longest = longest.max(now - last);
                    last = now;
                }
            }
        }
        assert!(longest <= 66 * MS, "{order:?}: {longest:?}");
        assert!(now - last <= 66 * MS, "{order:?}");
    }
}

#[test]
fn the_best_path_reports_no_later_after_a_copy_on_another() {
    let (mut server, stream, now) = with_another_path();
    feed(&mut server, PATH, &[data(stream, 8, b"another")], now);
    server.write(stream, b"answer", now).unwrap();
    assert!(reports(&drain(&mut server, PATH, now)));
    feed(
        &mut server,
        PATH,
        &[data(stream, 15, b"third")],
        now + 14 * MS,
    );
    assert!(reports(&drain(&mut server, OTHER, now + 15 * MS)));
    assert!(!reports(&drain(&mut server, PATH, now + 18 * MS)));
    assert!(reports(&drain(&mut server, PATH, now + 19 * MS)));
}
