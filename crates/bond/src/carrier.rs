//! The policy of one carrier: its socket's capacity, its budget, and the settings of its TCP.

use std::time::Duration;

use sumlink_engine::{LossState, PathSample, SustainedRate};

use crate::acknowledgments::Acknowledgments;
use crate::call_cap::{CallCap, CallCapState};
use crate::congestion::{self, Chooser, MODEL_BASED};
use crate::large::Large;
use crate::low_water::{self, Reserve};
use crate::restart::{self, Restart};
use crate::socket::{RTO_MIN, Report, SEGMENT, Socket};
use crate::spacing::Spacing;
use crate::{CaState, Instant, TcpInfo, budget};

/// Maximum age of the TCP_INFO behind a decision.
const SAMPLE_AGE: Duration = Duration::from_millis(1);

/// A round trip below one in this number of TCP's least timeout is short.
const SHORT_TRIP: u32 = 10;

/// Minimum time between two changes of TCP_NOTSENT_LOWAT, unless it is to be doubled.
const LOWAT_PAUSE: Duration = Duration::from_millis(50);

/// A carrier is young until this many bytes have been acknowledged, after it was made and after a
/// pause in which TCP forgets its window (RFC 5681, section 4.1): four round trips of slow start.
const YOUTH: u64 = 256 * 1024;

/// TCP_NOTSENT_LOWAT of a young carrier, which makes it writable only when nothing waits.
const YOUNG_LOWAT: u32 = 2;

/// The cap for a call is corrected by at least this part of the present limit, one in this number.
const MIN_CORRECTION: u64 = 100;

/// The policy of one carrier.
///
/// The driver calls [`Carrier::must_ask_first`] before it writes, reports each write with
/// [`Carrier::handed`], and takes a [`Carrier::sample`] for the engine before each decision.
#[derive(Debug)]
pub struct Carrier {
    /// Name of the congestion control.
    congestion: String,
    /// Chooses the congestion control by measurement, if configured.
    chooser: Option<Chooser>,
    /// Detects outages that have left a small window.
    restart: Restart,
    /// The socket refuses a change to BBR, so slow start cannot be restarted.
    cannot_restart: bool,
    spacing: Spacing,
    large: Large,
    /// The newest TCP_INFO, and when it was taken.
    info: TcpInfo,
    sampled: Instant,
    /// Current value of TCP_NOTSENT_LOWAT, and when it was set.
    lowat: u32,
    lowat_set: Instant,
    /// How long the data in the socket should last under BBR.
    reserve: Reserve,
    /// The socket refused bytes at the last write. If it is empty at the next visit, the visit is
    /// too late.
    is_refused: bool,
    /// The carrier is young until TCP has this many bytes acknowledged.
    young_until: u64,
    /// Limit on its sending rate by a policy, in bytes per second.
    limit: Option<u64>,
    /// Keeps the link's queue short while a call uses the link.
    call_cap: CallCap,
    /// Carriers of the session over the link while a call uses it.
    beside_call: Option<u32>,
    /// The limit that the socket has.
    socket_limit: Option<u64>,
    /// The rate that it delivers for longer than a burst.
    sustained: SustainedRate,
    began: Instant,
    /// Bytes written to the socket since TCP_INFO was taken.
    handed: u64,
    acknowledgments: Acknowledgments,
    /// Frame bytes in records that the socket has not accepted yet.
    unwritten: u64,
}

impl Carrier {
    /// A new carrier; sets the first low-water mark of its socket.
    ///
    /// `congestion` is the name of its congestion control, `info` its first TCP_INFO.
    pub fn new(congestion: String, info: TcpInfo, socket: &mut impl Socket, now: Instant) -> Self {
        let mut carrier = Self {
            congestion,
            chooser: None,
            restart: Restart::default(),
            cannot_restart: false,
            spacing: Spacing::default(),
            large: Large::default(),
            sampled: now,
            lowat: crate::socket::INITIAL_NOTSENT_LOWAT,
            lowat_set: now,
            reserve: Reserve::new(now),
            is_refused: false,
            young_until: info.bytes_acked + YOUTH,
            limit: None,
            call_cap: CallCap::default(),
            beside_call: None,
            socket_limit: None,
            sustained: SustainedRate::default(),
            began: now,
            handed: 0,
            acknowledgments: Acknowledgments::new(now),
            info,
            unwritten: 0,
        };
        carrier.set_lowat(YOUNG_LOWAT, socket, now);
        carrier
    }

