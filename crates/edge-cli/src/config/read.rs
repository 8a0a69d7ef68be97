//! Reads the file of an edge node.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use ipnet::IpNet;
use sumlink::config::{
    ConfigError as FileError, Field, Reader, closest, parse_entry, parse_interface, parse_public,
};
use sumlink_edge::lwa::{ReorderConfig, SequenceBits};
use sumlink_edge::visible::{Boost, Parameters};
use sumlink_edge::{Config, ConfigError, LinkId, LinkSettings, Mode, Sack, steering};
use sumlink_edge_node::{LinkConfig, NodeConfig, Role, TunConfig};
use sumlink_settings::units;
use sumlink_transport::address::collide;
use toml::Spanned;

use super::{EdgeSettings, raw};

/// Values of a switch.
const SWITCH: [(&str, bool); 2] = [("on", true), ("off", false)];

/// Default for the bytes that may wait below a link.
const BACKLOG: usize = 64 << 10;

/// Reads the file; its keys show whether it is that of an edge node.
pub(super) fn edge(reader: &mut Reader<'_>) -> Result<Option<EdgeSettings>, FileError> {
    for (key, role) in [("server", "client"), ("listen", "server")] {
        if reader.has(key) {
            return Err(reader.is_for(role));
        }
    }
    Ok(EdgeReader(reader).edge())
}

/// The parts of the reader that concern edge nodes.
struct EdgeReader<'a, 'b>(&'a mut Reader<'b>);

impl EdgeReader<'_, '_> {
    fn edge(&mut self) -> Option<EdgeSettings> {
        let raw: raw::Edge = self.0.shape()?;
        if !self.0.has("role") {
            self.0.problem(
                0..0,
                "no role: add `role = \"node\"`, or `role = \"user\"` at the other end",
            );
        }
        let roles = [("node", Role::Node), ("user", Role::User)];
        let role = self.0.parse(raw.role, |s| named("role", s, &roles));
        let role = role.unwrap_or_default();
        let mode_span = raw.mode.as_ref().map(Spanned::span);
        let mode = self.0.parse(raw.mode, |s| named("mode", s, &Mode::NAMES));
        // The fastest mode with the TCP of current kernels (docs/notes/edge.md, in the laboratory).
        let mode = mode.unwrap_or(match role {
            Role::Node => Mode::Lwa,
            Role::User => Mode::Lwip,
        });
        if role == Role::User && mode == Mode::LwipVisible {
            let reason = "`lwip+visible` is a mode of the node only: write \"lwip\" or \"lwa\" at the user's end";
            self.0.problem(mode_span.unwrap_or(0..0), reason);
        }
        let for_visible = [
            ("[visible]", self.0.has("visible").then_some(0..0)),
            ("`boost`", raw.boost.as_ref().map(Spanned::span)),
            ("`sack`", raw.sack.as_ref().map(Spanned::span)),
        ];
        let for_lwa = [("`bits`", raw.lwa.bits.as_ref().map(Spanned::span))];
        self.without_effect(role, mode, Mode::LwipVisible, for_visible);
        self.without_effect(role, mode, Mode::Lwa, for_lwa);
        let steering = self.0.parse(raw.steering, |s| parse_steering(s));
        if let (Role::Node, Some(uplink)) = (role, &raw.uplink) {
            let reason = "`uplink` is for the user's end only: the node uses all links";
            self.0.problem(uplink.span(), reason);
        }
        let (links, settings) = self.edge_links(raw.link);
        if let (Some(acks), Some(_)) = (&raw.acks, &raw.uplink) {
            let reason =
                "`uplink` also carries acknowledgments, so `acks` contradicts it: remove one";
            self.0.problem(acks.span(), reason);
        }
        let only = self.link_named(raw.uplink, &links);
        let acks = self.link_named(raw.acks, &links);
        let (tun, mss) = self.tun(raw.tun);
        let (sequence_bits, reorder) = self.lwa(raw.lwa);
        let mut visible = self.visible(raw.visible);
        if let Some(boost) = self
            .0
            .parse(raw.boost, |s| named("boost", s, &Boost::NAMES))
        {
            visible.boost = boost;
        }
        let sacks = [("rewrite", Sack::Rewrite), ("strip", Sack::Strip)];
        let sack = self.0.parse(raw.sack, |s| named("sack", s, &sacks));
        let tunnel = self.0.parse(raw.tunnel, |n| {
            u16::try_from(*n).map_err(|_| "write a number from 0 to 65535")
        });
        let dead_span = raw.dead_after.as_ref().map(Spanned::span);
        let probe = self.0.parse(raw.probe, |s| span_of_time(s, 10, 60_000));
        let probe = probe.unwrap_or(Duration::from_millis(100));
        let dead_after = self
            .0
            .parse(raw.dead_after, |s| span_of_time(s, 20, 600_000));
        let dead_after = dead_after.unwrap_or((probe * 5).max(Duration::from_millis(500)));
        if dead_after < probe * 2 {
            let reason =
                "`dead_after` must be at least twice `probe`, so that a link may miss one probe";
            self.0.problem(dead_span.unwrap_or(0..0), reason);
        }
        let idle_span = raw.flows.idle.as_ref().map(Spanned::span);
        let core = Config {
            links: settings,
            mode,
            steering: steering.unwrap_or(Config::default().steering),
            acks: acks.map(|link| LinkId(link as u8)),
            sack: sack.unwrap_or_default(),
            visible,
            sequence_bits,
            mss: Some(mss),
            ..self.flows(raw.flows)
        };
        if mode == Mode::LwipVisible
            && core.visible.boost != Boost::Off
            && core.idle < core.visible.give_up
        {
            self.0.problem(idle_span.unwrap_or(0..0), ConfigError::Idle);
        }
        // A problem of a single value has been reported at its position.
        if self.0.is_sound()
            && let Err(error) = core.check()
        {
            self.0.problem(0..0, error);
        }
        Some(EdgeSettings {
            control: self.0.path(raw.control),
            metrics: self.0.parse(raw.metrics, |s| parse_entry(s)),
            lines: self.0.lines(Vec::new(), Vec::new()),
            node: NodeConfig {
                role,
                core,
                tun,
                links,
                tunnel: tunnel.unwrap_or_default(),
                only,
                reorder,
                probe,
                dead_after,
            },
        })
    }

