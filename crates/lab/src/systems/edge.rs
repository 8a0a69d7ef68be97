//! The edge node: unmodified kernel TCP at both ends, and between them a tunnel over each link.
//!
//! ```text
//! server namespace                                                            client namespace
//!   TCP == wire == edge0 10.88.0.1 -- sumlink-edge === links === sumlink-edge -- 10.88.0.2 edge0 -- TCP
//! ```
//!
//! The node is in the server's namespace, at the other end of a wire ([`wire`]). Its TUN device
//! accepts packets immediately and leaves none in the sender's socket. Excess packets are therefore
//! dropped in the node's queues, as on a separate host.

mod rates;
mod trace;
mod wire;

use std::any::Any;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use sumlink_edge::{Config, Mode, Sack};
use sumlink_scenario::edge::{EdgeVariant, Hosts};

use crate::config::Direction;
use crate::error::LabError;
use crate::laboratory::LabConfig;
use crate::process::{Process, TICK};
use crate::scenario::Scenario;
use crate::signals;
use crate::topology::{SERVER_V4, Side, client_v4};
use crate::traffic::Route;

use super::sumlink::ask;
use super::{Evidence, Running, Stage, System};

/// The network of both ends' devices.
const USERS: &str = "10.88.0.0/24";

/// The tunnels' port on both sides.
const PORT: u16 = 7400;

/// Longest wait for the links; a link without traffic does not come up.
const LINKS_LIMIT: Duration = Duration::from_secs(5);

/// Share of a link's rate that the node uses, in percent: its own queue must be the one that fills.
const SHARE: u64 = 98;

pub(super) struct Edge {
    pub(super) variant: Box<EdgeVariant>,
}

impl Edge {
    /// The configuration of one end.
    fn config(&self, stage: &Stage<'_>, side: Side) -> String {
        let EdgeVariant { config, queue, .. } = &*self.variant;
        let mode = match side {
            Side::Server => config.mode,
            // VISIBLE applies to the node only; pure acknowledgments use one link and need no
            // reordering.
            Side::Client if stage.sends_up() && config.mode == Mode::Lwa => Mode::Lwa,
            _ => Mode::Lwip,
        };
        let mode = Mode::NAMES.iter().find(|(_, named)| *named == mode);
        let mut text = format!(
            "mode = \"{}\"\ncontrol = \"{}\"\n",
            mode.map_or("", |(name, _)| *name),
            control(stage, side).display()
        );
        let _ = match side {
            Side::Server => write!(
                text,
                "role = \"node\"\nsteering = \"{}\"\nlwa.timer = \"{}us\"\n{}{}\
                 [tun]\naddresses = [\"10.88.0.1/24\"]\n",
                config.steering,
                self.variant.timer.as_micros(),
                self.way_of_acks(stage),
                if config.mode == Mode::LwipVisible {
                    for_visible(config)
                } else {
                    String::new()
                },
            ),
            _ => write!(
                text,
                "role = \"user\"\n{}[lwa]\ntimer = \"{}us\"\n\
                 [tun]\naddresses = [\"10.88.0.2/24\"]\nroutes = [\"{SERVER_V4}/32\"]\n",
                self.way_up(stage),
                self.variant.timer.as_micros(),
            ),
        };
        for (number, link) in stage.lab.links().iter().enumerate() {
            let here = client_v4(number);
            let there = format!("10.77.{}.1", number + 1);
            let (local, remote, way) = match side {
                Side::Server => (there, here.to_string(), Direction::Down),
                _ => (here.to_string(), there, Direction::Up),
            };
            // A link that starts without a rate gets it from the updates that follow.
            let rate = (link.shapes[way.index()].rate * SHARE / 100).max(1);
            let name = &link.name;
            let _ = write!(
                text,
                "[[link]]\nname = \"{name}\"\ninterface = \"{name}\"\nlocal = \"{local}:{PORT}\"\n\
                 remote = \"{remote}:{PORT}\"\nrate = \"{rate}bit\"\nqueue = {queue}\n"
            );
        }
        text
    }

    /// The user's settings for the uplink: as in the paper, the first link carries acknowledgments.
    /// If data goes up, all links are used with the node's steering.
    fn way_up(&self, stage: &Stage<'_>) -> String {
        if !stage.sends_up() && !self.variant.steers_acks {
            return first_link(stage, "uplink");
        }
        let steering = format!("steering = \"{}\"\n", self.variant.config.steering);
        steering + &self.way_of_acks(stage)
    }

    /// The settings of an end for acknowledgments if data also goes in the other direction.
    fn way_of_acks(&self, stage: &Stage<'_>) -> String {
        match stage.sends_up() && !self.variant.steers_acks {
            true => first_link(stage, "acks"),
            false => String::new(),
        }
    }

    fn start_end(&self, stage: &Stage<'_>, side: Side) -> Result<Process, LabError> {
        let name = format!("edge-{}", side.name());
        let file = stage.directory.join(format!("{name}.toml"));
        fs::write(&file, self.config(stage, side)).map_err(LabError::file(&file))?;
        let mut command = Command::new(stage.program);
        command.args(["edge", "--config"]).arg(&file);
        Process::start(stage.lab, stage.directory, side, &name, command)
    }
}

impl System for Edge {
    fn missing(&self, scenario: &Scenario) -> Option<String> {
        if scenario.unshaped {
            return Some(
                "the edge node paces its queues, but these links have no rates".to_owned(),
            );
        }
        self.variant.far_before(&scenario.lab_config(0)).err()
    }

    fn far(&self, config: &LabConfig) -> Duration {
        // A delay that is too long is reported by `missing`.
        self.variant.far_before(config).unwrap_or_default()
    }

    fn hosts(&self) -> Option<Hosts> {
        self.variant.hosts
    }

