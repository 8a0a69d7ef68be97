//! Rules of policy routing of a plan.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use super::super::routing::{Family, MAIN, Rule};
use super::super::settings::{Capture, Settings};
use super::super::vpn;
use super::super::{CARRIER_MARK, LOCAL_MARK, PROBE_MARK, TABLE_BOND, TABLE_LAN, TABLE_LOCAL};

pub(super) fn rules(
    settings: &Settings,
    capture: Capture,
    first: u32,
    captured: &[Family],
    touched: &[Family],
) -> Vec<Rule> {
    let mut rules = Vec::new();
    for family in touched {
        let is_captured = captured.contains(family);
        let rule = |offset: u32, table| Rule::new(*family, first + offset, table);
        if is_captured && !settings.lan.is_empty() {
            rules.push(Rule {
                invert: true,
                mark: Some(CARRIER_MARK),
                ..rule(0, TABLE_LAN)
            });
        }
        if is_captured && capture == Capture::Nftables {
            // The interface keeps reverse path filters from asking this table: they drop packets
            // that seem to come from this machine.
            rules.extend(settings.lan.iter().map(|lan| Rule {
                iif: Some(lan.clone()),
                mark: Some(LOCAL_MARK),
                ..rule(1, TABLE_LOCAL)
            }));
        }
        if *family == Family::V4 && settings.host {
            // IPv6 has these in the table of local addresses.
            rules.extend([MULTICAST, BROADCAST].map(|to| Rule {
                to: Some(to.into()),
                ..rule(2, MAIN)
            }));
        }
        let suppress = if settings.over_vpn {
            vpn::widest(*family)
        } else {
            0
        };
        for selector in selectors(settings, capture, is_captured) {
            rules.push(Rule {
                suppress: Some(suppress.into()),
                ..selector.rule(*family, first + 3, MAIN)
            });
            rules.push(selector.rule(*family, first + 4, TABLE_BOND));
        }
    }
    // By preference, so that the last one captures.
    rules.sort_by_key(|rule| rule.preference);
    rules
}

/// Which packets the bond takes.
struct Selector {
    invert: bool,
    iif: Option<String>,
    mark: u32,
}

impl Selector {
    fn rule(&self, family: Family, preference: u32, table: u32) -> Rule {
        Rule {
            invert: self.invert,
            iif: self.iif.clone(),
            mark: Some(self.mark),
            ..Rule::new(family, preference, table)
        }
    }
}

fn selectors(settings: &Settings, capture: Capture, is_captured: bool) -> Vec<Selector> {
    if settings.host {
        return vec![Selector {
            invert: true,
            iif: None,
            mark: CARRIER_MARK,
        }];
    }
    let mut selectors = Vec::new();
    if is_captured && capture == Capture::Nftables {
        selectors.push(Selector {
            invert: false,
            iif: None,
            mark: PROBE_MARK,
        });
    }
    selectors.extend(settings.lan.iter().map(|lan| Selector {
        invert: false,
        iif: Some(lan.clone()),
        mark: 0,
    }));
    selectors
}

/// RFC 5771.
const MULTICAST: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 4);

/// RFC 919.
const BROADCAST: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::BROADCAST, 32);
