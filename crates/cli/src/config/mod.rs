//! Configuration files: their keys, the positions of problems, and how flags override them.
//!
//! A file is read in four steps. `document` parses the TOML; serde checks its shape (`raw`);
//! `read` parses each text into its type. Flags and file together make the finished
//! configuration (`plan`), for `sumlink check` and for a start alike. Every problem is kept with
//! its line, so that all can be shown at once.

mod document;
pub(crate) mod memory;
mod messages;
mod plan;
mod raw;
mod read;
mod schedulers;
mod settings;

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU8;
use std::path::{Path, PathBuf};

use sumlink_dns::{Name, NameError};
use sumlink_engine::scheduler::OwnSchedulers;
use sumlink_engine::{DatagramPolicy, SelectorConfig, selector};
use sumlink_transport::address::{AddressError, Bare, parse_listen};
use sumlink_transport::config::Carriers;
use sumlink_transport::links::{is_pattern, is_service};
use sumlink_transport::target::{Target, TargetError};
use sumlink_util::{is_shortage, plain};

pub(crate) use plan::{ClientPlan, Entrance, Plan, ServerPlan, check, parse_server};
pub use plan::{Findings, Planned};
pub use raw::Field;
use read::read;
pub use read::{Read, Reader, read_with};
pub(crate) use schedulers::{SchedulerName, parse_class_scheduler};
pub(crate) use settings::{
    ClientSettings, ClientsSettings, DnsDomain, DnsSettings, GatewaySettings, ServerSettings,
};
pub use settings::{Lines, LinkLines};

use crate::exit::Exit;

/// Settings of a file.
#[derive(Debug)]
pub(crate) enum File {
    /// Of a client.
    Client(Box<ClientSettings>),
    /// Of a server.
    Server(Box<ServerSettings>),
}

impl File {
    /// The verb that uses it.
    pub(crate) fn role(&self) -> &'static str {
        match self {
            Self::Client(_) => "client",
            Self::Server(_) => "server",
        }
    }
}

/// Why a configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Caused by the user or the system: the file cannot be read.
    #[error("{}: cannot read the configuration file: {reason}; check its path and owner", file.display(), reason = plain(.reason))]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The system's error.
        reason: std::io::Error,
    },
    /// Caused by the user: the file has problems.
    #[error("{}", summary(file, problems))]
    Wrong {
        /// The file.
        file: PathBuf,
        /// Problems by ascending line; never empty.
        problems: Vec<Problem>,
    },
    /// Caused by the user: a file for another verb or program.
    #[error("{}: this is {}", file.display(), role_advice(is))]
    OtherRole {
        /// The file.
        file: PathBuf,
        /// Role of the file: `client`, `server` or `edge`.
        is: &'static str,
    },
    /// Caused by the user: the file asks for something that this machine lacks.
    #[error("{}: {reason}", file.display())]
    NotHere {
        /// The file.
        file: PathBuf,
        /// The missing thing and the alternatives.
        reason: String,
    },
}

/// One problem of a configuration file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Problem {
    /// Line, counted from 1; 0 for the command line.
    pub line: usize,
    /// Column in characters, counted from 1, of a mistake in the syntax.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
    /// The problem and a remedy.
    pub reason: String,
    /// Whether the key file that the configuration names is wrong, rather than the configuration.
    #[serde(skip)]
    pub about_key_file: bool,
    /// Whether the system lacks something for now, and the file may be right.
    #[serde(skip)]
    pub may_pass: bool,
}

impl Problem {
    /// Makes a problem on this line.
    pub fn new(line: usize, reason: impl std::fmt::Display) -> Self {
        Self {
            line,
            column: None,
            reason: reason.to_string(),
            about_key_file: false,
            may_pass: false,
        }
    }

    /// The problem, with its column if known.
    pub fn text(&self) -> String {
        match self.column {
            None => self.reason.clone(),
            Some(column) => format!("column {column}: {}", self.reason),
        }
    }
}

/// The settings of a file without a mistake in its text, before they are put together. It can name
/// the schedulers of the engine and of `own`.
pub(crate) fn read_settings(file: &Path, own: &OwnSchedulers) -> Result<File, ConfigError> {
    match read(file, own)? {
        Read {
            file: Some(settings),
            problems,
        } if problems.is_empty() => Ok(settings),
        Read { problems, .. } => Err(ConfigError::wrong(file, problems)),
    }
}

