//! What systems carry: which of them are gateways, which carry UDP, and the firewall that drops it.

use std::fs;
use std::process::Command;

use sumlink_scenario::system::Blocked;

use crate::error::LabError;
use crate::programs;
use crate::scenario::Scenario;
use crate::topology::Side;

use super::{Stage, System};

/// Why the system cannot be measured under the scenario; `None` if it can.
pub(crate) fn missing(system: &dyn System, scenario: &Scenario) -> Option<String> {
    if scenario.lan.is_some()
        && let Some(reason) = system.missing_as_gateway()
    {
        return Some(reason);
    }
    if !scenario.spells.is_empty() {
        return Some("only the simulator's programs pause ([[spell]])".to_owned());
    }
    if scenario.workload.needs_udp() && !system.carries_datagrams() {
        return Some("it carries no datagrams".to_owned());
    }
    system.missing(scenario)
}

/// Drops all UDP that leaves or enters the client over these links.
pub(super) fn block(stage: &Stage<'_>, blocked: &Blocked) -> Result<(), LabError> {
    let rules = rules(stage.links(), blocked).map_err(LabError::Usage)?;
    let file = stage.directory.join("blocked.nft");
    fs::write(&file, rules).map_err(LabError::file(&file))?;
    let mut command = Command::new(programs::find("nft")?);
    command.arg("--file").arg(&file);
    let mut child = stage.lab.spawn(Side::Client, command)?;
    let status = child
        .wait()
        .map_err(|error| LabError::system("running nft", error))?;
    match status.success() {
        true => Ok(()),
        false => Err(LabError::system("blocking UDP with nft", status)),
    }
}

/// The rules for nft; the error names the unknown link.
fn rules<'a>(links: impl Iterator<Item = &'a str>, blocked: &Blocked) -> Result<String, String> {
    let links: Vec<&str> = match blocked {
        Blocked::All => links.collect(),
        Blocked::Link(name) => links.filter(|link| link == name).collect(),
    };
    if links.is_empty() {
        return Err(format!(
            "blocked: the scenario has no such link: {blocked:?}"
        ));
    }
    let names = links
        .iter()
        .map(|link| format!("\"{link}\""))
        .collect::<Vec<_>>()
        .join(", ");
    let chain = |hook: &str, interface: &str| {
        format!(
            "  chain {hook} {{\n    type filter hook {hook} priority 0;\n    {interface} {{ {names} \
             }} meta l4proto udp drop\n  }}\n"
        )
    };
    let (input, output) = (chain("input", "iifname"), chain("output", "oifname"));
    Ok(format!("table inet sumlink_lab {{\n{input}{output}}}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn udp_is_dropped_on_the_named_links_only() {
        let links = || ["wifi", "lte"].into_iter();
        let all = rules(links(), &Blocked::All).unwrap();
        assert!(
            all.contains("oifname { \"wifi\", \"lte\" } meta l4proto udp drop"),
            "{all}"
        );
        let one = rules(links(), &Blocked::Link("lte".to_owned())).unwrap();
        assert!(
            one.contains("iifname { \"lte\" } meta") && !one.contains("wifi"),
            "{one}"
        );
        assert!(rules(links(), &Blocked::Link("dsl".to_owned())).is_err());
    }
}
