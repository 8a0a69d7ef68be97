//! Removes the changes of a gateway, also those of one that was killed.

use std::fmt::Display;
use std::io;
use std::path::Path;

use rtnetlink::packet_route::route::RouteMessage;
use rtnetlink::packet_route::rule::RuleMessage;
use sumlink_util::plain;

use super::error::KernelError;
use super::netlink::Netlink;
use super::nft;
use super::routing::{Family, Hop, Route, Rule};
use super::state::{Lock, State};
use super::sysctl::Sysctl;
use super::{TABLE_BOND, TABLE_LAN, TABLE_LOCAL};

/// Removes all leftovers of a gateway from this network namespace, however it ended.
///
/// Finds rules and routes by our protocol number and the firewall table by its name, also without
/// the state file. Values of kernel parameters are only in the file.
///
/// # Errors
///
/// [`KernelError::AlreadyRunning`] while a gateway runs, and [`KernelError::Left`].
pub async fn clean(state: &Path) -> Result<Cleaned, KernelError> {
    let lock = Lock::acquire(state)?;
    let netlink = Netlink::open().map_err(KernelError::system("ask the kernel"))?;
    // The TUN device vanishes with its process, and so does the route over it: one that is there
    // belongs to a gateway with its lock elsewhere.
    let routes = our_routes(&netlink).await;
    let routes = routes.map_err(KernelError::system("list the routes"))?;
    let is_bond = |route: &Route| route.table == TABLE_BOND && matches!(route.hop, Hop::Device(_));
    if routes.iter().any(|(route, _)| is_bond(route)) {
        return Err(KernelError::AlreadyRunning { pid: None });
    }
    remove(&netlink, &lock).await
}

/// The removed changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Rules of policy routing.
    pub rules: usize,
    /// Routes.
    pub routes: usize,
    /// Whether there was a firewall table.
    pub table: bool,
    /// Restored kernel parameters.
    pub sysctls: usize,
}

impl Cleaned {
    /// Whether there was nothing to remove.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The rules of a gateway, and their messages.
pub(super) async fn our_rules(netlink: &Netlink) -> io::Result<Vec<(Rule, RuleMessage)>> {
    let mut rules = netlink.our_rules(Family::V4).await?;
    rules.extend(netlink.our_rules(Family::V6).await?);
    Ok(rules)
}

/// Only routes in our tables: the protocol number alone could be another program's, too.
pub(super) async fn our_routes(netlink: &Netlink) -> io::Result<Vec<(Route, RouteMessage)>> {
    let mut routes = netlink.our_routes(Family::V4).await?;
    routes.extend(netlink.our_routes(Family::V6).await?);
    routes.retain(|(route, _)| [TABLE_LAN, TABLE_LOCAL, TABLE_BOND].contains(&route.table));
    Ok(routes)
}

/// Removes everything; goes on after a failure. Forwarding ends first, so that nothing of the LAN
/// leaves beside the bond meanwhile. Then come the rules, since without them nothing else takes
/// effect, and the last one captures.
pub(super) async fn remove(netlink: &Netlink, lock: &Lock) -> Result<Cleaned, KernelError> {
    let mut cleaned = Cleaned::default();
    let state = State::read(lock.state());
    let mut left: Vec<String> = Vec::new();
    let restore = |cleaned: &mut Cleaned, wanted: fn(&Sysctl) -> bool| {
        let restored = state.as_ref().map(|state| state.restore(wanted));
        let (count, failures) = restored.unwrap_or_default();
        cleaned.sysctls += count;
        failures
    };
    left.extend(restore(&mut cleaned, Sysctl::is_forwarding));
    let mut failed = |what: &dyn Display, error: &dyn Display| {
        left.push(format!("{what} ({})", plain(error)));
    };
    match our_rules(netlink).await {
        Ok(mut rules) => {
            rules.sort_by_key(|(rule, _)| std::cmp::Reverse(rule.preference));
            for (rule, message) in rules {
                match netlink.delete_rule(message).await {
                    Ok(()) => cleaned.rules += 1,
                    Err(error) => failed(&rule, &error),
                }
            }
        }
        Err(error) => failed(&"rules", &error),
    }
    match nft::delete().await {
        Ok(existed) => cleaned.table = existed,
        Err(error) => failed(&"the firewall table", &error),
    }
    match our_routes(netlink).await {
        Ok(routes) => {
            for (route, message) in routes {
                match netlink.delete_route(message).await {
                    Ok(()) => cleaned.routes += 1,
                    Err(error) => failed(&route, &error),
                }
            }
        }
        Err(error) => failed(&"routes", &error),
    }
    left.extend(restore(&mut cleaned, |sysctl| !sysctl.is_forwarding()));
    if left.is_empty() {
        lock.forget().map_err(|source| KernelError::File {
            path: lock.state().to_owned(),
            source,
        })?;
        return Ok(cleaned);
    }
    Err(KernelError::Left(left.join("; ")))
}
