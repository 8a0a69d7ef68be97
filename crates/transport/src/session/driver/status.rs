//! The status of a session.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sumlink_bond::{CallCapState, NOT_DELIVERING, is_delivering};
use sumlink_engine::{Class, PathState, PathStats, Priority, Role, Session};

use super::Driver;
use super::streams::Local;
use crate::api::status::{PathStatus, SessionStatus, StreamStatus};
use crate::carrier::Carrier;
use crate::session::command::Use;

/// Links that are not connected: state and reason by name. Written by the manager, read for the
/// status.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkStates(Arc<Mutex<BTreeMap<String, (&'static str, String)>>>);

impl LinkStates {
    /// Sets the link's state and reason.
    pub(crate) fn set(&self, link: &str, state: &'static str, reason: String) {
        let mut states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        states.insert(link.to_owned(), (state, reason));
    }

    /// Removes the link: it is connected, or no longer in use.
    pub(crate) fn clear(&self, link: &str) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(link);
    }

    /// Removes the links that are no longer known.
    pub(crate) fn retain(&self, is_known: impl Fn(&str) -> bool) {
        let mut states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        states.retain(|link, _| is_known(link));
    }

    /// The links as unconnected paths.
    pub(crate) fn paths(&self) -> Vec<PathStatus> {
        let all = self.all().into_iter();
        all.map(|(link, (state, reason))| PathStatus {
            link,
            state: state.to_owned(),
            reason,
            ..PathStatus::default()
        })
        .collect()
    }

    fn all(&self) -> BTreeMap<String, (&'static str, String)> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Goodput over about the last second.
#[derive(Debug, Default)]
pub(super) struct RateWindow {
    /// Time, bytes acknowledged by the peer, bytes read.
    marks: VecDeque<(Instant, u64, u64)>,
}

/// Time between two marks, and the period that they cover.
const MARK_EVERY: Duration = Duration::from_millis(100);
const REACH: Duration = Duration::from_millis(1100);

impl RateWindow {
    pub(super) fn note(&mut self, now: Instant, engine: &Session) {
        if self
            .marks
            .back()
            .is_none_or(|(at, ..)| now.duration_since(*at) >= MARK_EVERY)
        {
            // A local program may write seconds ahead of the links in one go: the bytes taken from
            // it do not show the links' rate.
            let stats = engine.stats();
            self.marks
                .push_back((now, stats.bytes_delivered, stats.bytes_read));
            while self.marks.len() > 2 && now.duration_since(self.marks[1].0) >= REACH {
                self.marks.pop_front();
            }
        }
    }

    /// Bit/s delivered and read since the newest mark that is at least a second old, or since the
    /// oldest mark.
    pub(super) fn rates(&self, now: Instant, delivered: u64, read: u64) -> (f64, f64) {
        let old =
            |(at, ..): &&(Instant, u64, u64)| now.duration_since(*at) >= Duration::from_secs(1);
        let mark = self.marks.iter().rev().find(old).or(self.marks.front());
        let Some((at, before_delivered, before_read)) = mark else {
            return (0.0, 0.0);
        };
        let seconds = now.duration_since(*at).as_secs_f64().max(0.1);
        let rate = |bytes: u64, before: u64| bytes.saturating_sub(before) as f64 * 8.0 / seconds;
        (rate(delivered, *before_delivered), rate(read, *before_read))
    }
}

/// Maximum number of streams in a status.
const MAX_STREAMS: usize = 1000;

impl Driver {
    pub(super) fn look(&self) -> Use {
        let streams_are_leases = self.locals.values().all(Local::is_lease);
        Use {
            delivers: self.is_delivering(),
            is_idle: streams_are_leases && self.engine.flow_stats().next().is_none(),
        }
    }

    /// Whether any path is known to deliver.
    pub(super) fn is_delivering(&self) -> bool {
        is_delivering(&self.engine.path_stats_all(self.now()))
    }

    pub(super) fn status(&self) -> SessionStatus {
        let clock = Instant::now();
        let stats = self.engine.stats();
        let (sent, received) = self
            .rates
            .rates(clock, stats.bytes_delivered, stats.bytes_read);
        let all = self.engine.path_stats_all(self.now());
        let total = |count: fn(&PathStats) -> u64| all.iter().map(count).sum::<u64>().max(1) as f64;
        let (all_sent, all_received) = (
            total(|path| path.data_sent),
            total(|path| path.data_received),
        );
        let policies = self.listeners.policies.as_ref();
        let label = |link: &str| policies.map_or_else(String::new, |known| known.label(link));
        let mut paths: Vec<PathStatus> = Vec::new();
        for path in &all {
            let carrier = self.carriers.iter().find(|carrier| carrier.id == path.id);
            paths.extend(carrier.map(|carrier| {
                let mut status = path_status(path, carrier, all_sent, all_received);
                status.label = label(&carrier.link);
                if let Some(cap) = policies.and_then(|known| known.cap_reached(&carrier.link)) {
                    status.reason = format!("{}; {cap}", status.reason);
                }
                status
            }));
        }
        for absent in self.listeners.links.paths() {
            if !paths.iter().any(|path| path.link == absent.link) {
                let label = label(&absent.link);
                paths.push(PathStatus { label, ..absent });
            }
        }
        let present = all.iter().filter_map(|path| {
            let carrier = self.carriers.iter().find(|carrier| carrier.id == path.id)?;
            Some((carrier.link.as_str(), path, carrier.tcp_info()))
        });
        let datagrams = self.engine.datagram_path_stats_all(self.now());
        let mut links = self.totals.with(present, &datagrams);
        for link in &mut links {
            link.label = label(&link.link);
        }
        SessionStatus {
            role: match self.role {
                Role::Client => "client".to_owned(),
                Role::Server => "server".to_owned(),
            },
            server: String::new(),
            server_name: String::new(),
            session: super::report::hex(&self.id),
            peer: self.peer.to_string(),
            client: String::new(),
            uptime_s: self.epoch.elapsed().as_secs_f64(),
            scheduler: self.scheduler.clone(),
            bytes_sent: stats.bytes_written,
            bytes_received: stats.bytes_read,
            send_goodput_bps: sent,
            receive_goodput_bps: received,
            streams_open: stats.streams_open,
            streams_total: stats.streams_total,
            streams_by_class: by_class(self.engine.stream_stats().map(|stream| stream.class)),
            reorder_bytes: stats.reorder,
            reorder_peak_bytes: stats.reorder_peak,
            in_order_wait_p99_ms: stats.in_order_wait_p99.as_secs_f64() * 1e3,
            receive_buffer_bytes: stats.receive_buffered + self.pools.down.held(),
            send_buffer_bytes: stats.send_buffered + self.pools.up.held(),
            memory_limit_bytes: self.memory,
            duplicates_sent_bytes: stats.duplicates_sent,
            duplicates_received_bytes: stats.duplicates_received,
            paths,
            links,
            streams: self.stream_statuses(),
            datagram_paths: self.datagram_paths(),
            flows: self.flow_statuses(),
            flows_by_class: by_class(self.engine.flow_stats().map(|flow| flow.class)),
            datagrams_dropped: self.datagrams_dropped(),
            published: Vec::new(),
        }
    }

    fn stream_statuses(&self) -> Vec<StreamStatus> {
        let streams = self.engine.stream_stats().take(MAX_STREAMS);
        streams
            .map(|stream| StreamStatus {
                id: stream.id,
                target: self
                    .locals
                    .get(&stream.id)
                    .map(Local::target)
                    .unwrap_or_default(),
                class: stream.class.name().to_owned(),
                learned: stream.learned,
                bytes_sent: stream.bytes_written,
                bytes_received: stream.bytes_read,
            })
            .collect()
    }
}

fn path_status(
    path: &PathStats,
    carrier: &Carrier,
    all_sent: f64,
    all_received: f64,
) -> PathStatus {
    let (state, reason) = match path.state {
        PathState::Stalled => {
            let silent = path.unacknowledged_for.unwrap_or_default().as_millis();
            (
                "stalled",
                format!("nothing delivered for {silent} ms; its data goes over the other paths"),
            )
        }
        PathState::Active
            if path
                .unacknowledged_for
                .is_some_and(|time| time >= NOT_DELIVERING) =>
        {
            let silent = path.unacknowledged_for.unwrap_or_default().as_millis();
            (
                "stalled",
                format!("nothing delivered for {silent} ms, and no other path delivers either"),
            )
        }
        PathState::Active => {
            let (age, restraint) = (path.age.as_secs(), restraint(path));
            let packets = carrier.packet_limit.map_or_else(String::new, |limit| {
                format!("; MTU {limit}: larger packets are lost on the way")
            });
            let calls = call_reason(carrier);
            (
                "active",
                format!("connected for {age} s{packets}{restraint}{calls}"),
            )
        }
    };
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    let call_cap_bps = match carrier.call_cap().0 {
        CallCapState::Capped { rate, .. } => Some(rate as f64 * 8.0),
        _ => None,
    };
    PathStatus {
        id: Some(path.id.0),
        link: carrier.link.clone(),
        label: String::new(),
        priority: path.policy.priority.name().to_owned(),
        state: state.to_owned(),
        reason,
        local: carrier.local.to_string(),
        remote: carrier.remote.to_string(),
        congestion: carrier.congestion().to_owned(),
        mtu_bytes: carrier.packet_limit,
        call_cap_bps,
        call_cap_reason: call_reason(carrier).trim_start_matches("; ").to_owned(),
        srtt_ms: milliseconds(path.srtt),
        rttvar_ms: milliseconds(path.rttvar),
        cwnd_bytes: path.cwnd,
        in_flight_bytes: carrier.tcp_info().unacked_bytes,
        local_queue_bytes: path.local_queue,
        send_rate_bps: bits(path.send_rate),
        receive_rate_bps: bits(path.receive_rate),
        bytes_sent: path.bytes_sent,
        bytes_received: path.bytes_received,
        retransmissions: path.retransmitted,
        duplicates_sent_bytes: path.duplicates_sent,
        send_share: path.data_sent as f64 / all_sent,
        receive_share: path.data_received as f64 / all_received,
        selection: path.selection.name().to_owned(),
        selection_reason: path.selection_reason.clone(),
    }
}

/// The state of the path's cap for calls on its link, in words; empty without a cap.
fn call_reason(carrier: &Carrier) -> String {
    match carrier.call_cap() {
        (CallCapState::Capped { rate, queue }, _) => {
            let (mbit, queue) = (rate as f64 * 8e-6, queue.as_millis());
            format!("; a call uses the link: at most {mbit:.1} Mbit/s, queue {queue} ms")
        }
        (CallCapState::GivenUp { .. }, rest) => {
            let rest = rest.as_secs() + 1;
            format!("; a call uses the link, whose queue others fill: no cap for {rest} s")
        }
        (CallCapState::Off, _) => String::new(),
    }
}

/// How many there are of each class.
fn by_class(classes: impl Iterator<Item = Class>) -> BTreeMap<String, u64> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for class in classes {
        match counts.get_mut(class.name()) {
            Some(count) => *count += 1,
            None => drop(counts.insert(class.name().to_owned(), 1)),
        }
    }
    counts
}

/// A rate in bit/s. Less than a byte per second is the rest of an average after the flow has ended,
/// and counts as zero.
fn bits(bytes: f64) -> f64 {
    if bytes < 1.0 { 0.0 } else { bytes * 8.0 }
}

/// Why a delivering path gets less than it could carry.
fn restraint(path: &PathStats) -> &'static str {
    match path.policy.priority {
        Priority::Never => "; carries no streams this way",
        _ if path.too_slow => "; exceeds its latency limit, used while no other path delivers",
        Priority::Backup => "; used while no other path delivers",
        Priority::Secondary => "; used while the primary paths are at capacity or deliver nothing",
        Priority::Primary => "",
    }
}
