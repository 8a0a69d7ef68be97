//! A coupled algorithm's view of the other flows of its bond.

use crate::flow::Flow;

/// The other flows of the bond, without the flow itself.
#[derive(Clone, Copy, Debug)]
pub struct Siblings<'a> {
    before: &'a [Flow],
    after: &'a [Flow],
}

impl Siblings<'static> {
    /// For a flow without siblings: a coupled algorithm then equals its single-path counterpart.
    pub const NONE: Self = Siblings {
        before: &[],
        after: &[],
    };
}

impl<'a> Siblings<'a> {
    /// The siblings of `flows[own]`; that entry itself is ignored.
    ///
    /// # Panics
    ///
    /// If `own` is out of bounds.
    pub fn of(flows: &'a [Flow], own: usize) -> Self {
        Self {
            before: &flows[..own],
            after: &flows[own + 1..],
        }
    }

    /// The place of the flow in its bond, counted from 0 in the order in which flows joined.
    pub fn place(&self) -> usize {
        self.before.len()
    }

    /// The siblings with a known round-trip time.
    pub fn measured(&self) -> impl Iterator<Item = &'a Flow> + Clone + use<'a> {
        let all = self.before.iter().chain(self.after);
        all.filter(|flow| flow.is_measured())
    }
}

/// A flow and its measured siblings: the range of the sums in the papers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bond<'a> {
    pub(crate) own: Flow,
    siblings: Siblings<'a>,
}

impl<'a> Bond<'a> {
    /// `None` if `own` has not been measured.
    pub(crate) fn new(own: Flow, siblings: &Siblings<'a>) -> Option<Self> {
        own.is_measured().then_some(Self {
            own,
            siblings: *siblings,
        })
    }

    /// All flows, `own` first.
    pub(crate) fn flows(&self) -> impl Iterator<Item = Flow> + Clone + use<'a> {
        std::iter::once(self.own).chain(self.siblings.measured().copied())
    }

    /// Number of flows: n in the papers.
    pub(crate) fn count(&self) -> f64 {
        self.flows().count() as f64
    }

    /// The sum of all windows in packets.
    pub(crate) fn total_window(&self) -> f64 {
        self.flows().map(|flow| flow.cwnd).sum()
    }

    /// The sum of w / rtt in packets per second.
    pub(crate) fn total_rate(&self) -> f64 {
        self.flows().map(|flow| flow.rate()).sum()
    }

    /// The largest of `value` over all flows.
    pub(crate) fn most(&self, value: impl Fn(&Flow) -> f64) -> f64 {
        self.flows().map(|flow| value(&flow)).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn flow(cwnd: f64, ms: u64) -> Flow {
        Flow {
            cwnd,
            srtt: Duration::from_millis(ms),
            ..Flow::default()
        }
    }

    #[test]
    fn siblings_are_the_measured_others() {
        let flows = [flow(1.0, 10), flow(2.0, 10), flow(3.0, 0), flow(4.0, 10)];
        let windows = |own| {
            let siblings = Siblings::of(&flows, own);
            siblings
                .measured()
                .map(|flow| flow.cwnd)
                .collect::<Vec<_>>()
        };
        assert_eq!(windows(0), [2.0, 4.0]);
        assert_eq!(windows(2), [1.0, 2.0, 4.0]);
        assert_eq!(windows(3), [1.0, 2.0]);
        assert_eq!(Siblings::NONE.measured().count(), 0);
    }
}
