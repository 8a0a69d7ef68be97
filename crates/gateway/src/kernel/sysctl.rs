//! Kernel parameters under `/proc/sys`.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A parameter and its value. Displayed as a command of sysctl(8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sysctl {
    /// Path below `/proc/sys`: names of interfaces can contain dots.
    pub path: String,
    /// The value.
    pub value: String,
}

impl Sysctl {
    pub(super) fn new(path: impl Into<String>, value: &str) -> Self {
        Self {
            path: path.into(),
            value: value.to_owned(),
        }
    }

    /// The parameter's value now; `None` if it does not exist.
    pub(super) fn read(path: &str) -> io::Result<Option<String>> {
        match fs::read_to_string(file(path)) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets it. A parameter that already has this value is not written, because a write may have
    /// side effects.
    pub(super) fn write(&self) -> io::Result<()> {
        if Self::read(&self.path)?.as_deref() == Some(&self.value) {
            return Ok(());
        }
        fs::write(file(&self.path), &self.value)
    }

    /// Whether it lets packets pass through this machine. It is set last and restored first:
    /// otherwise packets of the LAN would leave beside the bond while the gateway starts or ends.
    pub(super) fn is_forwarding(&self) -> bool {
        self.path.ends_with("/forwarding")
    }

    /// Whether the path is one that the gateway may set. A damaged state file must not lead to
    /// other files.
    pub(super) fn is_of_network(&self) -> bool {
        self.path.starts_with("net/") && self.path.split('/').all(|part| part != "..")
    }
}

impl fmt::Display for Sysctl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sysctl -w {}={}", self.path, self.value)
    }
}

fn file(path: &str) -> PathBuf {
    Path::new("/proc/sys").join(path)
}

/// Parameter of an interface.
pub(super) fn of_interface(family: &str, interface: &str, key: &str) -> String {
    format!("net/{family}/conf/{interface}/{key}")
}

/// Parameters that the kernel sets together with this one.
///
/// Writing IPv6's `all/forwarding` sets it for every interface (`addrconf_fixup_forwarding` in
/// `net/ipv6/addrconf.c`).
pub(super) fn implied(path: &str) -> Vec<String> {
    if path != ALL_IPV6_FORWARDING {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir("/proc/sys/net/ipv6/conf") else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names
        .filter(|name| name != "all")
        .map(|name| of_interface("ipv6", &name, "forwarding"))
        .collect()
}

/// Whether this host forwards IPv6 packets at all.
pub(super) const ALL_IPV6_FORWARDING: &str = "net/ipv6/conf/all/forwarding";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_parameters_of_the_network_are_set() {
        for (path, allowed) in [
            ("net/ipv4/conf/eth0.10/forwarding", true),
            ("kernel/core_pattern", false),
            ("net/../kernel/core_pattern", false),
            ("/etc/passwd", false),
        ] {
            assert_eq!(Sysctl::new(path, "1").is_of_network(), allowed, "{path}");
        }
    }
}
