//! One packet for a path: reports, probes, control records and datagrams.

use crate::datagram::clock;
use crate::datagram::control::Control;
use crate::datagram::path::Role;
use crate::datagram::path::sent::Item;
use crate::datagram::state::Datagrams;
use crate::datagram::wire::{Header, PacketWriter};
use crate::{Instant, PathId};

/// Most bytes of a control record.
const CONTROL: usize = 1 + 8 + 8 + 8;

/// Most bytes of a report's fields, without its ranges, and of a range.
const REPORT: usize = 1 + 4 + 4 + 8 + 1 + 8;
const REPORT_RANGE: usize = 8 + 8;

/// A packet with less room takes nothing along.
const MIN_PACKET: usize = 128;

impl Datagrams {
    /// Whether a packet may be due on a path. False is reliable.
    pub(crate) fn may_transmit(&self, id: PathId, now: Instant) -> bool {
        let Some(path) = self.paths.get(id) else {
            return false;
        };
        !path.rounds.is_empty()
            || self.is_probe_due(id, now)
            || self
                .controls
                .next(self.paths.best() == Some(id), now)
                .is_some()
            || self.report_due(id).is_some_and(|at| at <= now)
    }

    /// Appends one packet for a path, of at most `max_len` bytes; false if there is nothing to
    /// send.
    pub(crate) fn poll(
        &mut self,
        id: PathId,
        max_len: usize,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> bool {
        self.handled = self.handled.max(now);
        let Some(path) = self.paths.get(id).filter(|_| max_len >= MIN_PACKET) else {
            return false;
        };
        let header = Header {
            number: path.sent.next(),
            sent_at: clock::stamp(now),
        };
        let mut writer = PacketWriter::new(header, max_len, out);
        self.write_reports(id, false, &mut writer, now);
        let mut elicits = self.write_probe(id, &mut writer, now);
        elicits |= self.write_controls(id, &mut writer, now);
        let has_data = self.write_datagrams(id, &mut writer, now);
        elicits |= has_data;
        if has_data {
            // Reports come last here only if datagrams left room for them.
            self.write_reports(id, true, &mut writer, now);
        }
        let len = writer.len();
        if writer.is_empty() {
            writer.discard();
            return false;
        }
        let Some(path) = self.paths.get_mut(id) else {
            return false;
        };
        path.sent.push(len, elicits, now);
        path.handed += len as u64;
        path.counters.packets_sent += 1;
        path.counters.bytes_sent += len as u64;
        if elicits {
            path.health.note_asked(now);
            if has_data && !self.peer_speaks {
                self.asked_at.get_or_insert(now);
            }
        }
        true
    }

    /// Writes the reports that are due on this path, or with `along` those that may leave with a
    /// packet that leaves anyway.
    fn write_reports(
        &mut self,
        id: PathId,
        along: bool,
        writer: &mut PacketWriter<'_>,
        now: Instant,
    ) {
        let mut index = 0;
        while let Some(about) = self.paths.nth(index).map(|path| path.id) {
            index += 1;
            let role = self.paths.report_role(about, id);
            let Some(path) = self.paths.get_mut(about) else {
                continue;
            };
            let interval = path.report_interval();
            let is_wanted = match along {
                true => path.reporting.goes_along(id, interval, now),
                false => path
                    .reporting
                    .due(id, role, interval)
                    .is_some_and(|at| at <= now),
            };
            if !is_wanted {
                continue;
            }
            let Some(report) = path.arrivals.report(about) else {
                continue;
            };
            if writer.space() >= REPORT + REPORT_RANGE * report.ranges.len() {
                writer.report(&report);
                path.reporting.reported(id, role, now);
            }
        }
    }

    fn write_probe(&mut self, id: PathId, writer: &mut PacketWriter<'_>, now: Instant) -> bool {
        if !self.is_probe_due(id, now) {
            return false;
        }
        writer.ping();
        if let Some(path) = self.paths.get_mut(id) {
            path.health.note_probe(now);
        }
        self.repeat_controls(id, now);
        true
    }

    fn write_controls(&mut self, id: PathId, writer: &mut PacketWriter<'_>, now: Instant) -> bool {
        let best = self.paths.best() == Some(id);
        let mut has_written = false;
        while writer.space() >= CONTROL
            && let Some(pending) = self.controls.next(best, now)
        {
            match pending.control {
                Control::Close { flow, reason } => writer.close(flow, reason.code()),
                Control::Failed {
                    flow,
                    version,
                    code,
                } => writer.failed(flow, version, code.code()),
            }
            self.controls.taken();
            if let Some(path) = self.paths.get_mut(id) {
                path.sent.attach(Item::Control(pending), now);
            }
            has_written = true;
        }
        has_written
    }

    /// When the next report is due on a path.
    pub(in crate::datagram) fn report_due(&self, id: PathId) -> Option<Instant> {
        let dues = self.paths.iter().filter_map(|about| {
            let role: Role = self.paths.report_role(about.id, id);
            about.reporting.due(id, role, about.report_interval())
        });
        dues.min()
    }
}
