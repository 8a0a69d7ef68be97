//! From a file's text to settings, or to everything that is wrong with it.

mod edge;
mod links;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sumlink_lab::units;
use sumlink_proxy::ClassRule;
use sumlink_proxy::class::parse_class;
use sumlink_transport::config::{AuthorizedClient, ClientLimits, SessionConfig};
use sumlink_transport::{
    Coupling, FbdtConfig, PublicKey, Redundancy, SecretKey, Target, WindowRule,
};
use toml::Spanned;

use super::document::{Document, Mistake};
use super::raw::{self, Field};
use super::settings::{ClientSettings, ServerSettings, SessionSettings};
use super::{
    ConfigError, File, Problem, memory, parse_congestion, parse_scheduler, parse_selector,
};
use crate::congestion::parse_coupled;

/// Whether key files that are named in a file are opened too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Only the text: a daemon loads the key itself, after the flags have been merged in.
    Text,
    /// Also what must be there for the file to work on its own, as `sumlink check` does.
    Complete,
}

/// Reads a client's, a server's or an edge node's file; its keys tell which it is.
pub(crate) fn read(file: &Path, depth: Depth) -> Result<File, ConfigError> {
    let text = std::fs::read_to_string(file).map_err(|reason| ConfigError::Unreadable {
        file: file.to_owned(),
        reason,
    })?;
    let (document, mistakes) = Document::parse(&text);
    let mut reader = Reader {
        text: &text,
        file,
        depth,
        document,
        problems: Vec::new(),
    };
    // What follows a mistake in the syntax is told wrong more often than not.
    let read = match mistakes.is_empty() {
        true => reader.read(),
        false => {
            reader.tell(mistakes);
            None
        }
    };
    match read {
        Some(read) if reader.problems.is_empty() => Ok(read),
        _ => {
            let mut problems = reader.problems;
            problems.sort_by_key(|problem| problem.line);
            Err(ConfigError::Wrong {
                file: file.to_owned(),
                problems,
            })
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    file: &'a Path,
    depth: Depth,
    document: Document<'a>,
    /// Found so far, in the order of discovery.
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn read(&mut self) -> Option<File> {
        let has = |keys: &[&str]| keys.iter().any(|key| self.document.has(key));
        if has(&raw::EDGE_KEYS) && !has(&["server", "listen"]) {
            return Some(File::Edge(Box::new(self.edge()?)));
        }
        match (has(&raw::CLIENT_KEYS), has(&raw::SERVER_KEYS)) {
            (true, false) => Some(File::Client(Box::new(self.client()?))),
            (false, true) => Some(File::Server(Box::new(self.server()?))),
            (true, true) => {
                let key = |keys: &[&'static str]| {
                    keys.iter()
                        .copied()
                        .find(|key| self.document.has(key))
                        .unwrap_or_default()
                };
                let (client, server) = (key(&raw::CLIENT_KEYS), key(&raw::SERVER_KEYS));
                self.problem(0..0, format!(
                    "`{client}` belongs to a client and `{server}` to a server: one file holds one role"
                ));
                None
            }
            (false, false) => {
                self.problem(
                    0..0,
                    "neither `server` (a client's file) nor `listen` (a server's) nor `role` (an edge node's)",
                );
                // A mistyped one may be the reason.
                let known = [
                    &raw::CLIENT_KEYS[..],
                    &raw::SERVER_KEYS,
                    &raw::COMMON_KEYS,
                    &raw::EDGE_KEYS,
                ];
                self.tell(self.document.unknown_keys(&known.concat()));
                None
            }
        }
    }

    fn client(&mut self) -> Option<ClientSettings> {
        let raw: raw::Client = self.shape()?;
        if self.depth == Depth::Complete {
            self.require("server", "no server: add `server = \"HOST:PORT\"`");
            self.require("server_key", "no server key: add `server_key = \"...\"`");
            self.require(
                "key",
                "no key: add `key = \"FILE\"` (sumlink keygen makes one)",
            );
        }
        let own = raw.link.iter().find_map(|link| link.congestion.as_ref());
        let other = raw.congestion.as_ref().or(own).map(Spanned::span);
        let coupled = self.coupled(raw.coupled, other);
        let links = self.links(raw.links, raw.link);
        let classes = self.classes(raw.class);
        Some(ClientSettings {
            server: self.parse(raw.server, |s| s.parse::<Target>().map(|_| s.clone())),
            server_key: self.parse(raw.server_key, |s| s.parse()),
            key: self.key(raw.key),
            links,
            congestion: self.parse(raw.congestion, |s| parse_congestion(s)),
            coupled,
            carriers: self.carriers(raw.carriers),
            early: raw.early.map(Spanned::into_inner),
            state: raw.state.map(|path| self.beside(path.get_ref())),
            socks: self.parse(raw.socks, |s| parse_address(s)),
            http: self.parse(raw.http, |s| parse_address(s)),
            forward: self.parse_all(raw.forward, |s| s.parse()),
            classes,
            control: raw.control.map(|path| self.beside(path.get_ref())),
            session: self.session(raw.session),
        })
    }

    /// All paths get it, so that no other congestion control can be said at `other`.
    fn coupled(&mut self, field: Field<String>, other: Option<Range<usize>>) -> Option<String> {
        if let (Some(_), Some(other)) = (&field, other) {
            let reason = "`coupled` and `congestion` contradict each other: remove one";
            self.problem(other, reason);
        }
        self.parse(field, |s| parse_coupled(s))
    }

    fn classes(&mut self, blocks: Vec<raw::ClassRule>) -> Vec<ClassRule> {
        let mut rules: Vec<ClassRule> = Vec::new();
        for block in blocks {
            let span = block.class.span();
            let has_condition =
                block.port.is_some() || block.dscp.is_some() || block.user.is_some();
            let rule = ClassRule {
                ports: self.parse(block.port, |s| s.parse()),
                dscp: self.parse(block.dscp, |s| s.parse()),
                user: self.parse(block.user, |s| parse_user(s)),
                class: match self.parse(Some(block.class), |s| parse_class(s)) {
                    Some(class) => class,
                    None => continue,
                },
            };
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

    fn server(&mut self) -> Option<ServerSettings> {
        let raw: raw::Server = self.shape()?;
        if self.depth == Depth::Complete {
            self.require("listen", "no address: add `listen = \"[::]:7443\"`");
            self.require(
                "key",
                "no key: add `key = \"FILE\"` (sumlink keygen makes one)",
            );
            self.require(
                "client",
                "nobody may connect: add a [[client]] block with a client's public key",
            );
        }
        let mut authorized: Vec<AuthorizedClient> = Vec::new();
        for client in raw.client {
            let span = client.key.span();
            let Some(key) = self.parse(Some(client.key), |s| s.parse::<PublicKey>()) else {
                continue;
            };
            if authorized.iter().any(|known| known.key == key) {
                self.problem(span, "this client key is there twice: remove one");
                continue;
            }
            authorized.push(AuthorizedClient {
                key,
                name: client.name,
            });
        }
        let defaults = memory::limits();
        let memory = self.parse(raw.limits.memory, |s| units::parse_size(s));
        let memory = memory.unwrap_or(defaults.memory);
        let other = raw.congestion.as_ref().map(Spanned::span);
        let coupled = self.coupled(raw.coupled, other);
        let mut limit = |field, default| self.count(field).map_or(default, |n| n as usize);
        Some(ServerSettings {
            limits: ClientLimits {
                sessions: limit(raw.limits.sessions, defaults.sessions),
                memory,
                paths: limit(raw.limits.paths, defaults.paths),
                half_open: limit(raw.limits.half_open, defaults.half_open),
            },
            listen: self.parse(raw.listen, |s| parse_address(s)),
            key: self.key(raw.key),
            authorized,
            egress: self.parse_all(raw.egress.rules, |s| s.parse()),
            congestion: self.parse(raw.congestion, |s| parse_congestion(s)),
            coupled,
            control: raw.control.map(|path| self.beside(path.get_ref())),
            session: self.session(raw.session),
        })
    }

    fn session(&mut self, raw: raw::Session) -> SessionSettings {
        let memory = raw.memory.as_ref().map(Spanned::span);
        let stream_memory = raw.stream_memory.as_ref().map(Spanned::span);
        let max_streams = raw.max_streams.as_ref().map(Spanned::span);
        let mut class_schedulers = BTreeMap::new();
        for (class, name) in raw.schedulers.into_all() {
            if let Some(name) = self.parse(name, |s| parse_scheduler(s)) {
                class_schedulers.insert(class, name);
            }
        }
        let mut session = SessionSettings {
            scheduler: self.parse(raw.scheduler, |s| parse_scheduler(s)),
            class_schedulers,
            selector: self.parse(raw.selector, |s| parse_selector(s)),
            memory: self.parse(raw.memory, |s| units::parse_size(s)),
            stream_memory: self.parse(raw.stream_memory, |s| units::parse_size(s)),
            max_streams: self.parse(raw.max_streams, |n| {
                u64::try_from(*n).map_err(|_| "write a positive number")
            }),
            timeout: self.parse(raw.timeout, |s| parse_timeout(s)),
            redundancy: self.redundancy(raw.redundancy),
            fbdt: FbdtConfig {
                windows: self.windows(raw.windows),
                race: self.race(raw.race),
                coupling: self.coupling(raw.coupling, raw.alpha, raw.beta),
            },
        };
        // What the values must be, alone and together, the session knows. It tells one thing at a time: what it has told
        // of is put aside for the next.
        let is_unread = memory.is_some() && session.memory.is_none();
        while let Err(error) = session.check() {
            let place = match error {
                sumlink_engine::ConfigError::MaxStreams(_) if session.max_streams.is_some() => {
                    session.max_streams = None;
                    max_streams.clone()
                }
                // There is nothing to compare the others with.
                _ if is_unread => break,
                sumlink_engine::ConfigError::StreamMemory if session.stream_memory.is_some() => {
                    session.stream_memory = None;
                    stream_memory.clone()
                }
                _ => {
                    self.problem(memory.or(max_streams).unwrap_or(0..0), error);
                    break;
                }
            };
            self.problem(place.unwrap_or(0..0), error);
        }
        session
    }

    fn redundancy(&mut self, raw: raw::Redundancy) -> Redundancy {
        let default = Redundancy::default();
        let share = self.parse(raw.share, |s| units::parse_percentage(s));
        let advance = self.parse(raw.advance, |s| parse_advance(s));
        let mut size = |field: Field<String>, default| {
            let said = self.parse(field, |s| parse_budget(s));
            said.unwrap_or(default)
        };
        Redundancy {
            share: share.unwrap_or(default.share),
            floor: size(raw.floor, default.floor),
            refill: size(raw.refill, default.refill),
            advance: advance.unwrap_or(default.advance),
        }
    }

    /// Window rules in the order of the classes; of a rule that cannot work one thing is told.
    fn windows(&mut self, raw: raw::OfClasses<raw::Window>) -> [WindowRule; 4] {
        let mut windows = FbdtConfig::default().windows;
        for (rule, (_, raw)) in windows.iter_mut().zip(raw.into_all()) {
            let spans = [
                raw.least.as_ref().map(Spanned::span),
                raw.most.as_ref().map(Spanned::span),
                raw.products.as_ref().map(Spanned::span),
            ];
            let told = self.problems.len();
            let said = WindowRule {
                products: raw
                    .products
                    .map_or(rule.products, |field| field.into_inner()),
                least: self
                    .parse(raw.least, |s| units::parse_size(s))
                    .unwrap_or(rule.least),
                most: self
                    .parse(raw.most, |s| units::parse_size(s))
                    .unwrap_or(rule.most),
            };
            if self.problems.len() > told {
                continue;
            }
            match check_window(said) {
                Ok(()) => *rule = said,
                Err(error) => {
                    let place = spans.into_iter().flatten().next();
                    self.problem(place.unwrap_or(0..0), error);
                }
            }
        }
        windows
    }

    fn race(&mut self, raw: raw::OfClasses<Field<String>>) -> [u64; 4] {
        let mut race = FbdtConfig::default().race;
        for (bytes, (_, field)) in race.iter_mut().zip(raw.into_all()) {
            if let Some(said) = self.parse(field, |s| units::parse_size(s)) {
                *bytes = said;
            }
        }
        race
    }

    fn coupling(&mut self, word: Field<String>, alpha: Field<f64>, beta: Field<f64>) -> Coupling {
        let factors = alpha.as_ref().or(beta.as_ref()).map(Spanned::span);
        let alpha = self.parse(alpha, |factor| parse_factor(*factor));
        let beta = self.parse(beta, |factor| parse_factor(*factor));
        let Some(word) = word else {
            // One of them alone leaves the other windows as they are.
            return match factors {
                Some(_) => Coupling::Scaled {
                    alpha: alpha.unwrap_or(1.0),
                    beta: beta.unwrap_or(1.0),
                },
                None => Coupling::default(),
            };
        };
        if let Some(span) = factors {
            let reason =
                "`coupling` and the factors `alpha`, `beta` contradict each other: remove one";
            self.problem(span, reason);
        }
        let known = |word: &String| match word.as_str() {
            "none" => Ok(Coupling::Decoupled),
            "fair" => Ok(Coupling::Fair),
            _ => Err(format!(
                "`{word}` is no coupling: write \"none\", \"fair\", or the factors `alpha` and `beta`"
            )),
        };
        self.parse(Some(word), known).unwrap_or_default()
    }

    /// The file in the shape of `T`; what does not fit is told of.
    fn shape<T: serde::de::DeserializeOwned>(&mut self) -> Option<T> {
        let (shape, mistakes) = self.document.shape();
        self.tell(mistakes);
        shape
    }

    fn tell(&mut self, mistakes: Vec<Mistake>) {
        for Mistake { span, reason, .. } in mistakes {
            self.problem(span, reason);
        }
    }

    fn parse<T, U, E: Display>(
        &mut self,
        field: Field<T>,
        parse: impl FnOnce(&T) -> Result<U, E>,
    ) -> Option<U> {
        let field = field?;
        parse(field.get_ref())
            .map_err(|error| self.problem(field.span(), error))
            .ok()
    }

    fn parse_all<T, U, E: Display>(
        &mut self,
        fields: Vec<Spanned<T>>,
        mut parse: impl FnMut(&T) -> Result<U, E>,
    ) -> Vec<U> {
        fields
            .into_iter()
            .filter_map(|field| self.parse(Some(field), &mut parse))
            .collect()
    }

    /// A number that makes sense only from 1 upwards.
    fn count(&mut self, field: Field<i64>) -> Option<u64> {
        self.parse(field, |n| {
            u64::try_from(*n)
                .ok()
                .filter(|n| (1..=1 << 20).contains(n))
                .ok_or("write a number from 1 to 1048576")
        })
    }

    fn key(&mut self, field: Field<PathBuf>) -> Option<PathBuf> {
        let field = field?;
        let path = self.beside(field.get_ref());
        if self.depth == Depth::Complete
            && let Err(error) = SecretKey::load(&path)
        {
            self.problem(field.span(), error);
            if let Some(problem) = self.problems.last_mut() {
                problem.about_key_file = true;
            }
        }
        Some(path)
    }

    /// A path in the file is relative to the file, wherever the program was started.
    fn beside(&self, path: &Path) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).join(path)
    }

    /// Something wrong has been told of already, so only what is not there at all is missing.
    fn require(&mut self, key: &str, missing: &str) {
        if !self.document.has(key) {
            self.problem(0..0, missing);
        }
    }

    /// Counted from 1.
    fn line(&self, span: &Range<usize>) -> usize {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        1 + before.matches('\n').count()
    }

    fn problem(&mut self, span: Range<usize>, reason: impl Display) {
        self.problems.push(Problem {
            line: self.line(&span),
            reason: reason.to_string(),
            about_key_file: false,
        });
    }
}

/// A SOCKS user name (RFC 1929: 1 to 255 bytes).
fn parse_user(name: &str) -> Result<String, String> {
    if (1..=255).contains(&name.len()) {
        Ok(name.to_owned())
    } else {
        Err("a user name has 1 to 255 bytes".to_owned())
    }
}

/// An address to listen on.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("`{text}` is no address and port: write it like 127.0.0.1:1080 or [::1]:1080")
    })
}

