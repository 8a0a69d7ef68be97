//! The shape of the files: which tables and keys there are. Texts stay texts here, with their place.

use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

/// A value that may be absent, with its place in the file.
pub(super) type Field<T> = Option<Spanned<T>>;

/// Keys that only a client's file has.
pub(super) const CLIENT_KEYS: [&str; 9] = [
    "server",
    "server_key",
    "socks",
    "http",
    "forward",
    "links",
    "link",
    "carriers",
    "class",
];

/// Keys that only a server's file has.
pub(super) const SERVER_KEYS: [&str; 4] = ["listen", "client", "egress", "limits"];

/// Keys that both have.
pub(super) const COMMON_KEYS: [&str; 4] = ["key", "control", "congestion", "session"];

/// A client's file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Client {
    pub(super) server: Field<String>,
    pub(super) server_key: Field<String>,
    pub(super) key: Field<PathBuf>,
    pub(super) socks: Field<String>,
    pub(super) http: Field<String>,
    #[serde(default)]
    pub(super) forward: Vec<Spanned<String>>,
    pub(super) control: Field<PathBuf>,
    pub(super) congestion: Field<String>,
    pub(super) carriers: Field<toml::Value>,
    pub(super) links: Field<String>,
    #[serde(default)]
    pub(super) link: Vec<Link>,
    #[serde(default)]
    pub(super) class: Vec<ClassRule>,
    #[serde(default)]
    pub(super) session: Session,
}

/// `[[class]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClassRule {
    pub(super) class: Spanned<String>,
    pub(super) port: Field<String>,
    pub(super) dscp: Field<String>,
    pub(super) user: Field<String>,
}

/// `[[link]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Link {
    pub(super) name: Spanned<String>,
    pub(super) congestion: Field<String>,
    pub(super) carriers: Field<toml::Value>,
}

/// A server's file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Server {
    pub(super) listen: Field<String>,
    pub(super) key: Field<PathBuf>,
    pub(super) control: Field<PathBuf>,
    pub(super) congestion: Field<String>,
    #[serde(default)]
    pub(super) client: Vec<Authorized>,
    #[serde(default)]
    pub(super) egress: Egress,
    #[serde(default)]
    pub(super) limits: Limits,
    #[serde(default)]
    pub(super) session: Session,
}

/// `[[client]]` in a server's file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Authorized {
    pub(super) key: Spanned<String>,
    #[serde(default)]
    pub(super) name: String,
}

/// `[egress]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Egress {
    #[serde(default)]
    pub(super) rules: Vec<Spanned<String>>,
}

/// `[limits]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Limits {
    pub(super) sessions: Field<i64>,
    pub(super) memory: Field<String>,
    pub(super) paths: Field<i64>,
    pub(super) half_open: Field<i64>,
}

/// `[session]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Session {
    pub(super) scheduler: Field<String>,
    #[serde(default)]
    pub(super) schedulers: ClassSchedulers,
    pub(super) memory: Field<String>,
    pub(super) stream_memory: Field<String>,
    pub(super) max_streams: Field<i64>,
    pub(super) timeout: Field<String>,
}

/// `[session.schedulers]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClassSchedulers {
    pub(super) conversational: Field<String>,
    pub(super) streaming: Field<String>,
    pub(super) interactive: Field<String>,
    pub(super) background: Field<String>,
}
