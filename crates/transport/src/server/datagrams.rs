//! The server's datagrams: QUIC carriers that join sessions, and the exits of the clients' sources.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use sumlink_engine::frame::RefuseCode;
use sumlink_exit::udp::UdpExit;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tracing::Instrument;

use super::half_open::HalfOpen;
use super::{Shared, session_span};
use crate::carrier::keys::PublicKey;
use crate::carrier::quic::{Attempt, QuicListener};
use crate::session::sources::SourceHandle;

/// The next connection attempt; never completes without a listener.
pub(super) async fn next(listener: Option<&QuicListener>) -> Attempt {
    let attempt = match listener {
        Some(listener) => listener.next().await,
        None => None,
    };
    match attempt {
        Some(attempt) => attempt,
        None => std::future::pending().await,
    }
}

impl Shared {
    /// Handles a QUIC connection attempt until it has become a datagram path of a session, or has
    /// been refused.
    pub(super) async fn serve_datagrams(self: Arc<Self>, attempt: Attempt, mut guard: HalfOpen) {
        let from = attempt.remote();
        guard.spoke();
        let patience = guard.patience;
        let proved = tokio::select! {
            proved = attempt.prove(patience) => proved,
            () = guard.evicted() => {
                self.refused.handshake(None);
                tracing::warn!(
                    %from,
                    "too many connections without a key; dropped the oldest one of the busiest \
                    network"
                );
                return;
            }
        };
        let carrier = match proved {
            Ok(carrier) => carrier,
            Err(error) => {
                self.refused.datagrams(&error);
                tracing::info!(%from, %error, "datagram connection refused");
                return;
            }
        };
        drop(guard);
        let name = self.name(carrier.client());
        let client = Some((carrier.client(), name.as_deref()));
        let span = session_span(carrier.session(), client);
        let join = async move {
            // Looked up by the client's own key: a client cannot join another client's session.
            let key = (*carrier.client(), *carrier.session());
            let entry = self.sessions().get(&key).cloned();
            let Some(entry) = entry else {
                self.refused.code(RefuseCode::NoSuchSession);
                return carrier.refuse(RefuseCode::NoSuchSession, "").await;
            };
            if *self.stopping.borrow() {
                self.refused.code(RefuseCode::Stopping);
                return carrier.refuse(RefuseCode::Stopping, "").await;
            }
            match carrier.welcome().await {
                Ok(carrier) => {
                    entry.vouch(&self.half_open, from.ip());
                    entry.add_datagrams(carrier);
                }
                Err(error) => {
                    tracing::info!(%from, %error, "datagram connection lost while it joined");
                }
            }
        };
        join.instrument(span).await;
    }

    /// Connects the sources that a client opens to UDP sockets.
    pub(super) async fn serve_sources(
        self: Arc<Self>,
        client: PublicKey,
        mut sources: UnboundedReceiver<SourceHandle>,
    ) {
        let mut tasks = JoinSet::new();
        loop {
            tokio::select! {
                next = sources.recv() => match next {
                    Some(source) => {
                        let exit = self.exit_of(&client);
                        let serve = async move { exit.serve(source).await };
                        tasks.spawn(serve.in_current_span());
                    }
                    None => break,
                },
                Some(_) = tasks.join_next() => {}
            }
        }
    }

    /// The exit of a client, which all its sessions share.
    pub(super) fn exit_of(&self, client: &PublicKey) -> UdpExit {
        let mut exits = self.exits();
        let exit = exits.entry(*client).or_insert_with(|| {
            let descriptors = Some(Arc::clone(&self.targets));
            let settings = self.config.exit.clone();
            let pace = self.pace_of(client);
            UdpExit::paced(self.egress.subscribe(), settings, descriptors, pace)
                .with_resolvers(self.resolvers.clone())
        });
        exit.clone()
    }

    /// The client has no session any more.
    pub(super) fn forget_exit(&self, client: &PublicKey) {
        self.exits().remove(client);
        self.leases.forget_client(client);
    }

    fn exits(&self) -> MutexGuard<'_, HashMap<PublicKey, UdpExit>> {
        self.exits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use sumlink_exit::target::{Host, Target};

    use crate::api::client::Client;
    use crate::api::datagrams::{FlowFailure, Received};
    use crate::carrier::keys::SecretKey;
    use crate::fixture::{client_config, serve, server_config};
    use sumlink_test_support::netns::Netns;

    /// The kernel reports it with an ICMP error when nothing answers its ARP requests.
    #[test]
    fn an_echo_to_a_host_that_is_not_there_fails() {
        let Some(ns) = Netns::new() else { return };
        ns.ip("link add up1 type veth peer name up2");
        ns.ip("link set up1 up");
        ns.ip("link set up2 up");
        ns.ip("addr add 192.0.2.7/24 dev up1");
        ns.run(async || {
            let [server, key] = [(); 2].map(|()| SecretKey::generate().unwrap());
            let address = serve(server_config(&server, &key)).await;
            let config = client_config(&server, &key, &address.to_string());
            let client = Client::connect(config).await.unwrap();
            let absent = Target::echo(Host::Ip([192, 0, 2, 9].into()));
            let mut flow = client.open_flow(absent, None, None);
            flow.send(Bytes::from_static(b"\0\x01data")).unwrap();
            let event = tokio::time::timeout(Duration::from_secs(30), flow.receive()).await;
            let failed = Received::Failed(FlowFailure::HostUnreachable);
            assert_eq!(event.unwrap(), Some(failed));
        });
    }
}
