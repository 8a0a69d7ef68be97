//! One end of a bond: the engine's session with one stream. The caller provides the carriers.

use std::ffi::{CStr, c_char};
use std::time::Duration;

use sumlink_engine::{
    Config, Event, LossState, PathId, PathSample, PathState, Role, Session, StreamId,
};

use crate::{bytes, nanos, refuse};

/// Most bytes read at once.
const READ_MOST: usize = 1 << 20;

/// A session, its stream, and the last output.
#[derive(Debug)]
pub struct End {
    session: Session,
    /// Opened by this end, or by the peer.
    stream: Option<StreamId>,
    opens: bool,
    is_closed: bool,
    out: Vec<u8>,
}

/// State of a path's TCP connection, as in Linux's TCP_INFO; see [`PathSample`]. Times are in
/// nanoseconds; all other values are in bytes, except segments and flags.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SumlinkSessionSample {
    /// Smoothed round-trip time.
    pub srtt: u64,
    /// Its variation.
    pub rttvar: u64,
    /// Minimum round-trip time; 0 if unknown.
    pub min_rtt: u64,
    /// Congestion window.
    pub cwnd: u64,
    /// Slow start threshold; 0 before the first loss.
    pub ssthresh: u64,
    /// Sent and not acknowledged.
    pub in_flight: u64,
    /// Written to the socket and not sent.
    pub unsent: u64,
    /// Bytes per second; 0 before the first measurement.
    pub delivery_rate: u64,
    /// Segments sent.
    pub segments: u64,
    /// Of those, segments sent again.
    pub retransmitted: u64,
    /// Segments delivered to the peer's TCP.
    pub delivered: u64,
    /// Bytes received.
    pub received: u64,
    /// Maximum segment size.
    pub mss: u32,
    /// 0: no loss suspected; 1: losses are being repaired; 2: the retransmission timer has fired.
    pub loss: u8,
    /// Whether the socket is full.
    pub full: u8,
}

/// Counters since the start.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SumlinkSessionCounters {
    /// Bytes written.
    pub written: u64,
    /// Bytes read.
    pub read: u64,
    /// Bytes sent more than once.
    pub duplicates_sent: u64,
    /// Most bytes stored behind a gap.
    pub reorder_peak: u64,
    /// Paths that are currently active.
    pub active_paths: u64,
}

impl From<&SumlinkSessionSample> for PathSample {
    fn from(sample: &SumlinkSessionSample) -> Self {
        Self {
            srtt: Duration::from_nanos(sample.srtt),
            rttvar: Duration::from_nanos(sample.rttvar),
            min_rtt: Duration::from_nanos(sample.min_rtt),
            mss: sample.mss,
            cwnd: sample.cwnd,
            ssthresh: (sample.ssthresh > 0).then_some(sample.ssthresh),
            loss: match sample.loss {
                0 => LossState::Open,
                1 => LossState::Recovery,
                _ => LossState::Timeout,
            },
            in_flight: sample.in_flight,
            unsent: sample.unsent,
            local_queue: 0,
            full: sample.full != 0,
            pauses: false,
            delivery_rate: sample.delivery_rate,
            pacing_rate: 0,
            limit: 0,
            segments: sample.segments,
            retransmitted: sample.retransmitted,
            delivered: sample.delivered,
            received: sample.received,
        }
    }
}

impl End {
    fn new(scheduler: &str, opens: bool, now: Duration) -> Result<Self, String> {
        let mut config = Config::new(if opens { Role::Client } else { Role::Server });
        config.scheduler = scheduler.to_owned();
        config.own_schedulers = sumlink_schedulers::all();
        Ok(Self {
            session: Session::new(config, now).map_err(|error| error.to_string())?,
            stream: None,
            opens,
            is_closed: false,
            out: Vec::new(),
        })
    }

    /// The first part of the engine's calling rules.
    fn settle(&mut self, now: Duration) {
        while let Some(event) = self.session.poll_event() {
            match event {
                Event::Opened { stream, .. } => {
                    self.stream.get_or_insert(stream);
                }
                Event::Closed { .. } => self.is_closed = true,
                _ => {}
            }
        }
        if self.opens && self.stream.is_none() {
            // The stream has no credit before the peer's first frame arrives.
            self.stream = self.session.open_stream(b"", None, now).ok();
        }
    }
}

fn at(now: u64) -> Duration {
    Duration::from_nanos(now)
}

/// Creates a session without paths, with the named scheduler. Returns null on failure; then `error`
/// receives a one-line reason, truncated to `room` bytes including the terminating zero. With a
/// nonzero `opens`, this end opens the stream as soon as the peer permits it; the other end must
/// not.
///
/// # Safety
/// `scheduler` is null or zero-terminated; `error` is null or writable for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_session_new(
    scheduler: *const c_char,
    opens: u8,
    now: u64,
    error: *mut c_char,
    room: usize,
) -> *mut End {
    let made = if scheduler.is_null() {
        Err("no scheduler given".into())
    } else {
        match unsafe { CStr::from_ptr(scheduler) }.to_str() {
            Ok(name) => End::new(name, opens != 0, at(now)),
            Err(_) => Err("a name is not UTF-8".into()),
        }
    };
    match made {
        Ok(end) => Box::into_raw(Box::new(end)),
        Err(why) => {
            unsafe { refuse(&why, error, room) };
            std::ptr::null_mut()
        }
    }
}

