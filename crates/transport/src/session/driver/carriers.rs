//! Moves bytes between the engine and its carriers, and adds and removes carriers.

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use sumlink_bond::turns::{RECEIVE_QUOTA, SEND_PIECES};
use sumlink_bond::{LinkTraffic, beside_calls, is_stalled, join};
use sumlink_engine::PathId;

use super::Driver;
use crate::api::status::PathEvent;
use crate::carrier::Carrier;
use crate::links::policy::Terms;

/// Events about carriers, for the client's manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CarrierNews {
    /// No data has been acknowledged on the path for too long: dial its link again.
    Silent {
        id: PathId,
        link: String,
        /// Large packets seem to be lost and small ones not.
        loses_large: bool,
        /// The path's packet size limit ([`Carrier::packet_limit`]).
        packet_limit: Option<u16>,
    },
    /// The path works again.
    Recovered { id: PathId, link: String },
    /// The session accepts no more paths for now.
    Refused {
        id: PathId,
        link: String,
        reason: String,
    },
    /// The path has ended.
    Ended {
        id: PathId,
        link: String,
        reason: String,
    },
    /// A session with streams moves bytes ([`super::moving`]): the links' carrier state is worth a
    /// query.
    Moving,
    /// The traffic of each link, about every 0.25 s while the session is not idle.
    Traffic(Vec<LinkTraffic<String>>),
    /// Whether the links' QUIC connections are wanted: there is a flow, or was one a while ago.
    Datagrams(bool),
}

