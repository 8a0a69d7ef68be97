//! Keeps a QUIC carrier on every link that has a path, as the daemon does (`links/datagrams.rs` of
//! `sumlink-transport`).

use sumlink_bond::dial::datagram_pause;
use sumlink_engine::PathId;

use super::daemon::Daemon;
use crate::clock::{Nanos, duration, nanos};
use crate::net::{Alarm, Line, Net};
use crate::quic::State;
use crate::tcp::Side;

/// A connection of a link.
#[derive(Clone, Copy, Debug)]
struct Current {
    line: Line,
    path: PathId,
    /// Whether the daemon of each side has it.
    is_joined: [bool; 2],
}

#[derive(Clone, Copy, Debug, Default)]
struct OfLink {
    has_path: bool,
    current: Option<Current>,
    /// Failed connections in a row.
    failures: u32,
    retry_at: Option<Nanos>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Lines {
    links: Vec<OfLink>,
}

impl Lines {
    /// For a bond of this number of links; none if the programs use no datagrams.
    pub(super) fn new(links: usize) -> Self {
        Self {
            links: vec![OfLink::default(); links],
        }
    }

    /// Whether every link with a path has a carrier.
    pub(super) fn are_ready(&self) -> bool {
        let is_ready = |of: &OfLink| of.current.is_some_and(|now| now.is_joined == [true; 2]);
        let is_blocked = |of: &OfLink| of.failures > 0;
        let mut links = self.links.iter();
        links.all(|of| !of.has_path || is_ready(of) || is_blocked(of))
    }

    /// Connects links that have a path and no connection; `has_path` answers for each link. Returns
    /// the links that have lost their last path: the client ends their carriers.
    pub(super) fn keep(
        &mut self,
        has_path: impl Fn(usize) -> bool,
        mut next_path: impl FnMut() -> PathId,
        net: &mut Net,
    ) -> Vec<usize> {
        let mut leaving = Vec::new();
        for (link, of) in self.links.iter_mut().enumerate() {
            let has_path = has_path(link);
            if of.has_path && !has_path {
                if let Some(current) = of.current {
                    net.line(current.line, Side::Client).close();
                    net.flush_line(current.line, Side::Client);
                }
                *of = OfLink::default();
                leaving.push(link);
            }
            of.has_path = has_path;
            let is_due = of.retry_at.is_none_or(|at| at <= net.now());
            if has_path && of.current.is_none() && is_due {
                of.current = Some(Current {
                    line: net.open_line(link),
                    path: next_path(),
                    is_joined: [false; 2],
                });
            }
        }
        leaving
    }

    /// Handles a change at one end of a connection; returns whether the daemon of that side has a
    /// new carrier.
    pub(super) fn on_line(
        &mut self,
        line: Line,
        side: Side,
        daemons: &mut [Daemon; 2],
        net: &mut Net,
    ) -> bool {
        let is_it = |of: &OfLink| of.current.is_some_and(|current| current.line == line);
        let Some(link) = self.links.iter().position(is_it) else {
            return false;
        };
        let state = net.line(line, side).state();
        let of = &mut self.links[link];
        let Some(current) = &mut of.current else {
            return false;
        };
        match state {
            State::Joined if !current.is_joined[side.index()] => {
                current.is_joined[side.index()] = true;
                let path = current.path;
                if side == Side::Client {
                    (of.failures, of.retry_at) = (0, None);
                }
                daemons[side.index()].add_datagrams(path, line, link, net);
                return true;
            }
            State::Blocked | State::Ended
                if side == Side::Client && !current.is_joined[side.index()] =>
            {
                self.fail(link, state == State::Blocked, net);
            }
            _ => {}
        }
        false
    }

    /// The client's carrier has ended.
    pub(super) fn ended(&mut self, line: Line, net: &mut Net) {
        let is_it = |of: &OfLink| of.current.is_some_and(|current| current.line == line);
        if let Some(link) = self.links.iter().position(is_it) {
            self.fail(link, false, net);
        }
    }

    fn fail(&mut self, link: usize, is_blocked: bool, net: &mut Net) {
        let of = &mut self.links[link];
        of.current = None;
        let pause = datagram_pause(of.failures, is_blocked);
        of.failures = of.failures.saturating_add(1);
        let at = nanos(duration(net.now()) + pause);
        of.retry_at = Some(at);
        net.wake(at, Alarm::Manager);
    }
}
