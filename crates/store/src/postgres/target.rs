//! The URL of a database: its address, and the encryption of the connection.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};

use super::tls::{Check, Tls};
use crate::location::{DatabaseUrl, LocationError};

/// Time without an acknowledgement after which a connection is lost.
const SILENCE: Duration = Duration::from_secs(5);

/// A database, and how to connect to it.
pub(crate) struct Target {
    pub(super) config: Config,
    check: Check,
    /// The file of certificate authorities; those of the system without one.
    roots: Option<String>,
}

impl Target {
    /// Reads a URL.
    pub(crate) fn of(url: &DatabaseUrl) -> Result<Self, LocationError> {
        let (mut mode, mut roots, mut others) = ("prefer", None, Vec::new());
        for (name, value) in url.options() {
            match name {
                "sslmode" => mode = value,
                "sslrootcert" => {
                    let path = percent_decode_str(value).decode_utf8();
                    let path = path.map_err(|_| wrong("sslrootcert is not UTF-8"))?;
                    roots = Some(path.into_owned());
                }
                _ => others.push(format!("{name}={value}")),
            }
        }
        let (ssl, check) = match mode {
            "disable" => (SslMode::Disable, Check::Nothing),
            "prefer" => (SslMode::Prefer, Check::Nothing),
            "require" => (SslMode::Require, Check::Nothing),
            "verify-ca" => (SslMode::Require, Check::Authority),
            "verify-full" => (SslMode::Require, Check::Name),
            other => {
                let known = "disable, prefer, require, verify-ca or verify-full";
                return Err(wrong(&format!("sslmode is `{other}`, not {known}")));
            }
        };
        let rest = match others.is_empty() {
            true => url.base().to_owned(),
            false => format!("{}?{}", url.base(), others.join("&")),
        };
        let mut config: Config = rest.parse().map_err(|error: tokio_postgres::Error| {
            // The whole text is in no message of this parser, only names and values of options.
            wrong(&super::errors::chain(&error))
        })?;
        if config.get_dbname().is_none() {
            return Err(wrong("it names no database"));
        }
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(wrong("it names no host"));
        }
        config.ssl_mode(ssl);
        config.connect_timeout(super::CONNECT);
        config.tcp_user_timeout(SILENCE);
        config.keepalives_idle(Duration::from_secs(30));
        if config.get_application_name().is_none() {
            config.application_name("sumlink");
        }
        // Of several hosts, the primary. With one, a more helpful check follows.
        if config.get_hosts().len() > 1 {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        Ok(Self {
            config,
            check,
            roots,
        })
    }

    /// The configuration with the password: that of the URL, of the file, or of the environment.
    pub(super) fn with_password(&self, file: Option<&Path>) -> Result<Config, String> {
        let mut config = self.config.clone();
        if config.get_password().is_some() {
            return Ok(config);
        }
        if let Some(file) = file {
            config.password(read_password(file)?);
        } else if let Some(password) = std::env::var_os("PGPASSWORD") {
            config.password(password.into_encoded_bytes());
        }
        Ok(config)
    }

    /// The encryption of a connection.
    pub(super) fn tls(&self) -> Result<Tls, String> {
        Tls::new(self.check, self.roots.as_deref().map(Path::new))
    }
}

fn wrong(reason: &str) -> LocationError {
    LocationError(reason.to_owned())
}

/// The first line of a file that others may not read.
fn read_password(file: &Path) -> Result<String, String> {
    let failed = |reason: &str| format!("the password file {}: {reason}", file.display());
    let of_io = |error: std::io::Error| failed(&sumlink_util::plain(&error).to_string());
    let mode = std::fs::metadata(file).map_err(of_io)?.permissions().mode();
    if mode & 0o007 != 0 {
        return Err(failed("other users can read it: chmod o= it"));
    }
    let text = std::fs::read_to_string(file).map_err(of_io)?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => Err(failed("its first line is empty")),
    }
}
