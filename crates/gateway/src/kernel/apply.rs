//! Makes the changes of a plan, and removes them.

use std::fmt::Display;
use std::io;
use std::path::Path;

use rtnetlink::packet_route::route::RouteMessage;
use rtnetlink::packet_route::rule::RuleMessage;

use super::TABLE_LAN;
use super::error::KernelError;
use super::facts::Facts;
use super::netlink::Netlink;
use super::nft;
use super::plan::{self, Plan};
use super::refusal::Refusal;
use super::remove::{Cleaned, our_routes, our_rules, remove};
use super::routing::{Route, Rule};
use super::settings::Settings;
use super::state::{Lock, State};
use super::sysctl::{self, Sysctl};
use super::vpn::{self, Reported};

/// The lock of this network namespace's gateway, and the state of the system.
///
/// The leftovers of a killed gateway stay until [`Prepared::apply`] replaces them, so that its kill
/// switch has no gap. If no plan is applied, they stay; [`Prepared::remove`] removes them.
#[derive(Debug)]
pub struct Prepared {
    lock: Lock,
    facts: Facts,
    netlink: Netlink,
}

impl Prepared {
    /// Takes the lock beside the state file and collects the facts. The TUN device must not exist
    /// yet.
    ///
    /// # Errors
    ///
    /// [`KernelError::AlreadyRunning`], and failures of files and netlink.
    pub async fn new(state: &Path, settings: &Settings) -> Result<Self, KernelError> {
        let lock = Lock::acquire(state)?;
        let facts = Facts::collect().await?;
        // The device vanishes with its process, so a device with our rules belongs to a gateway
        // that has its lock elsewhere.
        let has_rules = facts.rules.iter().any(|rule| rule.is_ours);
        if has_rules && facts.device(&settings.device.name).is_some() {
            return Err(KernelError::AlreadyRunning { pid: None });
        }
        let netlink = Netlink::open().map_err(KernelError::system("ask the kernel"))?;
        Ok(Self {
            lock,
            facts,
            netlink,
        })
    }

    /// The facts.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Plans the start; see [`Plan::new`].
    pub fn plan(&self, settings: &Settings) -> Result<Plan, Refusal> {
        Plan::new(settings, &self.facts)
    }

    /// Makes all changes, or none. The TUN device and the listeners must exist.
    ///
    /// # Errors
    ///
    /// The first change that failed; those before it are undone.
    pub async fn apply(self, plan: Plan) -> Result<Applied, KernelError> {
        self.apply_with(plan, Steps::default()).await
    }

    pub(super) async fn apply_with(
        self,
        plan: Plan,
        mut steps: Steps,
    ) -> Result<Applied, KernelError> {
        let mut applied = Applied {
            lock: self.lock,
            facts: self.facts,
            netlink: self.netlink,
            vpns: vpn::overridden(&plan.warnings),
            plan,
            state: State::new(""),
            listing: None,
        };
        match applied.start(&mut steps).await {
            Ok(()) => Ok(applied),
            Err(error) => Err(applied.roll_back(error).await),
        }
    }

    /// Removes the leftovers of a killed gateway.
    ///
    /// # Errors
    ///
    /// [`KernelError::Left`] names the changes that could not be removed.
    pub async fn remove(self) -> Result<Cleaned, KernelError> {
        remove(&self.netlink, &self.lock).await
    }
}

/// A gateway's changes to the kernel. They stay when this is dropped; then [`super::clean`] removes
/// them.
#[derive(Debug)]
pub struct Applied {
    pub(super) lock: Lock,
    /// The state of the system; [`Applied::follow`] updates interfaces, rules and routes.
    pub(super) facts: Facts,
    pub(super) netlink: Netlink,
    pub(super) plan: Plan,
    /// Other VPNs that have been reported.
    pub(super) vpns: Vec<Reported>,
    pub(super) state: State,
    /// The firewall table as nft showed it after it was loaded.
    pub(super) listing: Option<String>,
}

impl Applied {
    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Removes all changes.
    ///
    /// # Errors
    ///
    /// [`KernelError::Left`] names the changes that could not be removed; the rest is.
    pub async fn remove(self) -> Result<Cleaned, KernelError> {
        remove(&self.netlink, &self.lock).await
    }