impl ConfigError {
    /// The error for a file with these problems, in any order.
    pub fn wrong(file: &Path, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| problem.line);
        Self::Wrong {
            file: file.to_owned(),
            problems,
        }
    }

    /// The exit code; that of a key file if all problems are about key files.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Unreadable { reason, .. } if is_shortage(reason) => Exit::Other,
            Self::Wrong { problems, .. } if problems.iter().all(|p| p.may_pass) => Exit::Other,
            Self::Wrong { problems, .. } if problems.iter().all(|p| p.about_key_file) => Exit::Key,
            _ => Exit::Config,
        }
    }
}

/// The role of a configuration and the command that starts it.
fn role_advice(role: &str) -> String {
    match role {
        "edge" => "an edge node's configuration; start it with `sumlink-edge run --config`, or \
                   check it with `sumlink-edge check`"
            .to_owned(),
        role => format!("a {role}'s configuration; start it with `sumlink {role} --config`"),
    }
}

fn summary(file: &Path, problems: &[Problem]) -> String {
    let Some(first) = problems.first() else {
        return String::new();
    };
    let head = format!("{}:{}: {}", file.display(), first.line, first.text());
    match problems.len() {
        1 => head,
        n => format!(
            "{head} (and {} more: sumlink check {})",
            n - 1,
            file.display()
        ),
    }
}

/// Parses a local entry; a port alone means 127.0.0.1.
pub fn parse_entry(text: &str) -> Result<SocketAddr, AddressError> {
    parse_listen(text, Bare::Loopback)
}

/// Parses a public port; a port alone means all addresses.
pub fn parse_public(text: &str) -> Result<SocketAddr, AddressError> {
    parse_listen(text, Bare::All)
}

/// The port of a server that is given without one, which most firewalls let through.
pub const SERVER_PORT: u16 = 443;

/// Parses the public port of a server; an address alone means [`SERVER_PORT`] of it.
pub fn parse_server_listen(text: &str) -> Result<SocketAddr, AddressError> {
    let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    match inner.unwrap_or(text).parse::<IpAddr>() {
        Ok(address) if inner.is_some() == address.is_ipv6() => {
            Ok(SocketAddr::new(address, SERVER_PORT))
        }
        _ => parse_public(text),
    }
}

/// The HOST:PORT of a server; a host alone means [`SERVER_PORT`] of it.
pub fn server_address(text: &str) -> Result<String, TargetError> {
    let with_port = match text.rsplit_once(':') {
        None => format!("{text}:{SERVER_PORT}"),
        Some(_) if text.starts_with('[') && text.ends_with(']') => format!("{text}:{SERVER_PORT}"),
        Some(_) => text.to_owned(),
    };
    with_port.parse::<Target>().map(|_| with_port)
}

/// The server of a client: HOST:PORT as [`server_address`], or the name of SRV records.
pub fn client_server(text: &str) -> Result<String, ServerTextError> {
    if !is_service(text) {
        return Ok(server_address(text)?);
    }
    if text.contains(':') {
        return Err(ServerTextError::PortOfService);
    }
    text.parse::<Name>()?;
    Ok(text.to_owned())
}

/// Why a text is no server of a client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerTextError {
    /// It is not HOST:PORT.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// It is no domain name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A port behind the name of SRV records, which have the ports.
    #[error("the SRV records of a name have the ports: write the name alone")]
    PortOfService,
}

/// Parses the policy of datagrams.
pub fn parse_datagram_policy(name: &str) -> Result<DatagramPolicy, String> {
    DatagramPolicy::by_name(name).ok_or_else(|| {
        let known = DatagramPolicy::ALL.map(DatagramPolicy::name);
        match closest(name, known.into_iter()) {
            Some(near) => format!("no policy `{name}`: did you mean `{near}`?"),
            None => format!("no policy `{name}`: choose one of {}", known.join(", ")),
        }
    })
}

/// Parses `on` or `off`.
pub fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("write on or off".to_owned()),
    }
}

/// Parses a selector with its parameters: `base:alpha=0.1`.
pub fn parse_selector(text: &str) -> Result<SelectorConfig, String> {
    let error = match text.parse::<SelectorConfig>() {
        Ok(config) => return Ok(config),
        Err(error) => error.to_string(),
    };
    let name = text.split(':').next().unwrap_or_default();
    let known = selector::NAMES.iter().copied();
    Err(match closest(name, known) {
        Some(near) if near != name => format!("no selector `{name}`: did you mean `{near}`?"),
        _ => error,
    })
}

