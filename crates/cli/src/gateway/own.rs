//! The policy of exits over single links: they must not reach this machine, or a connection could
//! come back to the port from which it came.

use std::convert::Infallible;
use std::sync::Arc;

use sumlink_gateway::router::LocalExits;
use sumlink_transport::egress::EgressPolicy;
use sumlink_transport::links::OwnAddresses;
use tokio::sync::watch;

/// The policy, with this machine's present addresses.
#[derive(Debug)]
pub(super) struct LocalPolicy {
    addresses: OwnAddresses,
    policy: watch::Sender<Arc<EgressPolicy>>,
}

impl LocalPolicy {
    /// Reads the addresses.
    pub(super) async fn read() -> Self {
        let mut read = Self {
            addresses: OwnAddresses::watch(),
            policy: watch::channel(Arc::new(LocalExits::policy())).0,
        };
        read.take().await;
        read
    }

    /// The policy.
    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<EgressPolicy>> {
        self.policy.subscribe()
    }

    /// Keeps the policy up to date; never returns.
    pub(super) async fn follow(&mut self) -> Infallible {
        loop {
            self.addresses.changed().await;
            self.take().await;
        }
    }

    async fn take(&mut self) {
        if let Some(own) = self.addresses.read().await {
            let policy = LocalExits::policy().with_own_addresses(own);
            self.policy.send_replace(Arc::new(policy));
        }
    }
}
