//! Runs `ip` of iproute2 and `iw`.

use std::process::Command;

use serde::Deserialize;

use crate::error::CliError;

/// An interface of this machine.
#[derive(Clone, Debug)]
pub(super) struct Interface {
    pub(super) name: String,
    /// Hardware address, as text.
    pub(super) mac: String,
    /// Alias; empty if none.
    pub(super) alias: String,
    /// Kind of virtual interface, such as `macvlan`; empty for a physical one.
    pub(super) kind: String,
    /// Link layer, such as `ether`.
    pub(super) link_type: String,
}

/// One element of the output of `ip -json -details link`.
#[derive(Deserialize)]
struct Listed {
    ifname: String,
    #[serde(default)]
    address: String,
    #[serde(default)]
    ifalias: String,
    #[serde(default)]
    link_type: String,
    #[serde(default)]
    linkinfo: Info,
}

#[derive(Default, Deserialize)]
struct Info {
    #[serde(default)]
    info_kind: String,
}

/// Lists all interfaces.
pub(super) fn interfaces() -> Result<Vec<Interface>, CliError> {
    let text = ip(&["-json", "-details", "link", "show"])?;
    let listed: Vec<Listed> = serde_json::from_str(&text)
        .map_err(|error| CliError::Split(format!("cannot read the output of ip: {error}")))?;
    let interface = |listed: Listed| Interface {
        name: listed.ifname,
        mac: listed.address,
        alias: listed.ifalias,
        kind: listed.linkinfo.info_kind,
        link_type: listed.link_type,
    };
    Ok(listed.into_iter().map(interface).collect())
}

/// Runs `ip`.
pub(super) fn ip(arguments: &[&str]) -> Result<String, CliError> {
    run("ip", "iproute2", arguments)
}

/// Runs `iw`.
pub(super) fn iw(arguments: &[&str]) -> Result<String, CliError> {
    run("iw", "iw", arguments)
}

/// Returns the program's output, or its error message on one line.
fn run(program: &str, package: &str, arguments: &[&str]) -> Result<String, CliError> {
    // These programs are often outside the PATH of an ordinary user.
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new(program)
        .args(arguments)
        .env("PATH", format!("{path}:/usr/local/sbin:/usr/sbin:/sbin"))
        .output();
    let output = output.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => CliError::Split(format!(
            "{program} is not installed; install it with: apt-get install {package}"
        )),
        _ => CliError::Split(format!("{program}: {error}")),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let complaint = complaint
        .trim()
        .lines()
        .next()
        .unwrap_or("failed")
        .to_owned();
    let line = format!("{program} {}: {complaint}", arguments.join(" "));
    Err(CliError::Split(match complaint.contains("not permitted") {
        true => format!("{line}; run it as root"),
        false => line,
    }))
}
