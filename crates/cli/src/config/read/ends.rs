//! Reads the file of a client and of a server.

use std::fmt::Display;
use std::num::NonZeroU64;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use sumlink_engine::scheduler::OwnSchedulers;
use sumlink_proxy::class::parse_class;
use sumlink_proxy::{AnyForward, ClassRule};
use sumlink_settings::units;
use sumlink_store::{DatabaseUrl, Location};
use sumlink_transport::PublicKey;
use sumlink_transport::config::{
    AuthorizedClient, ClientLimits, HalfOpenLimits, parse_host_name, parse_network,
    parse_protocol_name,
};
use sumlink_transport::udp::{MIN_IDLE, UdpSettings};
use toml::Spanned;

use super::super::raw::{self, Field};
use super::super::settings::{ClientSettings, ClientsSettings, ServerSettings};
use super::super::{
    client_server, memory, parse_congestion, parse_entry, parse_server_listen, server_address,
};
use super::{Reader, text_of_value};
use crate::congestion::parse_coupled;

impl Reader<'_> {
    pub(super) fn client(&mut self, own: &OwnSchedulers) -> Option<ClientSettings> {
        let raw: raw::Client = self.shape()?;
        let of_link = raw.link.iter().find_map(|link| link.congestion.as_ref());
        let other = raw.congestion.as_ref().or(of_link).map(Spanned::span);
        let coupled = self.coupled(raw.coupled, other);
        let (links, link_lines) = self.links(raw.links, raw.link);
        let classes = self.classes(raw.class);
        let mut forward: Vec<AnyForward> = Vec::new();
        let mut forward_lines = Vec::new();
        for field in raw.forward {
            let line = self.line(&field.span());
            if let Some(parsed) = self.parse(Some(field), |s| s.parse()) {
                forward.push(parsed);
                forward_lines.push(line);
            }
        }
        let keys_span = raw.server_key.as_ref().map(Spanned::span);
        let servers = self.one_or_more(raw.server, client_server);
        let server_keys = self.one_or_more(raw.server_key, |s| s.parse::<PublicKey>());
        if let (Some(span), 2..) = (keys_span, server_keys.len())
            && server_keys.len() != servers.len()
        {
            let reason = "write one key for all servers, or as many keys as servers";
            self.problem(span, reason);
        }
        Some(ClientSettings {
            servers,
            server_keys,
            server_choice: self.parse(raw.server_choice, |s| s.parse()),
            sni: self.parse(raw.sni, |s| match s.as_str() {
                "" => Ok(String::new()),
                name => parse_host_name(name),
            }),
            alpn: self.one_or_more(raw.alpn, parse_protocol_name),
            datagram_alpn: self.one_or_more(raw.datagram_alpn, parse_protocol_name),
            key: self.path(raw.key),
            links,
            congestion: self.parse(raw.congestion, |s| parse_congestion(s)),
            coupled,
            carriers: self.carriers(raw.carriers),
            early: self.parse(raw.early, |s| s.parse()),
            state: self.path(raw.state),
            socks: self.parse(raw.socks, |s| parse_entry(s)),
            http: self.parse(raw.http, |s| parse_entry(s)),
            forward,
            max_connections: self.count(raw.max_connections).map(|n| n as usize),
            udp: raw.udp.map(Spanned::into_inner),
            classes,
            monitor: self.monitor(raw.monitor),
            gateway: raw.gateway.map(|gateway| self.gateway(gateway)),
            publish: self.publish(raw.publish),
            control: self.path(raw.control),
            session: self.session(raw.session, own),
            lines: self.lines(link_lines, forward_lines),
        })
    }

    /// A text, or a list of different texts.
    fn one_or_more<T: PartialEq, E: Display>(
        &mut self,
        field: Field<toml::Value>,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Vec<T> {
        let parse_value = |value: &toml::Value| match value.as_str() {
            Some(text) => parse(text).map_err(|error| error.to_string()),
            None => Err("write a text in quotes, or a list of them".to_owned()),
        };
        let parsed = self.parse(field, |value| {
            let toml::Value::Array(values) = value else {
                return parse_value(value).map(|one| vec![one]);
            };
            let mut all = Vec::new();
            for value in values {
                let one = parse_value(value)?;
                if all.contains(&one) {
                    return Err(format!("{value} occurs twice"));
                }
                all.push(one);
            }
            match all.is_empty() {
                true => Err("the list is empty".to_owned()),
                false => Ok(all),
            }
        });
        parsed.unwrap_or_default()
    }

    /// All paths use it, so no other congestion control is allowed at `other`.
    fn coupled(&mut self, field: Field<String>, other: Option<Range<usize>>) -> Option<String> {
        if let (Some(_), Some(other)) = (&field, other) {
            let reason = "`coupled` and `congestion` contradict each other: remove one";
            self.problem(other, reason);
        }
        self.parse(field, |s| parse_coupled(s))
    }

    fn classes(&mut self, blocks: Vec<Spanned<raw::ClassRule>>) -> Vec<ClassRule> {
        let mut rules: Vec<ClassRule> = Vec::new();
        for block in blocks {
            let place = block.span();
            let block = block.into_inner();
            let span = block.class.span();
            let has_condition =
                block.port.is_some() || block.dscp.is_some() || block.user.is_some();
            let has_dropped = CLASS_CONDITIONS
                .iter()
                .any(|key| self.has_dropped(&place, key));
            let before = self.problems.len();
            let rule = ClassRule {
                ports: self.parse(block.port, parse_value),
                dscp: self.parse(block.dscp, parse_value),
                user: self.parse(block.user, |s| parse_user(s)),
                class: match self.parse(Some(block.class), |s| parse_class(s)) {
                    Some(class) => class,
                    None => continue,
                },
            };
            if has_dropped || self.problems.len() > before {
                // The conditions are not known, so nothing else can be said about them.
                continue;
            }
            if !has_condition {
                self.problem(
                    span,
                    "this class has no condition: add `port`, `dscp` or `user`, or remove the block",
                );
            } else if rules.iter().any(|known| {
                (&known.ports, &known.dscp, &known.user) == (&rule.ports, &rule.dscp, &rule.user)
            }) {
                self.problem(
                    span,
                    "a [[class]] block above has the same conditions: remove one",
                );
            } else {
                rules.push(rule);
            }
        }
        rules
    }

    pub(super) fn server(&mut self, own: &OwnSchedulers) -> Option<ServerSettings> {
        let raw: raw::Server = self.shape()?;
        let mut authorized: Vec<AuthorizedClient> = Vec::new();
        for client in raw.client {
            let span = client.key.span();
            let Some(key) = self.parse(Some(client.key), |s| s.parse::<PublicKey>()) else {
                continue;
            };
            if authorized.iter().any(|known| known.key == key) {
                self.problem(span, "this client key occurs twice: remove one");
                continue;
            }
            authorized.push(AuthorizedClient {
                key,
                name: client.name,
                publish: self.parse_all(client.publish, |s| s.parse()),
            });
        }
        let defaults = memory::limits();
        let clients = self.clients(raw.clients);
        let half_open = self.half_open(&raw.limits);
        let memory = self.parse(raw.limits.memory, |s| units::parse_size(s));
        let memory = memory.unwrap_or(defaults.memory);
        let other = raw.congestion.as_ref().map(Spanned::span);
        let coupled = self.coupled(raw.coupled, other);
        let exit = self.exit(raw.datagrams);
        let resolvers = self.resolvers(raw.dns);
        let monitor = self.monitor(raw.monitor);
        let mut limit = |field, default| self.count(field).map_or(default, |n| n as usize);
        Some(ServerSettings {
            limits: ClientLimits {
                sessions: limit(raw.limits.sessions, defaults.sessions),
                memory,
                paths: limit(raw.limits.paths, defaults.paths),
                published: limit(raw.limits.published, defaults.published),
            },
            half_open,
            udp: raw.udp.map(Spanned::into_inner),
            exit,
            resolvers,
            monitor,
            listen: self.parse(raw.listen, |s| parse_server_listen(s)),
            name: self.parse(raw.server_name, |s| parse_host_name(s)),
            alpn: self.one_or_more(raw.alpn, parse_protocol_name),
            proxy_protocol_from: self.parse_all(raw.proxy_protocol_from, |s| parse_network(s)),
            key: self.path(raw.key),
            authorized,
            clients,
            egress: self.parse_all(raw.egress.rules, |s| s.parse()),
            congestion: self.parse(raw.congestion, |s| parse_congestion(s)),
            coupled,
            control: self.path(raw.control),
            session: self.session(raw.session, own),
            lines: self.lines(Vec::new(), Vec::new()),
        })
    }
}

