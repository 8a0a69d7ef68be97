//! The programs that know interfaces: `ip` of iproute2 and `iw`.

use std::process::Command;

use serde::Deserialize;

use crate::exit::CliError;

/// An interface of this machine.
#[derive(Clone, Debug)]
pub(super) struct Interface {
    pub(super) name: String,
    /// Its address, as text.
    pub(super) mac: String,
    /// What its maker wrote on it; empty without.
    pub(super) alias: String,
    /// What virtual interface it is, such as `macvlan`; empty for a real one.
    pub(super) kind: String,
    /// What is below it, such as `ether`.
    pub(super) link_type: String,
}

/// As `ip -json -details link` prints it.
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

/// All interfaces.
pub(super) fn interfaces() -> Result<Vec<Interface>, CliError> {
    let text = ip(&["-json", "-details", "link", "show"])?;
    let listed: Vec<Listed> = serde_json::from_str(&text).map_err(|error| {
        CliError::Split(format!("ip lists interfaces as nobody can read: {error}"))
    })?;
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

/// What it prints; its complaint in one line otherwise.
fn run(program: &str, package: &str, arguments: &[&str]) -> Result<String, CliError> {
    // Administrators' programs are often outside an ordinary user's PATH.
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
