//! Locates the programs that the laboratory calls.

use std::env;
use std::path::PathBuf;

use crate::error::LabError;

/// Program and Debian package.
const PACKAGES: &[(&str, &str)] = &[
    ("ip", "iproute2"),
    ("tc", "iproute2"),
    ("nginx", "nginx-light"),
    ("curl", "curl"),
    ("mptcpize", "mptcpize"),
    ("iperf3", "iperf3"),
    ("ping", "iputils-ping"),
    ("nft", "nftables"),
    ("wg", "wireguard-tools"),
    ("wireguard-go", "wireguard-go"),
    ("ffmpeg", "ffmpeg"),
];

/// This program, which makes the traffic of a run and is measured where no other is named.
pub(crate) fn own() -> Result<PathBuf, LabError> {
    env::current_exe().map_err(|error| LabError::system("finding this program", error))
}

/// The Debian package that brings a program.
pub(crate) fn package_of(program: &str) -> Option<&'static str> {
    PACKAGES
        .iter()
        .find(|(name, _)| *name == program)
        .map(|(_, package)| *package)
}

/// Path of a program, or an error that names the package to install.
///
/// Programs in the administrator's directories are found even if `PATH` does not include them.
pub(crate) fn find(program: &str) -> Result<PathBuf, LabError> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| match package_of(program) {
            Some(package) => LabError::MissingProgram {
                program: program.to_owned(),
                package,
            },
            None => LabError::Usage(format!("program '{program}' not found")),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_programs_are_found_and_missing_ones_named() {
        assert!(find("sh").is_ok());
        let error = find("no-such-program").unwrap_err().to_string();
        assert_eq!(error, "program 'no-such-program' not found");
        let error = LabError::MissingProgram {
            program: "nginx".into(),
            package: "nginx-light",
        };
        assert_eq!(
            error.to_string(),
            "nginx is not installed; install it with: apt-get install nginx-light"
        );
    }
}
