//! A running gateway at its control socket.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use serde_json::{Value, json};
use sumlink_dns::Forwarder;
use sumlink_gateway::kernel::{self, Capture, Conntrack};
use sumlink_gateway::rules::{Keep, Protocol, Rule, RuleError};
use sumlink_proxy::{Origin, Target};
use sumlink_transport::{Client, LinkReport};
use sumlink_tun::StatsHandle;
use tokio::sync::{Notify, broadcast, watch};

use super::route::Tested;
use super::router::GatewayRouter;
use crate::client;
use crate::control::{
    Controlled, LinkChange, Refusal, RefusalKind, Report, RouteRequest, Stopping,
};
use crate::output::Events;

/// The parts of a gateway that control requests read.
#[derive(Clone)]
pub(super) struct Running {
    pub(super) session: watch::Receiver<Option<Client>>,
    pub(super) server: String,
    /// Why no session could be made yet.
    pub(super) failure: watch::Receiver<Option<String>>,
    pub(super) router: GatewayRouter,
    pub(super) forwarder: Option<Forwarder>,
    pub(super) device: StatsHandle,
    pub(super) kernel: kernel::Settings,
    pub(super) capture: Capture,
    /// Notified when the gateway must end.
    pub(super) stop: Arc<Notify>,
    pub(super) events: Events,
}

impl Controlled for Running {
    async fn report(&self) -> Report {
        let mut report = self.client().report().await;
        report.gateway = Some(self.status());
        report
    }

    fn events(&self) -> Option<broadcast::Receiver<Arc<str>>> {
        self.client().events()
    }

    async fn link(&self, name: String, change: Option<LinkChange>) -> Result<LinkReport, Refusal> {
        self.client().link(name, change).await
    }

    async fn route(&self, asked: RouteRequest) -> Result<Value, Refusal> {
        let rules = self.router.rules();
        match asked {
            RouteRequest::List {} => {}
            RouteRequest::Add { rule, keep } => {
                let rule: Rule = rule.parse().map_err(usage)?;
                let text = rule.to_string();
                let keep = if keep { Keep::Yes } else { Keep::No };
                rules.add(rule, keep).map_err(usage)?;
                tracing::info!(rule = %text, "routing rule added");
            }
            RouteRequest::Remove { id } => {
                let removed = rules.remove(id).map_err(usage)?;
                tracing::info!(rule = %removed, "routing rule removed");
            }
            RouteRequest::Test {
                host,
                port,
                protocol,
                from,
            } => {
                let protocol: Protocol = protocol.parse().map_err(usage)?;
                let target = Target::new(&host, port).map_err(|error| Refusal {
                    error: format!("`{host}`: {error}"),
                    kind: RefusalKind::Usage,
                })?;
                return value(self.test(protocol, &target, from));
            }
        }
        value(rules.list())
    }

    fn stop(&self) -> Result<Stopping, Refusal> {
        self.stop.notify_one();
        let stopping = std::process::id();
        Ok(Stopping { stopping })
    }
}

impl Running {
    /// The client's answers.
    fn client(&self) -> client::Running {
        client::Running {
            session: self.session.clone(),
            server: self.server.clone(),
            failure: self.failure.clone(),
            events: self.events.clone(),
        }
    }

    fn status(&self) -> Value {
        json!({
            "device": self.kernel.device.name,
            "capture": match self.capture {
                Capture::Nftables => "nftables",
                Capture::Tun => "tun",
            },
            "host": self.kernel.host,
            "lan": self.kernel.lan,
            "without_bond": match self.kernel.without_bond {
                kernel::WithoutBond::Block => "block",
                kernel::WithoutBond::Direct => "direct",
            },
            "rules": self.router.rules().list().len(),
            "routes": self.router.stats(),
            "tun": self.device.stats(),
            "dns": self.forwarder.as_ref().map(Forwarder::statistics),
            "connection_table_full": Conntrack::read().is_some_and(Conntrack::is_nearly_full),
        })
    }

    fn test(&self, protocol: Protocol, target: &Target, from: Option<IpAddr>) -> Tested {
        if let (None, Some(reason)) = (from, self.bypass(target)) {
            return Tested {
                action: "bypass".to_owned(),
                rule: None,
                reason,
            };
        }
        let origin = from.map(|ip| Origin::lan(SocketAddr::new(ip, 0)));
        let decision = self.router.decide(protocol, target, origin);
        Tested {
            action: decision.action.to_string(),
            rule: decision.rule.map(|rule| rule.id),
            reason: decision.reason,
        }
    }

    /// The reason why this machine's packets to the target bypass the gateway, if they do.
    fn bypass(&self, target: &Target) -> Option<String> {
        if !self.kernel.host {
            return Some("the gateway does not capture this machine".to_owned());
        }
        let sumlink_transport::target::Host::Ip(ip) = target.host else {
            return None;
        };
        let any: IpAddr = match ip {
            IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        // The kernel chooses the route of a connected socket; nothing is sent.
        let socket = UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
        socket
            .connect(SocketAddr::new(ip, target.port.max(1)))
            .ok()?;
        let source = socket.local_addr().ok()?.ip();
        let device = &self.kernel.device;
        let is_captured =
            source == IpAddr::from(device.ipv4) || source == IpAddr::from(device.ipv6);
        (!is_captured).then(|| {
            format!("the routing table has a route of its own for {ip} (source address {source})")
        })
    }
}

fn usage(error: RuleError) -> Refusal {
    Refusal {
        error: error.to_string(),
        kind: RefusalKind::Usage,
    }
}

fn value(answer: impl serde::Serialize) -> Result<Value, Refusal> {
    serde_json::to_value(answer).map_err(|error| Refusal {
        error: error.to_string(),
        kind: RefusalKind::Other,
    })
}
