//! The congestion control of an end: one of `sumlink-congestion`, with the additions of Linux.
//!
//! Linux' CUBIC (`net/ipv4/tcp_cubic.c`) differs from RFC 9438 in points that affect how fast a
//! connection becomes. Before the first loss it has hybrid slow start, and then grows by at least a
//! twentieth in each round trip, because the cubic curve may be too careful while the bandwidth is
//! unknown. After a loss, it evaluates the curve only when the window has changed or 1/32 s has
//! passed, so the window does not grow at all for that time; if losses are more frequent than that,
//! the window does not recover.

use sumlink_congestion::{
    Ack, BuildError, CongestionControl, Delivery, Idle, Loss, Settings, Timeout, build, build_named,
};

use super::BBR;
use super::bbr::Bbr;
use super::group::{Group, Member, with_siblings};
use super::hystart::Hystart;
use super::timer::TICK;
use crate::clock::{Nanos, SECOND, duration};
use crate::own::Own;

/// Name of the control with these additions.
const CUBIC: &str = "cubic";
/// Before the first loss, most acknowledged packets per packet of window growth.
const UNKNOWN: f64 = 20.0;
/// Time without window growth after a loss: more than 1/32 s, in whole ticks of the kernel's clock.
const HELD: Nanos = (250 / 32 + 1) * TICK;

/// A congestion control with the slow start of Linux.
#[derive(Debug)]
pub(super) struct Control {
    inner: Box<dyn CongestionControl>,
    /// Membership in a group of siblings.
    member: Option<Member>,
    is_cubic: bool,
    hystart: Option<Hystart>,
    /// No loss has occurred, so the capacity of the path is unknown.
    is_unknown: bool,
    /// Period without window growth after a repaired loss.
    held: Held,
    /// Delay samples count from here on: right after a recovery, they are those of an emptied
    /// queue.
    undisturbed_from: Nanos,
    is_paced: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    No,
    /// Starts with the first acknowledgment in congestion avoidance.
    FromNext,
    Until(Nanos),
}

/// An acknowledgment, as passed to the congestion control.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acknowledged {
    /// Segments delivered for the first time.
    pub(super) segments: u32,
    pub(super) rtt: Option<Nanos>,
    pub(super) srtt: Nanos,
    /// The first unacknowledged byte, and the first unsent one.
    pub(super) acked: u64,
    pub(super) next: u64,
    pub(super) cwnd_limited: bool,
    /// Segments are missing or reordered, and no loss is proven: the state Disorder.
    pub(super) is_in_disorder: bool,
}

impl Control {
    /// Creates a congestion control by name, with settings after `@`; the name may be one of the
    /// caller's.
    pub(super) fn new(name: &str, own: &Own) -> Result<Self, BuildError> {
        let is_cubic = name == CUBIC;
        Ok(Self {
            inner: match own.make_congestion(name) {
                Some(own) => own,
                None if name == BBR => Box::new(Bbr::new()),
                // Linux's slow start, added here, replaces HyStart++.
                None if is_cubic => build(name, &Settings::default().with("hystart", "false")?)?,
                None => build_named(name)?,
            },
            member: None,
            hystart: is_cubic.then(Hystart::default),
            is_unknown: is_cubic,
            held: Held::No,
            is_cubic,
            undisturbed_from: 0,
            is_paced: false,
        })
    }

    /// Whether the control sets the window itself during recovery; for other controls, recovery
    /// reduces it step by step.
    pub(super) fn owns_window(&self) -> bool {
        self.inner.name() == BBR
    }

    /// Paces packets from now on.
    pub(super) fn set_paced(&mut self) {
        if let Some(hystart) = &mut self.hystart {
            hystart.is_paced = true;
        }
        self.is_paced = true;
    }

