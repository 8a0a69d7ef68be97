//! Looks up the servers' names while this machine's resolver is the gateway itself, or blocked.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use sumlink_dns::stub::nameservers;
use sumlink_gateway::kernel::CARRIER_MARK;
use sumlink_transport::links::{Lookup, Service, is_service};
use sumlink_transport::resolver::Resolvers;
use sumlink_transport::target::{Host, Target};
use tokio::net::lookup_host;
use tokio::time::timeout;

use crate::lookup::{self, asking};

/// Time for an answer. Without the bond this machine's resolver may never answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Files with this machine's resolvers: systemd-resolved's, behind its stub, and the usual one.
const FILES: [&str; 2] = ["/run/systemd/resolve/resolv.conf", "/etc/resolv.conf"];

/// The servers' addresses, each from the latest successful lookup of its name.
///
/// Two ways are tried at once: this machine's resolver, which knows /etc/hosts and asks over the
/// bond once it is up; and the resolvers that this machine had before, over sockets with the
/// carriers' mark, which pass while everything else waits for the bond.
#[derive(Clone, Debug)]
pub(super) struct KnownServers {
    known: Arc<Mutex<Known>>,
    resolvers: Arc<[SocketAddr]>,
}

/// Addresses by host and port.
type Known = BTreeMap<(String, u16), Vec<SocketAddr>>;

impl KnownServers {
    /// Looks up the servers. One may be unknown for now: each later attempt to connect asks again.
    ///
    /// The resolvers are read now, so the gateway must not have changed their file yet.
    pub(super) async fn new(servers: impl IntoIterator<Item = &str>) -> Self {
        let known = Self {
            known: Arc::default(),
            resolvers: of_system(),
        };
        let (services, hosts): (Vec<_>, Vec<_>) =
            servers.into_iter().partition(|server| is_service(server));
        let mut hosts: Vec<String> = hosts.into_iter().map(str::to_owned).collect();
        for name in services {
            match known.look_up_services(name.to_owned()).await {
                Ok(found) => hosts.extend(found.iter().map(Service::address)),
                Err(error) => tracing::warn!("cannot look up the servers of {name} yet: {error}"),
            }
        }
        // Another form is an error of the first attempt to connect.
        let targets = hosts.iter().filter_map(|server| server.parse().ok());
        let look_ups = targets.map(|Target { host, port }| {
            let host = match host {
                Host::Name(name) => name,
                Host::Ip(ip) => ip.to_string(),
            };
            let known = &known;
            async move {
                if let Err(error) = known.look_up(host.clone(), port).await {
                    tracing::warn!("cannot resolve the server's name {host} yet: {error}");
                }
            }
        });
        join_all(look_ups).await;
        known
    }

    /// The addresses.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.values().flatten().copied().collect()
    }

    /// Asks over sockets with the carriers' mark.
    fn marked(&self) -> io::Result<Resolvers> {
        asking(self.resolvers.to_vec(), Some(CARRIER_MARK))
    }
}

impl Lookup for KnownServers {
    fn look_up(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        let server = self.clone();
        Box::pin(async move {
            let system = async {
                let found = lookup_host((host.as_str(), port)).await?;
                Ok(found.collect::<Vec<_>>())
            };
            let marked = async {
                let found = lookup::addresses(&server.marked()?, &host).await?;
                Ok(found
                    .into_iter()
                    .map(|ip| SocketAddr::new(ip, port))
                    .collect())
            };
            let found = match host.parse::<IpAddr>() {
                Ok(ip) => Ok(vec![SocketAddr::new(ip, port)]),
                Err(_) => match timeout(PATIENCE, first(system, marked)).await {
                    Ok(found) => found,
                    Err(_) => Err(io::ErrorKind::TimedOut.into()),
                },
            };
            let mut known = server.known.lock().unwrap_or_else(PoisonError::into_inner);
            let known = known.entry((host.clone(), port)).or_default();
            match found {
                Ok(found) if !found.is_empty() => *known = found,
                // The addresses from before are better than none.
                _ if !known.is_empty() => {}
                Ok(_) => return Err(io::Error::other("the name has no address")),
                Err(error) => return Err(error),
            }
            Ok(known.clone())
        })
    }

    fn look_up_services(&self, name: String) -> BoxFuture<'static, io::Result<Vec<Service>>> {
        let server = self.clone();
        Box::pin(async move {
            let marked = async { lookup::services(&server.marked()?, &name).await };
            first(lookup::services_of_system(&name), marked).await
        })
    }
}

/// The result of the future that succeeds first, or the error of the one that fails last.
async fn first<T>(
    a: impl Future<Output = io::Result<T>>,
    b: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
    tokio::select! {
        first = &mut a => match first {
            Ok(found) => Ok(found),
            Err(_) => b.await,
        },
        first = &mut b => match first {
            Ok(found) => Ok(found),
            Err(_) => a.await,
        },
    }
}

/// This machine's resolvers. Those on loopback would ask without the mark.
fn of_system() -> Arc<[SocketAddr]> {
    let read = FILES
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok());
    let mut found: Vec<SocketAddr> = read.flat_map(|text| nameservers(&text)).collect();
    found.retain(|resolver| !resolver.ip().is_loopback());
    found.dedup();
    found.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_success_counts_and_the_last_error() {
        let fails = |text: &'static str| async move { Err::<u8, _>(io::Error::other(text)) };
        let slow = async {
            tokio::task::yield_now().await;
            Ok(1)
        };
        assert_eq!(first(fails("a"), slow).await.unwrap(), 1);
        assert_eq!(
            first(std::future::pending(), async { Ok(2) })
                .await
                .unwrap(),
            2
        );
        assert!(first(fails("a"), fails("b")).await.is_err());
    }

    #[tokio::test]
    async fn an_address_needs_no_resolver() {
        let known = KnownServers::new(["[2001:db8::1]:7443"]).await;
        assert_eq!(known.addresses(), ["[2001:db8::1]:7443".parse().unwrap()]);
        let found = known.look_up("192.0.2.1".to_owned(), 7443).await.unwrap();
        assert_eq!(found, ["192.0.2.1:7443".parse().unwrap()]);
    }
}
