//! Reads the tables of a gateway in the file of a client.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use serde::Deserialize;
use sumlink_dns::{Name, UpstreamAddress};
use sumlink_gateway::kernel::{CaptureSetting, DeviceSettings, Refusal, WithoutBond};
use sumlink_gateway::rules::{Action, Rule};
use sumlink_settings::units;
use toml::Spanned;

use super::super::raw::{self, Field};
use super::super::settings::{DnsDomain, DnsSettings, GatewayLines, GatewaySettings, RuleLines};
use super::{Reader, text_of_value};

/// Longest name of an interface in bytes (`IFNAMSIZ` less the terminator).
const MAX_INTERFACE: usize = 15;

/// Range of the device's MTU in bytes; the least is that of IPv6 (RFC 8200, section 5).
const MTU: std::ops::RangeInclusive<i64> = 1280..=9000;

impl Reader<'_> {
    /// `[gateway]` with everything in it.
    pub(super) fn gateway(&mut self, raw: raw::Gateway) -> GatewaySettings {
        let defaults = GatewaySettings::default();
        let kernel = &defaults.kernel;
        let mut lines = GatewayLines {
            lan: raw.lan.first().map(|lan| self.line(&lan.span())),
            device: self.line_of(&raw.device),
            address: self.line_of(&raw.address),
            address6: self.line_of(&raw.address6),
            kept_rules: self.line_of(&raw.kept_rules),
            ..GatewayLines::default()
        };
        let host_span = raw.host.as_ref().map(Spanned::span);
        let device = DeviceSettings {
            name: self
                .parse(raw.device, |s| parse_interface(s))
                .unwrap_or_else(|| kernel.device.name.clone()),
            ipv4: self
                .parse(raw.address, |s| parse_ipv4(s))
                .unwrap_or(kernel.device.ipv4),
            ipv6: self
                .parse(raw.address6, |s| parse_ipv6(s))
                .unwrap_or(kernel.device.ipv6),
            mtu: self
                .parse(raw.mtu, |mtu| parse_mtu(*mtu))
                .unwrap_or(kernel.device.mtu),
        };
        let is_on = |field: Field<bool>, default| field.map_or(default, Spanned::into_inner);
        let has_lan = !raw.lan.is_empty();
        let settings = sumlink_gateway::kernel::Settings {
            capture: self
                .parse(raw.capture, |s| parse_capture(s))
                .unwrap_or(kernel.capture),
            host: is_on(raw.host, kernel.host),
            lan: self.parse_all(raw.lan, |s| parse_interface(s)),
            device,
            without_bond: self
                .parse(raw.without_bond, |s| parse_without_bond(s))
                .unwrap_or(kernel.without_bond),
            ipv6: is_on(raw.ipv6, kernel.ipv6),
            over_vpn: is_on(raw.over_vpn, kernel.over_vpn),
            ..kernel.clone()
        };
        if let Some(span) = host_span
            && !settings.host
            && !has_lan
        {
            self.wrong_value(span, Refusal::NothingToCapture);
        }
        GatewaySettings {
            kernel: settings,
            rules: self.rules(raw.rule, &mut lines),
            kept_rules: self.path(raw.kept_rules),
            dns: self.gateway_dns(raw.dns, &mut lines),
            lines,
        }
    }

    fn rules(
        &mut self,
        blocks: Vec<Spanned<raw::GatewayRule>>,
        lines: &mut GatewayLines,
    ) -> Vec<Rule> {
        let mut rules = Vec::new();
        for block in blocks {
            let of_rule = RuleLines {
                block: self.line(&block.span()),
                user: self.line_of(&block.get_ref().user),
                action: Some(self.line(&block.get_ref().action.span())),
            };
            if let Some(rule) = self.rule(block.into_inner()) {
                rules.push(rule);
                lines.rules.push(of_rule);
            }
        }
        rules
    }

    /// A rule. Each value is checked alone, so that its error has its line.
    fn rule(&mut self, block: raw::GatewayRule) -> Option<Rule> {
        let before = self.problems.len();
        let (ports, device) = (&block.port, &block.device);
        let is_icmp = block
            .protocol
            .as_ref()
            .and_then(|protocol| protocol.get_ref().as_str())
            .is_some_and(|word| word.eq_ignore_ascii_case("icmp"));
        // The condition that another one excludes.
        let excluded = match ports {
            Some(ports) if is_icmp => Some(ports.span()),
            _ => device.as_ref().map(Spanned::span),
        };
        let mut table = toml::Table::new();
        for (key, field) in [
            ("domain", &block.domain),
            ("to", &block.to),
            ("port", ports),
            ("protocol", &block.protocol),
            ("user", &block.user),
            ("cgroup", &block.cgroup),
            ("device", device),
        ] {
            if let Some(field) = field {
                let text = self.condition(key, field).into();
                table.insert(key.to_owned(), text);
            }
        }
        let place = block.action.span();
        let action = self.parse(Some(block.action), |s| s.parse::<Action>());
        if self.problems.len() > before {
            return None;
        }
        table.insert("action".to_owned(), action?.to_string().into());
        match Rule::deserialize(table) {
            Ok(rule) => Some(rule),
            Err(error) => {
                self.wrong_value(excluded.unwrap_or(place), error.message());
                None
            }
        }
    }

    /// The values of a condition between commas. Reports each that is not valid.
    fn condition(&mut self, key: &str, field: &Spanned<toml::Value>) -> String {
        let elements: Vec<(Range<usize>, &toml::Value)> = match field.get_ref() {
            toml::Value::Array(values) if !values.is_empty() => {
                let places = self.document.elements(&field.span()).into_iter();
                places.zip(values).collect()
            }
            value => vec![(field.span(), value)],
        };
        let mut texts = Vec::new();
        for (place, value) in elements {
            match text_of_value(value).map_err(str::to_owned) {
                Ok(text) => {
                    if let Err(reason) = check_condition(key, &text) {
                        self.wrong_value(place, reason);
                    }
                    texts.push(text);
                }
                Err(reason) => self.wrong_value(place, reason),
            }
        }
        texts.join(",")
    }

    fn gateway_dns(&mut self, raw: raw::GatewayDns, lines: &mut GatewayLines) -> DnsSettings {
        let defaults = DnsSettings::default();
        let serves = raw.serve.map_or(defaults.serve, Spanned::into_inner);
        let resolvers = match raw.resolvers {
            Some(resolvers) => {
                if serves && resolvers.get_ref().is_empty() {
                    self.wrong_value(
                        resolvers.span(),
                        "without a resolver, no name has an address: name one, such as \
                         \"server\", or write `serve = false`",
                    );
                }
                self.upstreams(resolvers, lines)
            }
            None => defaults.resolvers,
        };
        let cache = self.parse(raw.cache, |s| {
            let bytes = units::parse_size(s).map_err(|error| error.to_string())?;
            usize::try_from(bytes).map_err(|_| format!("`{s}` is too much"))
        });
        DnsSettings {
            serve: serves,
            set_resolver: raw
                .set_resolver
                .map_or(defaults.set_resolver, Spanned::into_inner),
            resolvers,
            allow_private: self.parse_all(raw.allow_private, |s| parse_name(s)),
            cache: cache.unwrap_or(defaults.cache),
            domains: raw
                .domain
                .into_iter()
                .filter_map(|block| self.domain(block, lines))
                .collect(),
        }
    }

    /// The resolvers of a list. Notes those whose certificate must be for their address.
    fn upstreams(
        &mut self,
        list: Spanned<Vec<Spanned<String>>>,
        lines: &mut GatewayLines,
    ) -> Vec<UpstreamAddress> {
        let mut upstreams = Vec::new();
        for field in list.into_inner() {
            let line = self.line(&field.span());
            let parsed = self.parse(Some(field), |s| s.parse::<UpstreamAddress>());
            let Some(upstream) = parsed else { continue };
            if upstream.is_nameless() {
                lines.nameless_resolvers.push((line, upstream.clone()));
            }
            upstreams.push(upstream);
        }
        upstreams
    }

    fn domain(
        &mut self,
        block: Spanned<raw::GatewayDomain>,
        lines: &mut GatewayLines,
    ) -> Option<DnsDomain> {
        let has_dropped = ["block", "resolvers"]
            .iter()
            .any(|key| self.has_dropped(&block.span(), key));
        let raw = block.into_inner();
        let span = raw.name.span();
        let name = self.parse(Some(raw.name), |s| parse_name(s));
        let blocks = raw.block.is_some_and(Spanned::into_inner);
        match (blocks, raw.resolvers) {
            _ if has_dropped => None,
            (true, None) => name.map(DnsDomain::Block),
            (false, Some(resolvers)) => {
                if resolvers.get_ref().is_empty() {
                    self.wrong_value(
                        resolvers.span(),
                        "without a resolver, no name of this domain has an address: name one, or \
                         write `block = true` instead",
                    );
                }
                let resolvers = self.upstreams(resolvers, lines);
                Some(DnsDomain::Forward(name?, resolvers))
            }
            (true, Some(resolvers)) => {
                self.problem(
                    resolvers.span(),
                    "`block` and `resolvers` contradict each other: remove one",
                );
                None
            }
            (false, None) => {
                self.problem(span, "add `resolvers`, or `block = true`");
                None
            }
        }
    }
}

