//! A client during a run: its link, and when it contends.

use core::time::Duration;
use std::collections::BTreeMap;

use sumlink_link::Random;

use super::outcome::{Service, StationOutcome};
use super::{Blockage, Cell, CellConfig, Station, purpose};
use crate::budget::{Device, Sweeps, pair_db};
use crate::channel::Channel;
use crate::channel::blocking::Blockers;
use crate::error::MmwaveError;
use crate::jpoc::power::EDGE_DB;
use crate::mac::Trained;
use crate::mac::slotted::Sweep;
use crate::mac::trigger::{Behavior, FALL_DB, Signal, Trigger};
use crate::mobility::Walker;
use crate::phy;
use crate::units::{CENTRE_GHZ, wavelength};

/// A client during a run.
pub(super) struct Client<'a> {
    station: &'a Station,
    /// Its end of the link, at its current position.
    pub(super) device: Device,
    pub(super) wants_data: bool,
    pub(super) sweep: Sweep,
    trigger: Trigger,
    /// SNR of its data in dB, if it has a trained sector.
    link: Option<f64>,
    /// That SNR right after its last training.
    trained_db: f64,
    /// The access point's best sector and its power in dBm, as heard at the last training.
    beacons: Option<(usize, f64)>,
    /// The access point's sector and its own.
    pair: (usize, usize),
    /// Data SNRs of its sectors over the channel without blockers, as far as computed.
    known: BTreeMap<usize, f64>,
    blockers: Option<Blockers>,
    walker: Option<Walker>,
    /// Its channel in this beacon interval, if the channel changes.
    now: Option<Now>,
    gap: usize,
    /// Failed attempts since it was last heard.
    failed: u32,
    service: Service,
    outcome: StationOutcome,
}

/// The channel of a beacon interval and its sweeps, which are expensive and computed only for
/// contending clients.
struct Now {
    channel: Channel,
    sweeps: Option<Sweeps>,
}

impl<'a> Client<'a> {
    pub(super) fn new(
        station: &'a Station,
        index: usize,
        config: &CellConfig,
        random: &Random,
    ) -> Result<Self, MmwaveError> {
        let wants_data = index < config.stations;
        let walk = config.walk.filter(|walk| wants_data && walk.moves());
        let behavior = match wants_data {
            true => Behavior::Connected,
            false => Behavior::Disconnected,
        };
        let walker = walk.map(|walk| {
            let random = random.split(purpose::WALKS).split(index as u64);
            let (pose, dice) = (station.device.pose, station.dice.clone());
            let walker = Walker::new(walk, config.ground(), pose, dice, random);
            match config.rectangle {
                Some(sides) => walker.on_rectangle(sides),
                None => walker,
            }
        });
        let blockers = match config.blockage {
            Blockage::Probability(_) => None,
            Blockage::ModelA { .. } => {
                let random = random.split(purpose::BLOCKAGE).split(index as u64 + 1);
                Some(Blockers::new(None, wavelength(CENTRE_GHZ), &random)?)
            }
        };
        Ok(Self {
            station,
            device: station.device.clone(),
            wants_data,
            sweep: Sweep::default(),
            trigger: Trigger::new(
                behavior,
                &random.split(purpose::TRIGGERS).split(index as u64),
            ),
            link: None,
            trained_db: f64::NEG_INFINITY,
            beacons: None,
            pair: (0, 0),
            known: BTreeMap::new(),
            blockers,
            walker,
            now: None,
            gap: 0,
            failed: 0,
            service: Service::Untrained,
            outcome: StationOutcome::default(),
        })
    }

    /// Whether it takes part in the A-BFT at that time.
    pub(super) fn contends(&mut self, cell: &Cell, now: Duration) -> bool {
        let signal = Signal {
            los: self.channel().los,
            gone: self.wants_data && self.link.is_none(),
            fell: self.link.is_some_and(|snr| snr < self.trained_db - FALL_DB),
        };
        if !self.trigger.wants(now, signal) {
            return false;
        }
        if !cell.config.skip_useless || !self.useless(cell, signal) {
            return true;
        }
        self.outcome.skipped += 1;
        if !signal.poor() {
            self.trigger.done(now);
        }
        false
    }

    /// Whether beacons alone tell that a training would be useless (the remedy that section 3.1
    /// asks of clients): no sector would reach the access point, or nothing has changed since the
    /// last training. A client that only listens learns all that it needs from beacons.
    fn useless(&mut self, cell: &Cell, signal: Signal) -> bool {
        if !self.wants_data {
            return true;
        }
        let (sector, gain) = self.sweeps(cell).best_ap();
        let heard_dbm = gain + cell.ap.power_dbm;
        // Eq. 3.5 solved for the power at the access point.
        let surplus = self.device.power_dbm + self.device.codebook.gain_db()
            - cell.ap.power_dbm
            - cell.ap.codebook.gain_db();
        let best_db = heard_dbm + surplus - cell.noise_dbm;
        let hopeless = best_db + EDGE_DB < cell.config.hearing.min_snr_db;
        let same = self
            .beacons
            .is_some_and(|(trained, dbm)| trained == sector && (heard_dbm - dbm).abs() < EDGE_DB);
        hopeless || (same && !signal.poor())
    }

