//! The hardware addresses of the machines on the same networks.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{StreamExt, TryStreamExt};
use rtnetlink::packet_core::NetlinkPayload;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage};
use rtnetlink::{MulticastGroup, new_multicast_connection};
use tokio::task::AbortHandle;
use tracing::warn;

use crate::rules::Mac;

/// Most addresses: an order of magnitude above the kernel's own limit for each family
/// (`net.ipv4.neigh.default.gc_thresh3`, 1024).
const MAX: usize = 16 * 1024;

type Table = Mutex<HashMap<IpAddr, Mac>>;

/// The kernel's neighbor table, as far as it has hardware addresses. It is kept up to date, so that
/// a lookup costs nothing.
#[derive(Debug)]
pub(super) struct Neighbors {
    table: Arc<Table>,
    following: Option<AbortHandle>,
}

impl Neighbors {
    /// Reads the table and follows its changes until dropped. If that is not possible, the table
    /// stays empty.
    pub(super) fn follow() -> Self {
        let table = Arc::new(Table::default());
        let following = Arc::clone(&table);
        let task = tokio::spawn(async move {
            if let Err(error) = follow(&following).await {
                warn!(%error, "cannot read the neighbor table; rules with a MAC will not match");
            }
        });
        Self {
            table,
            following: Some(task.abort_handle()),
        }
    }

    pub(super) fn mac(&self, ip: IpAddr) -> Option<Mac> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.get(&ip.to_canonical()).copied()
    }
}

impl Drop for Neighbors {
    fn drop(&mut self) {
        if let Some(task) = self.following.take() {
            task.abort();
        }
    }
}

async fn follow(table: &Table) -> io::Result<()> {
    let opened = new_multicast_connection(&[MulticastGroup::Neigh]);
    let (connection, handle, mut messages) = opened?;
    tokio::spawn(connection);
    // Changes from now on wait among the messages.
    let mut all = handle.neighbours().get().execute();
    while let Some(neighbor) = all.try_next().await.map_err(io::Error::other)? {
        note(table, &neighbor);
    }
    while let Some((message, _)) = messages.next().await {
        if let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewNeighbour(neighbor)) =
            message.payload
        {
            note(table, &neighbor);
        }
    }
    Ok(())
}

/// Enters an address. One that the kernel forgets stays: the machine keeps its hardware address,
/// and a connection may outlive the kernel's entry.
fn note(table: &Table, neighbor: &NeighbourMessage) {
    let (mut ip, mut mac) = (None, None);
    for attribute in &neighbor.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => {
                ip = Some(IpAddr::from(*v4));
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => {
                ip = Some(IpAddr::from(*v6).to_canonical());
            }
            NeighbourAttribute::LinkLayerAddress(bytes) => {
                mac = bytes.as_slice().try_into().ok().map(Mac);
            }
            _ => {}
        }
    }
    if let (Some(ip), Some(mac)) = (ip, mac) {
        let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
        if table.len() >= MAX && !table.contains_key(&ip) {
            table.clear();
        }
        table.insert(ip, mac);
    }
}
