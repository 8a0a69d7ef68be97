//! Lists the links, selects those to use, and checks whether they lead to the server.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use super::Manager;
use crate::api::config::ClientConfig;
use crate::api::error::ConnectError;
use crate::links::{self, InterfaceCheck, Link};

/// The server's addresses that a link can reach, each with the source address that the routing
/// tables choose.
pub(crate) type Ways = Vec<(SocketAddr, IpAddr)>;

impl Manager {
    /// Lists all links: leaves those that are gone, dials those that can be used.
    pub(super) async fn refresh(&mut self, first: bool) -> Result<(), ConnectError> {
        self.looked = Instant::now();
        let servers = self.servers.clone();
        let all = links::list().await?;
        let wanted = wanted(&self.dialer.config, &all, &servers);
        let mut unusable = self.missing(&all);
        let mut present = BTreeSet::new();
        for link in wanted {
            present.insert(link.name.clone());
            if let Some(reason) = self.policies.bars(&link.name) {
                self.leave(&link.name, &reason);
                unusable.push((link.name.clone(), format!("{}: {reason}", link.name)));
                continue;
            }
            match ways(link, &servers, self.dialer.config.mark).await {
                Ok(ways) => self.use_link(link, ways),
                Err(reason) => {
                    self.leave(&link.name, &reason);
                    unusable.push((link.name.clone(), reason));
                }
            }
        }
        let gone: Vec<String> = self
            .links
            .keys()
            .filter(|name| !present.contains(*name))
            .cloned()
            .collect();
        for name in gone {
            self.leave(&name, "the link is gone");
            self.links.remove(&name);
        }
        for (name, reason) in &unusable {
            self.states.set(name, "down", reason.clone());
        }
        let is_known =
            |name: &str| present.contains(name) || unusable.iter().any(|(n, _)| n == name);
        self.states.retain(is_known);
        if self.links.values().any(|state| state.plan.paths.is_empty()) {
            self.resolver.ask_again(self.is_lost());
        }
        if first && self.dials.is_empty() {
            let reasons: Vec<String> = unusable.into_iter().map(|(_, reason)| reason).collect();
            return Err(ConnectError::NoLink(match reasons.is_empty() {
                true => "this machine has no interface besides loopback".to_owned(),
                false => reasons.join("; "),
            }));
        }
        if first {
            for (_, reason) in unusable
                .iter()
                .filter(|_| !self.dialer.config.links.is_empty())
            {
                tracing::warn!("{reason}");
            }
        }
        Ok(())
    }

    /// Queries in the background the interface carrier state of the links with paths: the kernel
    /// reports its loss up to 1 s late. At most one query is in progress.
    pub(super) fn ask_for_interface_state(&mut self) {
        if !self.asking.is_empty() {
            return;
        }
        if self.interfaces.is_none() {
            self.interfaces = InterfaceCheck::open().ok();
        }
        let in_use = self
            .links
            .values()
            .filter(|link| !link.plan.paths.is_empty());
        let seen = in_use.filter_map(|link| link.seen.as_ref());
        let seen = seen.filter(|(link, _)| !link.loopback);
        let numbers: Vec<u32> = seen.map(|(link, _)| link.index).collect();
        if let Some(check) = self.interfaces.clone().filter(|_| !numbers.is_empty()) {
            self.asking
                .spawn_blocking(move || check.is_any_lost(&numbers));
        }
    }

    /// Takes the answer: after the loss of a carrier, all links are listed.
    pub(super) async fn on_interface_state(&mut self, is_any_lost: io::Result<bool>) {
        match is_any_lost {
            Ok(false) => {}
            Ok(true) => self.look_again().await,
            Err(error) => {
                tracing::debug!(%error, "cannot query the carrier state of the links");
                self.interfaces = None;
            }
        }
    }

    /// Configured names without an interface, with the reason.
    fn missing(&self, all: &[Link]) -> Vec<(String, String)> {
        let named = self.dialer.config.links.iter().map(|link| &link.name);
        let missing =
            named.filter(|name| !all.iter().any(|link| links::name_matches(name, &link.name)));
        missing
            .map(|name| {
                let reason = if links::is_pattern(name) {
                    format!("no link matches {name}")
                } else {
                    links::LinkError::NoSuchLink { name: name.clone() }.to_string()
                };
                (name.clone(), reason)
            })
            .collect()
    }
}