    /// Turns on the choice of the congestion control by measurement.
    pub fn choose_congestion(&mut self) {
        self.chooser = Some(Chooser::new());
    }

    /// Name of the congestion control.
    pub fn congestion(&self) -> &str {
        &self.congestion
    }

    /// The newest TCP_INFO.
    pub fn info(&self) -> &TcpInfo {
        &self.info
    }

    /// Current value of TCP_NOTSENT_LOWAT, in bytes.
    pub fn lowat(&self) -> u32 {
        self.lowat
    }

    /// Whether bytes were written to the socket since TCP_INFO was taken.
    pub fn is_handed(&self) -> bool {
        self.handed > 0
    }

    /// Limits the rate, in bytes per second; `None` for no limit.
    pub fn set_limit(&mut self, rate: Option<u64>, socket: &mut impl Socket) {
        self.limit = rate;
        self.apply_limits(socket);
    }

    /// Records that a call uses the carrier's link now, and this side is to keep the link's queue
    /// short: with the number of the session's carriers over it. `None` if no call does.
    pub fn set_call(&mut self, carriers: Option<u32>, socket: &mut impl Socket) {
        if carriers.is_none() && self.beside_call.is_some() {
            self.call_cap.release();
            self.beside_call = None;
            self.apply_limits(socket);
        }
        self.beside_call = carriers;
    }

    /// The state of the carrier's cap for calls on its link.
    pub fn call_cap(&self, now: Instant) -> CallCapState {
        match self.beside_call {
            Some(_) => self.call_cap.state(now),
            None => CallCapState::Off,
        }
    }

    /// The highest rate at which it may send, in bytes per second.
    fn max_rate(&self) -> Option<u64> {
        self.limit.into_iter().chain(self.call_cap.rate()).min()
    }

    fn apply_limits(&mut self, socket: &mut impl Socket) {
        let wanted = self.max_rate();
        let is_settled = match (wanted, self.socket_limit) {
            // Small corrections are not worth a system call; a policy's limit is exact.
            (Some(wanted), Some(set)) if self.limit != Some(wanted) => {
                wanted.abs_diff(set) <= set / MIN_CORRECTION
            }
            (wanted, set) => wanted == set,
        };
        if !is_settled {
            self.socket_limit = wanted;
            socket.limit(wanted);
        }
        if wanted.is_some() {
            // The limit makes TCP pace.
            self.spacing = Spacing::Settled;
        }
    }

    /// Records that `frames` bytes of frames were made into records.
    pub fn queued(&mut self, frames: u64) {
        self.unwritten += frames;
    }

    /// Records that the socket has accepted bytes of records; `rest` says whether records are left.
    pub fn handed(&mut self, bytes: u64, rest: bool) {
        self.handed += bytes;
        self.acknowledgments.sent();
        if !rest {
            self.unwritten = 0;
        }
    }

    /// Records whether the socket refused bytes at the last write.
    pub fn set_refused(&mut self, is_refused: bool) {
        self.is_refused = is_refused;
    }

    /// Records that bytes have arrived.
    pub fn arrived(&mut self, bytes: u64, now: Instant) {
        self.acknowledgments.arrived(bytes, &self.info, now);
    }

    /// Whether TCP should acknowledge received data at once; `sends` says that records wait to be
    /// written, which carry the acknowledgment.
    pub fn acknowledges_now(&mut self, sends: bool) -> bool {
        !sends && self.acknowledgments.take_due(&self.info)
    }