/// Parses the name of a congestion control as the kernel accepts it (TCP_CA_NAME_MAX is 16 with its
/// NUL).
pub(crate) fn parse_congestion(name: &str) -> Result<String, String> {
    let plausible = (1..=15).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if plausible {
        Ok(name.to_owned())
    } else {
        Err(format!(
            "`{name}` is not a congestion control; sumlink cc list shows all"
        ))
    }
}

/// Parses the number of carriers of a link: 1 to 8, or `auto`.
pub(crate) fn parse_carriers(text: &str) -> Result<Carriers, String> {
    if text == "auto" {
        return Ok(Carriers::Auto);
    }
    let number = text.parse::<NonZeroU8>().ok();
    let number = number.filter(|number| number.get() <= Carriers::MAX);
    number.map(Carriers::Fixed).ok_or_else(|| {
        format!(
            "`{text}` is not a number of connections: write 1 to {}, or `auto`",
            Carriers::MAX
        )
    })
}

/// Parses the limit on local connections.
pub(crate) fn parse_max_connections(text: &str) -> Result<usize, String> {
    let number = text.parse::<usize>().ok();
    let number = number.filter(|number| (1..=1 << 20).contains(number));
    number.ok_or_else(|| format!("`{text}` is not a number of connections: write 1 to 1048576"))
}

/// Parses the name of an interface or a glob (IFNAMSIZ is 16 with its NUL).
pub(crate) fn parse_link(name: &str) -> Result<String, String> {
    let plausible = !name.is_empty()
        && (is_pattern(name) || name.len() <= 15)
        && name.len() <= 64
        && !name.contains('/')
        && !name.contains(|c: char| c.is_whitespace() || c.is_control());
    if plausible {
        Ok(name.to_owned())
    } else {
        Err(format!(
            "`{name}` is not the name of an interface; sumlink links lists them"
        ))
    }
}

/// Parses the name of one interface; a pattern is an error.
pub fn parse_interface(name: &str) -> Result<String, String> {
    if is_pattern(name) {
        return Err(format!("`{name}` matches several interfaces: name one"));
    }
    parse_link(name)
}

/// The candidate that a mistyped word most likely means.
pub fn closest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let distance = |c: &'a str| (strsim::damerau_levenshtein(word, c), c);
    let (edits, best) = candidates.map(distance).min_by_key(|(edits, _)| *edits)?;
    // Short words with another beginning mean something else: `rate` is not `name`.
    let begins_alike = word.chars().next() == best.chars().next();
    let most = match begins_alike {
        true => 1 + word.chars().count() / 4,
        false => 1 + word.chars().count() / 8,
    };
    (edits <= most).then_some(best)
}

#[cfg(test)]
mod tests {
    use sumlink_transport::{Coupling, FbdtConfig, Redundancy};

    use super::*;

