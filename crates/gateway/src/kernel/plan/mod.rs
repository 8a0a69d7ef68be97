//! The changes that a gateway makes, as a pure function of settings and facts.

mod parameters;
mod routes;
mod rules;

use std::fmt;

use ipnet::IpNet;

use super::FIRST_PREFERENCE;
use super::check;
use super::facts::Facts;
use super::network::{RouteFact, RouteKind};
use super::nft::{self, NftSupport, Table};
use super::refusal::{Refusal, Warning};
use super::routing::{Family, Route, Rule};
use super::settings::{Capture, Settings, WithoutBond};
use super::sysctl::Sysctl;
use parameters::{niceties, sysctls};
use routes::{addresses, routes};
use rules::rules;

pub(super) use routes::lan_routes;

/// All changes of a start, in their order. Displayed as commands: the dry run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub(super) settings: Settings,
    pub(super) capture: Capture,
    pub(super) sysctls: Vec<Sysctl>,
    /// Optional parameters of the TUN device: containers may forbid them.
    pub(super) niceties: Vec<Sysctl>,
    /// The families that are captured.
    pub(super) captured: Vec<Family>,
    /// The families that must not leave beside the bond.
    touched: Vec<Family>,
    pub(super) addresses: Vec<IpNet>,
    pub(super) routes: Vec<Route>,
    pub(super) table: Option<Table>,
    pub(super) rules: Vec<Rule>,
    pub(super) warnings: Vec<Warning>,
}

/// A plan's treatment of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Treatment {
    Capture,
    /// It is not captured, and must not leave beside the bond either.
    Block,
    Leave,
}

/// Number of consecutive preferences.
const PREFERENCES: u32 = 5;

/// Metric of routes that others may not precede with a lower one: IPv6's default.
const METRIC: u32 = 1024;

impl Plan {
    /// Plans a start.
    ///
    /// # Errors
    ///
    /// The reason why the settings do not fit the system.
    pub fn new(settings: &Settings, facts: &Facts) -> Result<Self, Refusal> {
        check::check_settings(settings, facts)?;
        let treatments = [
            (Family::V4, treatment(settings, settings.ipv4, true)),
            (
                Family::V6,
                treatment(settings, settings.ipv6, facts.has_ipv6),
            ),
        ];
        let with = |wanted: fn(Treatment) -> bool| -> Vec<Family> {
            let matching = treatments
                .iter()
                .filter(|(_, treatment)| wanted(*treatment));
            matching.map(|(family, _)| *family).collect()
        };
        let captured = with(|treatment| treatment == Treatment::Capture);
        let touched = with(|treatment| treatment != Treatment::Leave);
        if captured.is_empty() {
            return Err(Refusal::NoFamily);
        }
        let (capture, fallback) = check::capture(settings, facts)?;
        let preferences = (FIRST_PREFERENCE, PREFERENCES);
        let (first, vpns) = check::first_preference(settings, facts, &touched, preferences)?;
        let mut warnings = Vec::from_iter(fallback);
        warnings.extend(vpns);
        warnings.extend(check::warnings(settings, facts, capture));
        let has_table = facts.nft == NftSupport::Works;
        let networks = networks(&facts.routes);
        let table =
            has_table.then(|| nft::table(settings, capture, &captured, &touched, &networks));
        Ok(Self {
            settings: settings.clone(),
            capture,
            sysctls: sysctls(settings, facts, capture, &captured, has_table),
            niceties: niceties(settings, &captured),
            addresses: addresses(settings, &captured),
            routes: routes(settings, facts, capture, &captured, &touched),
            table,
            rules: rules(settings, capture, first, &captured, &touched),
            captured,
            touched,
            warnings,
        })
    }

    /// The way of capture.
    pub fn capture(&self) -> Capture {
        self.capture
    }

    /// The firewall table for the present routes.
    pub(super) fn table_for(&self, routes: &[RouteFact]) -> Option<Table> {
        self.table.as_ref()?;
        let (settings, networks) = (&self.settings, networks(routes));
        let table = nft::table(
            settings,
            self.capture,
            &self.captured,
            &self.touched,
            &networks,
        );
        Some(table)
    }

    /// The families that must not leave beside the bond.
    pub(super) fn touched(&self) -> &[Family] {
        &self.touched
    }

    /// Warnings for the administrator.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Rules of policy routing.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Routes, in tables of the gateway only.
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// Kernel parameters that are set, and restored at the end.
    pub fn sysctls(&self) -> &[Sysctl] {
        &self.sysctls
    }

    /// Input of `nft -j -f -`; `None` if nftables does not work here.
    pub fn nft(&self) -> Option<serde_json::Value> {
        self.table.as_ref().map(Table::to_json)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for warning in &self.warnings {
            writeln!(f, "# warning: {warning}")?;
        }
        let others = self.sysctls.iter().filter(|sysctl| !sysctl.is_forwarding());
        for sysctl in others.chain(&self.niceties) {
            writeln!(f, "{sysctl}")?;
        }
        let device = &self.settings.device;
        for address in &self.addresses {
            writeln!(f, "ip address add {address} dev {}", device.name)?;
        }
        writeln!(f, "ip link set {} mtu {} up", device.name, device.mtu)?;
        for route in &self.routes {
            writeln!(f, "{route}")?;
        }
        if let Some(table) = &self.table {
            writeln!(f, "nft -f - <<END")?;
            for line in table.lines() {
                writeln!(f, "{line}")?;
            }
            writeln!(f, "END")?;
        }
        for rule in &self.rules {
            writeln!(f, "{rule}")?;
        }
        for sysctl in self.sysctls.iter().filter(|sysctl| sysctl.is_forwarding()) {
            writeln!(f, "{sysctl}")?;
        }
        Ok(())
    }
}

/// The destinations of specific routes: packets for them do not use the bond.
fn networks(routes: &[RouteFact]) -> Vec<IpNet> {
    let specific = routes.iter().filter(|route| {
        route.kind == RouteKind::Unicast && !route.is_ours && route.destination.prefix_len() > 0
    });
    specific.map(|route| route.destination.trunc()).collect()
}

fn treatment(settings: &Settings, is_wanted: bool, exists: bool) -> Treatment {
    match (exists, is_wanted, settings.without_bond) {
        (false, _, _) => Treatment::Leave,
        (true, true, _) => Treatment::Capture,
        (true, false, WithoutBond::Block) => Treatment::Block,
        (true, false, WithoutBond::Direct) => Treatment::Leave,
    }
}