    /// Bytes to hand over at once. A young carrier gets the amount that TCP can send now plus one
    /// segment, after which the kernel reports that it can send more. On a slow link the others get
    /// one short record, so that the reader need not wait for a full one.
    pub fn budget(&self) -> usize {
        let segment = u64::from(self.info.snd_mss);
        let short = budget::short_record(self.record_rate(), segment);
        let bytes = if self.is_young() {
            let info = &self.info;
            let waits = info.notsent_bytes + self.unwritten;
            let window = info.snd_cwnd_bytes.min(self.limited_window());
            let room = window.saturating_sub(info.unacked_bytes + waits);
            budget::whole_segments(room, waits, segment)
        } else {
            let part = budget::part_of(self.lowat);
            short.map_or(part, |short| part.min(short - budget::RECORD_OVERHEAD))
        };
        bytes as usize
    }

    /// The rate that decides about the size of records, in bytes per second. A carrier that had
    /// little to send has not shown its rate; its window over a round trip is no less than that.
    fn record_rate(&self) -> f64 {
        let info = &self.info;
        match info.delivery_rate_bytes_per_s {
            rate if rate > 0 && !info.app_limited => rate as f64,
            _ => info.snd_cwnd_bytes as f64 / info.srtt.as_secs_f64().max(1e-6),
        }
    }

    /// Maximum bytes in flight under the carrier's limit, plus those that leave until the next
    /// visit. Any window beyond that would wait in the socket.
    fn limited_window(&self) -> u64 {
        let lasts = self.info.srtt + low_water::TIME;
        self.max_rate().map_or(u64::MAX, |limit| {
            (limit as f64 * lasts.as_secs_f64()) as u64
        })
    }

    /// Whether the window is still small and growing.
    fn is_young(&self) -> bool {
        self.info.bytes_acked < self.young_until
    }

    /// Whether the socket may accept more than intended. If so, the driver must check that less
    /// than [`Carrier::wakes_at`] waits there before each write.
    ///
    /// A young carrier is checked while data waits there for TCP's window to open: a window of ten
    /// segments and a low-water mark of the same size would be taken for twice the window. Waiting
    /// data leaves a round trip later, and another path could have delivered it by then. Other
    /// carriers are checked when the low-water mark is small: TCP applies it only where a new
    /// segment begins in its queue, and such a segment takes 64 KiB.
    pub fn must_ask_first(&mut self, socket: &mut impl Socket, now: Instant) -> bool {
        if self.is_young() && (self.handed > 0 || self.info.notsent_bytes > 0) {
            self.refresh(socket, now);
        }
        match self.is_young() {
            true => self.info.notsent_bytes > 0,
            false => self.is_exact(),
        }
    }

    /// The kernel reports a socket as writable when fewer bytes than this wait in it.
    pub fn wakes_at(&self) -> u64 {
        u64::from(self.lowat / 2)
    }

    /// Whether its low-water mark is so small that TCP alone would accept far more.
    fn is_exact(&self) -> bool {
        self.lowat < 2 * SEGMENT
    }