    async fn start(&mut self, steps: &mut Steps) -> Result<(), KernelError> {
        let device = self.plan.settings.device.clone();
        let path = self.lock.state().to_owned();
        self.state = State::read(&path).unwrap_or_else(|| State::new(&device.name));
        self.state.pid = std::process::id();
        self.state.device.clone_from(&device.name);
        // The file comes first, so that the changes of a killed process can always be undone.
        self.remember_sysctls()?;
        self.state.write(&path)?;
        let (forwarding, others): (Vec<Sysctl>, Vec<Sysctl>) = {
            let all = self.plan.sysctls.iter().cloned();
            all.partition(Sysctl::is_forwarding)
        };
        for sysctl in others {
            steps.run(&sysctl, async || sysctl.write()).await?;
        }
        for sysctl in &self.plan.niceties {
            if let Err(error) = sysctl.write() {
                tracing::debug!(%error, "{sysctl}");
            }
        }
        for address in self.plan.addresses.clone() {
            let step = format!("ip address add {address} dev {}", device.name);
            let add = async || self.netlink.add_address(&device.name, address).await;
            steps.run(step, add).await?;
        }
        let step = format!("ip link set {} mtu {} up", device.name, device.mtu);
        let up = async || self.netlink.bring_up(&device.name, device.mtu).await;
        steps.run(step, up).await?;
        self.restore_routing(steps).await?;
        self.load_table(steps).await?;
        self.restore_rules(steps).await?;
        for sysctl in forwarding {
            steps.run(&sysctl, async || sysctl.write()).await?;
        }
        self.remove_obsolete().await?;
        self.check_carriers().await
    }

    /// Undoes a start.
    async fn roll_back(self, error: KernelError) -> KernelError {
        let removed = remove(&self.netlink, &self.lock).await;
        match (error, removed) {
            (error, Ok(_)) => error,
            (KernelError::Step { step, source }, Err(KernelError::Left(left))) => {
                KernelError::NotRolledBack { step, source, left }
            }
            (error, Err(second)) => {
                tracing::warn!("{second}");
                error
            }
        }
    }

    /// Records the values that the plan changes.
    pub(super) fn remember_sysctls(&mut self) -> Result<(), KernelError> {
        let read = |path: &str| {
            let value = Sysctl::read(path);
            value.map_err(KernelError::system(format!("read {path}")))
        };
        for sysctl in &self.plan.sysctls {
            let Some(now) = read(&sysctl.path)? else {
                continue;
            };
            for path in sysctl::implied(&sysctl.path) {
                if let Some(now) = read(&path)? {
                    self.state.remember(Sysctl::new(path, &now), None);
                }
            }
            if now != sysctl.value {
                let before = Sysctl::new(sysctl.path.clone(), &now);
                self.state.remember(before, Some(&sysctl.value));
            }
        }
        Ok(())
    }

    /// Adds the routes that are missing; returns whether there were any.
    pub(super) async fn restore_routing(&self, steps: &mut Steps) -> Result<bool, KernelError> {
        let mut has_added = false;
        let present = self.our_routes().await?;
        for route in &self.plan.routes {
            if present.iter().any(|(there, _)| there.is_same(route)) {
                continue;
            }
            steps
                .run(route, async || self.netlink.add_route(route).await)
                .await?;
            has_added = true;
        }
        Ok(has_added)
    }

    /// Loads the firewall table, in place of the one that exists.
    pub(super) async fn load_table(&mut self, steps: &mut Steps) -> Result<(), KernelError> {
        let Some(table) = &self.plan.table else {
            return Ok(());
        };
        let commands = table.to_json();
        let step = format!("nft add table inet {}", super::NFT_TABLE);
        steps.run(step, async || nft::load(&commands).await).await?;
        let listed = nft::listing().await;
        self.listing = listed.map_err(KernelError::system("list the firewall table"))?;
        Ok(())
    }