thread_local! {
    /// Frames in transit from the engine to a carrier.
    static FRAMES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// How often the links' usage is counted: a data cap is noticed at most this much later.
const USAGE_EVERY: Duration = Duration::from_millis(250);

impl Driver {
    pub(super) fn add(&mut self, mut carrier: Carrier) {
        if self.engine.is_closed() {
            return;
        }
        let twice = self.carriers.iter().any(|other| other.id == carrier.id);
        let (count, most) = (self.carriers.len(), self.max_paths);
        let replaced = join::path_to_replace(&self.engine, twice, count, most, self.now());
        let is_replaced = |carrier: &Carrier| Some(carrier.id) == replaced;
        if let Some(index) = self.carriers.iter().position(is_replaced) {
            self.end_carrier(index, "a new connection takes its place");
        }
        let refused = join::refusal(&self.engine, twice, self.carriers.len(), most);
        if let Some(reason) = refused {
            tracing::warn!(path = carrier.id.0, link = %carrier.link, reason, "path dropped");
            // Its maker must not count it as a path. Skipped if its number belongs to another path
            // that still exists.
            if let Some(listener) = self.listeners.carriers.as_ref().filter(|_| !twice) {
                let (id, link) = (carrier.id, carrier.link);
                let _ = listener.send(CarrierNews::Refused { id, link, reason });
            }
            return;
        }
        if self.engine.reads_local_queue() {
            carrier.watch_local_queue();
        }
        let now = self.now();
        self.engine.path_up(carrier.id, now);
        self.engine.path_sent(carrier.id, carrier.sent_before);
        if let Some(link) = link_number(&carrier.link) {
            self.engine.path_link(carrier.id, link);
        }
        self.engine
            .path_stats(carrier.id, carrier.sample(Instant::now()), now);
        tracing::info!(
            path = carrier.id.0,
            link = %carrier.link,
            remote = %carrier.remote,
            "path up"
        );
        let (path, link) = (carrier.id.0, carrier.link.clone());
        self.totals.note_link(&link);
        self.totals.returned(&link);
        self.report_start(carrier.remote.to_string());
        self.report(PathEvent::Up { path, link });
        // A server has many sessions, most of them with few carriers.
        self.carriers.reserve_exact(1);
        self.carriers.push(carrier);
        self.count_links();
        self.choose_stand_ins();
    }

    pub(super) fn end_carrier(&mut self, index: usize, reason: &str) {
        let mut carrier = self.carriers.swap_remove(index);
        self.count_links();
        if self.listeners.counts_usage() {
            let moved = carrier.wire_bytes();
            self.listeners.count(&carrier.link, moved);
        }
        if self.listeners.wants_traffic {
            self.traffic
                .ended(carrier.link.clone(), carrier.bytes_moved());
        }
        let now = self.now();
        let all = self.engine.path_stats_all(now);
        if let Some(stats) = all.iter().find(|stats| stats.id == carrier.id) {
            self.totals.ended(&carrier.link, stats, carrier.tcp_info());
        }
        if !self.carriers.iter().any(|other| other.link == carrier.link) {
            self.totals.lost(&carrier.link);
        }
        self.note_datagrams_of(carrier.id);
        self.note_limit(carrier.id, None);
        self.engine.path_down(carrier.id, now);
        self.choose_stand_ins();
        // At the end of a session the end of each path is not reported.
        if !self.engine.is_closed() {
            tracing::info!(path = carrier.id.0, link = %carrier.link, reason, "path down");
        }
        let (id, link, reason) = (carrier.id, carrier.link, reason.to_owned());
        let event = PathEvent::Down {
            path: id.0,
            link: link.clone(),
            reason: reason.clone(),
        };
        self.report(event);
        if let Some(listener) = &self.listeners.carriers {
            let _ = listener.send(CarrierNews::Ended { id, link, reason });
        }
    }

    /// Receives data on every carrier; returns whether any had arrived.
    pub(super) fn receive(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        let mut index = 0;
        while index < self.carriers.len() {
            let now = self.epoch.elapsed();
            let carrier = &mut self.carriers[index];
            let (id, engine) = (carrier.id, &mut self.engine);
            let mut fault = None;
            let result = carrier.poll_receive(cx, RECEIVE_QUOTA, |bytes| {
                if let Err(error) = engine.handle_frames(id, bytes, now) {
                    fault.get_or_insert(error);
                }
            });
            if let Some(error) = fault {
                tracing::warn!(%error, "the peer broke the protocol; its session is closed");
            }
            match result {
                Poll::Ready(Ok(0)) => self.end_carrier(index, "the peer closed the connection"),
                Poll::Ready(Err(error)) => self.end_carrier(index, &broken(&error)),
                Poll::Ready(Ok(_)) => {
                    moved = true;
                    index += 1;
                }
                Poll::Pending => index += 1,
            }
        }
        moved
    }

    /// Gives the engine the TCP statistics of every carrier. This must precede its check for
    /// overdue data: a process that did not run for a while would otherwise take data that it has
    /// not read for data that has not arrived.
    pub(super) fn sample(&mut self, cx: &mut Context<'_>) {
        let (clock, now) = (Instant::now(), self.now());
        self.note_calls(now);
        for carrier in &mut self.carriers {
            // Its readiness is a part of the sample; an error shows again when it is served.
            let _ = carrier.poll_writable(cx);
            if carrier.end_to_end.is_some() {
                carrier.observe_reports(self.engine.path_progress(carrier.id));
            }
            let sample = carrier.sample(clock);
            self.engine.path_stats(carrier.id, sample, now);
        }
    }

    /// Lets the carriers know whether a call uses their links.
    fn note_calls(&mut self, now: sumlink_engine::Instant) {
        let links = self.carriers.iter().map(link_of);
        let beside = beside_calls(&self.engine, links, now);
        for (index, carrier) in self.carriers.iter_mut().enumerate() {
            carrier.set_call(beside.get(index).copied().flatten());
        }
    }

    /// Gives every writable carrier the engine's data for it; returns whether there was any.
    pub(super) fn transmit(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        self.turn = self.turn.wrapping_add(1);
        let count = self.carriers.len();
        let mut broken_carriers = Vec::new();
        for step in 0..count {
            let index = (self.turn + step) % count;
            match self.transmit_on(index, cx) {
                Ok(any) => moved |= any,
                Err(error) => broken_carriers.push((self.carriers[index].id, broken(&error))),
            }
        }
        for (id, reason) in broken_carriers {
            if let Some(index) = self.carriers.iter().position(|carrier| carrier.id == id) {
                self.end_carrier(index, &reason);
            }
        }
        moved
    }

    fn transmit_on(&mut self, index: usize, cx: &mut Context<'_>) -> io::Result<bool> {
        FRAMES.with_borrow_mut(|frames| self.transmit_frames(index, frames, cx))
    }

    fn transmit_frames(
        &mut self,
        index: usize,
        frames: &mut Vec<u8>,
        cx: &mut Context<'_>,
    ) -> io::Result<bool> {
        let carrier = &mut self.carriers[index];
        let mut moved = false;
        for _ in 0..SEND_PIECES {
            match carrier.poll_writable(cx) {
                Poll::Ready(result) => result?,
                Poll::Pending => return Ok(moved),
            }
            frames.clear();
            let now = self.epoch.elapsed();
            if carrier.end_to_end.is_some() {
                carrier.observe_reports(self.engine.path_progress(carrier.id));
            }
            self.engine
                .path_stats(carrier.id, carrier.sample(Instant::now()), now);
            if self
                .engine
                .poll_transmit(carrier.id, carrier.budget(), now, frames)
                == 0
            {
                return Ok(moved);
            }
            moved = true;
            carrier.send(frames)?;
        }
        // Writes the rest of the last piece, or registers for a wake-up.
        if let Poll::Ready(result) = carrier.poll_writable(cx) {
            result?;
        }
        Ok(moved)
    }

    pub(super) fn look_for_silence(&mut self) {
        let (now, engine) = (self.now(), &self.engine);
        let Some(listener) = &self.listeners.carriers else {
            self.health.look(now, Vec::new);
            return;
        };
        for id in self.health.look(now, || engine.path_stats_all(now)) {
            let mut carriers = self.carriers.iter();
            if let Some(carrier) = carriers.find(|carrier| carrier.id == id) {
                let _ = listener.send(CarrierNews::Silent {
                    id,
                    link: carrier.link.clone(),
                    loses_large: carrier.loses_large_packets(),
                    packet_limit: carrier.packet_limit,
                });
            }
        }
    }

    /// A path has stalled; schedules an early check whether that lasts.
    pub(super) fn look_for_silence_soon(&mut self) {
        self.health.look_soon(self.now());
    }

    /// Notifies the manager that a path works again, if it does for both sides.
    pub(super) fn notify_recovered(&self, id: PathId) {
        let stats = self.engine.path_stats_all(self.now());
        if let Some(listener) = self.listeners.carriers.as_ref()
            && !is_stalled(&stats, id)
        {
            let link = self.link_of(id);
            let _ = listener.send(CarrierNews::Recovered { id, link });
        }
    }

    fn count_links(&mut self) {
        let names = self.carriers.iter().map(|carrier| carrier.link.as_str());
        self.moving.set_links(names);
    }

    /// Notifies the manager that bytes move; `moved` says whether stream data has just moved.
    pub(super) fn notify_moving(&mut self, moved: bool) {
        if let Some(listener) = &self.listeners.carriers
            && self.moving.note(moved, Instant::now())
        {
            let _ = listener.send(CarrierNews::Moving);
        }
    }

    /// Reports the traffic of the links to the manager, which chooses the number of carriers.
    pub(super) fn notify_traffic(&mut self) {
        let Some(listener) = &self.listeners.carriers else {
            return;
        };
        let now = self.epoch.elapsed();
        if !self.listeners.wants_traffic || !self.traffic.is_due(now) {
            return;
        }
        let carriers = self.carriers.iter().map(|carrier| {
            let (bytes, is_queueing) = (carrier.bytes_moved(), carrier.is_queueing());
            (carrier.link.clone(), bytes, is_queueing)
        });
        let links = self.traffic.report(carriers, now);
        let _ = listener.send(CarrierNews::Traffic(links));
    }

    /// Whether there is a stream or a flow. The few bytes of other sessions are counted when they
    /// wake up for another reason.
    pub(super) fn is_in_use(&self) -> bool {
        !self.locals.is_empty() || self.datagrams.has_flows()
    }

    /// When the last bytes before a pause are counted, for a server's quotas.
    pub(super) fn usage_due(&self) -> Option<Instant> {
        let waits = self.has_moved && self.listeners.account.is_some();
        waits.then(|| self.usage_counted + USAGE_EVERY)
    }

    /// Adds the bytes of the carriers' packets to the links' usage.
    pub(super) fn count_usage(&mut self) {
        let clock = Instant::now();
        if clock < self.usage_counted + USAGE_EVERY {
            return;
        }
        let elapsed = clock.duration_since(std::mem::replace(&mut self.usage_counted, clock));
        self.has_moved = false;
        self.follow_links(elapsed);
        self.count_carriers();
    }

    /// Adds the bytes of the TCP carriers that have not been counted yet.
    pub(super) fn count_carriers(&mut self) {
        if self.listeners.counts_usage() {
            for carrier in &mut self.carriers {
                let moved = carrier.wire_bytes();
                self.listeners.count(&carrier.link, moved);
            }
        }
    }

    /// Applies the terms of a link's policy to one of its paths.
    pub(super) fn apply_terms(&mut self, id: PathId, terms: Terms) {
        let now = self.now();
        self.engine.set_policy(id, terms.own);
        self.engine.send_policy(id, terms.peer, now);
        self.limit(id, terms.send_rate);
    }

    /// Limits the sending rate of a path, in bytes per second.
    pub(super) fn limit(&mut self, id: PathId, rate: Option<u64>) {
        self.note_limit(id, rate);
        if let Some(carrier) = self.carriers.iter_mut().find(|carrier| carrier.id == id) {
            carrier.limit(rate);
        }
    }

    pub(super) fn link_of(&self, id: PathId) -> String {
        let carrier = self.carriers.iter().find(|carrier| carrier.id == id);
        carrier
            .map(|carrier| carrier.link.clone())
            .unwrap_or_default()
    }
}

/// A number for the link of a carrier, as its datagram paths have it.
fn link_of(carrier: &Carrier) -> u64 {
    link_number(&carrier.link).unwrap_or(carrier.id.0.into())
}

/// A number for the link of that name; `None` if the peer sent no name.
pub(super) fn link_number(name: &str) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    (!name.is_empty()).then(|| hasher.finish())
}

fn broken(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionReset => "the connection was reset".to_owned(),
        io::ErrorKind::TimedOut => "the connection timed out".to_owned(),
        io::ErrorKind::UnexpectedEof => "the connection ended unexpectedly".to_owned(),
        _ => error.to_string(),
    }
}