    fn start(&self, stage: &Stage<'_>) -> Result<Running, LabError> {
        let wire = match stage.far {
            Duration::ZERO => None,
            delay => Some(wire::lay(stage, delay)?),
        };
        let mut node = self.start_end(stage, Side::Server)?;
        let mut user = self.start_end(stage, Side::Client)?;
        let start = Instant::now();
        let links = stage.links().count();
        let up = |side| {
            let status = ask(&control(stage, side));
            status.map_or(0, |status| links_up(&status))
        };
        while start.elapsed() < LINKS_LIMIT {
            signals::check()?;
            node.check_alive()?;
            user.check_alive()?;
            if up(Side::Server) >= links && up(Side::Client) >= links {
                break;
            }
            thread::sleep(TICK);
        }
        let mut beside: Vec<Box<dyn Any>> = vec![Box::new(rates::follow(stage)?)];
        beside.extend(trace::start(stage)?.map(|trace| Box::new(trace) as Box<dyn Any>));
        beside.extend(wire.map(|wire| Box::new(wire) as Box<dyn Any>));
        Ok(Running {
            routes: vec![Route::direct(stage.target()); self.variant.flows],
            entry: stage.target(),
            processes: vec![node, user],
            is_tcp: true,
            first_byte_s: None,
            _beside: beside,
        })
    }

    fn evidence(&self, stage: &Stage<'_>, running: &mut Running) -> Result<Evidence, LabError> {
        for process in &mut running.processes {
            process.check_alive()?;
        }
        let [node, user] = [Side::Server, Side::Client].map(|side| ask(&control(stage, side)));
        let number = |status: &Option<serde_json::Value>, path: &str| {
            let status = status.as_ref()?;
            status.pointer(path)?.as_u64()
        };
        let of_core = |key: &str| number(&node, &format!("/edge/core/{key}"));
        let what = match of_core("down_packets") {
            Some(packets) if packets > 0 => None,
            Some(_) => Some("the edge node carried no packet"),
            None => Some("the edge node does not report its packet counts"),
        };
        if let Some(what) = what {
            return Err(LabError::Failed {
                what: what.to_owned(),
                log: String::new(),
            });
        }
        let word = |value: Option<u64>| value.map_or("?".to_owned(), |value| value.to_string());
        let core = |key: &str| word(of_core(key));
        let mut note = format!("the node dropped {} packets", core("dropped"));
        if self.variant.config.mode == Mode::LwipVisible {
            let _ = write!(
                note,
                "; of {} duplicates it boosted {} and held {}, it absorbed {} answers, and sent {} \
                 + {} + {} packets again",
                core("duplicates"),
                core("boosted"),
                core("held"),
                core("unneeded"),
                core("repaired"),
                core("repaired_behind"),
                core("repaired_late"),
            );
        }
        if self.variant.config.mode == Mode::Lwa {
            let receiver = if stage.sends_up() { &node } else { &user };
            let of_order = |key: &str| word(number(receiver, &format!("/edge/reorder/{key}")));
            let _ = write!(
                note,
                "; of {} packets put in order {} waited, {} were missing",
                of_order("delivered"),
                of_order("reordered"),
                of_order("missing"),
            );
        }
        Ok(Evidence {
            note,
            ..Evidence::default()
        })
    }
}

/// The control socket of one end.
fn control(stage: &Stage<'_>, side: Side) -> PathBuf {
    stage
        .directory
        .join(format!("edge-{}.control", side.name()))
}

/// A line of an end's file that names the first link.
fn first_link(stage: &Stage<'_>, key: &str) -> String {
    let name = stage.links().next().unwrap_or_default();
    format!("{key} = \"{name}\"\n")
}

fn links_up(status: &serde_json::Value) -> usize {
    let links = status["edge"]["links"].as_array();
    let links = links.into_iter().flatten();
    links.filter(|link| link["state"] == "up").count()
}

/// Settings for VISIBLE mode only.
fn for_visible(config: &Config) -> String {
    let visible = &config.visible;
    let sack = match config.sack {
        Sack::Strip => "strip",
        Sack::Rewrite => "rewrite",
    };
    format!(
        "boost = \"{}\"\nsack = \"{sack}\"\n\
         [visible]\nmin_free = {:?}\nboost_fraction = {:?}\nrise = {:?}\nfall = {:?}\n\
         held_at_first = {:?}\nmax_retransmissions = {}\n",
        visible.boost.name(),
        visible.min_free,
        visible.boost_fraction,
        visible.rise,
        visible.fall,
        visible.held_at_first,
        visible.max_retransmissions,
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn unsupported_scenarios_are_not_measured() {
        let missing = |system: &str, link: &str| {
            let text =
                format!("name = \"a\"\nduration = \"5s\"\n[[link]]\nname = \"wifi\"\n{link}\n");
            let scenario = Scenario::parse(Path::new("s.toml"), &text).unwrap();
            let system = super::super::parse(system).unwrap_or_else(|error| panic!("{error}"));
            system.missing(&scenario)
        };
        assert_eq!(missing("lwip", "rate = \"1mbit\""), None);
        assert_eq!(missing("lwa@timer=50ms", "rate = \"1mbit\""), None);
        assert_eq!(missing("lwip", "profile = \"wifi\""), None);
        assert_eq!(missing("lwip@hosts=newreno", "rate = \"1mbit\""), None);
        let far = "rate = \"1mbit\"\ndelay = \"2ms\"";
        assert_eq!(missing("lwip@far=2ms", far), None);
        assert!(
            missing("lwip@far=2ms", "rate = \"1mbit\"\ndelay = \"1ms\"")
                .unwrap()
                .contains("far=2ms is longer than the shortest link's delay of 1ms")
        );
    }
}
