//! `profile` of a link: its behavior over time, fitted to recordings or computed by a cell of 60
//! GHz Wi-Fi.

use std::time::Duration;

use sumlink_link::Profile;
use sumlink_link::profile::{Timeline, scale};
use sumlink_mmwave::wigig::{WigigLink, timeline};

use crate::config::{Direction, LinkChange, MAX_LINKS, PlannedChange, Setting, check_rate};

use super::document::Document;
use super::each_way::each_way;
use super::section::{Section, keep, number_of};
use super::wigig::{self, NAME as WIGIG};

/// A generator of a link's behavior over time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProfileUse {
    generator: Generator,
    /// Factor on its rates: client to server, then server to client.
    scale: [f64; 2],
    /// Whether the file sets delay and jitter.
    keeps_delay: bool,
    keeps_jitter: bool,
    /// Position in the file that selects its random sequence, if different from its own.
    place: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
enum Generator {
    /// Fitted to recordings.
    Fitted(Profile),
    /// A client of a cell.
    Wigig(WigigLink),
}

impl Generator {
    /// The behavior of each direction, with its rates multiplied by its factor.
    fn timelines(&self, seed: u64, duration: Duration, factors: [f64; 2]) -> [Timeline; 2] {
        match self {
            Self::Fitted(profile) => {
                let both = profile.timeline(seed, duration);
                factors.map(|factor| {
                    let mut timeline = both.clone();
                    scale(&mut timeline, factor);
                    timeline
                })
            }
            Self::Wigig(link) => {
                // With these ranges the cell can always be computed; a failure would give a link
                // without data.
                let steps = link.schedule(seed, duration).unwrap_or_default();
                let first = timeline(&steps, factors[0]);
                // Traces are long, so identical ones are shared.
                let second = if factors[1] == factors[0] {
                    first.clone()
                } else {
                    timeline(&steps, factors[1])
                };
                [first, second]
            }
        }
    }
}

impl ProfileUse {
    /// The cell's client, if the link is one.
    pub(crate) fn wigig(&self) -> Option<&WigigLink> {
        match &self.generator {
            Generator::Wigig(link) => Some(link),
            Generator::Fitted(_) => None,
        }
    }

    /// The same, mutable.
    pub(crate) fn wigig_mut(&mut self) -> Option<&mut WigigLink> {
        match &mut self.generator {
            Generator::Wigig(link) => Some(link),
            Generator::Fitted(_) => None,
        }
    }

    /// The seed of the link with that number in the file: links with the same profile are not
    /// synchronized, and different runs have different seeds.
    pub(crate) fn seed(&self, number: u64, run: u64) -> u64 {
        let place = self.place.unwrap_or(number);
        run.wrapping_mul(MAX_LINKS as u64).wrapping_add(place)
    }

    /// The changes of the link, in both directions.
    pub(crate) fn changes(&self, link: &str, seed: u64, duration: Duration) -> Vec<PlannedChange> {
        let keeps = |setting: &Setting| match setting {
            Setting::Delay(_) => !self.keeps_delay,
            Setting::Jitter(_) => !self.keeps_jitter,
            _ => true,
        };
        let mut both = self.generator.timelines(seed, duration, self.scale);
        let of = |direction: Direction| {
            let timeline = std::mem::take(&mut both[direction.index()]);
            timeline.into_iter().filter_map(move |(at, change)| {
                let setting = Setting::of(change).filter(keeps)?;
                Some(PlannedChange {
                    at,
                    link: link.to_owned(),
                    change: LinkChange {
                        direction: Some(direction),
                        setting,
                    },
                })
            })
        };
        Direction::BOTH.into_iter().flat_map(of).collect()
    }
}

