//! The fill level of the kernel's connection table.

use std::fs;

/// Entries of the connection table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conntrack {
    /// Current number.
    pub count: u64,
    /// Maximum number (`net.netfilter.nf_conntrack_max`); the kernel drops packets of further
    /// connections.
    pub max: u64,
}

impl Conntrack {
    /// The table of this network namespace; `None` without connection tracking.
    pub fn read() -> Option<Self> {
        let number = |name: &str| {
            let text = fs::read_to_string(format!("/proc/sys/net/netfilter/{name}")).ok()?;
            text.trim().parse().ok()
        };
        Some(Self {
            count: number("nf_conntrack_count")?,
            max: number("nf_conntrack_max")?,
        })
    }

    /// Whether at least nine tenths of the entries are in use. A limit of 0 means no limit.
    pub fn is_nearly_full(self) -> bool {
        self.max > 0 && self.count >= self.max - self.max / 10
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_tenths_are_nearly_full() {
        for (count, max, full) in [
            (89, 100, false),
            (90, 100, true),
            (5, 0, false),
            (1, 1, true),
        ] {
            let table = Conntrack { count, max };
            assert_eq!(table.is_nearly_full(), full, "{table:?}");
        }
    }
}
