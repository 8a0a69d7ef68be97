//! Keeps the changes in place while the gateway runs.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use rtnetlink::sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE};
use rtnetlink::sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket};
use tokio::time::{Instant, sleep, sleep_until};

use super::apply::{Applied, Steps};
use super::error::KernelError;
use super::nft;
use super::vpn::{Reported, Vpn, other_vpns};

impl Applied {
    /// Follows the kernel's changes: updates routes to a LAN when its addresses change, and
    /// restores changes that other programs removed. Network managers delete unknown rules, and a
    /// firewall deletes all tables when it reloads.
    ///
    /// Changes come in bursts. Each burst is answered once, 5 ms after its start and at least 100
    /// ms after the burst before. A failed answer is repeated with the next change, and after 2 s.
    ///
    /// Runs until it is dropped, which is safe at any time.
    ///
    /// # Errors
    ///
    /// [`KernelError::System`] if the kernel does not report changes.
    pub async fn follow(&mut self) -> Result<Infallible, KernelError> {
        let mut watch = Watch::new().map_err(KernelError::system("watch the routes"))?;
        let mut answer = Answer::All;
        let mut not_before = Instant::now();
        loop {
            let mut next = Answer::Nothing;
            match self.restore(answer).await {
                Ok(()) => {}
                Err(error) => {
                    tracing::warn!("{error}");
                    next = Answer::All;
                }
            }
            let changed = watch.changed();
            let seen = match next {
                Answer::Nothing => changed.await,
                _ => tokio::select! {
                    changed = changed => changed,
                    () = sleep(RETRY) => Ok(Answer::All),
                },
            };
            next = next.max(seen.map_err(KernelError::system("watch the routes"))?);
            sleep_until(not_before.max(Instant::now() + GATHER)).await;
            next = next.max(watch.drain());
            not_before = Instant::now() + PAUSE;
            answer = next;
        }
    }

    /// Adds missing entries and deletes those no longer planned. If one part fails, the others are
    /// restored nevertheless.
    pub(super) async fn restore(&mut self, answer: Answer) -> Result<(), KernelError> {
        let facts = self.update_facts().await;
        if facts.is_ok() {
            self.follow_lan();
        }
        let sysctls = self.follow_sysctls();
        let routes = self.restore_routing(&mut Steps::default()).await;
        let table = match facts.is_ok() && self.follow_networks() {
            false => self.follow_table(answer).await,
            true => self.load_table(&mut Steps::default()).await,
        };
        let rules = self.restore_rules(&mut Steps::default()).await;
        if let Ok(true) = rules {
            tracing::warn!("another program has deleted rules of the gateway; added again");
        }
        if facts.is_ok() {
            self.report_vpns();
        }
        facts.and(sysctls).and(routes).and(table).and(rules)?;
        self.remove_obsolete().await
    }

    /// Loads the firewall table again if it has changed since it was loaded.
    async fn follow_table(&mut self, answer: Answer) -> Result<(), KernelError> {
        if answer == Answer::All && self.plan.table.is_some() {
            let listed = nft::listing().await;
            let listed = listed.map_err(KernelError::system("list the firewall table"))?;
            if listed != self.listing {
                tracing::warn!("another program has changed the firewall table; loading it again");
                self.load_table(&mut Steps::default()).await?;
            }
        }
        Ok(())
    }

    /// Sets the parameters again: a re-created interface has the default values.
    fn follow_sysctls(&mut self) -> Result<(), KernelError> {
        let known = self.state.changed.len();
        self.remember_sysctls()?;
        if self.state.changed.len() > known {
            self.state.write(self.lock.state())?;
        }
        for sysctl in &self.plan.sysctls {
            match sysctl.write() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                written => written.map_err(KernelError::system(sysctl.to_string()))?,
            }
        }
        Ok(())
    }

    /// Reports VPNs that have got or lost the default route since the last call. The gateway keeps
    /// its rules: one of the two programs would otherwise fight the other for the first place.
    fn report_vpns(&mut self) {
        let plan = &self.plan;
        let last = plan.rules.iter().map(|rule| rule.preference).max();
        let behind_ours = last.map_or(0, |last| last + 1);
        let mut now: Vec<Reported> = Vec::new();
        for vpn in other_vpns(&plan.settings, &self.facts, plan.touched(), behind_ours) {
            let takes_all = vpn.rule.is_some_and(|rule| rule.preference < behind_ours);
            let Vpn { device, origin, .. } = vpn;
            let reported = Reported { device, takes_all };
            if now.contains(&reported) {
                continue;
            }
            let device = &reported.device;
            match (self.vpns.contains(&reported), takes_all) {
                (true, _) => {}
                (false, true) => tracing::warn!(
                    "another VPN has taken the default route from the gateway (device {device}, \
                     {origin}): connections use it, not the bond; stop it, or set over_vpn = true \
                     and start the gateway again"
                ),
                (false, false) => tracing::warn!(
                    "another VPN has added a default route (device {device}, {origin}), which has \
                     no effect while the gateway runs: connections use the bond"
                ),
            }
            now.push(reported);
        }
        for Reported { device, .. } in &self.vpns {
            if !now.iter().any(|vpn| vpn.device == *device) {
                tracing::info!("the VPN on {device} no longer has a default route");
            }
        }
        self.vpns = now;
    }
}