    /// The index of the named link, if a name is given.
    fn link_named(&mut self, name: Field<String>, links: &[LinkConfig]) -> Option<usize> {
        let name = name?;
        let found = links.iter().position(|link| link.name == *name.get_ref());
        if found.is_none() {
            let reason = format!("no link is named `{}`", name.get_ref());
            self.0.problem(name.span(), reason);
        }
        found
    }

    /// Reports settings of another mode, which have no effect in this one.
    fn without_effect<const N: usize>(
        &mut self,
        role: Role,
        mode: Mode,
        needed: Mode,
        keys: [(&str, Option<Range<usize>>); N],
    ) {
        let names = Mode::NAMES.iter();
        let name = names
            .filter(|(_, mode)| *mode == needed)
            .map(|(name, _)| name);
        let name = name.copied().collect::<String>();
        for (key, span) in keys {
            let Some(span) = span.filter(|_| mode != needed) else {
                continue;
            };
            self.0.problem(
                span,
                match (role, needed) {
                    (Role::User, Mode::LwipVisible) => {
                        format!("{key} is for the node only and has no effect at the user's end")
                    }
                    _ => format!("{key} has an effect only with `mode = \"{name}\"`"),
                },
            );
        }
    }

    fn edge_links(
        &mut self,
        blocks: Vec<Spanned<raw::EdgeLink>>,
    ) -> (Vec<LinkConfig>, Vec<LinkSettings>) {
        if blocks.is_empty() && !self.0.has("link") {
            self.0.problem(
                0..0,
                "no links: add a [[link]] block for each, with `name`, `local` and `remote`",
            );
        }
        let mut links: Vec<LinkConfig> = Vec::new();
        let mut settings = Vec::new();
        for block in blocks {
            let block = block.into_inner();
            let name_span = block.name.span();
            let remote_span = block.remote.span();
            let local_span = block.local.span();
            let name = self.0.parse(Some(block.name), |s| parse_interface(s));
            let local = self.0.parse(Some(block.local), |s| parse_tunnel_end(s));
            let remote = self.0.parse(Some(block.remote), |s| parse_tunnel_end(s));
            let interface = self.0.parse(block.interface, |s| parse_interface(s));
            let rate = self.0.parse(block.rate, |s| parse_rate(s));
            let backlog = self
                .0
                .parse(block.backlog, |s| size_between(s, "4608B", "64MiB"));
            let queue = self.0.parse(block.queue, |n| {
                usize::try_from(*n)
                    .ok()
                    .filter(|n| (1..=100_000).contains(n))
                    .ok_or("write a number of packets from 1 to 100000")
            });
            let (Some(name), Some(local), Some(remote)) = (name, local, remote) else {
                continue;
            };
            if links.iter().any(|link| link.name == name) {
                self.0
                    .problem(name_span, format!("link `{name}` occurs twice: remove one"));
                continue;
            }
            if let Err(reason) = check_pair(local, remote) {
                self.0.problem(remote_span, reason);
            }
            let same = links
                .iter()
                .find(|link| collide(link.local, local) && link.interface == interface);
            if let Some(other) = same {
                let reason = format!(
                    "links `{}` and `{name}` cannot both have {local}: give one of them another port",
                    other.name
                );
                self.0.problem(local_span, reason);
            }
            let default = LinkSettings::default();
            settings.push(LinkSettings {
                queue: queue.unwrap_or(default.queue),
                rate: rate.map(|bits| bits as f64 / 8.0),
            });
            links.push(LinkConfig {
                name,
                local,
                remote,
                interface,
                rate,
                backlog: backlog.unwrap_or(BACKLOG),
            });
        }
        (links, settings)
    }

