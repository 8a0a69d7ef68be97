//! The laboratory: emulated links between two network namespaces, and measurements on them.
//!
//! ```text
//! client namespace ──TUN──┐                    ┌──TUN── server namespace
//!                  ──TUN──┤ emulator, 1 thread ├──TUN──
//!                         └── sumlink_link ────┘
//! ```
//!
//! With [`LabConfig::lan`] two more namespaces are around them: a LAN host behind the client and an
//! internet host behind the server.
//!
//! Every link is a pair of TUN devices. One thread carries the packets between them, one by one,
//! through the model of the crate `sumlink-link`: a queue, a rate, a delay and losses for each
//! direction. Bottlenecks are located there and never on an end host's own interface, where they
//! would push back on the sockets.
//!
//! [`Lab`] is a running laboratory, for tests and measurements; [`run`] runs the subcommands of
//! `sumlink-lab`. It needs Linux, iproute2, `/dev/net/tun`, and root or unprivileged user
//! namespaces.
//!
//! ```no_run
//! use std::process::Command;
//! use sumlink_lab::{Lab, LabConfig, Side};
//!
//! let links = vec!["wifi:rate=60mbit,delay=10ms".parse()?, "wigig:rate=180mbit,delay=4ms".parse()?];
//! let lab = Lab::start(LabConfig::new(links))?;
//! let mut ping = Command::new("ping");
//! ping.args(["-c", "3", "-I", "wigig", "10.99.0.1"]);
//! lab.spawn(Side::Client, ping)?.wait()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod addresses;
mod bench;
mod capture;
mod command;
mod controls;
mod demo;
mod edge_timeline;
mod emulator;
mod error;
mod faults;
mod laboratory;
mod lan;
mod list;
mod netns;
mod process;
mod programs;
mod prose;
pub mod report;
pub mod results;
mod run;
mod rundir;
pub mod self_test;
mod shell;
mod signals;
mod systems;
mod timeline;
mod topology;
mod traffic;
mod traffic_command;
mod tun;
mod video;
mod windows;

pub use bench::BenchOptions;
pub use capture::{Capture, Packet};
pub use command::{LabCommand, run};
pub use demo::DemoOptions;
pub use edge_timeline::edge_timeline;
pub use error::LabError;
pub use faults::FaultsOptions;
pub use laboratory::{DirectionReport, Lab, LinkStatus, WireSeries};
pub use lan::{
    GATEWAY_V4, GATEWAY_V6, INTERNET_V4, INTERNET_V6, LAN_INTERFACE, LAN_V4, LAN_V6, Question,
    internet_v4, internet_v6,
};
pub use netns::become_able;
pub use prose::print;
pub use run::{RunOptions, Store, load_all, run_json, table};
pub use rundir::clean;
pub use sumlink_scenario::config::{
    CouplingGroup, Direction, Fate, InterfaceState, InterfererSpec, LinkChange, LinkSpec,
    MAX_LINKS, MAX_RATE, MAX_RATE_GSO, PlannedChange, RadioSpec, Setting, Shape, check_links,
    members,
};
pub use sumlink_scenario::error::LinkError;
pub use sumlink_scenario::health::Health;
pub use sumlink_scenario::lan::{LanConfig, ReversePath};
pub use sumlink_scenario::plan::LabConfig;
pub use sumlink_scenario::{MTU, scenario, system};
pub(crate) use sumlink_scenario::{config, health};
pub use timeline::timeline;
pub use topology::{SERVER_V4, SERVER_V6, SOCKET_BUFFER_MAX, Side, client_v4};
pub use traffic_command::TrafficCommand;
pub use video::VideoOptions;
pub use windows::{MAX_FLOWS, WindowFlow, WindowPoint, draw_windows};

/// Environment variable of programs in a laboratory: its id.
pub const ENV_LAB: &str = "SUMLINK_LAB";
/// Environment variable of programs in a laboratory: the path of its control socket.
pub const ENV_CONTROL: &str = "SUMLINK_LAB_CONTROL";
/// Environment variable of programs in a laboratory: the side they run on: `client`, `server`,
/// `lan` or `internet`.
pub const ENV_SIDE: &str = "SUMLINK_LAB_SIDE";
