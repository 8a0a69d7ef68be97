//! Live video: capture and arrival of each picture, and the quality for a viewer.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{quantile, sorted};
use crate::scenario;

/// A picture that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    /// Capture time at the camera, in seconds since the start of the run.
    pub captured_s: f64,
    /// Arrival of its last byte, in the same unit.
    pub arrived_s: f64,
    /// Its size in bytes, without the headers of the transport stream.
    pub bytes: u64,
}

/// Figures of a stream over the measured time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Video {
    /// The link that it was bound to, if any.
    pub link: Option<String>,
    /// Delivered rate in bits per second.
    pub bitrate_bps: f64,
    /// Pictures captured early enough to be shown before the end.
    pub frames: u64,
    /// The number of them that did not arrive within `buffer` after their capture.
    pub late: u64,
    /// Pictures that never arrived although later ones did.
    pub lost: u64,
    /// Seconds for which a player that waits for missing pictures stood still.
    pub stall_s: f64,
    /// Number of such interruptions.
    pub stalls: u64,
    /// Milliseconds from capture to arrival of the arrived pictures: median, 99th percentile,
    /// maximum.
    pub delay_p50_ms: f64,
    /// See `delay_p50_ms`.
    pub delay_p99_ms: f64,
    /// See `delay_p50_ms`.
    pub delay_max_ms: f64,
    /// All arrived pictures, the warm-up included, in order of arrival.
    pub all: Vec<Frame>,
}

/// Evaluates the pictures that arrived until `end_s`, starting after the warm-up.
///
/// The player shows each picture `buffer` after its capture. If a picture is missing, the player
/// stands still until it arrives, and stays delayed by that time. A picture that is still missing
/// at the end counts until then. The camera's clock starts with the first picture, with one every
/// `1 / frames` seconds.
pub fn watch(all: Vec<Frame>, video: &scenario::Video, warmup: Duration, end_s: f64) -> Video {
    let (from, buffer) = (warmup.as_secs_f64(), video.buffer.as_secs_f64());
    let pause = 1.0 / f64::from(video.frames);
    let mut seen = Video::default();
    let bits = all
        .iter()
        .filter(|frame| (from..end_s).contains(&frame.arrived_s));
    let bits: f64 = bits.map(|frame| frame.bytes as f64 * 8.0).sum();
    seen.bitrate_bps = bits / (end_s - from).max(f64::MIN_POSITIVE);

    // Positions on the camera's clock; without any picture it starts with the run.
    let first = all.first().map_or(0.0, |frame| frame.captured_s);
    let place = |captured_s: f64| ((captured_s - first) / pause).round() as i64;
    let begin = ((from - first) / pause - ROUNDING).ceil().max(0.0) as i64;
    let over = ((end_s - buffer - first) / pause - ROUNDING).ceil() as i64;
    seen.frames = u64::try_from(over - begin).unwrap_or(0);
    let mut arrivals = vec![None; usize::try_from(seen.frames).unwrap_or(0)];
    let mut last = -1;
    for frame in &all {
        let index = place(frame.captured_s) - begin;
        last = last.max(index);
        if let Some(slot) = usize::try_from(index)
            .ok()
            .and_then(|i| arrivals.get_mut(i))
        {
            *slot = Some(frame.arrived_s);
        }
    }
    let mut delays = Vec::new();
    let mut behind = 0.0;
    for (index, arrived) in arrivals.iter().enumerate() {
        let captured = first + (begin + index as i64) as f64 * pause;
        let there = match arrived {
            Some(arrived) => {
                delays.push((arrived - captured) * 1e3);
                *arrived
            }
            // A decoder repeats the previous picture; at the end of the stream the player can only
            // wait for the end.
            None if (index as i64) < last => {
                seen.lost += 1;
                continue;
            }
            None => end_s,
        };
        seen.late += u64::from(there > captured + buffer);
        let due = captured + buffer + behind;
        if there > due {
            seen.stalls += 1;
            behind += there - due;
        }
        if arrived.is_none() {
            // All further pictures share this wait and are late as well.
            seen.late += (arrivals.len() - index - 1) as u64;
            break;
        }
    }
    seen.stall_s = behind;
    let delays = sorted(delays);
    let of = |part: f64| quantile(&delays, part).unwrap_or_default();
    (seen.delay_p50_ms, seen.delay_p99_ms, seen.delay_max_ms) = (of(0.5), of(0.99), of(1.0));
    seen.all = all;
    seen
}

/// Two times are equal if they differ by less than this part of a picture's time.
const ROUNDING: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::VideoProtocol;

    /// Ten pictures per second, shown half a second later, for ten seconds, the first of which is
    /// the warm-up.
    fn watched(change: impl Fn(usize, &mut Frame) -> bool) -> Video {
        let video = scenario::Video {
            protocol: VideoProtocol::MpegTs,
            rate: 1_000_000,
            size: (640, 360),
            frames: 10,
            buffer: Duration::from_millis(500),
        };
        let frames = (0..100).filter_map(|n| {
            let captured_s = n as f64 / 10.0;
            let mut frame = Frame {
                captured_s,
                arrived_s: captured_s + 0.05,
                bytes: 1000,
            };
            (change(n, &mut frame) && frame.arrived_s < 10.0).then_some(frame)
        });
        watch(frames.collect(), &video, Duration::from_secs(1), 10.0)
    }

    #[test]
    fn a_steady_stream_never_stalls() {
        let seen = watched(|_, _| true);
        assert_eq!(
            (seen.frames, seen.late, seen.lost, seen.stalls),
            (85, 0, 0, 0)
        );
        assert!((seen.delay_p50_ms - 50.0).abs() < 1e-6 && (seen.delay_max_ms - 50.0).abs() < 1e-6);
        assert!(
            (seen.bitrate_bps - 80_000.0).abs() < 1_000.0,
            "{}",
            seen.bitrate_bps
        );
    }

    #[test]
    fn a_gap_stalls_once_and_the_player_stays_behind() {
        // Nothing arrives for two seconds, then everything at once.
        let seen = watched(|_, frame| {
            if (4.0..6.0).contains(&frame.captured_s) {
                frame.arrived_s = frame.arrived_s.max(6.0);
            }
            true
        });
        assert_eq!((seen.lost, seen.stalls), (0, 1));
        assert!((seen.stall_s - 1.5).abs() < 1e-6, "{}", seen.stall_s);
        assert!((14..=15).contains(&seen.late), "{}", seen.late);
        assert!((seen.delay_max_ms - 2000.0).abs() < 1e-6);
    }

    #[test]
    fn missing_pictures_are_lost_or_waited_for() {
        let seen = watched(|n, _| n != 50);
        assert_eq!((seen.lost, seen.late, seen.stalls), (1, 0, 0));
        // Nothing arrives after second 7: the player waits for pictures due after 7.5 until the
        // end.
        let seen = watched(|n, _| n < 70);
        assert_eq!((seen.lost, seen.late, seen.stalls), (0, 25, 1));
        assert!((seen.stall_s - 2.5).abs() < 1e-6, "{}", seen.stall_s);
    }

    #[test]
    fn all_pictures_are_late_if_none_arrives() {
        let seen = watched(|_, _| false);
        assert_eq!((seen.frames, seen.late, seen.lost), (85, 85, 0));
        assert!(seen.stall_s > 8.0 && seen.bitrate_bps == 0.0);
        assert_eq!(seen.delay_p50_ms, 0.0);
    }
}
