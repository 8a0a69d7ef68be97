//! A WiGig link of a bond: the rate of one client of a cell in each beacon interval, and its
//! outages.
//!
//! A blockage takes the link's data of a beacon interval and its trained sector. From the next
//! interval on the client contends for a new sector, against the other clients without one. The
//! link carries nothing until the client has won. It then has its share of the data time (TDMA:
//! divided equally among clients with a sector) in service periods ([`turns`]). Within them it
//! sends at the rate of the MCS for its SNR, less the overhead of the MAC
//! ([`mac::data`](crate::mac::data)). Between them packets wait.

#[cfg(test)]
mod tests;
pub mod turns;

use core::time::Duration;

use sumlink_link::profile::Timeline;
use sumlink_link::{Change, Jitter};

use crate::cell::{Access, Blockage, Cell, CellConfig, IntervalOutcome, Runner, Service};
use crate::error::{MmwaveError, within};
use crate::mac::data::packet_mbps;
use crate::mobility::Walk;
use crate::phy::{SINGLE_CARRIER, best_mcs};

pub use turns::Turns;

/// One-way delay of the link and its variation, besides the wait for a service period. Our choice,
/// equal to the profiles `mmwave-*` of `sumlink-link`.
pub const DELAY: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(1));

/// Default number of service periods of a station in a beacon interval. Our choice: one about every
/// 10 ms.
pub const PERIODS: u32 = 10;
/// Maximum number.
pub const MAX_PERIODS: u32 = 100;

/// Beacon intervals that the cell runs before the link is used, so that no client is new: 5 s.
const BEFORE: usize = 50;
/// Maximum number of further intervals until the link has data, with which it starts: 60 s.
const MAX_BEFORE: usize = 600;

/// A client of a cell, and its competitors. The rest of the cell is [`CellConfig::default`]: that
/// of section 3.3.2.
#[derive(Clone, Debug, PartialEq)]
pub struct WigigLink {
    /// Access scheme for beam training.
    pub access: Access,
    /// Stations that compete with this one, for beam training and for data time.
    pub others: usize,
    /// Additional stations that only listen, and train every 10 s.
    pub chatty: usize,
    /// Horizontal distance to the access point in meters; anywhere in the cell if `None`.
    pub distance: Option<f64>,
    /// Causes of blockages.
    pub blockage: Blockage,
    /// Movement of all stations, including this one; `None` lets them stand.
    pub walk: Option<Walk>,
    /// Service periods of each station in a beacon interval, 1 to [`MAX_PERIODS`].
    pub periods: u32,
}

/// State of the link in a beacon interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Start of the interval.
    pub at: Duration,
    /// The station's service.
    pub service: Service,
    /// Bit/s of IP packets on average over the interval: 0 without data.
    pub rate: u64,
    /// Its service periods in the interval; `None` without data.
    pub turns: Option<Turns>,
    /// Whether it contended in the interval's A-BFT, or sat out.
    pub contended: bool,
    /// Whether it won, and has a trained sector from then on.
    pub won: bool,
    /// Number of contenders, including this one.
    pub contenders: usize,
}

impl WigigLink {
    /// A link with that access scheme and number of competitors; anywhere in the cell, blocked with
    /// 20 % in each beacon interval.
    pub fn new(access: Access, others: usize) -> Self {
        Self {
            access,
            others,
            chatty: 0,
            distance: None,
            blockage: CellConfig::default().blockage,
            walk: None,
            periods: PERIODS,
        }
    }

    /// Its cell; the station is the first one.
    fn config(&self) -> CellConfig {
        CellConfig {
            stations: self.others.saturating_add(1),
            chatty: self.chatty,
            first_distance: self.distance,
            blockage: self.blockage,
            walk: self.walk,
            ..CellConfig::default()
        }
    }

    /// Checks the values.
    ///
    /// # Errors
    ///
    /// More than 1024 stations, a distance outside of 0 to 25 m, an invalid blockage, no service
    /// period, or more than [`MAX_PERIODS`].
    pub fn check(&self) -> Result<(), MmwaveError> {
        let range = (1.0, f64::from(MAX_PERIODS));
        let periods = f64::from(self.periods);
        within("service periods", periods, range, "from 1 to 100")?;
        self.config().check()
    }

