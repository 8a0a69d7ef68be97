//! Whether the bond is up, and the links that can be used without it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sumlink_gateway::router::UsableLinks;
use sumlink_transport::{Client, SessionStatus, links};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

/// Interval between queries to the session.
const EVERY: Duration = Duration::from_millis(200);

/// Queries to the session after which the links of the machine are listed again.
const LIST_EVERY: u32 = 10;

/// The last known state of the links, for the router.
#[derive(Clone, Debug)]
pub(super) struct KnownLinks {
    order: Arc<Mutex<Vec<String>>>,
    is_up: watch::Sender<bool>,
}

impl KnownLinks {
    /// Nothing is known, and the bond is down.
    pub(super) fn new() -> Self {
        Self {
            order: Arc::default(),
            is_up: watch::channel(false).0,
        }
    }

    /// Whether the bond delivers.
    pub(super) fn is_up(&self) -> watch::Receiver<bool> {
        self.is_up.subscribe()
    }

    /// The session is over, so the bond delivers nothing.
    pub(super) fn session_ended(&self) {
        self.is_up.send_replace(false);
    }

    /// Follows the session without end. `server` is where a usable link leads, and `mark` the mark
    /// of the packets that take it.
    pub(super) async fn follow(
        &self,
        client: Client,
        server: impl Fn() -> Vec<SocketAddr>,
        mark: u32,
    ) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut count, mut reaching) = (0_u32, Vec::new());
        loop {
            ticks.tick().await;
            let status = client.status().await;
            let active = active(&status);
            if count.is_multiple_of(LIST_EVERY) {
                reaching = usable(&server(), mark).await;
            }
            count = count.wrapping_add(1);
            self.is_up.send_if_modified(|is_up| {
                let was_up = std::mem::replace(is_up, !active.is_empty());
                was_up == active.is_empty()
            });
            let mut order = active;
            let mut known: BTreeSet<String> = order.iter().cloned().collect();
            order.extend(
                reaching
                    .iter()
                    .filter(|name| known.insert((*name).clone()))
                    .cloned(),
            );
            *self.order.lock().unwrap_or_else(PoisonError::into_inner) = order;
        }
    }

    /// Lists the links that lead to the server, before there is a session.
    pub(super) async fn list(&self, server: &[SocketAddr], mark: u32) {
        let reaching = usable(server, mark).await;
        *self.order.lock().unwrap_or_else(PoisonError::into_inner) = reaching;
    }
}

impl UsableLinks for KnownLinks {
    fn in_order(&self) -> Vec<String> {
        let order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        order.clone()
    }
}

/// The links that deliver, the one with the least round trip first.
fn active(status: &SessionStatus) -> Vec<String> {
    let paths = status.paths.iter().filter(|path| path.state == "active");
    let mut paths: Vec<_> = paths.collect();
    paths.sort_by(|a, b| a.srtt_ms.total_cmp(&b.srtt_ms));
    let mut seen = BTreeSet::new();
    let first = paths.into_iter().filter(|path| seen.insert(&path.link));
    first.map(|path| path.link.clone()).collect()
}

/// The links that have a route to the server.
async fn usable(server: &[SocketAddr], mark: u32) -> Vec<String> {
    let Ok(all) = links::list().await else {
        return Vec::new();
    };
    let mut usable = Vec::new();
    for link in all.iter().filter(|link| !link.loopback) {
        for address in server {
            if links::can_reach_marked(link, *address, Some(mark))
                .await
                .is_ok()
            {
                usable.push(link.name.clone());
                break;
            }
        }
    }
    usable
}

#[cfg(test)]
mod tests {
    use sumlink_transport::status::PathStatus;

    use super::*;

    #[test]
    fn the_fastest_active_link_is_first_and_each_occurs_once() {
        let path = |link: &str, state: &str, srtt_ms| PathStatus {
            link: link.to_owned(),
            state: state.to_owned(),
            srtt_ms,
            ..PathStatus::default()
        };
        let status = SessionStatus {
            paths: vec![
                path("slow", "active", 90.0),
                path("fast", "active", 20.0),
                path("slow", "active", 95.0),
                path("dead", "stalled", 1.0),
            ],
            ..SessionStatus::default()
        };
        assert_eq!(active(&status), ["fast", "slow"]);
        assert!(active(&SessionStatus::default()).is_empty());
    }
}
