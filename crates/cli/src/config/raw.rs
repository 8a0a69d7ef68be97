//! The shape of the files: their tables and keys. Texts stay texts, with their positions.

use std::path::PathBuf;

use serde::Deserialize;
use sumlink_transport::Class;
use toml::Spanned;

/// An optional value with its position in the file.
pub type Field<T> = Option<Spanned<T>>;

/// Keys that only the file of an edge node has; another program reads it.
pub(super) const EDGE_KEYS: [&str; 15] = [
    "role",
    "mode",
    "steering",
    "uplink",
    "acks",
    "boost",
    "sack",
    "tunnel",
    "probe",
    "dead_after",
    "metrics",
    "tun",
    "lwa",
    "visible",
    "flows",
];

/// Keys that only the file of a client has.
pub(super) const CLIENT_KEYS: [&str; 17] = [
    "gateway",
    "server",
    "server_key",
    "server_choice",
    "sni",
    "datagram_alpn",
    "socks",
    "http",
    "forward",
    "links",
    "link",
    "carriers",
    "class",
    "early",
    "state",
    "max_connections",
    "publish",
];

/// Keys that only the file of a server has.
pub(super) const SERVER_KEYS: [&str; 9] = [
    "listen",
    "server_name",
    "proxy_protocol_from",
    "client",
    "clients",
    "egress",
    "limits",
    "datagrams",
    "dns",
];

/// Keys of both.
pub(super) const COMMON_KEYS: [&str; 8] = [
    "key",
    "alpn",
    "control",
    "congestion",
    "coupled",
    "udp",
    "monitor",
    "session",
];

/// File of a client.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Client {
    pub(super) server: Field<toml::Value>,
    pub(super) server_key: Field<toml::Value>,
    pub(super) server_choice: Field<String>,
    pub(super) sni: Field<String>,
    pub(super) alpn: Field<toml::Value>,
    pub(super) datagram_alpn: Field<toml::Value>,
    pub(super) key: Field<PathBuf>,
    pub(super) socks: Field<String>,
    pub(super) http: Field<String>,
    #[serde(default)]
    pub(super) forward: Vec<Spanned<String>>,
    pub(super) max_connections: Field<i64>,
    pub(super) udp: Field<bool>,
    pub(super) control: Field<PathBuf>,
    pub(super) congestion: Field<String>,
    pub(super) coupled: Field<String>,
    pub(super) carriers: Field<toml::Value>,
    pub(super) early: Field<String>,
    pub(super) state: Field<PathBuf>,
    pub(super) links: Field<String>,
    #[serde(default)]
    pub(super) link: Vec<Link>,
    #[serde(default)]
    pub(super) class: Vec<Spanned<ClassRule>>,
    pub(super) monitor: Option<Monitor>,
    pub(super) gateway: Option<Gateway>,
    #[serde(default)]
    pub(super) publish: Vec<Publish>,
    #[serde(default)]
    pub(super) session: Session,
}

/// `[monitor]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Monitor {
    pub(super) listen: Spanned<String>,
    pub(super) token: Field<PathBuf>,
    pub(super) per_client: Field<bool>,
}

/// `[[publish]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Publish {
    pub(super) listen: Spanned<String>,
    pub(super) target: Spanned<String>,
    pub(super) proxy_protocol: Field<bool>,
}

/// `[gateway]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Gateway {
    pub(super) host: Field<bool>,
    #[serde(default)]
    pub(super) lan: Vec<Spanned<String>>,
    pub(super) capture: Field<String>,
    pub(super) without_bond: Field<String>,
    pub(super) ipv6: Field<bool>,
    pub(super) over_vpn: Field<bool>,
    pub(super) device: Field<String>,
    pub(super) address: Field<String>,
    pub(super) address6: Field<String>,
    pub(super) mtu: Field<i64>,
    pub(super) kept_rules: Field<PathBuf>,
    #[serde(default)]
    pub(super) rule: Vec<Spanned<GatewayRule>>,
    #[serde(default)]
    pub(super) dns: GatewayDns,
}

/// `[[gateway.rule]]`. Each condition is a number, a text or a list of both.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GatewayRule {
    pub(super) domain: Field<toml::Value>,
    pub(super) to: Field<toml::Value>,
    pub(super) port: Field<toml::Value>,
    pub(super) protocol: Field<toml::Value>,
    pub(super) user: Field<toml::Value>,
    pub(super) cgroup: Field<toml::Value>,
    pub(super) device: Field<toml::Value>,
    pub(super) action: Spanned<String>,
}

/// `[gateway.dns]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GatewayDns {
    pub(super) serve: Field<bool>,
    pub(super) set_resolver: Field<bool>,
    pub(super) resolvers: Field<Vec<Spanned<String>>>,
    #[serde(default)]
    pub(super) allow_private: Vec<Spanned<String>>,
    pub(super) cache: Field<String>,
    #[serde(default)]
    pub(super) domain: Vec<Spanned<GatewayDomain>>,
}

/// `[[gateway.dns.domain]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GatewayDomain {
    pub(super) name: Spanned<String>,
    pub(super) resolvers: Field<Vec<Spanned<String>>>,
    pub(super) block: Field<bool>,
}

