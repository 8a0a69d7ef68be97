//! The router of a gateway, and the DNS forwarder that asks over it.

use std::sync::Arc;

use sumlink_dns::{Forwarder, Roots, Upstream, UpstreamAddress};
use sumlink_gateway::kernel::{self, CARRIER_MARK};
use sumlink_gateway::names::SharedNames;
use sumlink_gateway::router::{
    LocalExits, LocalSettings, Parts, Router, SystemInspector, WithoutBond,
};
use sumlink_gateway::rules::Rules;
use sumlink_transport::egress::EgressPolicy;
use tokio::sync::watch;

use super::links::KnownLinks;
use crate::config::{DnsDomain, GatewaySettings};
use crate::error::CliError;
use crate::opener::Late;

/// The router of a gateway.
pub(super) type GatewayRouter = Router<Late>;

/// The router over the bond and over single links.
pub(super) fn router(
    settings: &GatewaySettings,
    links: &KnownLinks,
    names: &SharedNames,
    policy: watch::Receiver<Arc<EgressPolicy>>,
    bond: Late,
) -> Result<GatewayRouter, CliError> {
    let rules = match &settings.kept_rules {
        Some(file) => Rules::with_file(settings.rules.clone(), file.clone())?,
        None => Rules::new(settings.rules.clone()),
    };
    let local = LocalSettings {
        mark: Some(CARRIER_MARK),
        ..LocalSettings::default()
    };
    Ok(Router::new(Parts {
        bond,
        rules,
        names: names.clone(),
        local: LocalExits::new(Arc::new(links.clone()), policy, local),
        inspector: Arc::new(SystemInspector::default()),
        without_bond: match settings.kernel.without_bond {
            kernel::WithoutBond::Block => WithoutBond::Block,
            kernel::WithoutBond::Direct => WithoutBond::Direct,
        },
        is_up: links.is_up(),
    }))
}

/// The forwarder, which asks over the router and reports the addresses of names to `names`.
pub(super) fn forwarder(
    settings: &GatewaySettings,
    names: &SharedNames,
    router: &GatewayRouter,
) -> Forwarder {
    let dns = &settings.dns;
    let roots = Roots::system();
    let upstream =
        |address: &UpstreamAddress| Upstream::new(address.clone(), router.clone(), &roots);
    let upstreams = |addresses: &[UpstreamAddress]| addresses.iter().map(upstream).collect();
    let mut rules = sumlink_dns::Rules::new(upstreams(&dns.resolvers));
    for domain in &dns.domains {
        rules = match domain {
            DnsDomain::Forward(name, resolvers) => rules.with(
                name.clone(),
                sumlink_dns::Action::Forward(upstreams(resolvers)),
            ),
            DnsDomain::Block(name) => rules.with(name.clone(), sumlink_dns::Action::Block),
        };
    }
    for name in &dns.allow_private {
        rules = rules.with_private(name.clone());
    }
    let mut forwarding = sumlink_dns::Settings::default();
    let names = names.clone();
    forwarding.ipv6 = settings.kernel.ipv6;
    forwarding.cache_bytes = dns.cache;
    forwarding.observer = Some(Arc::new(move |chain: &[String], ip, ttl| {
        for name in chain {
            names.learn(ip, name, ttl);
        }
    }));
    Forwarder::new(forwarding, rules)
}
