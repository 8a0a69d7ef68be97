//! Retransmission over another subflow: all bytes of a broken or stale subflow, and the oldest
//! bytes after a timeout.

use super::{BURST, Mptcp, Subflow};
use crate::clock::{MILLISECOND, Nanos, SECOND};
use crate::net::Net;
use crate::tcp::Side;
use crate::workload::{Channel, Progress};

/// Consecutive timeouts after which a subflow is stale (`net.mptcp.stale_loss_cnt`).
const STALE: u64 = 4;
/// Least age of data that is retransmitted over another subflow (TCP_RTO_MIN).
const MIN_TIMEOUT: Nanos = 200 * MILLISECOND;

impl Mptcp {
    /// A subflow broke: its unacknowledged bytes go over the others.
    pub(super) fn lose_subflow(&mut self, net: &mut Net, number: Channel, index: usize) {
        let channel = &mut self.channels[number];
        if std::mem::replace(&mut channel.subflows[index].is_over, true) {
            return;
        }
        for side in Side::BOTH {
            let held = std::mem::take(&mut channel.subflows[index].mappings[side.peer().index()]);
            let half = &mut channel.halves[side.index()];
            half.burst = None;
            let unacknowledged = held
                .into_iter()
                .filter(|(.., end)| *end > half.acknowledged);
            half.again
                .extend(unacknowledged.map(|(_, start, end)| (start, end)));
        }
        if channel.subflows.iter().all(|subflow| subflow.is_over) {
            channel.is_over = true;
            self.progress.push(Progress::Broken(number));
            return;
        }
        for side in Side::BOTH {
            self.pump(net, number, side);
        }
    }

    /// Linux: mptcp_pm_subflow_chk_stale. The bytes of a subflow that timed out repeatedly go over
    /// the others.
    pub(super) fn find_stale(&mut self, net: &mut Net, number: Channel, side: Side) {
        let channel = &mut self.channels[number];
        let others = channel.subflows.iter();
        let usable = others.filter(|other| !other.is_over && !other.is_stale[side.index()]);
        let has_other = usable.count() > 1;
        let half = &mut channel.halves[side.index()];
        for subflow in &mut channel.subflows {
            let tcp = net.tcp(subflow.connection, side);
            let (acknowledged, timeouts) = (tcp.acknowledged(), tcp.counters().timeouts);
            let mark = &mut subflow.marks[side.index()];
            let stale = &mut subflow.is_stale[side.index()];
            if acknowledged > mark.0 {
                *mark = (acknowledged, timeouts);
                *stale = false;
            } else if timeouts >= mark.1 + STALE && has_other && !*stale && !subflow.is_over {
                *stale = true;
                half.burst = None;
                let held = subflow.mappings[side.peer().index()].iter();
                let missing = held.filter(|(.., end)| *end > half.acknowledged);
                half.again
                    .extend(missing.map(|(_, start, end)| (*start, *end)));
            }
        }
        self.pump(net, number, side);
    }

    /// Linux: mptcp_subflow_get_retrans, __mptcp_retrans.
    pub(super) fn repeat_oldest(&mut self, net: &mut Net, number: Channel, side: Side) {
        let channel = &mut self.channels[number];
        let half = &mut channel.halves[side.index()];
        if channel.is_over || half.acknowledged >= half.next {
            return;
        }
        let is_usable = |subflow: &&Subflow| !subflow.is_over && !subflow.is_stale[side.index()];
        let usable = || channel.subflows.iter().filter(is_usable);
        let rto = |subflow: &Subflow| net.tcp(subflow.connection, side).info(net.now()).rto;
        let timeout = usable().map(rto).max().unwrap_or(SECOND).max(MIN_TIMEOUT);
        let is_idle = |subflow: &Subflow| {
            let tcp = net.tcp(subflow.connection, side);
            tcp.is_established() && tcp.acknowledged() == tcp.written()
        };
        if net.now() - half.progress < timeout || !usable().any(is_idle) {
            return;
        }
        let end = half.next.min(half.acknowledged + BURST);
        half.again.push_front((half.acknowledged, end));
        half.progress = net.now();
        self.pump(net, number, side);
    }
}