/// `[[class]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClassRule {
    pub(super) class: Spanned<String>,
    pub(super) port: Field<toml::Value>,
    pub(super) dscp: Field<toml::Value>,
    pub(super) user: Field<String>,
}

/// `[[link]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Link {
    pub(super) name: Spanned<String>,
    pub(super) congestion: Field<String>,
    pub(super) carriers: Field<toml::Value>,
    pub(super) label: Field<String>,
    pub(super) priority: Field<String>,
    pub(super) metered: Field<bool>,
    pub(super) direction: Field<String>,
    pub(super) send_limit: Field<String>,
    pub(super) receive_limit: Field<String>,
    pub(super) max_added_latency: Field<String>,
    pub(super) cap_day: Field<String>,
    pub(super) cap_month: Field<String>,
    pub(super) reset_day: Field<i64>,
    pub(super) beyond: Field<String>,
}

/// File of a server.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Server {
    pub(super) listen: Field<String>,
    pub(super) server_name: Field<String>,
    pub(super) alpn: Field<toml::Value>,
    #[serde(default)]
    pub(super) proxy_protocol_from: Vec<Spanned<String>>,
    pub(super) key: Field<PathBuf>,
    pub(super) control: Field<PathBuf>,
    pub(super) congestion: Field<String>,
    pub(super) coupled: Field<String>,
    #[serde(default)]
    pub(super) client: Vec<Authorized>,
    #[serde(default)]
    pub(super) clients: Clients,
    #[serde(default)]
    pub(super) egress: Egress,
    #[serde(default)]
    pub(super) limits: Limits,
    pub(super) udp: Field<bool>,
    #[serde(default)]
    pub(super) datagrams: Exit,
    #[serde(default)]
    pub(super) dns: Dns,
    pub(super) monitor: Option<Monitor>,
    #[serde(default)]
    pub(super) session: Session,
}

/// `[[client]]` in the file of a server.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Authorized {
    pub(super) key: Spanned<String>,
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) publish: Vec<Spanned<String>>,
}

/// `[clients]` in the file of a server.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Clients {
    pub(super) store: Field<String>,
    pub(super) password_file: Field<PathBuf>,
    #[serde(default)]
    pub(super) address: Vec<Spanned<String>>,
    pub(super) beyond: Field<String>,
}

/// `[dns]` in the file of a server.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Dns {
    pub(super) resolvers: Option<Vec<Spanned<String>>>,
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
    pub(super) published: Field<i64>,
    pub(super) half_open: Field<i64>,
    pub(super) half_open_total: Field<i64>,
    pub(super) half_open_reserved: Field<i64>,
}

/// `[datagrams]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Exit {
    pub(super) sources: Field<i64>,
    pub(super) remotes: Field<i64>,
    pub(super) rate: Field<String>,
    pub(super) memory: Field<String>,
    pub(super) idle: Field<String>,
    pub(super) dns_idle: Field<String>,
}

/// `[session]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Session {
    pub(super) scheduler: Field<String>,
    pub(super) selector: Field<String>,
    #[serde(default)]
    pub(super) schedulers: OfClasses<Field<String>>,
    pub(super) memory: Field<String>,
    pub(super) stream_memory: Field<String>,
    pub(super) max_streams: Field<i64>,
    pub(super) timeout: Field<String>,
    #[serde(default)]
    pub(super) redundancy: Redundancy,
    #[serde(default)]
    pub(super) windows: OfClasses<Window>,
    #[serde(default)]
    pub(super) race: OfClasses<Field<String>>,
    pub(super) coupling: Field<String>,
    pub(super) alpha: Field<f64>,
    pub(super) beta: Field<f64>,
    #[serde(default)]
    pub(super) datagrams: Datagrams,
}

/// `[session.datagrams]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Datagrams {
    pub(super) policy: Field<String>,
    #[serde(default)]
    pub(super) policies: OfClasses<Field<String>>,
    pub(super) max_flows: Field<i64>,
    pub(super) idle: Field<String>,
    pub(super) yield_to_calls: Field<bool>,
    #[serde(default)]
    pub(super) copies: Copies,
}

/// `[session.datagrams.copies]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Copies {
    pub(super) links: Field<i64>,
    pub(super) flow_rate: Field<String>,
    pub(super) link_share: Field<String>,
    pub(super) metered: Field<bool>,
}

/// `[session.redundancy]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Redundancy {
    pub(super) share: Field<String>,
    pub(super) floor: Field<String>,
    pub(super) refill: Field<String>,
    pub(super) advance: Field<String>,
}

/// `[session.windows.CLASS]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Window {
    pub(super) products: Field<f64>,
    pub(super) least: Field<String>,
    pub(super) most: Field<String>,
}

/// A value for each class: `[session.schedulers]`, `[session.windows]`, `[session.race]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OfClasses<T: Default> {
    #[serde(default)]
    conversational: T,
    #[serde(default)]
    streaming: T,
    #[serde(default)]
    interactive: T,
    #[serde(default)]
    background: T,
}

impl<T: Default> OfClasses<T> {
    /// The values of all classes.
    pub(super) fn into_all(self) -> [(Class, T); 4] {
        [
            (Class::Conversational, self.conversational),
            (Class::Streaming, self.streaming),
            (Class::Interactive, self.interactive),
            (Class::Background, self.background),
        ]
    }
}