    #[test]
    fn impossible_names_are_refused() {
        assert!(parse_congestion("bbr").is_ok());
        assert!(parse_congestion("").is_err());
        assert!(parse_congestion("sixteen_letters_").is_err());
        assert_eq!(parse_carriers("auto"), Ok(Carriers::Auto));
        assert!(parse_carriers("8").is_ok());
        for bad in ["0", "9", "-1", "1.5", "", "Auto"] {
            assert!(parse_carriers(bad).is_err(), "{bad}");
        }
        assert!(parse_link("wlan0").is_ok());
        assert!(parse_link("wwan*").is_ok());
        assert!(parse_link("a_long_interface[0-9]").is_ok());
        for bad in [
            "",
            "a b",
            "a/b",
            "an_interface_too_long",
            "a_long_interface[0-9",
        ] {
            assert!(parse_link(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_server_without_a_port_has_that_of_https() {
        for (text, expected) in [
            ("bond.example.org", "bond.example.org:443"),
            ("192.0.2.1", "192.0.2.1:443"),
            ("[2001:db8::1]", "[2001:db8::1]:443"),
            ("bond.example.org:7443", "bond.example.org:7443"),
        ] {
            assert_eq!(server_address(text).as_deref(), Ok(expected));
        }
        for wrong in [
            "",
            "2001:db8::1",
            "bond.example.org:",
            "[::1",
            ":443",
            "a b",
        ] {
            assert!(server_address(wrong).is_err(), "{wrong}");
        }
        for (text, expected) in [
            ("[::]", "[::]:443"),
            ("0.0.0.0", "0.0.0.0:443"),
            ("7443", "[::]:7443"),
            ("192.0.2.1:80", "192.0.2.1:80"),
        ] {
            assert_eq!(parse_server_listen(text), Ok(expected.parse().unwrap()));
        }
        for wrong in ["::", "", "host", "[0.0.0.0]"] {
            assert!(parse_server_listen(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_service_has_no_port() {
        let name = "_sumlink._tcp.example.org";
        assert_eq!(client_server(name).as_deref(), Ok(name));
        assert_eq!(client_server("[::1]").as_deref(), Ok("[::1]:443"));
        for wrong in ["_sumlink._tcp.example.org:443", "_a..b", "_a b", "a b"] {
            assert!(client_server(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn limits_reach_a_client_and_a_server() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("x.toml");
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            read_settings(&file, &OwnSchedulers::default())
        };
        let File::Client(client) = read("server = \"h:1\"\nmax_connections = 77\n").unwrap() else {
            unreachable!("it has a `server`")
        };
        assert_eq!(client.max_connections, Some(77));
        let half_open =
            |limits: &str| match read(&format!("listen = \"[::]:1\"\n[limits]\n{limits}")) {
                Ok(File::Server(server)) => Ok(server.half_open),
                Ok(_) => unreachable!("it has a `listen`"),
                Err(error) => Err(error.to_string()),
            };
        let limits =
            half_open("half_open = 3\nhalf_open_total = 200\nhalf_open_reserved = 70\n").unwrap();
        assert_eq!(
            (limits.per_address, limits.total, limits.reserved),
            (3, 200, 70)
        );
        assert_eq!(half_open("half_open_total = 200").unwrap().reserved, 50);
        assert_eq!(half_open("").unwrap(), Default::default());
        let error = half_open("half_open_total = 20\nhalf_open_reserved = 20").unwrap_err();
        assert!(error.contains(":4: 20 of 20 half-open"), "{error}");
        assert!(parse_max_connections("0").is_err() && parse_max_connections("x").is_err());
        assert_eq!(parse_max_connections("1024"), Ok(1024));
    }

    #[test]
    fn every_setting_reaches_the_engine() {
        let directory = tempfile::tempdir().unwrap();
        let session = |more: &str| {
            let file = directory.path().join("x.toml");
            std::fs::write(&file, format!("server = \"h:1\"\n[session]\n{more}")).unwrap();
            match read_settings(&file, &OwnSchedulers::default()).unwrap() {
                File::Client(client) => client.session.config(),
                _ => unreachable!("it has a `server`"),
            }
        };
        let plain = session("");
        assert_eq!(plain.redundancy, Redundancy::default());
        assert_eq!(plain.fbdt, FbdtConfig::default());
        let parsed = session(
            "alpha = 0.5\n[session.redundancy]\nshare = \"2.5%\"\nrefill = \"1kB\"\nadvance = \"25ms\"\n\
             [session.race]\ninteractive = \"8KiB\"\n\
             [session.windows.background]\nproducts = 3\nleast = \"32KiB\"\n",
        );
        let redundancy = Redundancy {
            share: 0.025,
            refill: 1000,
            advance: std::time::Duration::from_millis(25),
            ..Redundancy::default()
        };
        assert_eq!(parsed.redundancy, redundancy);
        assert_eq!(parsed.fbdt.race, [16 << 10, 0, 8 << 10, 0]);
        let (default, background) = (&plain.fbdt.windows, &parsed.fbdt.windows[3]);
        assert_eq!(parsed.fbdt.windows[..3], default[..3]);
        assert_eq!((background.products, background.least), (3.0, 32 << 10));
        assert_eq!(background.most, default[3].most);
        let scaled = Coupling::Scaled {
            alpha: 0.5,
            beta: 1.0,
        };
        assert_eq!(parsed.fbdt.coupling, scaled);
        assert_eq!(session("coupling = \"fair\"").fbdt.coupling, Coupling::Fair);
        assert_eq!(
            session("coupling = \"none\"").fbdt.coupling,
            Coupling::Decoupled
        );
    }

    #[test]
    fn a_mistyped_selector_gets_a_suggestion_and_parameters_are_checked() {
        let parsed = parse_selector("base:alpha=0.1").unwrap();
        assert_eq!((parsed.name.as_str(), parsed.alpha), ("base", 0.1));
        assert_eq!(
            parse_selector("trails").unwrap_err(),
            "no selector `trails`: did you mean `trials`?"
        );
        assert!(
            parse_selector("magic")
                .unwrap_err()
                .contains("choose one of")
        );
        assert!(
            parse_selector("base:alpha=9")
                .unwrap_err()
                .contains("from 0.01")
        );
    }
}
