//! The client's addresses on the links, which may change.

use std::sync::{Mutex, PoisonError};

use crate::error::LabError;
use crate::netns::NamespaceHandle;
use crate::topology::{self, FIRST_HOST, Kernel};

/// The highest host number of an address; the first one follows it.
const LAST_HOST: u8 = 250;

/// Adds and removes addresses of the client's ends.
#[derive(Debug)]
pub(crate) struct Addresses {
    client: NamespaceHandle,
    kernel: Kernel,
    links: Vec<String>,
    /// The host number of each link's current or last address.
    hosts: Mutex<Vec<u8>>,
}

impl Addresses {
    /// For ends that have their first addresses.
    pub(crate) fn new(client: NamespaceHandle, links: Vec<String>, kernel: Kernel) -> Self {
        Self {
            client,
            kernel,
            hosts: Mutex::new(vec![FIRST_HOST; links.len()]),
            links,
        }
    }

    /// The link's end was recreated, with its first address.
    pub(crate) fn made_anew(&self, link: usize) {
        self.set(link, |_| FIRST_HOST);
    }

    /// Removes all addresses of the link; the carrier stays on.
    pub(crate) fn take(&self, link: usize) -> Result<(), LabError> {
        self.client
            .ip_batch(format!("addr flush dev {}\n", self.links[link]))
    }

    /// Restores the link's last addresses.
    pub(crate) fn give_back(&self, link: usize) -> Result<(), LabError> {
        let host = self.set(link, |host| host);
        self.client.ip_batch(self.batch(link, host))
    }

    /// Makes the link's next addresses different ones.
    pub(crate) fn choose_others(&self, link: usize) {
        self.set(link, |host| match host {
            LAST_HOST => FIRST_HOST,
            host => host + 1,
        });
    }

    /// Replaces the link's addresses by different ones.
    pub(crate) fn renew(&self, link: usize) -> Result<(), LabError> {
        self.choose_others(link);
        let host = self.set(link, |host| host);
        let name = &self.links[link];
        let mut batch = format!("addr flush dev {name}\n{}", self.batch(link, host));
        batch.push_str(&topology::move_endpoint(link, host, name, self.kernel));
        self.client.ip_batch(batch)
    }

    fn batch(&self, link: usize, host: u8) -> String {
        topology::client_addresses(link, host, &self.links[link], self.kernel)
    }

    fn set(&self, link: usize, change: impl FnOnce(u8) -> u8) -> u8 {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts[link] = change(hosts[link]);
        hosts[link]
    }
}
