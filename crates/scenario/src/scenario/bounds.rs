//! Capacity of a scenario's links, computed from the file.

use std::time::Duration;

use sumlink_link::{Loss, QueueLimit};

use crate::config::{Direction, InterfaceState, LinkSpec, Setting, Shape};

use super::Scenario;

impl Scenario {
    /// Mean over the run of the sum of rate x (1 - loss) of all links in a direction, in bit/s;
    /// headers are included. Loss scripts count as no loss: they select packets, not a share of
    /// them.
    pub fn left_bps(&self, way: Direction, seed: u64) -> f64 {
        self.mean_of_sum(way, seed, |shape| {
            shape.long_term_rate() as f64 * (1.0 - mean_loss(&shape.loss))
        })
    }

    /// Mean over the run of the sum of the rates of all links in a direction, in bit/s; a policer's
    /// rate if that is lower.
    pub fn rates_bps(&self, way: Direction, seed: u64) -> f64 {
        self.mean_of_sum(way, seed, |shape| shape.long_term_rate() as f64)
    }

    fn mean_of_sum(&self, way: Direction, seed: u64, of: impl Fn(&Shape) -> f64) -> f64 {
        let parts = self.shapes_over_time(way, seed).into_iter().map(|steps| {
            let steps = steps.iter().enumerate().map(|(index, (at, shape))| {
                let end = steps
                    .get(index + 1)
                    .map_or(self.duration, |(next, _)| *next);
                let seconds = end.min(self.duration).saturating_sub(*at).as_secs_f64();
                of(shape) * seconds
            });
            steps.sum::<f64>()
        });
        parts.sum::<f64>() / self.duration.as_secs_f64()
    }

    /// The largest round-trip time of a link with a full queue: both delays, and the queue of the
    /// traffic's direction.
    pub fn largest_rtt(&self, seed: u64) -> Duration {
        let [up, down] = Direction::BOTH.map(|way| self.shapes_over_time(way, seed));
        let longest = |steps: &[(Duration, Shape)]| steps.iter().map(|(_, s)| s.delay).max();
        let queue = |steps: &[(Duration, Shape)]| steps.iter().map(|(_, s)| queueing(s)).max();
        let of_link = |(up, down): (Vec<_>, Vec<_>)| {
            let ways = self.traffic.directions().iter();
            let queues = ways.filter_map(|way| match way {
                Direction::Up => queue(&up),
                Direction::Down => queue(&down),
            });
            let delays = [longest(&up), longest(&down)].into_iter().flatten();
            delays.sum::<Duration>() + queues.max().unwrap_or_default()
        };
        up.into_iter()
            .zip(down)
            .map(of_link)
            .max()
            .unwrap_or_default()
    }

    /// The shortest one-way delays of each link over the run, up and down, without queues.
    pub fn least_delays(&self, seed: u64) -> Vec<[Duration; 2]> {
        let least = |way| {
            let links = self.shapes_over_time(way, seed).into_iter();
            let delays = links.map(|steps| steps.iter().map(|(_, shape)| shape.delay).min());
            delays.map(Option::unwrap_or_default).collect::<Vec<_>>()
        };
        let [up, down] = [Direction::Up, Direction::Down].map(least);
        up.into_iter()
            .zip(down)
            .map(|(up, down)| [up, down])
            .collect()
    }

    /// For each link its shapes over time.
    fn shapes_over_time(&self, way: Direction, seed: u64) -> Vec<Vec<(Duration, Shape)>> {
        let config = self.lab_config(seed);
        let of_link = |link: &LinkSpec| {
            let mut shape = link.shapes[way.index()].clone();
            let mut carries = true;
            let mut steps = vec![(Duration::ZERO, shape.clone())];
            let mut changes: Vec<_> = config
                .timeline
                .iter()
                .filter(|planned| planned.link == link.name)
                .filter(|planned| planned.change.directions().any(|d| d == way))
                .collect();
            changes.sort_by_key(|planned| planned.at);
            for planned in changes {
                match &planned.change.setting {
                    Setting::State(state) => carries = *state == InterfaceState::Up,
                    setting => shape.set(setting),
                }
                let mut now = shape.clone();
                if !carries {
                    now.rate = 0;
                }
                if steps.last().is_some_and(|(at, _)| *at == planned.at) {
                    steps.pop();
                }
                steps.push((planned.at, now));
            }
            steps
        };
        config.links.iter().map(of_link).collect()
    }
}

fn mean_loss(loss: &Loss) -> f64 {
    match loss {
        Loss::Independent(share) => *share,
        Loss::GilbertElliott(model) => model.mean_loss(),
        _ => 0.0,
    }
}

/// The time that a packet waits in a full queue.
fn queueing(shape: &Shape) -> Duration {
    match shape.queue {
        QueueLimit::Time(time) => time,
        QueueLimit::Bytes(_) if shape.rate == 0 => Duration::ZERO,
        QueueLimit::Bytes(bytes) => Duration::from_secs_f64(bytes as f64 * 8.0 / shape.rate as f64),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn scenario(more: &str) -> Scenario {
        let text = format!(
            "name = \"a\"\nduration = \"10s\"\n[[link]]\nname = \"x\"\nrate = \"10mbit\"\n\
             loss = \"5%\"\n\
             delay = {{ down = \"30ms\", up = \"10ms\" }}\nqueue = \"50ms\"\n{more}"
        );
        Scenario::parse(Path::new("s.toml"), &text).unwrap()
    }

    #[test]
    fn rates_and_losses_are_averaged_over_the_run() {
        assert_eq!(scenario("").left_bps(Direction::Down, 1), 9.5e6);
        assert_eq!(scenario("").rates_bps(Direction::Down, 1), 10e6);
        let event = "[[event]]\nat = \"4s\"\nlink = \"x\"\nrate = { down = \"5mbit\" }\n";
        assert_eq!(scenario(event).left_bps(Direction::Down, 1), 9.5e6 * 0.7);
        assert_eq!(scenario(event).left_bps(Direction::Up, 1), 9.5e6);
        let outage = "[[event]]\nat = \"4s\"\nlink = \"x\"\nstate = \"down\"\n\
                      [[event]]\nat = \"6s\"\nlink = \"x\"\nstate = \"up\"\n";
        assert_eq!(scenario(outage).left_bps(Direction::Up, 1), 9.5e6 * 0.8);
    }

    #[test]
    fn round_trips_count_the_queue_of_the_data() {
        assert_eq!(scenario("").largest_rtt(1), Duration::from_millis(90));
        let least = scenario("").least_delays(1);
        assert_eq!(least.len(), 1);
        assert!(least[0][0] + least[0][1] < Duration::from_millis(90));
        let more =
            "[[link]]\nname = \"y\"\nrate = \"12mbit\"\ndelay = \"45ms\"\nqueue = \"10packets\"\n";
        assert_eq!(scenario(more).largest_rtt(1), Duration::from_millis(100));
    }
}