/// Checks the values of one condition, as if no other existed.
fn check_condition(key: &str, text: &str) -> Result<(), String> {
    let mut table = toml::Table::new();
    table.insert(key.to_owned(), text.into());
    table.insert("action".to_owned(), Action::Bond.to_string().into());
    match Rule::deserialize(table) {
        Ok(_) => Ok(()),
        Err(error) => Err(error.message().to_owned()),
    }
}

fn parse_name(text: &str) -> Result<Name, String> {
    text.parse::<Name>()
        .map_err(|_| format!("`{text}` is not a domain; write example.org"))
}

fn parse_interface(text: &str) -> Result<String, String> {
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && c != '/';
    match (1..=MAX_INTERFACE).contains(&text.len()) && text.chars().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "`{text}` is not the name of an interface; it has 1 to {MAX_INTERFACE} characters"
        )),
    }
}

/// Parses the device's IPv4 address. Connections to a public address would no longer leave this
/// machine.
fn parse_ipv4(text: &str) -> Result<Ipv4Addr, String> {
    let address: Ipv4Addr = text.parse().map_err(|_| {
        format!("`{text}` is not an IPv4 address; write one without a prefix length")
    })?;
    let is_shared = |[a, b, ..]: [u8; 4]| a == 100 && b & 0xc0 == 64;
    let is_for_benchmarks = |[a, b, ..]: [u8; 4]| a == 198 && b & 0xfe == 18;
    let octets = address.octets();
    match address.is_private() || is_shared(octets) || is_for_benchmarks(octets) {
        true => Ok(address),
        false => Err(format!(
            "`{text}` is not a private address: write one of 10.0.0.0/8, 172.16.0.0/12, \
             192.168.0.0/16, 100.64.0.0/10 or 198.18.0.0/15"
        )),
    }
}