    /// Replaces the congestion control and keeps the window. The slow start threshold is kept, too,
    /// except by BBR, which clears it (`tcp_reinit_congestion_control`).
    pub(super) fn change(&mut self, name: &str, own: &Own) -> Result<(), BuildError> {
        let mut next = Self::new(name, own)?;
        let (cwnd, ssthresh) = (self.inner.cwnd(), self.inner.ssthresh());
        next.inner.window_mut().set_cwnd(cwnd);
        if ssthresh.is_finite() && name != BBR {
            next.inner.window_mut().set_ssthresh(ssthresh);
        }
        next.member = self.member.take();
        if self.is_paced {
            next.set_paced();
        }
        *self = next;
        self.publish();
        Ok(())
    }

    /// Joins a group of siblings.
    pub(super) fn join(&mut self, group: &Group) {
        self.member = Some(group.join());
        self.publish();
    }

    /// Leaves the group of siblings.
    pub(super) fn leave(&mut self) {
        self.member = None;
    }

    /// Publishes the state after an event to the siblings.
    fn publish(&self) {
        if let Some(member) = &self.member {
            member.publish(self.inner.flow());
        }
    }

    /// A sample of the delivery rate, before `on_ack`.
    pub(super) fn on_delivery(&mut self, delivery: &Delivery) {
        self.inner.on_delivery(delivery);
    }

    pub(super) fn on_ack(&mut self, news: &Acknowledged, now: Nanos) {
        let before = self.inner.cwnd();
        let ack = Ack {
            now: duration(now),
            acked: news.segments,
            rtt: news.rtt.map(duration),
            srtt: duration(news.srtt),
            acknowledged: news.acked,
            sent: news.next,
            cwnd_limited: news.cwnd_limited,
        };
        self.inner.window_mut().set_disorder(news.is_in_disorder);
        with_siblings(self.member.as_ref(), |siblings| {
            self.inner.on_ack(&ack, siblings);
        });
        if before >= self.inner.ssthresh() {
            self.hold(before, now);
        }
        if self.is_unknown && news.cwnd_limited && before >= self.inner.ssthresh() {
            let least = before + f64::from(news.segments) / UNKNOWN;
            if self.inner.cwnd() < least {
                self.inner.window_mut().set_cwnd(least);
            }
        }
        if let (Some(hystart), Some(rtt)) = (&mut self.hystart, news.rtt)
            && now >= self.undisturbed_from
            && self.inner.cwnd() < self.inner.ssthresh()
            && hystart.ends(rtt, self.inner.cwnd(), news.acked, news.next, now)
        {
            let cwnd = self.inner.cwnd();
            self.inner.window_mut().set_ssthresh(cwnd);
        }
        self.publish();
    }

    fn hold(&mut self, cwnd: f64, now: Nanos) {
        if self.held == Held::FromNext {
            self.held = Held::Until(now / TICK * TICK + HELD);
        }
        match self.held {
            Held::Until(until) if now < until => {
                if self.inner.cwnd() > cwnd {
                    self.inner.window_mut().set_cwnd(cwnd);
                }
            }
            _ => self.held = Held::No,
        }
    }

    /// A loss was detected.
    pub(super) fn on_loss(&mut self, now: Nanos) {
        self.is_unknown = false;
        let loss = Loss { now: duration(now) };
        with_siblings(self.member.as_ref(), |siblings| {
            self.inner.on_loss(&loss, siblings);
        });
        self.publish();
    }

    /// The RTO expired; `repeated` if nothing was acknowledged since the previous one.
    pub(super) fn on_timeout(&mut self, repeated: bool, next: u64, now: Nanos) {
        let timeout = Timeout {
            now: duration(now),
            repeated,
        };
        self.is_unknown = false;
        with_siblings(self.member.as_ref(), |siblings| {
            self.inner.on_rto(&timeout, siblings);
        });
        self.publish();
        if let Some(hystart) = &mut self.hystart {
            hystart.begin_again(next, now);
        }
    }

    /// All losses are repaired.
    pub(super) fn on_recovery_exit(&mut self, now: Nanos) {
        self.inner.on_recovery_exit(duration(now));
        if self.is_cubic {
            self.held = Held::FromNext;
        }
        self.undisturbed_from = now + SECOND;
        self.publish();
    }