    /// Failed attempts since it was last heard.
    pub(super) fn failed(&self) -> u32 {
        self.failed
    }

    pub(super) fn is_trained(&self) -> bool {
        self.link.is_some()
    }

    /// Its service in the last beacon interval.
    pub(super) fn service(&self) -> Service {
        self.service
    }

    fn channel(&self) -> &Channel {
        self.now
            .as_ref()
            .map_or(&self.station.channel, |now| &now.channel)
    }

    /// The sweeps over its current channel.
    pub(super) fn sweeps(&mut self, cell: &Cell) -> &Sweeps {
        match &mut self.now {
            None => &self.station.sweeps,
            Some(now) => now
                .sweeps
                .get_or_insert_with(|| Sweeps::new(&now.channel, &cell.ap, &self.device)),
        }
    }

    /// Advances to the next beacon interval, `seconds` later: clients and blockers move before the
    /// sweeps.
    pub(super) fn advance(&mut self, cell: &Cell, seconds: f64) -> Result<(), MmwaveError> {
        let walked = match &mut self.walker {
            None => None,
            Some(walker) => {
                let moved = walker.advance(seconds);
                // The channel is unchanged if neither the client nor a blocker moves.
                if !moved && self.now.is_some() && self.blockers.is_none() {
                    return Ok(());
                }
                self.device.pose = walker.pose();
                Some(walker.channel()?)
            }
        };
        let channel = match (&mut self.blockers, cell.config.blockage) {
            (Some(blockers), Blockage::ModelA { meters }) => {
                blockers.advance(meters)?;
                let free = walked.as_ref().unwrap_or(&self.station.channel);
                let passes = blockers.passes(free, self.device.pose.orientation);
                Some(free.attenuated(&passes))
            }
            _ => walked,
        };
        if let Some(channel) = channel {
            self.now = Some(Now {
                channel,
                sweeps: None,
            });
            if self.link.is_some() {
                self.link = Some(self.data_snr(cell));
            }
        }
        Ok(())
    }

    /// Whether it walks about.
    pub(super) fn walks(&self) -> bool {
        self.walker.is_some()
    }

    fn data_snr(&self, cell: &Cell) -> f64 {
        let gain = pair_db(
            self.channel(),
            (&cell.ap, self.pair.0),
            (&self.device, self.pair.1),
        );
        self.device.power_dbm + gain - cell.noise_dbm
    }

    /// Whether the data's SNR is below the slowest scheme of the single-carrier PHY.
    pub(super) fn below_data(&self) -> bool {
        self.link.is_some_and(|snr| phy::best_mcs(snr).is_none())
    }

    /// The access point has reported its sector.
    pub(super) fn connect(&mut self, cell: &Cell, trained: Trained) {
        if self.wants_data {
            let (sector, gain) = self.sweeps(cell).best_ap();
            self.beacons = Some((sector, gain + cell.ap.power_dbm));
            self.pair = (sector, trained.sector);
            let known = self
                .known
                .get(&trained.sector)
                .copied()
                .filter(|_| self.now.is_none());
            let snr = known.unwrap_or_else(|| self.data_snr(cell));
            self.known.insert(trained.sector, snr);
            self.link = Some(snr);
            self.trained_db = snr;
        }
    }

    pub(super) fn after_contention(&mut self, trained: bool, number: usize, now: Duration) {
        self.outcome.attempts += 1;
        if trained {
            self.failed = 0;
            self.trigger.done(now);
            self.outcome.first.get_or_insert(number);
        } else {
            self.failed = self.failed.saturating_add(1);
            self.outcome.failures += 1;
            if !self.wants_data {
                // A client that only listens does not retry.
                self.trigger.done(now);
                self.sweep = Sweep::default();
            }
        }
    }

    /// Sends for the client's share of the data time, in seconds, unless it is blocked.
    pub(super) fn send(&mut self, part_s: f64, blocked: bool) {
        let Some(snr_db) = self.link else {
            self.service = Service::Untrained;
            self.without_data();
            return;
        };
        self.outcome.allocated_s += part_s;
        if blocked {
            self.link = None;
            self.service = Service::Blocked;
            self.without_data();
        } else {
            self.outcome.used_s += part_s;
            self.outcome.megabits += phy::rate_mbps(snr_db) * part_s;
            self.service = Service::Data { snr_db, part_s };
            self.gap = 0;
        }
    }

    fn without_data(&mut self) {
        self.gap += 1;
        self.outcome.gone += 1;
        self.outcome.longest_gap = self.outcome.longest_gap.max(self.gap);
    }

    pub(super) fn finish(self) -> StationOutcome {
        self.outcome
    }
}