/// A part of the redundancy budget, in bytes.
fn parse_budget(text: &str) -> Result<u64, String> {
    let bytes = units::parse_size(text).map_err(|error| error.to_string())?;
    match bytes <= 1 << 30 {
        true => Ok(bytes),
        false => Err(format!("`{text}` is out of range: write at most 1GiB")),
    }
}

/// Alpha or beta.
fn parse_factor(factor: f64) -> Result<f64, sumlink_engine::ConfigError> {
    match factor > 0.0 && factor <= 1.0 {
        true => Ok(factor),
        false => Err(sumlink_engine::ConfigError::Coupling),
    }
}

/// Whether the engine would take it.
fn check_window(rule: WindowRule) -> Result<(), sumlink_engine::ConfigError> {
    let mut session = SessionConfig::default();
    session.fbdt.windows = [rule; 4];
    session.check()
}

fn parse_advance(text: &str) -> Result<Duration, String> {
    let advance = units::parse_duration(text).map_err(|error| error.to_string())?;
    if advance <= Duration::from_secs(1) {
        Ok(advance)
    } else {
        Err("at most 1s".to_owned())
    }
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    let timeout = units::parse_duration(text).map_err(|error| error.to_string())?;
    if (Duration::from_secs(1)..=Duration::from_secs(86_400)).contains(&timeout) {
        Ok(timeout)
    } else {
        Err(format!("`{text}` is out of range: write 1s to 86400s"))
    }
}