/// Reads `profile`, `scale`, `place`, and the keys of a cell.
pub(super) fn read(
    document: &mut Document<'_>,
    section: &mut Section<'_, '_>,
    link: &str,
    gso: bool,
) -> Option<ProfileUse> {
    let name = section.text(document, "profile");
    let wigig = name.as_ref().is_some_and(|name| name.value == WIGIG);
    let generator = match &name {
        None => None,
        Some(_) if wigig => wigig::read(document, section).map(Generator::Wigig),
        Some(name) => {
            let parsed = name.value.parse::<Profile>();
            let parsed = parsed.map_err(|error| format!("{error}, and {WIGIG}"));
            keep(document, &name.span, "profile", parsed).map(Generator::Fitted)
        }
    };
    if !wigig {
        for key in wigig::KEYS {
            if let Some(value) = section.value(key) {
                let reason = format!("{key} needs a link with profile = \"{WIGIG}\"");
                document.problem(&value.span(), reason);
            }
        }
    }
    let scale = each_way(document, section, "scale", |document, value| {
        let number = number_of(value).filter(|number| *number > 0.0 && *number <= 1000.0);
        if number.is_none() {
            document.problem(
                &value.span(),
                "scale must be a number above 0: a factor on the profile's rates",
            );
        }
        number
    });
    let scale = scale.map(|factor| factor.unwrap_or(1.0));
    let place = section.integer(document, "place", 0..MAX_LINKS as u64);
    if ["scale", "place"].into_iter().any(|key| section.has(key)) && !section.has("profile") {
        section.missing(
            document,
            "profile",
            "profile = \"lte\", which scale and place need",
        );
    }
    if let (Some(Generator::Wigig(_)), Some(name)) = (&generator, &name) {
        // Checked with the maximum over all seeds, so that the validity of a file does not depend
        // on the seed.
        let most = WigigLink::max_bps() as f64 * scale[0].max(scale[1]);
        let most = Setting::Rate(most as u64);
        let reason = |error| format!("{error}, or scale the rates down (scale = 0.1)");
        let fits = check_rate(link, &most, gso).map_err(reason);
        keep(document, &name.span, "profile", fits);
    }
    Some(ProfileUse {
        generator: generator?,
        scale,
        keeps_delay: section.has("delay"),
        keeps_jitter: section.has("jitter"),
        place: place.map(|at| at.value),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sumlink_mmwave::cell::{Access, Blockage};
    use sumlink_mmwave::mobility::Walk;

    use super::*;
    use crate::scenario::Scenario;

    fn text(keys: &str) -> String {
        format!(
            "name = \"a\"\nduration = \"5s\"\n[[link]]\nname = \"wifi\"\nrate = \"60mbit\"\n\
             [[link]]\nname = \"wigig\"\nprofile = \"mmwave\"\nscale = 0.1\n{keys}"
        )
    }

    fn scenario(keys: &str) -> Scenario {
        Scenario::parse(Path::new("s.toml"), &text(keys)).unwrap()
    }

    fn problems(text: &str) -> Vec<(usize, String)> {
        let problems = Scenario::parse(Path::new("s.toml"), text).unwrap_err();
        problems.into_iter().map(|p| (p.line, p.reason)).collect()
    }

    const JPOC: &str = "access = \"jpoc\"\nstations = 2\n";

    #[test]
    fn a_wigig_link_does_what_its_schedule_says() {
        let config = scenario(JPOC).lab_config(3);
        config.check().unwrap();
        let link = WigigLink::new(Access::named("jpoc").unwrap(), 2);
        // The second link of the file, with seed 3.
        let own = 3 * MAX_LINKS as u64 + 1;
        let schedule = link.schedule(own, Duration::from_secs(5)).unwrap();
        assert_eq!(scenario(JPOC).wigig_schedule(3), Some(schedule.clone()));
        for direction in Direction::BOTH {
            let mut now = None;
            let changes: Vec<_> = config
                .timeline
                .iter()
                .filter(|planned| planned.change.direction == Some(direction))
                .collect();
            for step in &schedule {
                let due = changes.iter().filter(|planned| planned.at == step.at);
                for planned in due {
                    match &planned.change.setting {
                        Setting::Rate(rate) => now = Some(*rate),
                        Setting::Trace(trace) => now = Some(trace.mean_rate()),
                        _ => {}
                    }
                }
                // To within an opportunity of 1500 bytes in an interval.
                let expected = (step.rate as f64 * 0.1).round() as u64;
                let off = now.unwrap().abs_diff(expected);
                assert!(off <= 120_000, "{:?}: {now:?} {expected}", step.at);
                assert_eq!(now == Some(0), step.rate == 0, "{:?}", step.at);
            }
        }
        assert!(config.links[1].shapes.iter().all(|shape| shape.rate > 0));
        assert_ne!(config.timeline, scenario(JPOC).lab_config(4).timeline);
    }

    #[test]
    fn the_access_scheme_can_be_changed() {
        let other = scenario(JPOC).under_access("80211ad", 8).unwrap();
        assert_eq!(other.name, "a-80211ad-8");
        let same = scenario("access = \"80211ad\"\nstations = 8\n");
        assert_eq!(other.lab_config(1).timeline, same.lab_config(1).timeline);
        assert_eq!(other.wigig_links().collect::<Vec<_>>(), ["wigig"]);
        assert!(scenario(JPOC).under_access("wimax", 8).is_none());
        let plain = "name = \"a\"\nduration = \"5s\"\n[[link]]\nname = \"x\"\nprofile = \"lte\"\n";
        let plain = Scenario::parse(Path::new("s.toml"), plain).unwrap();
        assert!(plain.under_access("jpoc", 8).is_none());
    }

    #[test]
    fn optional_keys_of_the_cell_are_read() {
        let keys = format!(
            "{JPOC}chatty = 3\ndistance = 4.5\nblockage = \"5%\"\ndelay = \"7ms\"\nspeed = 1\n\
             pause = 2\nperiods = 4\n"
        );
        let read = scenario(&keys);
        let link = read.links[1].profile.as_ref().unwrap().wigig().unwrap();
        assert_eq!((link.others, link.chatty, link.distance), (2, 3, Some(4.5)));
        assert_eq!(link.blockage, Blockage::Probability(0.05));
        let walk = Walk {
            speed: 1.0,
            pause: 2.0,
            turning: 0.0,
        };
        assert_eq!((link.walk, link.periods), (Some(walk), 4));
        let is_delay = |c: &PlannedChange| matches!(c.change.setting, Setting::Delay(_));
        assert!(!read.lab_config(1).timeline.iter().any(is_delay));
        let spins = scenario(&format!("{JPOC}turning = 37\n"));
        let link = spins.links[1].profile.as_ref().unwrap().wigig().unwrap();
        assert_eq!(
            link.walk.map(|walk| (walk.speed, walk.turning)),
            Some((0.0, 37.0))
        );
        let model_a = scenario(&format!("{JPOC}blockers = 0.2\n"));
        let link = model_a.links[1].profile.as_ref().unwrap().wigig().unwrap();
        assert_eq!(link.blockage, Blockage::ModelA { meters: 0.2 });
    }

    #[test]
    fn mistakes_have_their_lines() {
        for (keys, line, hint) in [
            ("stations = 2\n", 6, "has no access: add access = \"jpoc\""),
            ("access = \"jpoc\"\n", 6, "has no stations"),
            (
                "access = \"wimax\"\nstations = 2\n",
                10,
                "is none of 80211ad",
            ),
            ("access = \"jpoc\"\nstations = 1024\n", 11, "from 0 to 1023"),
            (
                "access = \"jpoc\"\nstations = 2\ndistance = 30\n",
                12,
                "from 0 to the radius",
            ),
            (
                "access = \"jpoc\"\nstations = 2\nblockage = \"120%\"\n",
                12,
                "blockage",
            ),
            (
                "access = \"jpoc\"\nstations = 2\nblockers = -1\n",
                12,
                "0 or more",
            ),
            (
                "access = \"jpoc\"\nstations = 2\nblockage = \"2%\"\nblockers = 1\n",
                13,
                "contradict",
            ),
            (
                "access = \"jpoc\"\nstations = 2\nspeed = 60\n",
                12,
                "from 0 to 50",
            ),
            (
                "access = \"jpoc\"\nstations = 2\npause = 1\n",
                6,
                "has no speed",
            ),
            (
                "access = \"jpoc\"\nstations = 2\nturning = -37\n",
                12,
                "from 0 to 360",
            ),
            (
                "access = \"jpoc\"\nstations = 2\nperiods = 0\n",
                12,
                "from 1 to 100",
            ),
            (
                "access = \"jpoc\"\nstations = 600\nchatty = 600\n",
                12,
                "from 1 to 1024",
            ),
        ] {
            let found = problems(&text(keys));
            assert!(
                found
                    .iter()
                    .any(|(l, reason)| *l == line && reason.contains(hint)),
                "{keys}: {found:?}"
            );
        }
        let found = problems(&text(JPOC).replace("scale = 0.1\n", ""));
        assert!(found[0].1.contains("scale the rates down"), "{found:?}");
        let fast = text(JPOC)
            .replace("scale = 0.1\n", "")
            .replacen("name", "gso = true\nname", 1);
        assert!(Scenario::parse(Path::new("s.toml"), &fast).is_ok());
        let found = problems(&text(JPOC).replace("\"mmwave\"", "\"lte\""));
        assert!(
            found[0]
                .1
                .contains("needs a link with profile = \"mmwave\"")
        );
        let found = problems(&text(JPOC).replace("\"mmwave\"", "\"wimax\""));
        assert!(found[0].1.contains("wifi, and mmwave"), "{found:?}");
    }
}