    /// Adds the rules that are missing; returns whether there were any.
    pub(super) async fn restore_rules(&self, steps: &mut Steps) -> Result<bool, KernelError> {
        let mut has_added = false;
        let present = self.our_rules().await?;
        for rule in &self.plan.rules {
            if present.iter().any(|(there, _)| there == rule) {
                continue;
            }
            steps
                .run(rule, async || self.netlink.add_rule(rule).await)
                .await?;
            has_added = true;
        }
        Ok(has_added)
    }

    /// Deletes rules and routes of ours that the plan does not have.
    pub(super) async fn remove_obsolete(&self) -> Result<(), KernelError> {
        for (rule, message) in self.our_rules().await? {
            if !self.plan.rules.contains(&rule) {
                let deleted = self.netlink.delete_rule(message).await;
                deleted.map_err(KernelError::system(format!("delete a rule ({rule})")))?;
            }
        }
        for (route, message) in self.our_routes().await? {
            if !self
                .plan
                .routes
                .iter()
                .any(|planned| planned.is_same(&route))
            {
                let deleted = self.netlink.delete_route(message).await;
                deleted.map_err(KernelError::system(format!("delete a route ({route})")))?;
            }
        }
        Ok(())
    }

    async fn our_routes(&self) -> Result<Vec<(Route, RouteMessage)>, KernelError> {
        our_routes(&self.netlink)
            .await
            .map_err(KernelError::system("list the routes"))
    }

    async fn our_rules(&self) -> Result<Vec<(Rule, RuleMessage)>, KernelError> {
        our_rules(&self.netlink)
            .await
            .map_err(KernelError::system("list the rules"))
    }

    /// Carriers must not enter the bond that they carry.
    pub(super) async fn check_carriers(&self) -> Result<(), KernelError> {
        let settings = &self.plan.settings;
        let asking = || KernelError::system("ask for the route to the server");
        let device = &settings.device.name;
        let index = self.netlink.index(device).await.map_err(asking())?;
        for server in &settings.servers {
            let found = self.netlink.carrier_device(*server).await;
            if found.map_err(asking())? == Some(index) {
                return Err(KernelError::CarriersIntoBond {
                    server: *server,
                    device: device.clone(),
                });
            }
        }
        Ok(())
    }

    /// Lists interfaces, rules and routes again, because something has changed.
    pub(super) async fn update_facts(&mut self) -> Result<(), KernelError> {
        let listed = self.netlink.state().await;
        let (devices, rules, routes) = listed.map_err(KernelError::system("list the routes"))?;
        (self.facts.devices, self.facts.rules, self.facts.routes) = (devices, rules, routes);
        Ok(())
    }

    /// Plans the firewall table again, because the directly connected networks may have changed;
    /// returns whether it differs.
    pub(super) fn follow_networks(&mut self) -> bool {
        if self.plan.table.is_none() || !self.plan.settings.refuses_bound_programs() {
            return false;
        }
        let table = self.plan.table_for(&self.facts.routes);
        let is_changed = self.plan.table != table;
        self.plan.table = table;
        is_changed
    }

    /// Plans the routes to the LAN again, because its addresses may have changed.
    pub(super) fn follow_lan(&mut self) {
        if self.plan.settings.lan.is_empty() {
            return;
        }
        let devices = &self.facts.devices;
        let lan = plan::lan_routes(&self.plan.settings, devices, &self.plan.captured);
        self.plan.routes.retain(|route| route.table != TABLE_LAN);
        self.plan.routes.extend(lan);
    }
}

/// Counts the changes; tests let one of them fail.
#[derive(Debug, Default)]
pub(super) struct Steps {
    pub(super) done: usize,
    /// Number of the change that fails; only tests set it.
    pub(super) failing: Option<usize>,
}

impl Steps {
    async fn run(
        &mut self,
        step: impl Display,
        change: impl AsyncFnOnce() -> io::Result<()>,
    ) -> Result<(), KernelError> {
        let result = match self.failing {
            Some(number) if number == self.done => Err(io::ErrorKind::PermissionDenied.into()),
            _ => change().await,
        };
        self.done += 1;
        result.map_err(|source| KernelError::Step {
            step: step.to_string(),
            source,
        })
    }
}
