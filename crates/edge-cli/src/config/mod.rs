//! The configuration file of an edge node.

mod raw;
mod read;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use sumlink::config::{ConfigError, Findings, Lines, Planned, Problem, Read, read_with};
use sumlink::error::CliError;
use sumlink_edge_node::NodeConfig;

use crate::args::EdgeArgs;

/// The configuration of an edge node.
#[derive(Debug)]
pub(crate) struct EdgeSettings {
    pub(crate) node: NodeConfig,
    pub(crate) control: Option<PathBuf>,
    /// Address at which metrics are served.
    pub(crate) metrics: Option<SocketAddr>,
    lines: Lines,
}

impl EdgeSettings {
    /// Reads the file; the control socket of the flags overrides the file's.
    pub(crate) fn start(args: &EdgeArgs) -> Result<Self, CliError> {
        match read_with(&args.config, read::edge)? {
            Read {
                file: Some(settings),
                problems,
            } => finish(settings, problems, &args.config, args.control.clone())
                .logged(Some(&args.config)),
            Read { problems, .. } => Err(ConfigError::wrong(&args.config, problems).into()),
        }
    }

    /// A short description.
    pub(crate) fn describe(&self) -> String {
        let links = self.node.links.iter().map(|link| link.name.as_str());
        format!(
            "the {}'s end, {} over {}",
            self.node.role.name(),
            self.node.core.steering,
            links.collect::<Vec<_>>().join(", ")
        )
    }
}

/// The configuration of a start with this file and no flags.
///
/// # Errors
///
/// A file that cannot be read, or that of a client or server; all other problems are in the result.
pub(crate) fn check(file: &Path) -> Result<Planned<EdgeSettings>, CliError> {
    let Read {
        file: settings,
        problems,
    } = read_with(file, read::edge)?;
    Ok(match settings {
        Some(settings) => finish(settings, problems, file, None),
        None => Findings::new(Some(file), Lines::default(), problems).finish(None),
    })
}

fn finish(
    mut file: EdgeSettings,
    problems: Vec<Problem>,
    path: &Path,
    control: Option<PathBuf>,
) -> Planned<EdgeSettings> {
    let lines = std::mem::take(&mut file.lines);
    let mut found = Findings::new(Some(path), lines, problems);
    file.control = found.control(control, file.control);
    found.finish(Some(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flow_setting_reaches_the_edge_node() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("x.toml");
        let text = "role = \"node\"\n[[link]]\nname = \"a\"\nlocal = \"10.77.1.1:7400\"\nremote = \"10.77.1.2:7400\"\n\
                    [flows]\nmost = 7\nkept_per_flow = \"128KiB\"\nkept = \"256KiB\"\nidle = \"5s\"\n\
                    idle_half_open = \"6s\"\norphaned = \"7s\"\n";
        std::fs::write(&file, text).unwrap();
        let settings = check(&file).unwrap().plan.unwrap();
        let core = settings.node.core;
        assert_eq!(
            (core.flows, core.kept_per_flow, core.kept),
            (7, 128 << 10, 256 << 10)
        );
        let times = [core.idle, core.idle_half_open, core.orphaned];
        assert_eq!(times.map(|time| time.as_secs()), [5, 6, 7]);
        assert_eq!(core.links.len(), 1);
    }
}