/// Frees the session. Null is ignored.
///
/// # Safety
/// `end` is null or from [`sumlink_session_new`], and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_session_free(end: *mut End) {
    if !end.is_null() {
        drop(unsafe { Box::from_raw(end) });
    }
}

/// Adds a path whose carrier works in both directions; both ends use the same number.
///
/// # Safety
/// `end` is from [`sumlink_session_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_session_path_up(end: *mut End, path: u32, now: u64) {
    let end = unsafe { &mut *end };
    end.session.path_up(PathId(path), at(now));
    end.session.path_link(PathId(path), path.into());
    end.settle(at(now));
}

/// Removes the path of a carrier that has ended; its unacknowledged data is sent over other paths.
///
/// # Safety
/// `end` is from [`sumlink_session_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_session_path_down(end: *mut End, path: u32, now: u64) {
    let end = unsafe { &mut *end };
    end.session.path_down(PathId(path), at(now));
    end.settle(at(now));
}

/// Updates the measurements of a path's carrier.
///
/// # Safety
/// `end` is from [`sumlink_session_new`]; `sample` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_session_path_sample(
    end: *mut End,
    path: u32,
    sample: *const SumlinkSessionSample,
    now: u64,
) {
    let (end, sample) = unsafe { (&mut *end, &*sample) };
    end.session.path_stats(PathId(path), sample.into(), at(now));
}

/// The next bytes for a path, about `budget`, or null if there are none; readable for `len` bytes
/// until the next call with this session. The carrier must deliver them in order, or the path must
/// be removed.
///
/// # Safety
/// `end` is from [`sumlink_session_new`]; `len` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_session_poll_transmit(
    end: *mut End,
    path: u32,
    budget: usize,
    now: u64,
    len: *mut usize,
) -> *const u8 {
    let end = unsafe { &mut *end };
    end.out.clear();
    let session = &mut end.session;
    session.poll_transmit(PathId(path), budget, at(now), &mut end.out);
    end.settle(at(now));
    unsafe { *len = end.out.len() };
    match end.out.is_empty() {
        true => std::ptr::null(),
        false => end.out.as_ptr(),
    }
}

/// Handles bytes received over a path, in sending order. Returns 1, or 0 if they are invalid, which
/// ends the session.
///
/// # Safety
/// `end` is from [`sumlink_session_new`]; `data` is null or readable for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_session_handle_frames(
    end: *mut End,
    path: u32,
    data: *const u8,
    len: usize,
    now: u64,
) -> u8 {
    let (end, data) = unsafe { (&mut *end, bytes(data, len)) };
    let taken = end.session.handle_frames(PathId(path), data, at(now));
    end.settle(at(now));
    u8::from(taken.is_ok() && !end.is_closed)
}

/// When to call [`sumlink_session_handle_timeout`], or
/// [`SUMLINK_EDGE_NEVER`](crate::SUMLINK_EDGE_NEVER).
///
/// # Safety
/// `end` is from [`sumlink_session_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_session_poll_timeout(end: *const End) -> u64 {
    nanos(unsafe { &*end }.session.poll_timeout())
}

/// Handles the timers that are due.
///
/// # Safety
/// `end` is from [`sumlink_session_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_session_handle_timeout(end: *mut End, now: u64) {
    let end = unsafe { &mut *end };
    end.session.handle_timeout(at(now));
    end.settle(at(now));
}

/// Writes to the stream. Returns the number of bytes accepted; 0 while there is no room or no
/// stream.
///
/// # Safety
/// `end` is from [`sumlink_session_new`]; `data` is null or readable for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_session_write(
    end: *mut End,
    data: *const u8,
    len: usize,
    now: u64,
) -> usize {
    let (end, data) = unsafe { (&mut *end, bytes(data, len)) };
    let Some(stream) = end.stream else {
        return 0;
    };
    end.session.write(stream, data, at(now)).unwrap_or(0)
}

/// Reads in-order bytes of the stream, or returns null if there are none; readable for `len` bytes
/// until the next call with this session.
///
/// # Safety
/// `end` is from [`sumlink_session_new`]; `len` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_session_read(
    end: *mut End,
    now: u64,
    len: *mut usize,
) -> *const u8 {
    let end = unsafe { &mut *end };
    end.out.clear();
    if let Some(stream) = end.stream {
        // A stream that has ended has no data.
        let _ = end.session.read(stream, READ_MOST, &mut end.out, at(now));
        end.settle(at(now));
    }
    unsafe { *len = end.out.len() };
    match end.out.is_empty() {
        true => std::ptr::null(),
        false => end.out.as_ptr(),
    }
}

/// Reads the counters.
///
/// # Safety
/// `end` is from [`sumlink_session_new`]; `counters` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_session_counters(
    end: *const End,
    counters: *mut SumlinkSessionCounters,
) {
    let session = &unsafe { &*end }.session;
    let stats = session.stats();
    let active = session
        .paths()
        .filter(|path| path.state() == PathState::Active);
    let counted = SumlinkSessionCounters {
        written: stats.bytes_written,
        read: stats.bytes_read,
        duplicates_sent: stats.duplicates_sent,
        reorder_peak: stats.reorder_peak,
        active_paths: active.count() as u64,
    };
    unsafe { *counters = counted };
}
