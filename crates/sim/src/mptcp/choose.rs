//! The scheduler: chooses the subflow for the next bytes.

use super::{BURST, Multipath, Subflow};
use crate::clock::SECOND;
use crate::net::Net;
use crate::tcp::Side;

/// Minimum size of a send buffer, which otherwise is twice the congestion window
/// (`tcp_sndbuf_expand`).
const SEND_BUFFER: u64 = 64 * 1024;

/// Linux: mptcp_subflow_get_send. Returns the subflow for the next bytes and the rest of its burst.
pub(super) fn choose(channel: &mut Multipath, net: &Net, side: Side) -> Option<(usize, u64)> {
    let info = |subflow: &Subflow| net.tcp(subflow.connection, side).info(net.now());
    let is_full = |subflow: &Subflow| {
        let info = info(subflow);
        info.unacked + info.unsent >= (2 * info.cwnd).max(SEND_BUFFER)
    };
    let half = &channel.halves[side.index()];
    if let Some((index, left)) = half.burst.filter(|(_, left)| *left > 0) {
        let subflow = &channel.subflows[index];
        let is_usable = !subflow.is_over && !subflow.is_stale[side.index()];
        if is_usable && !subflow.is_backup && !is_full(subflow) {
            return Some((index, left));
        }
    }
    let pacing = |subflow: &Subflow| match subflow.pacing[side.index()] {
        0 => info(subflow).pacing_rate.max(1),
        average => average,
    };
    let linger = |subflow: &Subflow| {
        let info = info(subflow);
        u128::from(info.unacked + info.unsent) * u128::from(SECOND) / u128::from(pacing(subflow))
    };
    let usable = channel.subflows.iter().enumerate().filter(|(_, subflow)| {
        !subflow.is_over
            && !subflow.is_stale[side.index()]
            && net.tcp(subflow.connection, side).is_established()
    });
    // A backup is used only while no other subflow is usable.
    let (index, best) =
        usable.min_by_key(|(index, subflow)| (subflow.is_backup, linger(subflow), *index))?;
    if is_full(best) {
        return None;
    }
    // avg_pacing = (avg_pacing * queued + pacing * burst) / (queued + burst)
    let (now, average) = (info(best), pacing(best));
    let queued = u128::from(now.unacked + now.unsent);
    let sum = u128::from(average) * queued + u128::from(now.pacing_rate) * u128::from(BURST);
    channel.subflows[index].pacing[side.index()] = (sum / (queued + u128::from(BURST))) as u64;
    Some((index, BURST))
}