/// The response that a change requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Answer {
    Nothing,
    /// Rules and routes are compared.
    Routing,
    /// The firewall table, too, for which `nft` is started.
    All,
}

/// Time over which a burst of changes is collected.
const GATHER: Duration = Duration::from_millis(5);

/// Minimum time between two answers.
const PAUSE: Duration = Duration::from_millis(100);

/// Time after which a failed answer is repeated.
const RETRY: Duration = Duration::from_secs(2);

/// Maximum number of messages read in one go.
const DRAIN_LIMIT: usize = 4096;

/// Groups of `linux/rtnetlink.h`; the last is the bit of `RTNLGRP_IPV6_RULE`.
const GROUPS: u32 = (libc::RTMGRP_LINK
    | libc::RTMGRP_IPV4_IFADDR
    | libc::RTMGRP_IPV6_IFADDR
    | libc::RTMGRP_IPV4_ROUTE
    | libc::RTMGRP_IPV6_ROUTE
    | libc::RTMGRP_IPV4_RULE) as u32
    | 1 << (libc::RTNLGRP_IPV6_RULE - 1);

/// `NFNLGRP_NFTABLES` of `linux/netfilter/nfnetlink.h`.
const NFTABLES_GROUP: u32 = 7;

/// Subscriptions to the kernel's changes.
struct Watch {
    routing: TokioSocket,
    /// `None` if the kernel has no nftables.
    firewall: Option<TokioSocket>,
}

impl Watch {
    fn new() -> io::Result<Self> {
        let mut routing = TokioSocket::new(NETLINK_ROUTE)?;
        routing.socket_mut().bind(&SocketAddr::new(0, GROUPS))?;
        Ok(Self {
            routing,
            firewall: subscribe_to_firewall().ok(),
        })
    }

    /// Waits for a change.
    async fn changed(&mut self) -> io::Result<Answer> {
        let Some(firewall) = &mut self.firewall else {
            is_message(self.routing.recv(&mut &mut [0; 16][..]).await)?;
            return Ok(Answer::Routing);
        };
        let (mut first, mut second) = ([0; 16], [0; 16]);
        let (mut first, mut second) = (&mut first[..], &mut second[..]);
        let (seen, answer) = tokio::select! {
            seen = self.routing.recv(&mut first) => (seen, Answer::Routing),
            seen = firewall.recv(&mut second) => (seen, Answer::All),
        };
        is_message(seen)?;
        Ok(answer)
    }

    /// Reads the rest of a burst.
    fn drain(&self) -> Answer {
        let mut answer = Answer::Nothing;
        let sockets = [
            (Some(&self.routing), Answer::Routing),
            (self.firewall.as_ref(), Answer::All),
        ];
        for (socket, meaning) in sockets {
            let Some(socket) = socket else { continue };
            for _ in 0..DRAIN_LIMIT {
                let seen = socket
                    .socket_ref()
                    .recv(&mut &mut [0; 16][..], libc::MSG_DONTWAIT);
                match is_message(seen.map(drop)) {
                    Ok(true) => answer = answer.max(meaning),
                    // A broken subscription is reported by the next wait.
                    Ok(false) | Err(_) => break,
                }
            }
        }
        answer
    }
}

fn subscribe_to_firewall() -> io::Result<TokioSocket> {
    let mut socket = TokioSocket::new(NETLINK_NETFILTER)?;
    socket.socket_mut().bind_auto()?;
    socket.socket_mut().add_membership(NFTABLES_GROUP)?;
    Ok(socket)
}

/// Whether a message arrived, or the kernel reported a dropped one: those were changes, too.
fn is_message(received: io::Result<()>) -> io::Result<bool> {
    match received {
        Ok(()) => Ok(true),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOBUFS | libc::EINTR) => Ok(true),
            Some(libc::EAGAIN) => Ok(false),
            _ => Err(error),
        },
    }
}
