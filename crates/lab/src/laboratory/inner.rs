//! Operations shared by a laboratory's owner and its control socket: changing links and reporting
//! their state.

use std::fs;
use std::sync::{Arc, Mutex, PoisonError};

use super::{DirectionReport, LabConfig, LinkStatus};
use crate::addresses::Addresses;
use crate::config::{Direction, InterfaceState, LinkChange, Setting, check_rate, find_link};
use crate::emulator::Emulator;
use crate::error::LabError;
use crate::health::Health;
use crate::netns::Namespace;
use crate::rundir::RunDir;
use crate::topology::{self, Kernel, Side};
use crate::tun::Tun;

/// State shared by the control server and the laboratory's owner. The fields are dropped in this
/// order.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(super) config: LabConfig,
    pub(super) kernel: Kernel,
    pub(super) emulator: Emulator,
    /// Before the namespaces, since it refers to the client's.
    pub(super) addresses: Arc<Addresses>,
    /// The emulated interfaces by link, for switching their carriers. Also serializes changes of
    /// state.
    pub(super) ends: Mutex<Vec<Option<[Tun; 2]>>>,
    /// By [`Side::index`].
    pub(super) namespaces: Vec<Namespace>,
    pub(super) run_dir: RunDir,
}

impl Inner {
    /// The namespace of a side.
    pub(super) fn namespace(&self, side: Side) -> Result<&Namespace, LabError> {
        self.namespaces.get(side.index()).ok_or_else(|| {
            LabError::Usage(format!(
                "this laboratory has no side {}: it needs topology = \"lan\", or --lan",
                side.name()
            ))
        })
    }

    pub(crate) fn set(&self, link: &str, changes: &[LinkChange]) -> Result<(), LabError> {
        let index = find_link(&self.config.links, link)?;
        if self.config.unshaped {
            return Err(LabError::Usage(
                "the links of this laboratory are not emulated and cannot be changed".to_owned(),
            ));
        }
        for change in changes {
            check_rate(link, &change.setting, self.config.gso)?;
        }
        for change in changes {
            match change.setting {
                Setting::State(state) => self.set_state(index, state)?,
                Setting::NewAddress => self.renew_address(index)?,
                _ => self.emulator.change(index, change.clone()),
            }
        }
        // The emulator answers this request after it has made the changes.
        self.emulator.report().map(drop)
    }

    /// A link without an address gets the new one when it comes up.
    fn renew_address(&self, index: usize) -> Result<(), LabError> {
        let _alone = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        match self.emulator.report()?.0[index].state {
            InterfaceState::Removed => Err(LabError::Usage(
                "the interface does not exist and has no address: bring the link up first"
                    .to_owned(),
            )),
            InterfaceState::Unaddressed => {
                self.addresses.choose_others(index);
                Ok(())
            }
            _ => self.addresses.renew(index),
        }
    }

    fn set_state(&self, index: usize, state: InterfaceState) -> Result<(), LabError> {
        let mut all = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.emulator.report()?.0[index].state;
        let exists = before != InterfaceState::Removed;
        if !exists {
            // Possibly only one of the two interfaces was deleted.
            all[index] = None;
        }
        if state == InterfaceState::Removed {
            self.emulator.replace(index, None);
            self.emulator.report()?;
            all[index] = None;
            return Ok(());
        }
        if all[index].is_none() {
            let name = &self.config.links[index].name;
            // Fails for links that had no endpoint.
            let _ = self.namespaces[Side::Client.index()].ip_batch(topology::unlink_batch(index));
            let pair = plug_in(&self.namespaces, index, name, self.kernel, self.config.gso)?;
            all[index] = Some(clone_pair(&pair)?);
            self.emulator.replace(index, Some(pair));
            self.addresses.made_anew(index);
        }
        for end in all[index].iter().flatten() {
            end.set_carrier(state != InterfaceState::Down)?;
        }
        self.emulator.change(index, LinkChange::state(state));
        let without = |state| state == InterfaceState::Unaddressed;
        match (without(before), without(state)) {
            (false, true) => self.addresses.take(index),
            (true, false) => self.addresses.give_back(index),
            _ => Ok(()),
        }
    }

    pub(crate) fn status(&self) -> Result<Vec<LinkStatus>, LabError> {
        let (links, _) = self.emulator.report()?;
        let status = links
            .iter()
            .zip(&self.config.links)
            .map(|(report, spec)| LinkStatus {
                name: spec.name.clone(),
                state: report.state,
                directions: Direction::BOTH.map(|direction| {
                    let counters = &report.counters[direction.index()];
                    DirectionReport {
                        direction,
                        rate_bps: report.rates[direction.index()],
                        offered_packets: counters.offered_packets,
                        delivered_packets: counters.delivered_packets,
                        delivered_bytes: counters.delivered_bytes,
                        policed_packets: counters.policed_packets,
                        dropped_queue_packets: counters.dropped_queue_packets,
                        lost_packets: counters.lost_packets,
                        layer2_retransmissions: counters.layer2_retransmissions,
                        discarded_packets: counters.discarded_packets,
                        backlog_packets: counters.queued_packets + counters.in_flight_packets,
                    }
                }),
            });
        Ok(status.collect())
    }

    pub(crate) fn health(&self) -> Result<Health, LabError> {
        let (_, mut health) = self.emulator.report()?;
        // Drops on interfaces without an emulator are caused by the sender and do not count.
        for namespace in self.namespaces.iter().filter(|_| !self.config.unshaped) {
            let names: Vec<_> = self.config.links.iter().map(|l| l.name.clone()).collect();
            health.overruns += namespace.run(move || transmit_drops(&names))?;
        }
        Ok(health)
    }
}

/// Creates both ends of a link and assigns their addresses.
pub(super) fn plug_in(
    namespaces: &[Namespace],
    index: usize,
    name: &str,
    kernel: Kernel,
    gso: bool,
) -> Result<[Tun; 2], LabError> {
    let open = |side: Side| {
        let name = name.to_owned();
        namespaces[side.index()].run(move || Tun::open(&name, gso))?
    };
    let pair = [open(Side::Client)?, open(Side::Server)?];
    for side in [Side::Client, Side::Server] {
        let batch = topology::link_batch(side, index, name, kernel);
        namespaces[side.index()].ip_batch(batch)?;
    }
    Ok(pair)
}

/// Connects the namespaces directly by a link without emulation, with the addresses of an emulated
/// one.
pub(super) fn lay_cable(
    namespaces: &[Namespace],
    index: usize,
    name: &str,
    kernel: Kernel,
) -> Result<(), LabError> {
    let [client, server] = [Side::Client, Side::Server].map(|side| &namespaces[side.index()]);
    client.join(server, name)?;
    for side in [Side::Client, Side::Server] {
        let batch = topology::link_batch(side, index, name, kernel);
        namespaces[side.index()].ip_batch(batch)?;
    }
    Ok(())
}

pub(super) fn clone_pair([client, server]: &[Tun; 2]) -> Result<[Tun; 2], LabError> {
    client
        .try_clone()
        .and_then(|client| Ok([client, server.try_clone()?]))
        .map_err(|error| LabError::system("duplicating a file descriptor", error))
}

/// Packets that the interfaces of the calling thread's namespace could not hand to the emulator.
fn transmit_drops(names: &[String]) -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| names.iter().any(|n| n == name.trim()))
        // Eight columns of the receive side, then bytes, packets, errors, drops of the transmit
        // side.
        .filter_map(|(_, fields)| fields.split_whitespace().nth(11)?.parse::<u64>().ok())
        .sum()
}
