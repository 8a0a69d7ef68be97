//! CPU time that other programs use during a run.
//!
//! The emulator runs with real-time priority and is not affected when, for example, compilers
//! occupy the processors; the ends of the connections are.

use std::fs;

/// CPU time so far, in clock ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Machine {
    /// Total, idle time included.
    all: u64,
    /// Idle time.
    idle: u64,
    /// Used by programs.
    programs: u64,
    /// Used by this process and its descendants.
    ours: u64,
}

impl Machine {
    pub(crate) fn now() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let (all, idle, programs) = parse_total(&stat);
        Self {
            all,
            idle,
            programs,
            ours: own_ticks(),
        }
    }

    /// The share of all processors that other programs used since `self`.
    pub(crate) fn others_since(self, now: Self) -> f64 {
        let all = now.all.saturating_sub(self.all);
        let programs = now.programs.saturating_sub(self.programs);
        let ours = now.ours.saturating_sub(self.ours);
        if all == 0 {
            return 0.0;
        }
        programs.saturating_sub(ours) as f64 / all as f64
    }

    /// The share of all processors that this process, its descendants and interrupts used since
    /// `self`.
    pub(super) fn ours_since(self, now: Self) -> f64 {
        let all = now.all.saturating_sub(self.all);
        let idle = now.idle.saturating_sub(self.idle);
        let busy = all.saturating_sub(idle) as f64 / all.max(1) as f64;
        (busy - self.others_since(now)).max(0.0)
    }
}

/// proc(5), the line `cpu` of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal.
fn parse_total(stat: &str) -> (u64, u64, u64) {
    let line = stat.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = line
        .split_whitespace()
        .skip(1)
        .take(8)
        .filter_map(|field| field.parse().ok())
        .collect();
    let idle = ticks.iter().skip(3).take(2).sum();
    (ticks.iter().sum(), idle, ticks.iter().take(3).sum())
}

/// CPU time of this process and its descendants.
fn own_ticks() -> u64 {
    let own = std::process::id();
    let Ok(entries) = fs::read_dir("/proc") else {
        return 0;
    };
    let processes: Vec<(u32, u32, u64)> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid: u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let (parent, ticks) = parse_process(&stat)?;
            Some((pid, parent, ticks))
        })
        .collect();
    let mut family = vec![own];
    let mut sum = 0;
    let mut next = 0;
    while let Some(&pid) = family.get(next) {
        next += 1;
        for (child, parent, ticks) in &processes {
            if *child == pid {
                sum += ticks;
            }
            if *parent == pid && !family.contains(child) {
                family.push(*child);
            }
        }
    }
    sum
}

/// proc(5): fields 4 and 14 to 17 of a process' stat.
fn parse_process(stat: &str) -> Option<(u32, u64)> {
    // The second field is the program's name in parentheses, and may contain anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    let ticks = fields.skip(9).take(4).filter_map(|f| f.parse::<u64>().ok());
    Some((parent, ticks.sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        let stat = "cpu  100 10 50 1000 5 0 20 3 0 0\ncpu0 1 2 3\n";
        assert_eq!(parse_total(stat), (1188, 1005, 160));
        let stat = "17 (a) b (c) S 4 17 17 0 -1 4194560 1 2 3 4 150 50 7 3 20 0 1 0 100 0";
        assert_eq!(parse_process(stat), Some((4, 210)));
    }

    #[test]
    fn own_cpu_time_does_not_count_as_that_of_others() {
        let before = Machine {
            all: 1000,
            idle: 400,
            programs: 500,
            ours: 100,
        };
        let after = Machine {
            all: 1200,
            idle: 450,
            programs: 600,
            ours: 180,
        };
        assert_eq!(before.others_since(after), 0.1);
        assert_eq!(after.others_since(after), 0.0);
        assert_eq!(before.ours_since(after), 0.65);
        assert_eq!(after.ours_since(after), 0.0);
        assert!(own_ticks() <= parse_total(&fs::read_to_string("/proc/stat").unwrap()).2 + 100);
    }
}