    /// Maximum rate in bit/s: alone, with the fastest scheme.
    pub fn max_bps() -> u64 {
        let fastest = SINGLE_CARRIER.iter().map(packet_mbps);
        (fastest.fold(0.0, f64::max) * 1e6) as u64
    }

    /// Its beacon intervals until `duration`. The same seed gives the same ones, and a longer
    /// schedule starts like a shorter one. The cell has run for 5 s before. The link starts with
    /// data, unless it has none within the following minute.
    ///
    /// # Errors
    ///
    /// Those of [`check`](Self::check), [`Cell::draw`] and [`Runner::step`].
    pub fn schedule(&self, seed: u64, duration: Duration) -> Result<Vec<Step>, MmwaveError> {
        self.check()?;
        let cell = Cell::draw(&self.config(), seed)?;
        let mut runner = Runner::new(&cell, &self.access, seed)?;
        for _ in 0..BEFORE {
            runner.step()?;
        }
        let mut next = runner.step()?;
        for _ in 0..MAX_BEFORE {
            if self.served(&cell, runner.service(0), &next).is_some() {
                break;
            }
            next = runner.step()?;
        }
        let length = Duration::from_secs_f64(cell.config.interval.length_us * 1e-6);
        let mut steps = Vec::new();
        let mut at = Duration::ZERO;
        while at < duration {
            steps.push(self.step(at, &cell, runner.service(0), &next));
            at += length;
            next = runner.step()?;
        }
        Ok(steps)
    }

    /// The same as changes of a link, for one direction, with rates multiplied by `scale`. Without
    /// data the rate is 0.
    ///
    /// # Errors
    ///
    /// Those of [`schedule`](Self::schedule).
    pub fn timeline(
        &self,
        seed: u64,
        duration: Duration,
        scale: f64,
    ) -> Result<Timeline, MmwaveError> {
        Ok(timeline(&self.schedule(seed, duration)?, scale))
    }

    fn step(
        &self,
        at: Duration,
        cell: &Cell,
        service: Service,
        interval: &IntervalOutcome,
    ) -> Step {
        let length = Duration::from_secs_f64(cell.config.interval.length_us * 1e-6);
        let turns = self.served(cell, service, interval);
        Step {
            at,
            service,
            rate: turns.map_or(0, |turns| turns.mean_bps(length)),
            turns,
            contended: interval.contenders.contains(&0),
            won: interval.trained.contains(&0),
            contenders: interval.contenders.len(),
        }
    }

    /// Its service periods of a beacon interval, if it has data and they have room for a packet.
    fn served(&self, cell: &Cell, service: Service, interval: &IntervalOutcome) -> Option<Turns> {
        let Service::Data { snr_db, .. } = service else {
            return None;
        };
        let mcs = best_mcs(snr_db)?;
        let length_us = cell.config.interval.length_us;
        let data = (length_us - interval.parts.data_us, interval.parts.data_us);
        Turns::last_of(data, interval.sharing, self.periods, &mcs)
    }
}

/// Changes of a link that follows a schedule, with rates multiplied by `scale`: a trace for each
/// interval with data.
pub fn timeline(steps: &[Step], scale: f64) -> Timeline {
    let mut timeline = vec![
        (Duration::ZERO, Change::Delay(DELAY.0)),
        (Duration::ZERO, Change::Jitter(Jitter::uniform(DELAY.1))),
    ];
    let (mut carried, mut silent) = (0.0, false);
    for step in steps {
        let trace = step
            .turns
            .and_then(|turns| turns.trace(scale, &mut carried));
        let is_silent = trace.is_none();
        match trace {
            Some(trace) => timeline.push((step.at, Change::Trace(trace))),
            None if !silent => timeline.push((step.at, Change::Rate(0))),
            None => {}
        }
        silent = is_silent;
    }
    timeline
}

/// Lengths of the outages in beacon intervals, in order, including one at the end of the schedule.
pub fn outages(steps: &[Step]) -> Vec<usize> {
    let runs = steps.chunk_by(|one, other| (one.rate == 0) == (other.rate == 0));
    runs.filter(|run| run[0].rate == 0)
        .map(<[_]>::len)
        .collect()
}