    fn tun(&mut self, raw: raw::Tun) -> (TunConfig, u16) {
        let default = TunConfig::default();
        let mtu = self.0.parse(raw.mtu, |n| within(*n, 576, 65_000));
        let mtu = mtu.unwrap_or(default.mtu as u64) as usize;
        let mss_span = raw.mss.as_ref().map(Spanned::span);
        // Headers of IPv4 and TCP without options, as always when an MSS is derived from an MTU.
        let largest = (mtu - 40) as u64;
        let mss = self
            .0
            .parse(raw.mss, |n| within(*n, 216, 64_960))
            .unwrap_or(largest);
        if mss > largest {
            let reason = format!(
                "segments of {mss} bytes do not fit an MTU of {mtu}: write at most {largest}"
            );
            self.0.problem(mss_span.unwrap_or(0..0), reason);
        }
        let tun = TunConfig {
            name: self
                .0
                .parse(raw.name, |s| parse_interface(s))
                .unwrap_or(default.name),
            addresses: self.0.parse_all(raw.addresses, |s| parse_net(s)),
            routes: self.0.parse_all(raw.routes, |s| parse_net(s)),
            mtu,
            offload: self
                .0
                .parse(raw.offload, |s| named("offload", s, &SWITCH))
                .unwrap_or(default.offload),
        };
        (tun, mss.min(largest) as u16)
    }

    fn lwa(&mut self, raw: raw::Lwa) -> (SequenceBits, ReorderConfig) {
        let default = ReorderConfig::default();
        let bits = self.0.parse(raw.bits, |n| match n {
            12 => Ok(SequenceBits::Twelve),
            18 => Ok(SequenceBits::Eighteen),
            _ => Err("sequence numbers have 12 or 18 bits"),
        });
        let bits = bits.unwrap_or(default.bits);
        let timer = self.0.parse(raw.timer, |s| span_of_time(s, 0, 3000));
        let memory = self
            .0
            .parse(raw.memory, |s| size_between(s, "64KiB", "1GiB"));
        let reorder = ReorderConfig {
            bits,
            timer: timer.unwrap_or(default.timer),
            bytes: memory.unwrap_or(default.bytes),
        };
        (bits, reorder)
    }

    /// Limits on flows and copies, and their lifetimes; defaults for the rest.
    fn flows(&mut self, raw: raw::Flows) -> Config {
        let default = Config::default();
        let most = self.0.parse(raw.most, |n| within(*n, 1, 10_000_000));
        let kept_span = raw.kept_per_flow.as_ref().map(Spanned::span);
        let mut size = |field: Field<String>, default| {
            let value = self.0.parse(field, |s| size_between(s, "64KiB", "64GiB"));
            value.unwrap_or(default)
        };
        let kept_per_flow = size(raw.kept_per_flow, default.kept_per_flow);
        let kept = size(raw.kept, default.kept.max(kept_per_flow));
        if kept_per_flow > kept {
            let reason = "one flow cannot keep more than all together: raise `kept` to at least `kept_per_flow`";
            self.0.problem(kept_span.unwrap_or(0..0), reason);
        }
        let mut time = |field: Field<String>, default| {
            let value = self.0.parse(field, |s| span_of_time(s, 1000, 86_400_000));
            value.unwrap_or(default)
        };
        Config {
            flows: most.map_or(default.flows, |most| most as usize),
            kept_per_flow,
            kept,
            idle: time(raw.idle, default.idle),
            idle_half_open: time(raw.idle_half_open, default.idle_half_open),
            orphaned: time(raw.orphaned, default.orphaned),
            ..default
        }
    }