/// The links to use: the configured ones, or all but loopback, or only loopback for a server on
/// this machine.
pub(crate) fn wanted<'a>(
    config: &ClientConfig,
    all: &'a [Link],
    servers: &[SocketAddr],
) -> Vec<&'a Link> {
    let here = servers
        .iter()
        .all(|server| server.ip().to_canonical().is_loopback());
    let fits = |link: &&Link| match config.links.is_empty() {
        true => link.loopback == here && !config.ignored_links.contains(&link.name),
        false => config.link(&link.name).is_some(),
    };
    all.iter().filter(fits).collect()
}

/// The link's routes to the server, or the reason why there are none.
pub(crate) async fn ways(
    link: &Link,
    servers: &[SocketAddr],
    mark: Option<u32>,
) -> Result<Ways, String> {
    let mut ways = Vec::new();
    let mut reason = "the server's name has no address".to_owned();
    for &server in servers {
        match links::can_reach_marked(link, server, mark).await {
            Ok(source) => ways.push((server, source)),
            Err(error) => reason = error.to_string(),
        }
    }
    if ways.is_empty() {
        Err(reason)
    } else {
        Ok(ways)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use sumlink_engine::PathId;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::*;
    use crate::carrier::keys::SecretKey;
    use crate::fixture::client_config;
    use crate::links::policy::Policies;
    use crate::session::command::Command;
    use crate::session::driver::{CarrierNews, LinkStates};
    use sumlink_test_support::netns::Netns;

    /// A manager for a session over all links, and the receiver of its commands to the session.
    fn manager(server: &str) -> (Manager, UnboundedReceiver<Command>) {
        let key = SecretKey::generate().unwrap();
        let mut config = client_config(&key, &key, server);
        config.links.clear();
        let (commands, asked) = unbounded_channel();
        let (_, news) = unbounded_channel();
        let manager = Manager::new(
            Arc::new(config),
            [7; 16],
            commands,
            news,
            LinkStates::default(),
            Policies::new(&[], None).unwrap(),
        );
        (manager, asked)
    }

    /// Two links with default routes, 192.0.2.1 on `up1` and 192.0.2.2 on `up2`.
    fn uplinks() -> Option<Netns> {
        let ns = Netns::new()?;
        for (link, host) in [("up1", 1), ("up2", 2)] {
            ns.ip(&format!("link add {link} type veth peer name {link}-peer"));
            for end in [link, &format!("{link}-peer")] {
                ns.ip(&format!("link set {end} addrgenmode none"));
                ns.ip(&format!("link set {end} up"));
            }
            ns.ip(&format!("addr add 192.0.2.{host}/24 dev {link}"));
            ns.ip(&format!(
                "route add default via 192.0.2.254 dev {link} metric {host}"
            ));
        }
        Some(ns)
    }

    /// Only the query: the manager's loop, which receives the kernel's events, does not run.
    #[test]
    fn while_bytes_move_a_link_without_a_signal_is_noticed() {
        let Some(ns) = uplinks() else { return };
        let ip = ns.commands();
        ns.run(async move || {
            let (mut manager, mut asked) = manager("203.0.113.1:443");
            manager.servers = vec!["203.0.113.1:443".parse().unwrap()];
            manager.refresh(true).await.unwrap();
            for (name, number) in [("up1", 1), ("up2", 2)] {
                let local = format!("192.0.2.{number}:1").parse().unwrap();
                let state = manager.links.get_mut(name).unwrap();
                state.plan.paths.push((PathId(number), local));
            }
            let answer = async |manager: &mut Manager| {
                // Repeated notifications cause only one query.
                manager.on_news(CarrierNews::Moving);
                manager.on_news(CarrierNews::Moving);
                let answer = manager.asking.join_next().await.unwrap().unwrap();
                manager.on_interface_state(answer).await;
                assert!(manager.asking.is_empty());
            };
            answer(&mut manager).await;
            assert!(asked.try_recv().is_err(), "no link has lost its signal");
            ip("link set up1-peer down");
            answer(&mut manager).await;
            let asked = std::iter::from_fn(|| asked.try_recv().ok());
            let left = asked.filter_map(|command| match command {
                Command::Remove(id, reason) => Some((id, reason)),
                _ => None,
            });
            let left: Vec<_> = left.collect();
            let reason =
                "the link up1 is down: switch it on, plug it in or connect it to its network";
            assert_eq!(left, [(PathId(1), reason.to_owned())]);
        });
    }

    #[tokio::test]
    async fn a_link_is_tried_again_however_often_bytes_move() {
        let (mut manager, _asked) = manager("203.0.113.1:443");
        let now = Instant::now();
        manager.began = now.checked_sub(Duration::from_secs(1)).unwrap();
        manager.looked = manager.began;
        // As if its path had ended a while ago.
        let state = manager.links.entry("up1".to_owned()).or_default();
        state.plan.retry_at = Some(Duration::ZERO);
        for _ in 0..3 {
            manager.on_news(CarrierNews::Moving);
            assert_eq!(manager.next_look(), Duration::ZERO);
        }
        manager.looked = Instant::now();
        assert!(manager.next_look() > Duration::ZERO, "not continuously");
    }

    #[test]
    fn a_dial_in_progress_does_not_rejoin_a_disabled_link() {
        let Some(ns) = uplinks() else { return };
        ns.run(async move || {
            let (mut manager, _asked) = manager("203.0.113.1:443");
            manager.servers = vec!["203.0.113.1:443".parse().unwrap()];
            manager.refresh(true).await.unwrap();
            let dialing = |manager: &Manager| {
                let state = &manager.links["up1"];
                (state.plan.is_dialing, state.number)
            };
            let (is_dialing, first) = dialing(&manager);
            assert!(is_dialing);
            manager.leave("up1", "its priority is never");
            assert_eq!(dialing(&manager), (false, None));
            manager.look_again().await;
            let (is_dialing, next) = dialing(&manager);
            assert!(is_dialing && next > first);
        });
    }

    /// On a silent link a dial continues until it is answered, which never happens if the server
    /// has moved.
    #[test]
    fn a_silent_link_resolves_the_servers_name_again() {
        let Some(ns) = uplinks() else { return };
        ns.run(async move || {
            let (mut manager, _asked) = manager("203.0.113.1:443");
            let servers = |last: [u8; 2]| {
                let address = |last| SocketAddr::from(([203, 0, 113, last], 443));
                last.map(address).to_vec()
            };
            manager.servers = servers([1, 2]);
            manager.refresh(true).await.unwrap();
            let state = manager.links.get_mut("up1").unwrap();
            let (link, _) = state.seen.as_ref().unwrap();
            let id = PathId(1);
            state.plan.paths = vec![(id, SocketAddr::new(link.addresses[0], 1))];
            state.plan.is_dialing = false;
            let link = "up1".to_owned();
            manager.on_news(CarrierNews::Silent {
                id,
                link,
                loses_large: false,
                packet_limit: None,
            });
            let number = |manager: &Manager| {
                let state = &manager.links["up1"];
                assert!(state.plan.is_dialing && state.plan.paths.len() == 1);
                state.number
            };
            let asking = number(&manager);
            // Resolvers vary the order of their answers.
            manager.servers = servers([2, 1]);
            manager.look_again().await;
            assert_eq!(number(&manager), asking);
            manager.servers = servers([2, 3]);
            manager.look_again().await;
            assert_ne!(number(&manager), asking);
        });
    }

    #[test]
    fn a_change_resets_only_its_own_links_back_off() {
        let Some(ns) = uplinks() else { return };
        let ip = ns.commands();
        ns.run(async move || {
            let (mut manager, _asked) = manager("203.0.113.1:443");
            manager.servers = vec!["203.0.113.1:443".parse().unwrap()];
            manager.refresh(true).await.unwrap();
            let later = Duration::from_secs(3600);
            // As if both had failed.
            let fail = |manager: &mut Manager| {
                for name in ["up1", "up2"] {
                    let state = manager.links.get_mut(name).unwrap();
                    (state.plan.is_dialing, state.plan.retry_at) = (false, Some(later));
                }
            };
            let dialing = |manager: &Manager| {
                let names = manager
                    .links
                    .iter()
                    .filter(|(_, state)| state.plan.is_dialing);
                names.map(|(name, _)| name.clone()).collect::<Vec<_>>()
            };
            for (change, dialed) in [
                ("link add other type veth peer name other-peer", None),
                ("addr add 198.51.100.1/24 dev up1-peer", None),
                ("addr add 198.51.100.2/24 dev up2", Some("up2")),
                ("addr del 198.51.100.2/24 dev up2", Some("up2")),
                ("link set up1 mtu 1400", Some("up1")),
            ] {
                fail(&mut manager);
                ip(change);
                manager.look_again().await;
                assert_eq!(
                    dialing(&manager),
                    Vec::from_iter(dialed.map(str::to_owned)),
                    "{change}"
                );
            }
        });
    }
}