/// Parses the device's IPv6 address, a unique local one (RFC 4193).
fn parse_ipv6(text: &str) -> Result<Ipv6Addr, String> {
    let address: Ipv6Addr = text.parse().map_err(|_| {
        format!("`{text}` is not an IPv6 address; write one without a prefix length")
    })?;
    match address.is_unique_local() {
        true => Ok(address),
        false => Err(format!(
            "`{text}` is not a private address: write one of fd00::/8"
        )),
    }
}

fn parse_mtu(mtu: i64) -> Result<u32, String> {
    match MTU.contains(&mtu) {
        true => Ok(mtu as u32),
        false => Err(format!(
            "write a number from {} to {}",
            MTU.start(),
            MTU.end()
        )),
    }
}

/// Parses the way in which traffic is captured.
fn parse_capture(text: &str) -> Result<CaptureSetting, String> {
    match text {
        "auto" => Ok(CaptureSetting::Auto),
        "nftables" => Ok(CaptureSetting::Nftables),
        "tun" => Ok(CaptureSetting::Tun),
        _ => Err(format!("`{text}` is unknown; use auto, nftables or tun")),
    }
}

fn parse_without_bond(text: &str) -> Result<WithoutBond, String> {
    match text {
        "block" => Ok(WithoutBond::Block),
        "direct" => Ok(WithoutBond::Direct),
        _ => Err(format!("`{text}` is unknown; use block or direct")),
    }
}
