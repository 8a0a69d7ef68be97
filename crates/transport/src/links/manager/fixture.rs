//! A session of a client and its manager, for tests.

use std::sync::Arc;

use sumlink_engine::Role;
use tokio::sync::broadcast;
use tokio::sync::mpsc::unbounded_channel;

use super::Manager;
use crate::api::config::ClientConfig;
use crate::carrier::keys::SecretKey;
use crate::links::policy::Policies;
use crate::session::driver::{Driver, LinkStates, Listeners};
use crate::session::sources::Sources;

/// A session and its manager.
pub(super) fn session(server: &SecretKey, config: ClientConfig) -> (Driver, Manager) {
    session_with(server, config, &Arc::default())
}

pub(super) fn session_with(
    server: &SecretKey,
    config: ClientConfig,
    sources: &Arc<Sources>,
) -> (Driver, Manager) {
    let (events, _) = broadcast::channel(1);
    let (news_sender, news) = unbounded_channel();
    let listeners = Listeners {
        incoming: None,
        carriers: Some(news_sender),
        wants_traffic: false,
        events,
        former: Default::default(),
        links: LinkStates::default(),
        policies: None,
        account: None,
        max_paths: 1,
        sources: Arc::clone(sources),
        udp: true,
        datagram_exit: None,
    };
    let (id, peer) = ([7; 16], server.public());
    let made = Driver::new(Role::Client, id, peer, &config.session, listeners);
    let (driver, commands) = made.unwrap();
    let states = LinkStates::default();
    let policies = Policies::new(&config.links, None).unwrap();
    let manager = Manager::new(Arc::new(config), id, commands, news, states, policies);
    (driver, manager)
}