    /// The current TCP statistics: at most 1 ms old, and for a young carrier no older than the last
    /// write.
    ///
    /// `local_queue` is the number of bytes in the interface's queue, `has_records` says that
    /// records wait to be written.
    pub fn sample(
        &mut self,
        socket: &mut impl Socket,
        local_queue: u64,
        has_records: bool,
        now: Instant,
    ) -> PathSample {
        let is_old = now.saturating_sub(self.sampled) >= SAMPLE_AGE;
        // TCP_INFO does not yet include the bytes just written. Without them, those bytes would
        // look acknowledged, and the bytes behind them would be expected too early.
        let known = self.info.unacked_bytes + self.info.notsent_bytes;
        let is_behind = self.handed > known || self.handed > 0 && self.is_young();
        if is_old || is_behind || self.info.srtt.is_zero() {
            self.refresh(socket, now);
        }
        let info = &self.info;
        PathSample {
            srtt: info.srtt,
            rttvar: info.rttvar,
            min_rtt: info.min_rtt.unwrap_or_default(),
            mss: info.snd_mss,
            cwnd: info.snd_cwnd_bytes,
            ssthresh: info.snd_ssthresh_bytes,
            loss: match info.ca_state {
                CaState::Open => LossState::Open,
                CaState::Loss => LossState::Timeout,
                CaState::Disorder | CaState::Cwr | CaState::Recovery => LossState::Recovery,
            },
            in_flight: info.unacked_bytes,
            unsent: info.notsent_bytes + self.unwritten,
            local_queue,
            full: has_records || self.is_exact() && info.notsent_bytes >= self.wakes_at(),
            pauses: self.is_model_based() && pauses(info),
            delivery_rate: info.delivery_rate_bytes_per_s.min(self.max_sustained()),
            pacing_rate: info.pacing_rate_bytes_per_s.unwrap_or(0),
            limit: self.max_rate().unwrap_or(0),
            segments: u64::from(info.segs_out),
            retransmitted: u64::from(info.total_retrans),
            delivered: u64::from(info.delivered),
            received: info.bytes_received,
        }
    }

    /// Reads TCP_INFO and acts on it.
    pub fn refresh(&mut self, socket: &mut impl Socket, now: Instant) {
        (self.sampled, self.handed) = (now, 0);
        if let Some(info) = socket.info() {
            let delivered = u64::from(info.delivered) * u64::from(info.snd_mss);
            let is_backlogged = info.notsent_bytes > 0;
            let since = now.saturating_sub(self.began);
            self.sustained
                .observe(since, delivered, is_backlogged, info.srtt);
            self.info = info;
            self.large.observe(&self.info);
            if let Some(carriers) = self.beside_call {
                self.call_cap.observe(&self.info, carriers, now);
                self.apply_limits(socket);
            }
        }
        if self.is_refused {
            self.reserve.visited(self.info.notsent_bytes == 0, now);
        }
        // BBR keeps its window through a pause.
        let forgets = !self.is_model_based();
        if forgets && self.info.since_data_sent > self.info.rto && self.info.unacked_bytes == 0 {
            self.young_until = self.info.bytes_acked + YOUTH;
        }
        match self.is_young() {
            true => self.set_lowat(YOUNG_LOWAT, socket, now),
            false => self.adapt_lowat(socket, now),
        }
        if !self.is_young() && self.spacing.begins(&self.info) {
            socket.pace();
        }
        self.adapt_congestion(socket, now);
        self.regain_window(socket, now);
    }

    /// Under BBR, records whether a socket that was full has run empty, at most once a millisecond.
    pub fn look_into_full_socket(&mut self, socket: &mut impl Socket, now: Instant) {
        let is_due = now.saturating_sub(self.sampled) >= SAMPLE_AGE;
        if self.is_refused && self.is_model_based() && is_due {
            self.refresh(socket, now);
        }
    }

    /// The highest rate that TCP's measurements may show, in bytes per second.
    ///
    /// A token bucket fills while TCP waits: under BBR, which empties the path's queue in order to
    /// measure, and under any control until a timeout. Tokens gained during a timeout distort the
    /// rate of a short round trip only.
    fn max_sustained(&self) -> u64 {
        let info = &self.info;
        let round_trip = info.min_rtt.unwrap_or(info.srtt);
        if !self.is_model_based() && round_trip >= RTO_MIN / SHORT_TRIP {
            return u64::MAX;
        }
        let (ssthresh, cwnd) = (info.snd_ssthresh_bytes, info.snd_cwnd_bytes);
        match SustainedRate::is_growing(ssthresh, cwnd, info.bytes_acked) {
            true => u64::MAX,
            false => self.sustained.bound(u64::MAX),
        }
    }

    fn is_model_based(&self) -> bool {
        self.congestion == MODEL_BASED
    }

