//! Questions to this machine's resolvers that the C library cannot ask: for SRV records, and over
//! sockets that a running gateway does not capture.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sumlink_dns::Name;
use sumlink_dns::stub::{AddressQuestion, ServiceQuestion, nameservers};
use sumlink_transport::config::ClientConfig;
use sumlink_transport::links::{Lookup, Service, is_service, usable};
use sumlink_transport::resolver::{RESOLV_CONF, ResolverSource, Resolvers};
use tokio::net::lookup_host;
use tokio::time::timeout;

/// Time for an answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Looks up a client's servers by SRV records. Hosts are resolved by the C library.
#[derive(Debug)]
struct SystemLookup;

impl Lookup for SystemLookup {
    fn look_up(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        async move { Ok(lookup_host((host.as_str(), port)).await?.collect()) }.boxed()
    }

    fn look_up_services(&self, name: String) -> BoxFuture<'static, io::Result<Vec<Service>>> {
        async move { services_of_system(&name).await }.boxed()
    }
}

/// Lets a client with servers in the DNS look them up.
pub(crate) fn with_services(mut config: ClientConfig) -> ClientConfig {
    let asks = config.servers().any(|(server, _)| is_service(server));
    if asks && config.lookup.is_none() {
        config.lookup = Some(std::sync::Arc::new(SystemLookup));
    }
    config
}

/// The addresses of a server: HOST:PORT, or all of those that the DNS lists.
pub(crate) async fn addresses_of_server(server: &str) -> io::Result<Vec<SocketAddr>> {
    if !is_service(server) {
        return Ok(lookup_host(server).await?.collect());
    }
    let mut addresses = Vec::new();
    for service in usable(services_of_system(server).await?)? {
        addresses.extend(lookup_host(service.address()).await?);
    }
    Ok(addresses)
}

/// Resolvers at these addresses; the queries have the firewall mark.
pub(crate) fn asking(addresses: Vec<SocketAddr>, mark: Option<u32>) -> io::Result<Resolvers> {
    if addresses.is_empty() {
        return Err(io::Error::other(format!(
            "this machine has no resolver in {RESOLV_CONF}"
        )));
    }
    let resolvers = Resolvers::new(ResolverSource::Listed(addresses));
    Ok(match mark {
        Some(mark) => resolvers.with_mark(mark),
        None => resolvers,
    })
}

/// The addresses of a host.
pub(crate) async fn addresses(resolvers: &Resolvers, host: &str) -> io::Result<Vec<IpAddr>> {
    let name: Name = host.parse().map_err(io::Error::other)?;
    let one = async |ipv6| {
        let question = AddressQuestion::new(name.clone(), ipv6).map_err(io::Error::other)?;
        let answer = ask(resolvers, &question.message()).await?;
        let found = question.addresses(&answer);
        found.ok_or_else(|| io::Error::other("a resolver answers another question"))
    };
    let (v4, v6) = tokio::join!(one(false), one(true));
    let found = match (v4, v6) {
        (Err(error), Err(_)) => return Err(error),
        (v4, v6) => [v4, v6].into_iter().filter_map(Result::ok).flatten(),
    };
    let found: Vec<IpAddr> = found.collect();
    match found.is_empty() {
        true => Err(io::Error::other("the name has no address")),
        false => Ok(found),
    }
}

/// The SRV records of a name, from the resolvers of resolv.conf(5).
pub(crate) async fn services_of_system(name: &str) -> io::Result<Vec<Service>> {
    let text = fs::read_to_string(RESOLV_CONF).unwrap_or_default();
    services(&asking(nameservers(&text), None)?, name).await
}

/// The SRV records of a name.
pub(crate) async fn services(resolvers: &Resolvers, name: &str) -> io::Result<Vec<Service>> {
    let name: Name = name.parse().map_err(io::Error::other)?;
    let question = ServiceQuestion::new(name).map_err(io::Error::other)?;
    let mut answer = ask(resolvers, &question.message(true)).await?;
    if question.is_without_edns(&answer) {
        answer = ask(resolvers, &question.message(false)).await?;
    }
    let found = question.services(&answer);
    let found = found.ok_or_else(|| io::Error::other("a resolver answers another question"))?;
    let service = |record: sumlink_dns::stub::ServiceRecord| Service {
        host: record.target.to_string(),
        port: record.port,
        priority: record.priority,
        weight: record.weight,
    };
    Ok(found.into_iter().map(service).collect())
}

async fn ask(resolvers: &Resolvers, message: &[u8]) -> io::Result<Vec<u8>> {
    match timeout(PATIENCE, resolvers.ask(message)).await {
        Ok(answer) => answer
            .map(|answer| answer.to_vec())
            .map_err(|error| io::Error::other(format!("no resolver answers: {error}"))),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}
