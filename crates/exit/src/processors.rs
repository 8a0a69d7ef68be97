//! How busy the processors of this machine are.

use std::fs;

/// Times of all processors so far, in clock ticks (proc(5), `/proc/stat`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processors {
    /// The sum first, then each processor.
    times: Vec<Ticks>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    all: u64,
    idle: u64,
}

/// Percent of the time in which processors were busy, 0..=100.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Busy {
    /// All processors together.
    pub all: u8,
    /// The busiest one.
    pub busiest: u8,
}

impl Processors {
    /// The times until now; none where `/proc/stat` cannot be read.
    pub fn now() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn parse(stat: &str) -> Self {
        let lines = stat.lines().take_while(|line| line.starts_with("cpu"));
        Self {
            times: lines.map(Ticks::parse).collect(),
        }
    }

    /// How busy they have been since `before`; 0 where that is not known.
    pub fn busy_since(&self, before: &Self) -> Busy {
        let pairs = self.times.iter().zip(&before.times);
        let mut busy = pairs.map(|(now, before)| now.busy_since(before));
        Busy {
            all: busy.next().unwrap_or(0),
            busiest: busy.max().unwrap_or(0),
        }
    }
}

impl Ticks {
    /// A line: name, user, nice, system, idle, iowait, irq, softirq, steal.
    fn parse(line: &str) -> Self {
        let fields = line.split_whitespace().skip(1).take(8);
        let ticks: Vec<u64> = fields.map(|field| field.parse().unwrap_or(0)).collect();
        Self {
            all: ticks.iter().sum(),
            idle: ticks.iter().skip(3).take(2).sum(),
        }
    }

    fn busy_since(&self, before: &Self) -> u8 {
        let all = self.all.saturating_sub(before.all);
        let idle = self.idle.saturating_sub(before.idle).min(all);
        let percent = ((all - idle) * 100).checked_div(all).unwrap_or(0);
        u8::try_from(percent).unwrap_or(100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_processor_counts_beside_all() {
        let before = Processors::parse("cpu 10 0 0 90 0\ncpu0 5 0 0 45\ncpu1 5 0 0 45\nintr 1\n");
        let after = Processors::parse("cpu 70 0 0 130 0\ncpu0 55 0 0 45\ncpu1 15 0 0 85\n");
        let busy = Busy {
            all: 60,
            busiest: 100,
        };
        assert_eq!(after.busy_since(&before), busy);
        assert_eq!(after.busy_since(&after), Busy::default());
        assert_eq!(after.busy_since(&Processors::default()), Busy::default());
    }

    #[test]
    fn this_machine_has_processors() {
        assert!(Processors::now().times.len() >= 2);
    }
}
