//! Probes of both directions of all links of a laboratory, which send at the same time.

use std::thread;
use std::time::{Duration, Instant};

use super::probe::{Arrival, LARGE, Probe};
use crate::config::{Direction, LinkChange, Setting};
use crate::error::LabError;
use crate::laboratory::{DirectionReport, Lab};
use crate::signals;

/// Time limit for the emulator to read sent packets, and to deliver queued ones.
const PATIENCE: Duration = Duration::from_secs(20);
/// Packets sent before the emulator has read them; the interfaces can hold more.
const PORTION: u64 = 4_000;
/// Interval between checks of a busy link's backlog.
const REFILL: Duration = Duration::from_millis(1);

/// Arrivals of each probe.
pub(super) type Arrivals = Vec<Vec<Arrival>>;

/// A probe for each direction of each link: up and down of the first link, then of the second, and
/// so on.
pub(super) struct Probes<'a> {
    lab: &'a Lab,
    probes: Vec<Probe>,
    /// Packets received by all probes.
    received: u64,
}

impl<'a> Probes<'a> {
    /// Probes for both directions of all links.
    pub(super) fn new(lab: &'a Lab) -> Result<Self, LabError> {
        let links = 0..lab.links().len();
        let both = |link| Direction::BOTH.map(|direction| (link, direction));
        Self::of(lab, links.flat_map(both))
    }

    /// Probes for both directions of one link.
    pub(super) fn of_link(lab: &'a Lab, link: usize) -> Result<Self, LabError> {
        Self::of(lab, Direction::BOTH.map(|direction| (link, direction)))
    }

    /// A probe for one direction of the first link.
    pub(super) fn one_way(lab: &'a Lab, direction: Direction) -> Result<Self, LabError> {
        Self::of(lab, [(0, direction)])
    }

    fn of(
        lab: &'a Lab,
        ends: impl IntoIterator<Item = (usize, Direction)>,
    ) -> Result<Self, LabError> {
        let probe = |(link, direction)| Probe::new(lab, link, direction);
        Ok(Self {
            lab,
            probes: ends.into_iter().map(probe).collect::<Result<_, _>>()?,
            received: 0,
        })
    }

    /// The direction of each probe.
    pub(super) fn directions(&self) -> impl Iterator<Item = Direction> {
        self.probes.iter().map(|probe| probe.direction)
    }

    /// Packets sent by all probes.
    pub(super) fn sent(&self) -> u64 {
        self.probes.iter().map(Probe::sent).sum()
    }

    /// Packets that have not arrived. After [`Probes::drain`] they are lost.
    pub(super) fn missing(&self) -> u64 {
        self.sent() - self.received
    }

    /// Each probe sends `count` packets of `len` bytes, one every `interval` on average.
    pub(super) fn send_paced(
        &mut self,
        count: u32,
        len: usize,
        interval: Duration,
    ) -> Result<(), LabError> {
        let start = Instant::now();
        for i in 0..count {
            thread::sleep((interval * i).saturating_sub(start.elapsed()));
            for probe in &mut self.probes {
                probe.send(len)?;
            }
        }
        Ok(())
    }

    /// Each probe sends `count` packets of `len` bytes as fast as the emulator reads them.
    pub(super) fn fill(&mut self, count: u64, len: usize) -> Result<(), LabError> {
        let mut left = count;
        while left > 0 {
            signals::check()?;
            let portion = left.min(PORTION);
            for i in 0..self.probes.len() {
                let before = self.report(i)?.offered_packets;
                self.probes[i].send_many(portion, len)?;
                self.wait_until(
                    |probes| Ok(probes.report(i)?.offered_packets >= before + portion),
                )?;
            }
            left -= portion;
        }
        Ok(())
    }

    /// Receives until the links are empty.
    pub(super) fn drain(&mut self) -> Result<Arrivals, LabError> {
        self.wait_until(|probes| {
            let status = probes.lab.status()?;
            let mut links = probes.probes.iter();
            Ok(links.all(|p| waiting(&status[p.link].directions, p.direction) == 0))
        })?;
        let mut arrivals = vec![Vec::new(); self.probes.len()];
        self.receive(&mut arrivals)?;
        Ok(arrivals)
    }

    /// Fills the queues while the links are stopped, and lets them drain: no sender has to keep up.
    pub(super) fn fill_and_drain(
        &mut self,
        count: u64,
        open: &Setting,
    ) -> Result<Arrivals, LabError> {
        self.set(&Setting::Rate(0))?;
        self.fill(count, LARGE)?;
        self.set(open)?;
        self.drain()
    }

    /// Keeps `ahead` packets of the largest size queued on each link for that time; returns the
    /// arrivals.
    pub(super) fn saturate(&mut self, ahead: u64, time: Duration) -> Result<Arrivals, LabError> {
        let mut arrivals = vec![Vec::new(); self.probes.len()];
        let start = Instant::now();
        while start.elapsed() < time {
            let status = self.lab.status()?;
            for probe in &mut self.probes {
                let waiting = waiting(&status[probe.link].directions, probe.direction);
                probe.send_many(ahead.saturating_sub(waiting), LARGE)?;
            }
            self.receive(&mut arrivals)?;
            thread::sleep(REFILL);
        }
        Ok(arrivals)
    }

    /// Changes the links in the directions that have probes.
    pub(super) fn set(&self, setting: &Setting) -> Result<(), LabError> {
        for probe in &self.probes {
            let change = LinkChange {
                direction: Some(probe.direction),
                setting: setting.clone(),
            };
            self.lab
                .set(&self.lab.links()[probe.link].name, &[change])?;
        }
        Ok(())
    }

    /// The laboratory's report on the direction of a probe.
    fn report(&self, probe: usize) -> Result<DirectionReport, LabError> {
        let Probe {
            link, direction, ..
        } = self.probes[probe];
        let mut status = self.lab.status()?;
        let [up, down] = status.swap_remove(link).directions;
        Ok(match direction {
            Direction::Up => up,
            Direction::Down => down,
        })
    }

    fn receive(&mut self, into: &mut Arrivals) -> Result<(), LabError> {
        for (probe, arrivals) in self.probes.iter().zip(into) {
            let before = arrivals.len();
            probe.receive(arrivals)?;
            self.received += (arrivals.len() - before) as u64;
        }
        Ok(())
    }

    fn wait_until(
        &self,
        condition: impl Fn(&Self) -> Result<bool, LabError>,
    ) -> Result<(), LabError> {
        let deadline = Instant::now() + PATIENCE;
        while !condition(self)? {
            signals::check()?;
            if Instant::now() > deadline {
                return Err(LabError::Refused(
                    "the emulator does not keep up with reading or delivering the packets".into(),
                ));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// Packets queued or in transit in a direction of a link.
fn waiting(directions: &[DirectionReport; 2], direction: Direction) -> u64 {
    directions[direction.index()].backlog_packets
}