    /// For a carrier without progress: whether its large packets seem to be lost and its small ones
    /// not.
    pub fn loses_large_packets(&self) -> bool {
        self.large.are_lost(&self.info)
    }

    /// Bytes sent and acknowledged, and bytes received.
    pub fn bytes_moved(&self) -> u64 {
        self.info.bytes_acked + self.info.bytes_received
    }

    /// Whether its packets wait in a queue on the path.
    pub fn is_queueing(&self) -> bool {
        let least = self.info.min_rtt.unwrap_or(self.info.srtt);
        congestion::is_queueing(self.info.srtt.saturating_sub(least), least)
    }

    /// Sets the low-water mark to the data that leaves in a few milliseconds: enough to keep TCP
    /// busy between two visits, and little enough to be committed late.
    fn adapt_lowat(&mut self, socket: &mut impl Socket, now: Instant) {
        let reserve = self.is_model_based().then_some(&self.reserve);
        let most = self
            .max_sustained()
            .min(self.max_rate().unwrap_or(u64::MAX));
        let wanted = low_water::wanted(&self.info, reserve, most);
        let is_due = now.saturating_sub(self.lowat_set) >= LOWAT_PAUSE;
        let has_grown = wanted / 2 >= self.lowat;
        if has_grown || is_due && wanted.abs_diff(self.lowat) > self.lowat / 4 {
            self.set_lowat(wanted, socket, now);
        }
    }

    fn set_lowat(&mut self, lowat: u32, socket: &mut impl Socket, now: Instant) {
        if lowat != self.lowat {
            self.lowat_set = now;
            if socket.set_notsent_lowat(lowat) {
                self.lowat = lowat;
            }
        }
    }

    fn adapt_congestion<S: Socket>(&mut self, socket: &mut S, now: Instant) {
        let Some(chooser) = &mut self.chooser else {
            return;
        };
        let Some(change) = chooser.observe(now, &self.info) else {
            return;
        };
        let reason = change.reason.as_str();
        match socket.set_congestion(change.to) {
            Ok(()) => {
                let to = change.to;
                socket.report(Report::Changed { to, reason });
                change.to.clone_into(&mut self.congestion);
            }
            Err(error) => {
                let error = &error;
                socket.report(Report::ChangeRefused { reason, error });
                chooser.refused(now);
            }
        }
    }

    /// Restarts slow start after an outage has left a small window.
    fn regain_window(&mut self, socket: &mut impl Socket, now: Instant) {
        if self.cannot_restart {
            return;
        }
        if !restart::LOSS_BASED.contains(&self.congestion.as_str()) {
            self.restart = Restart::default();
        } else if self.restart.observe(now, &self.info) {
            self.begin_slow_start(socket);
        }
    }

    /// Whether slow start can be restarted: false once the socket has refused to change to BBR.
    pub fn can_restart(&self) -> bool {
        !self.cannot_restart
    }

    /// Restarts slow start: the change to BBR makes TCP forget its slow start threshold.
    pub fn begin_slow_start(&mut self, socket: &mut impl Socket) {
        let window = self.info.snd_cwnd_bytes;
        if let Err(error) = socket.set_congestion(MODEL_BASED) {
            self.cannot_restart = true;
            let error = &error;
            socket.report(Report::NoSlowStart { window, error });
            return;
        }
        socket.report(Report::SlowStart { window });
        if let Err(error) = socket.set_congestion(&self.congestion) {
            let (with, error) = (MODEL_BASED, &error);
            socket.report(Report::Stays { with, error });
            MODEL_BASED.clone_into(&mut self.congestion);
        }
    }
}

/// Whether BBR nearly stops sending to measure the least round trip: with four segments in flight
/// (PROBE_RTT of its first version; later ones continue with half of their window).
fn pauses(info: &TcpInfo) -> bool {
    let window = 4 * u64::from(info.snd_mss);
    info.ca_state == CaState::Open && info.snd_cwnd_bytes <= window
}
