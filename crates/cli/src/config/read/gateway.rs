//! Reads the tables of a gateway in the file of a client.

use serde::Deserialize;
use sumlink_dns::{Name, UpstreamAddress};
use sumlink_gateway::kernel::{CaptureSetting, DeviceSettings, WithoutBond};
use sumlink_gateway::rules::Rule;
use sumlink_settings::units;
use toml::Spanned;

use super::super::raw::{self, Field};
use super::super::settings::{DnsDomain, DnsSettings, GatewaySettings};
use super::Reader;

/// Longest name of an interface in bytes (`IFNAMSIZ` less the terminator).
const MAX_INTERFACE: usize = 15;

/// Range of the device's MTU in bytes; the least is that of IPv6 (RFC 8200, section 5).
const MTU: std::ops::RangeInclusive<i64> = 1280..=9000;

impl Reader<'_> {
    /// `[gateway]` with everything in it.
    pub(super) fn gateway(&mut self, raw: raw::Gateway) -> GatewaySettings {
        let defaults = GatewaySettings::default();
        let kernel = &defaults.kernel;
        let device = DeviceSettings {
            name: self
                .parse(raw.device, |s| parse_interface(s))
                .unwrap_or_else(|| kernel.device.name.clone()),
            ipv4: self
                .parse(raw.address, |s| parse_address(s))
                .unwrap_or(kernel.device.ipv4),
            ipv6: self
                .parse(raw.address6, |s| parse_address(s))
                .unwrap_or(kernel.device.ipv6),
            mtu: self
                .parse(raw.mtu, |mtu| parse_mtu(*mtu))
                .unwrap_or(kernel.device.mtu),
        };
        let is_on = |field: Field<bool>, default| field.map_or(default, Spanned::into_inner);
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
        GatewaySettings {
            kernel: settings,
            rules: self.rules(raw.rule),
            kept_rules: raw.kept_rules.map(|path| self.beside(path.get_ref())),
            dns: self.dns(raw.dns),
        }
    }

    fn rules(&mut self, blocks: Vec<Spanned<toml::Table>>) -> Vec<Rule> {
        self.parse_all(blocks, |block| {
            Rule::deserialize(block.clone()).map_err(|error| error.message().to_owned())
        })
    }

    fn dns(&mut self, raw: raw::GatewayDns) -> DnsSettings {
        let defaults = DnsSettings::default();
        let resolvers = match raw.resolvers {
            Some(resolvers) => self.parse_all(resolvers, |s| s.parse::<UpstreamAddress>()),
            None => defaults.resolvers,
        };
        let cache = self.parse(raw.cache, |s| {
            let bytes = units::parse_size(s).map_err(|error| error.to_string())?;
            usize::try_from(bytes).map_err(|_| format!("`{s}` is too much"))
        });
        DnsSettings {
            serve: raw.serve.map_or(defaults.serve, Spanned::into_inner),
            set_resolver: raw
                .set_resolver
                .map_or(defaults.set_resolver, Spanned::into_inner),
            resolvers,
            allow_private: self.parse_all(raw.allow_private, |s| parse_name(s)),
            cache: cache.unwrap_or(defaults.cache),
            domains: raw
                .domain
                .into_iter()
                .filter_map(|block| self.domain(block))
                .collect(),
        }
    }

    fn domain(&mut self, raw: raw::GatewayDomain) -> Option<DnsDomain> {
        let span = raw.name.span();
        let name = self.parse(Some(raw.name), |s| parse_name(s))?;
        let blocks = raw.block.is_some_and(Spanned::into_inner);
        match (blocks, raw.resolvers) {
            (true, None) => Some(DnsDomain::Block(name)),
            (false, Some(resolvers)) => {
                let resolvers = self.parse_all(resolvers, |s| s.parse::<UpstreamAddress>());
                Some(DnsDomain::Forward(name, resolvers))
            }
            (true, Some(_)) => {
                self.problem(
                    span,
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

fn parse_address<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| {
        format!("`{text}` is not an address of this family; write one without a prefix length")
    })
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
