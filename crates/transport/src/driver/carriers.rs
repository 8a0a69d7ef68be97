//! Bytes between the engine and its carriers, and how carriers come and go.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use sumlink_bond::turns::{RECEIVE_QUOTA, SEND_PIECES};
use sumlink_bond::{LinkTraffic, is_useless, join};
use sumlink_engine::PathId;

use super::Driver;
use crate::carrier::Carrier;
use crate::policy::Terms;
use crate::status::PathEvent;

/// What becomes of carriers, for who makes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CarrierNews {
    /// Nothing has been confirmed on it for too long: try the link anew.
    Silent {
        id: PathId,
        link: String,
        /// It looks as if large packets were lost and small ones were not.
        loses_large: bool,
        /// What its packets are limited to ([`Carrier::packet_limit`]).
        packet_limit: Option<u16>,
    },
    /// It is of use again.
    Recovered { id: PathId, link: String },
    /// The session takes no more paths for now.
    Refused {
        id: PathId,
        link: String,
        reason: String,
    },
    /// It has ended.
    Ended {
        id: PathId,
        link: String,
        reason: String,
    },
    /// A session with streams moves bytes ([`super::moving`]): whether the links still have a carrier is worth a question.
    Moving,
    /// What each link has moved, every quarter of a second or so of a session that is not idle.
    Traffic(Vec<LinkTraffic<String>>),
}

/// What links move is counted this often: so much later, at most, is a cap noticed.
const USAGE_EVERY: Duration = Duration::from_millis(250);

impl Driver {
    pub(super) fn add(&mut self, mut carrier: Carrier) {
        if self.engine.is_closed() {
            return;
        }
        let twice = self.carriers.iter().any(|other| other.id == carrier.id);
        let (count, most) = (self.carriers.len(), self.max_paths);
        let useless = join::makes_room(&self.engine, twice, count, most, self.now());
        let of_useless = |carrier: &Carrier| Some(carrier.id) == useless;
        if let Some(index) = self.carriers.iter().position(of_useless) {
            self.end_carrier(index, "a new connection takes its place");
        }
        let refused = join::refusal(&self.engine, twice, self.carriers.len(), most);
        if let Some(reason) = refused {
            tracing::warn!(path = carrier.id.0, link = %carrier.link, reason, "path dropped");
            // Whoever made it must not take it for a path; with the number of another one that is still there.
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
        if let Some(link) = link_number(&carrier.link) {
            self.engine.path_link(carrier.id, link);
        }
        self.engine
            .path_stats(carrier.id, carrier.sample(Instant::now()), now);
        tracing::info!(path = carrier.id.0, link = %carrier.link, remote = %carrier.remote, "path up");
        let (path, link) = (carrier.id.0, carrier.link.clone());
        self.report_start(carrier.remote.to_string());
        self.report(PathEvent::Up { path, link });
        self.carriers.push(carrier);
        self.count_links();
    }

    pub(super) fn end_carrier(&mut self, index: usize, reason: &str) {
        let mut carrier = self.carriers.swap_remove(index);
        self.count_links();
        if let Some(policies) = &self.listeners.policies {
            let moved = carrier.wire_bytes();
            policies.count(&carrier.link, moved);
        }
        if self.listeners.wants_traffic {
            self.traffic
                .ended(carrier.link.clone(), carrier.bytes_moved());
        }
        let now = self.now();
        let all = self.engine.path_stats_all(now);
        if let Some(stats) = all.iter().find(|stats| stats.id == carrier.id) {
            self.totals.ended(&carrier.link, stats);
        }
        self.engine.path_down(carrier.id, now);
        // At the end of a session the ends of its paths are no news.
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

    /// Takes what has arrived on every carrier; whether anything had.
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

    /// Tells the engine what TCP knows of every carrier: before it judges what is late, or a process that did not run for a while
    /// would take what it has not asked for what has not happened.
    pub(super) fn sample(&mut self, cx: &mut Context<'_>) {
        let (clock, now) = (Instant::now(), self.now());
        for carrier in &mut self.carriers {
            // Whether it takes anything is a part of the sample; an error shows again when it is served.
            let _ = carrier.poll_writable(cx);
            let sample = carrier.sample(clock);
            self.engine.path_stats(carrier.id, sample, now);
        }
    }

    /// Gives every carrier that takes bytes what the engine has for it; whether it had anything.
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
        let carrier = &mut self.carriers[index];
        let mut moved = false;
        for _ in 0..SEND_PIECES {
            match carrier.poll_writable(cx) {
                Poll::Ready(result) => result?,
                Poll::Pending => return Ok(moved),
            }
            self.frames.clear();
            let now = self.epoch.elapsed();
            self.engine
                .path_stats(carrier.id, carrier.sample(Instant::now()), now);
            if self
                .engine
                .poll_transmit(carrier.id, carrier.budget(), now, &mut self.frames)
                == 0
            {
                return Ok(moved);
            }
            moved = true;
            carrier.send(&self.frames)?;
        }
        // What the last piece left is written, or a wake-up asked for.
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

    /// A path is of no use: whether that lasts is looked at before long.
    pub(super) fn look_for_silence_soon(&mut self) {
        self.health.look_soon(self.now());
    }

    /// Tells whoever makes carriers that a path is of use again, if it is to both sides.
    pub(super) fn tell_recovered(&self, id: PathId) {
        let stats = self.engine.path_stats_all(self.now());
        if let Some(listener) = self.listeners.carriers.as_ref()
            && !is_useless(&stats, id)
        {
            let link = self.link_of(id);
            let _ = listener.send(CarrierNews::Recovered { id, link });
        }
    }

    fn count_links(&mut self) {
        let names = self.carriers.iter().map(|carrier| carrier.link.as_str());
        self.moving.set_links(names);
    }

    /// Tells whoever makes carriers that bytes move; `moved` says whether some just did for a stream's sake.
    pub(super) fn tell_moving(&mut self, moved: bool) {
        if let Some(listener) = &self.listeners.carriers
            && self.moving.note(moved, Instant::now())
        {
            let _ = listener.send(CarrierNews::Moving);
        }
    }

    /// Tells whoever chooses the number of carriers what they do.
    pub(super) fn tell_traffic(&mut self) {
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

    /// Counts what the carriers' packets took on the links.
    pub(super) fn count_usage(&mut self) {
        let clock = Instant::now();
        if clock < self.usage_counted + USAGE_EVERY {
            return;
        }
        self.usage_counted = clock;
        if let Some(policies) = &self.listeners.policies {
            for carrier in &mut self.carriers {
                let moved = carrier.wire_bytes();
                policies.count(&carrier.link, moved);
            }
        }
    }

    /// What a link's policy says of one of its paths.
    pub(super) fn apply_terms(&mut self, id: PathId, terms: Terms) {
        let now = self.now();
        self.engine.set_policy(id, terms.own);
        self.engine.tell_policy(id, terms.peer, now);
        self.limit(id, terms.send_rate);
    }

    /// Bounds what a path sends, in bytes per second.
    pub(super) fn limit(&mut self, id: PathId, rate: Option<u64>) {
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

/// A number for the link of that name; none where the peer tells no name.
fn link_number(name: &str) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    (!name.is_empty()).then(|| hasher.finish())
}

fn broken(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionReset => "the connection was reset".to_owned(),
        io::ErrorKind::TimedOut => "the network gave no answer".to_owned(),
        io::ErrorKind::UnexpectedEof => "the connection was cut".to_owned(),
        _ => error.to_string(),
    }
}