impl Reader<'_> {
    /// The store of clients.
    fn clients(&mut self, raw: raw::Clients) -> ClientsSettings {
        let address = |s: &String| server_address(s);
        let beyond = self.parse(raw.beyond, |s| sumlink_store::parse_beyond(s));
        let password_file = raw.password_file;
        let password = password_file.as_ref();
        let password = self.path(password.cloned());
        let text = raw.store.as_ref().map(|text| text.get_ref().as_str());
        let store = match text {
            Some(text) if Location::is_database(text) => {
                let url = DatabaseUrl::new(text, password.as_deref());
                // A wrong URL is a separate problem, and no lack of a store.
                let wrong = Location::File(self.directory().join(text));
                let location = self.parse(raw.store, |_| url.map(Location::Database));
                Some(location.unwrap_or(wrong))
            }
            _ => {
                if let Some(file) = password_file {
                    let reason = "only a `store` that is a postgres:// URL has a password";
                    self.wrong_value(file.span(), reason);
                }
                let path = raw
                    .store
                    .map(|text| Spanned::new(text.span(), PathBuf::from(text.get_ref())));
                self.path(path).map(Location::File)
            }
        };
        ClientsSettings {
            store,
            addresses: self.parse_all(raw.address, address),
            beyond: beyond.unwrap_or(ClientsSettings::default().beyond),
        }
    }

    /// Limits and timeouts of each client's UDP sockets.
    fn exit(&mut self, raw: raw::Exit) -> UdpSettings {
        let defaults = UdpSettings::default();
        let mut count = |field| self.count(field).map(|n| n as usize);
        let sources = count(raw.sources).unwrap_or(defaults.sources);
        let remotes = count(raw.remotes).unwrap_or(defaults.remotes);
        let rate = self.parse(raw.rate, |s| parse_byte_rate(s));
        let memory = self.parse(raw.memory, |s| {
            match units::parse_size(s).map_err(|error| error.to_string())? {
                bytes if bytes < MIN_EXIT_MEMORY => {
                    Err(format!("`{s}` is too little: write at least 64KiB"))
                }
                bytes => Ok(bytes as usize),
            }
        });
        UdpSettings {
            sources,
            remotes,
            rate: rate.or(defaults.rate),
            memory: memory.unwrap_or(defaults.memory),
            idle: self
                .parse(raw.idle, |s| parse_idle(s, MIN_IDLE))
                .unwrap_or(defaults.idle),
            dns_idle: self
                .parse(raw.dns_idle, |s| parse_idle(s, Duration::from_secs(1)))
                .unwrap_or(defaults.dns_idle),
            ..defaults
        }
    }

    /// Limits for connections that have not proved a key. A quarter of them is reserved unless the
    /// file says otherwise.
    fn half_open(&mut self, limits: &raw::Limits) -> HalfOpenLimits {
        let defaults = HalfOpenLimits::default();
        let mut count = |field: &Field<i64>| self.count(field.clone()).map(|n| n as usize);
        let total = count(&limits.half_open_total).unwrap_or(defaults.total);
        let reserved = count(&limits.half_open_reserved).unwrap_or(total / 4);
        let per_address = count(&limits.half_open).unwrap_or(defaults.per_address);
        if reserved >= total
            && let Some(span) = limits
                .half_open_reserved
                .as_ref()
                .or(limits.half_open_total.as_ref())
                .map(Spanned::span)
        {
            self.problem(
                span,
                format!("{reserved} of {total} half-open connections are reserved: leave some to new clients"),
            );
        }
        HalfOpenLimits {
            total,
            reserved,
            per_address,
        }
    }
}