    fn visible(&mut self, raw: raw::Visible) -> Parameters {
        let default = Parameters::default();
        let mut share = |field: Field<f64>, default| {
            let value = self
                .0
                .parse(field, |share| match (0.0..=1.0).contains(share) {
                    true => Ok(*share),
                    false => Err("write a share from 0 to 1"),
                });
            value.unwrap_or(default)
        };
        let mut parameters = Parameters {
            min_free: share(raw.min_free, default.min_free),
            boost_fraction: share(raw.boost_fraction, default.boost_fraction),
            rise: share(raw.rise, default.rise),
            fall: share(raw.fall, default.fall),
            ..default
        };
        let mut number = |field: Field<f64>, default| {
            let value = self
                .0
                .parse(field, |number| match (0.0..=1e6).contains(number) {
                    true => Ok(*number),
                    false => Err("write a number from 0 to 1000000"),
                });
            value.unwrap_or(default)
        };
        parameters.held_at_first = number(raw.held_at_first, default.held_at_first);
        parameters.repair_after = number(raw.repair_after, default.repair_after);
        let times = self
            .0
            .parse(raw.max_retransmissions, |n| within(*n, 0, 1000));
        if let Some(times) = times {
            parameters.max_retransmissions = times as u32;
        }
        if let Some(least) = self.0.parse(raw.min_repair, |s| span_of_time(s, 1, 60_000)) {
            parameters.min_repair = least;
        }
        if let Some(give_up) = self
            .0
            .parse(raw.give_up, |s| span_of_time(s, 1000, 600_000))
        {
            parameters.give_up = give_up;
        }
        parameters
    }
}

/// Finds the value of a name.
fn named<T: Copy>(what: &str, text: &str, names: &[(&str, T)]) -> Result<T, String> {
    if let Some((_, value)) = names.iter().find(|(name, _)| *name == text) {
        return Ok(*value);
    }
    let known = names.iter().map(|(name, _)| *name);
    Err(unknown(what, text, &known.collect::<Vec<_>>()))
}

fn parse_steering(text: &str) -> Result<String, String> {
    let known: Vec<&str> = steering::POLICIES.iter().map(|(name, ..)| *name).collect();
    match known.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(unknown("steering", text, &known)),
    }
}

fn unknown(what: &str, text: &str, known: &[&str]) -> String {
    match closest(text, known.iter().copied()) {
        Some(near) => format!("no {what} `{text}`: did you mean `{near}`?"),
        None => format!("no {what} `{text}`: choose one of {}", known.join(", ")),
    }
}

fn within(number: i64, least: u64, most: u64) -> Result<u64, String> {
    u64::try_from(number)
        .ok()
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| format!("write a number from {least} to {most}"))
}

/// Parses a duration within bounds in milliseconds.
fn span_of_time(text: &str, least: u64, most: u64) -> Result<Duration, String> {
    let time = units::parse_duration(text).map_err(|error| error.to_string())?;
    let [low, high] = [least, most].map(Duration::from_millis);
    match (low..=high).contains(&time) {
        true => Ok(time),
        false => Err(format!(
            "`{text}` is out of range: write {least}ms to {most}ms"
        )),
    }
}

fn parse_rate(text: &str) -> Result<u64, String> {
    let rate = units::parse_rate(text).map_err(|error| error.to_string())?;
    match rate {
        0 => Err(
            "a link with rate 0 carries nothing: remove the key if the rate is unknown".to_owned(),
        ),
        rate => Ok(rate),
    }
}

/// Parses a size within bounds.
fn size_between(text: &str, least: &str, most: &str) -> Result<usize, String> {
    let read = |text| units::parse_size(text).map_err(|error| error.to_string());
    let bytes = read(text)?;
    match (read(least)?..=read(most)?).contains(&bytes) {
        true => Ok(bytes as usize),
        false => Err(format!("`{text}` is out of range: write {least} to {most}")),
    }
}

/// Parses an address with its prefix length; without one it is a host's.
fn parse_net(text: &str) -> Result<IpNet, String> {
    let net = text.parse::<IpNet>().ok();
    let host = || text.parse::<IpAddr>().ok().map(IpNet::from);
    net.or_else(host).ok_or_else(|| {
        format!("`{text}` is not a network: write it like 10.88.0.1/24 or fd88::1/64")
    })
}

/// Parses one end of a link's tunnel: an address of this or the other machine, with its port.
fn parse_tunnel_end(text: &str) -> Result<SocketAddr, String> {
    let is_short = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty();
    if is_short || text.starts_with([':', '*']) {
        return Err(format!(
            "`{text}` has no address: write the link's address, as in 192.0.2.1:7400"
        ));
    }
    parse_public(text).map_err(|error| error.to_string())
}

fn check_pair(local: SocketAddr, remote: SocketAddr) -> Result<(), String> {
    if local.is_ipv4() != remote.is_ipv4() {
        return Err("`local` and `remote` are of different families".to_owned());
    }
    if remote.ip().is_unspecified() || remote.port() == 0 {
        return Err(format!(
            "`{remote}` is not the address of a host: write that of the other end, with its port"
        ));
    }
    Ok(())
}
