//! The facts that rules need beyond addresses: users, control groups and hardware addresses.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use nix::unistd::{Uid, User};
use sumlink_exit::sock_diag;
use sumlink_proxy::Origin;
use tracing::debug;

use super::cgroups::Cgroups;
use super::neighbors::Neighbors;
use crate::rules::{Mac, Protocol};

/// Most users with a remembered name.
const MAX_USERS: usize = 1024;

/// The owner of a socket on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The user id.
    pub uid: u32,
    /// The id of its control group.
    pub cgroup: Option<u64>,
}

/// Looks up the facts that rules need. It is asked only for facts that some rule needs, once for a
/// stream or a flow, and must answer within about a millisecond.
pub trait Inspector: fmt::Debug + Send + Sync + 'static {
    /// The owner of the socket of this machine that sends from `source` to `remote`.
    fn owner(&self, protocol: Protocol, source: SocketAddr, remote: SocketAddr) -> Option<Owner>;

    /// The name of a user.
    fn user_name(&self, uid: u32) -> Option<Arc<str>>;

    /// The path of a control group.
    fn cgroup_path(&self, id: u64) -> Option<Arc<str>>;

    /// The hardware address of a machine on the same network.
    fn mac(&self, ip: IpAddr) -> Option<Mac>;
}

/// The owner of the program's socket. A program that speaks to an entry is connected to it, and not
/// to the remote; a SOCKS5 program has a TCP connection also for its datagrams.
pub(super) fn owner(
    inspector: &dyn Inspector,
    protocol: Protocol,
    origin: &Origin,
    remote: Option<SocketAddr>,
) -> Option<Owner> {
    let source = origin.source;
    match origin.entry {
        Some(entry) => {
            let connected = inspector.owner(Protocol::Tcp, source, entry);
            connected.or_else(|| match protocol {
                Protocol::Udp => inspector.owner(Protocol::Udp, source, entry),
                Protocol::Tcp | Protocol::Icmp => None,
            })
        }
        None => inspector.owner(protocol, source, remote?),
    }
}

/// Asks the kernel and the user database of this machine.
#[derive(Debug)]
pub struct SystemInspector {
    cgroups: Cgroups,
    neighbors: Neighbors,
    users: Mutex<HashMap<u32, Option<Arc<str>>>>,
}

impl SystemInspector {
    /// An inspector that follows the neighbor table from now on. Must be called within a tokio
    /// runtime.
    pub fn new() -> Self {
        Self {
            cgroups: Cgroups::default(),
            neighbors: Neighbors::follow(),
            users: Mutex::default(),
        }
    }
}

impl Default for SystemInspector {
    fn default() -> Self {
        Self::new()
    }
}

impl Inspector for SystemInspector {
    fn owner(&self, protocol: Protocol, source: SocketAddr, remote: SocketAddr) -> Option<Owner> {
        let protocol = match protocol {
            Protocol::Tcp => sock_diag::Protocol::Tcp,
            Protocol::Udp => sock_diag::Protocol::Udp,
            Protocol::Icmp => return None,
        };
        let report = sock_diag::find(protocol, source, remote);
        let report = report
            .inspect_err(|error| debug!(%source, %error, "the owner of a socket is unknown"))
            .ok()?;
        Some(Owner {
            uid: report.uid,
            cgroup: report.cgroup,
        })
    }

    fn user_name(&self, uid: u32) -> Option<Arc<str>> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = users.get(&uid) {
            return known.clone();
        }
        let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
        let name = user.map(|user| Arc::from(user.name));
        if users.len() >= MAX_USERS {
            users.clear();
        }
        users.insert(uid, name.clone());
        name
    }

    fn cgroup_path(&self, id: u64) -> Option<Arc<str>> {
        self.cgroups.path(id)
    }

    fn mac(&self, ip: IpAddr) -> Option<Mac> {
        self.neighbors.mac(ip)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use nix::unistd::{geteuid, getuid};

    use super::*;

    #[tokio::test]
    async fn a_connection_of_this_program_is_found_with_its_user() {
        let inspector = SystemInspector::new();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (source, remote) = (own.local_addr().unwrap(), own.peer_addr().unwrap());
        let Some(owner) = inspector.owner(Protocol::Tcp, source, remote) else {
            eprintln!("skipped: the kernel does not report sockets");
            return;
        };
        assert_eq!(owner.uid, geteuid().as_raw());
        let origin = Origin::at_entry(source, remote);
        // Datagrams of a SOCKS5 program belong to its connection.
        let by_entry = super::owner(&inspector, Protocol::Udp, &origin, None);
        assert_eq!(by_entry, Some(owner));
        let name = User::from_uid(getuid()).unwrap().map(|user| user.name);
        assert_eq!(inspector.user_name(owner.uid).as_deref(), name.as_deref());
        if let Some(id) = owner.cgroup
            && let Some(path) = inspector.cgroup_path(id)
        {
            assert!(path.starts_with('/'), "{path}");
        }
    }
}
