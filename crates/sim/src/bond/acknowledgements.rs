//! When a carrier's TCP is to acknowledge at once: what `sumlink-transport` does in `carrier/acknowledgements.rs`, which says why.

use crate::clock::Nanos;
use crate::tcp::TcpInfo;

/// More segments than this without a pause are a flow of them.
const FLOW: u64 = 10;

/// What has arrived on a carrier and may not be acknowledged yet.
#[derive(Debug)]
pub(super) struct Acknowledgements {
    is_owed: bool,
    last: Nanos,
    burst: u64,
}

impl Acknowledgements {
    pub(super) fn new(now: Nanos) -> Self {
        Self {
            is_owed: false,
            last: now,
            burst: 0,
        }
    }

    /// So many bytes have arrived.
    pub(super) fn arrived(&mut self, len: u64, info: &TcpInfo, now: Nanos) {
        if now - self.last >= info.srtt {
            self.burst = 0;
        }
        self.last = now;
        self.burst += len;
        let mss = u64::from(info.mss);
        self.is_owed = len < 2 * mss && self.burst < FLOW * mss;
    }

    /// Something was sent, and the acknowledgement with it.
    pub(super) fn sent(&mut self) {
        self.is_owed = false;
    }

    /// Whether TCP is to be told; it is asked once.
    pub(super) fn are_to_be_told(&mut self, info: &TcpInfo) -> bool {
        let flows = info.unacked > 2 * u64::from(info.mss);
        let told = self.is_owed && !flows;
        self.is_owed &= !told;
        told
    }
}