    /// The detected loss was spurious.
    pub(super) fn on_spurious_loss(&mut self, now: Nanos) {
        self.inner.on_spurious_loss(duration(now));
        self.publish();
    }

    /// Data is sent after an idle period.
    pub(super) fn on_idle_end(&mut self, idle: Nanos, timeout: Nanos, now: Nanos) {
        self.inner.on_idle_end(&Idle {
            now: duration(now),
            lasted: duration(idle),
            rto: duration(timeout),
        });
        self.publish();
    }

    /// Congestion window in whole segments.
    pub(super) fn cwnd(&self) -> u32 {
        self.inner.cwnd() as u32
    }

    /// Slow start threshold in whole segments; `None` until it is first set.
    pub(super) fn ssthresh(&self) -> Option<u32> {
        let ssthresh = self.inner.ssthresh();
        ssthresh.is_finite().then_some(ssthresh as u32)
    }

    pub(super) fn is_in_slow_start(&self) -> bool {
        self.inner.cwnd() < self.inner.ssthresh()
    }

    /// Interval between segments, if the algorithm paces.
    pub(super) fn pause(&self) -> Option<Nanos> {
        let rate = self.inner.pacing_rate()?;
        Some((SECOND as f64 / rate.max(1e-3)) as Nanos)
    }
}

/// Checks that a congestion control exists; the error lists the available ones.
pub fn check_congestion(name: &str) -> Result<(), BuildError> {
    Control::new(name, &Own::default()).map(drop)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn unknown_names_are_refused() {
        assert!(check_congestion("cubic").is_ok());
        let error = check_congestion("cubik").unwrap_err().to_string();
        assert!(
            error.contains("cubik") && error.contains("cubic"),
            "{error}"
        );
    }

    /// Window growth of a control over a hundred packets in congestion avoidance.
    fn growth(control: &mut Control) -> f64 {
        let news = Acknowledged {
            segments: 1,
            rtt: Some(20_000_000),
            srtt: 20_000_000,
            acked: 1,
            next: 100,
            cwnd_limited: true,
            is_in_disorder: false,
        };
        control.on_ack(&news, SECOND);
        control.on_loss(SECOND);
        control.on_recovery_exit(SECOND);
        let before = control.inner.cwnd();
        for _ in 0..100 {
            control.on_ack(&news, 2 * SECOND);
        }
        control.inner.cwnd() - before
    }

    #[test]
    fn siblings_count_until_they_leave() {
        let group = Group::default();
        let mut alone = Control::new("lia", &Own::default()).unwrap();
        let reno = growth(&mut alone);
        let [mut first, mut second] = [0; 2].map(|_| Control::new("lia", &Own::default()).unwrap());
        first.join(&group);
        second.join(&group);
        // A sibling without a measurement does not count.
        assert_eq!(growth(&mut first), reno);
        let coupled = growth(&mut second);
        assert!(coupled < 0.5 * reno, "{coupled} of {reno}");
        first.leave();
        let mut third = Control::new("lia", &Own::default()).unwrap();
        third.join(&group);
        second.leave();
        assert_eq!(growth(&mut third), reno);
    }

    #[test]
    fn slow_start_ends_without_a_loss_when_the_delay_grows() {
        let mut control = Control::new("cubic", &Own::default()).unwrap();
        for n in 1..60u64 {
            let rtt = Duration::from_millis(if n < 30 { 20 } else { 20 + n });
            let news = Acknowledged {
                segments: 1,
                rtt: Some(rtt.as_nanos() as Nanos),
                srtt: rtt.as_nanos() as Nanos,
                acked: n,
                next: (n / 20 + 1) * 20,
                cwnd_limited: true,
                is_in_disorder: false,
            };
            control.on_ack(&news, n * 3_000_000);
        }
        assert!(control.ssthresh().is_some_and(|ssthresh| ssthresh < 60));
    }
}