/// Least memory of a client's UDP sockets, in bytes: room for one datagram of the largest size.
const MIN_EXIT_MEMORY: u64 = 64 << 10;

/// Parses a rate as bytes per second; a rate below 1 byte per second is refused.
pub(super) fn parse_byte_rate(text: &str) -> Result<NonZeroU64, String> {
    let bits = units::parse_rate(text).map_err(|error| error.to_string())?;
    NonZeroU64::new(bits / 8).ok_or_else(|| format!("`{text}` is too low: write at least 8bit"))
}

/// Parses an idle timeout of at least `least`, and at most a day.
pub(super) fn parse_idle(text: &str, least: Duration) -> Result<Duration, String> {
    let idle = units::parse_duration(text).map_err(|error| error.to_string())?;
    if (least..=Duration::from_secs(86_400)).contains(&idle) {
        Ok(idle)
    } else {
        Err(format!(
            "`{text}` is out of range: write {}s to 86400s",
            least.as_secs()
        ))
    }
}

/// The conditions of a `[[class]]` block.
const CLASS_CONDITIONS: [&str; 3] = ["port", "dscp", "user"];

/// Parses a value that may also be written as a number.
fn parse_value<T>(value: &toml::Value) -> Result<T, String>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
{
    let text = text_of_value(value)?;
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// Parses a SOCKS user name (RFC 1929: 1 to 255 bytes).
fn parse_user(name: &str) -> Result<String, String> {
    if (1..=255).contains(&name.len()) {
        Ok(name.to_owned())
    } else {
        Err("a user name has 1 to 255 bytes".to_owned())
    }
}
