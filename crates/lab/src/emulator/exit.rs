//! The exit of the model: the interfaces that packets are written to, and their counters.

use std::time::Duration;

use sumlink_link::{Delivery, LinkId, Loss, Packet};

use super::buffers::Buffers;
use super::meter::Meter;
use super::middlebox::{Middlebox, Verdict};
use super::segment::{Run, Segment};
use super::series::WireSeries;
use crate::config::{Direction, InterfaceState, LinkChange, LinkSpec, Setting};
use crate::tun::Tun;

/// A link with its two ends.
pub(super) struct Port {
    pub(super) state: InterfaceState,
    /// Client, server. `None` while the interfaces do not exist.
    pub(super) ends: Option<[Tun; 2]>,
    /// By [`Direction::index`]: `Up` is read from the client's end and written to the server's.
    pub(super) ids: [LinkId; 2],
    /// Active settings that restart when a run begins because they have a time zero: traces and
    /// loss scripts. By [`Direction::index`].
    pub(super) clocked: [Vec<Setting>; 2],
    /// Located at the client's end.
    pub(super) middlebox: Middlebox,
}

impl Port {
    pub(super) fn new(link: &LinkSpec, ends: [Tun; 2], ids: [LinkId; 2]) -> Self {
        let mut port = Self {
            state: InterfaceState::Up,
            ends: Some(ends),
            ids,
            clocked: [Vec::new(), Vec::new()],
            middlebox: Middlebox::default(),
        };
        for direction in Direction::BOTH {
            for setting in link.shapes[direction.index()].rest() {
                let direction = Some(direction);
                port.note(&LinkChange { direction, setting });
            }
        }
        port
    }

    /// Records a change with a lasting effect.
    pub(super) fn note(&mut self, change: &LinkChange) {
        for direction in change.directions() {
            let clocked = &mut self.clocked[direction.index()];
            match &change.setting {
                Setting::State(state) => self.state = *state,
                Setting::Rate(_) => clocked.retain(|s| !matches!(s, Setting::Trace(_))),
                Setting::Trace(_) => {
                    clocked.retain(|s| !matches!(s, Setting::Trace(_)));
                    clocked.push(change.setting.clone());
                }
                Setting::Loss(loss) => {
                    clocked.retain(|s| !matches!(s, Setting::Loss(_)));
                    if let Loss::Script(_) = loss {
                        clocked.push(change.setting.clone());
                    }
                }
                Setting::Connections(fate) => self.middlebox.lose(*fate),
                Setting::Burst(_)
                | Setting::Policer(_)
                | Setting::Delay(_)
                | Setting::Jitter(_)
                | Setting::Queue(_)
                | Setting::NewAddress => {}
            }
        }
    }
}

/// The far ends of all links.
pub(super) struct Exit {
    pub(super) ports: Vec<Port>,
    /// Port and direction of each of the model's links, by its number.
    owners: Vec<(usize, Direction)>,
    /// Whether the interfaces accept super-packets.
    pub(super) offload: bool,
    /// Buffers of sent packets.
    pub(super) buffers: Buffers,
    /// The packet under construction for each of the model's links.
    pending: Vec<Option<Run>>,
    pub(super) meter: Meter,
    pub(super) series: WireSeries,
}

impl Exit {
    pub(super) fn new(ports: Vec<Port>, offload: bool, interval: Duration) -> Self {
        let mut owners = vec![(0, Direction::Up); 2 * ports.len()];
        for (number, port) in ports.iter().enumerate() {
            for direction in Direction::BOTH {
                owners[port.ids[direction.index()].index()] = (number, direction);
            }
        }
        Self {
            series: WireSeries::new(owners.len(), interval),
            pending: owners.iter().map(|_| None).collect(),
            owners,
            ports,
            offload,
            buffers: Buffers::default(),
            meter: Meter::new(),
        }
    }

    /// The middlebox's verdict on a packet to the client, and the direction of an answer to the
    /// server.
    pub(super) fn judge(&mut self, id: LinkId, packet: &Segment) -> (Verdict, LinkId) {
        let (port, direction) = self.owners[id.index()];
        let port = &mut self.ports[port];
        let verdict = match direction {
            Direction::Up => Verdict::Pass,
            Direction::Down => port.middlebox.judge(packet.data(), direction),
        };
        (verdict, port.ids[Direction::Up.index()])
    }

    /// Writes a packet to its destination, or holds it until [`Exit::flush`] so that others can
    /// join it.
    pub(super) fn hand_over(&mut self, id: LinkId, delivery: Delivery<Segment>, now: Duration) {
        self.meter.record(now.saturating_sub(delivery.due));
        let link = id.index();
        self.series
            .record(link, delivery.due, delivery.packet.wire_len() as u64);
        if !self.offload {
            return self.write(link, Run::new(delivery.packet));
        }
        let segment = match &mut self.pending[link] {
            Some(run) => match run.extend(delivery.packet) {
                Ok(()) => return,
                Err(segment) => segment,
            },
            None => delivery.packet,
        };
        if let Some(finished) = self.pending[link].replace(Run::new(segment)) {
            self.write(link, finished);
        }
    }

    /// Writes the packets held back.
    pub(super) fn flush(&mut self) {
        if !self.offload {
            return;
        }
        for link in 0..self.pending.len() {
            if let Some(run) = self.pending[link].take() {
                self.write(link, run);
            }
        }
    }

    fn write(&mut self, link: usize, run: Run) {
        let (port, direction) = self.owners[link];
        let Some(ends) = &self.ports[port].ends else {
            return;
        };
        let far = ends[1 - direction.index()].file();
        let written = if self.offload {
            run.write_joined(far)
        } else {
            run.write_whole(far)
        };
        // EIO: the interface is administratively down. ENOBUFS, EAGAIN: the host is out of memory.
        // A real adapter drops the packet in these cases as well.
        if written.is_err_and(|error| is_gone(&error)) {
            self.ports[port].ends = None;
        }
        self.buffers.give_back(run.into_buffer());
    }
}

/// EBADFD: the descriptor is no longer attached to an interface.
pub(super) fn is_gone(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(libc::EBADFD)
}
