//! `sumlink client`: one session, kept up until a signal ends it, and its local entries.

use std::cell::Cell;
use std::io;
use std::sync::Arc;

use serde_json::json;
use sumlink_engine::scheduler::OwnSchedulers;
use sumlink_proxy::{
    ClassRule, ConnectionLimit, DatagramOpener, Listener, Opener, SourceLimit, UdpForward,
    UdpForwarder,
};
use sumlink_transport::config::ClientConfig;
use sumlink_transport::links::is_service;
use sumlink_transport::{Client, LinkReport};
use tokio::sync::{broadcast, watch};

use crate::args::ClientArgs;
use crate::config::{ClientPlan, Entrance};
use crate::control::{Controlled, LinkChange, Refusal, RefusalKind, Report};
use crate::error::CliError;
use crate::monitor::Reporting;
use crate::opener::Bond;
use crate::output::Events;
use crate::signals::Stop;

/// Runs the verb until a signal ends it. Flags and file can name the schedulers of the engine and
/// of `own`.
pub async fn run(args: ClientArgs, own: OwnSchedulers) -> Result<(), CliError> {
    let events = Events::new(args.json)?;
    events.end(carry(args, &own, &events).await)
}

async fn carry(args: ClientArgs, own: &OwnSchedulers, events: &Events) -> Result<(), CliError> {
    let plan = ClientPlan::start(args, own)?;
    let mut stop = Stop::new()?;
    // Failures of this machine are found before any use of the network.
    let mut reporting =
        Reporting::open(plan.control.as_deref(), plan.monitor.clone(), events).await?;
    if plan.gateway.is_some() {
        tracing::warn!("the file's [gateway] is not used: sumlink up starts a gateway");
    }
    let entries = Entries::bind(&plan, &Limits::of(&plan)).await?;

    let server = plan.config.server.clone();
    let (slot, session) = watch::channel(None);
    let following = Cell::new(None);
    let answering = reporting.answer(Running {
        session,
        server: server.clone(),
        // A client that makes no first session ends with the reason.
        failure: watch::channel(None).1,
        events: events.clone(),
    });
    let serving = async {
        let client = Client::connect(plan.config.clone()).await?;
        following.set(Some(events.follow(client.events())));
        report_connected(&client.server(), &plan.config, events);
        let bond = Bond {
            client: client.clone(),
            early: plan.early,
        };
        entries.serve(&bond, events);
        slot.send_replace(Some(client.clone()));
        // The client reconnects a lost session; this is the end of all attempts.
        Err(io::Error::other(client.closed().await).into())
    };
    tokio::select! {
        failed = serving => return failed,
        () = answering => return Ok(()),
        name = stop.next() => tracing::info!("{name}: closing the session"),
    }
    let client = slot.borrow().clone();
    if let Some(client) = client {
        stop.graceful(client.close()).await?;
    }
    if let Some(following) = following.take() {
        following.end().await;
    }
    events.emit(&json!({ "event": "stopped" }));
    Ok(())
}

/// Logs the first session and emits its event.
pub(crate) fn report_connected(server: &str, config: &ClientConfig, events: &Events) {
    let find = |is_it: &dyn Fn(&str) -> bool| config.servers().find(|(name, _)| is_it(name));
    // A server that the DNS lists has the key of the entry.
    let key = find(&|name| name == server).or_else(|| find(&is_service));
    let server_key = key.map_or(config.server_key, |(_, key)| key);
    tracing::info!(%server, %server_key, "connected");
    events.emit(&json!({
        "event": "connected", "server": server, "server_key": server_key,
        "public_key": config.key.public(),
    }));
}

/// A running client at its control socket and its monitoring port.
#[derive(Clone)]
pub(crate) struct Running {
    /// The client, once it has connected.
    pub(crate) session: watch::Receiver<Option<Client>>,
    pub(crate) server: String,
    /// Why no first session could be made yet.
    pub(crate) failure: watch::Receiver<Option<String>>,
    pub(crate) events: Events,
}

impl Running {
    fn client(&self) -> Option<Client> {
        self.session.borrow().clone()
    }
}

/// The note of a client without a session.
fn connecting(server: &str, failure: Option<&str>) -> String {
    match failure {
        Some(reason) => format!("connecting to {server}: {reason}"),
        None => format!("connecting to {server}"),
    }
}

impl Controlled for Running {
    async fn report(&self) -> Report {
        let Some(client) = self.client() else {
            let connecting = connecting(&self.server, self.failure.borrow().as_deref());
            return Report::new("client", connecting, Vec::new());
        };
        let connecting = connecting(&client.server(), client.failure().as_deref());
        let status = client.status().await;
        let note = if status.session.is_empty() {
            connecting
        } else if status.paths.iter().all(|path| path.state != "active") {
            "no path delivers; streams wait, and the session ends unless a path recovers in time"
                .to_owned()
        } else {
            String::new()
        };
        let (totals, policies) = (client.totals(&status), client.links(&status));
        Report {
            totals,
            policies,
            ..Report::new("client", note, vec![status])
        }
    }

    fn events(&self) -> Option<broadcast::Receiver<Arc<str>>> {
        Some(self.events.subscribe())
    }

    async fn link(&self, name: String, change: Option<LinkChange>) -> Result<LinkReport, Refusal> {
        let Some(client) = self.client() else {
            return Err(Refusal {
                error: "the client has not connected yet".to_owned(),
                kind: RefusalKind::Other,
            });
        };
        Ok(match change {
            None => client.link(&name).await?,
            Some(change) => {
                client
                    .set_link_policy(&name, change.policy, change.keep)
                    .await?
            }
        })
    }
}

/// Limits and classes that all entries share.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) connections: ConnectionLimit,
    pub(crate) sources: SourceLimit,
    pub(crate) classes: Arc<[ClassRule]>,
}

impl Limits {
    /// Those of a configuration.
    pub(crate) fn of(plan: &ClientPlan) -> Self {
        let connections = plan.max_connections.map(ConnectionLimit::new);
        Self {
            connections: connections.unwrap_or_default(),
            sources: SourceLimit::default(),
            classes: plan.classes.clone().into(),
        }
    }

    /// A listener within these limits.
    pub(crate) fn apply(&self, listener: Listener) -> Listener {
        listener
            .with_classes(Arc::clone(&self.classes))
            .with_limit(self.connections.clone())
            .with_sources(self.sources.clone())
    }
}

/// Local ports, bound but not served until the session is up.
pub(crate) struct Entries {
    /// Listeners with their names in events.
    listeners: Vec<(&'static str, Listener)>,
    /// Forwards of datagrams.
    forwarders: Vec<UdpForwarder>,
}

impl Entries {
    pub(crate) async fn bind(plan: &ClientPlan, limits: &Limits) -> Result<Self, CliError> {
        let (mut listeners, mut forwarders) = (Vec::new(), Vec::new());
        for entry in &plan.entries {
            match &entry.service {
                Entrance::Tcp(service) => {
                    let listener = Listener::bind(entry.address, service.clone()).await?;
                    listeners.push((entry.word, limits.apply(listener)));
                }
                Entrance::Udp(target) => {
                    let forward = UdpForward {
                        listen: entry.address,
                        target: target.clone(),
                    };
                    let forwarder = UdpForwarder::bind(forward)?
                        .with_sources(limits.sources.clone())
                        .with_classes(Arc::clone(&limits.classes));
                    forwarders.push(forwarder);
                }
            }
        }
        Ok(Self {
            listeners,
            forwarders,
        })
    }

    /// Serves until the runtime ends.
    pub(crate) fn serve<O: Opener + DatagramOpener>(self, bond: &O, events: &Events) {
        for (word, listener) in self.listeners {
            let address = listener.local_addr();
            events.emit(&json!({ "event": "listening", "service": word, "address": address }));
            let serving = listener.serve_with_datagrams(bond.clone(), std::future::pending());
            tokio::spawn(serving);
        }
        for forwarder in self.forwarders {
            let address = forwarder.local_addr();
            events.emit(
                &json!({ "event": "listening", "service": "udp_forward", "address": address }),
            );
            tokio::spawn(forwarder.serve(bond.clone(), std::future::pending()));
        }
    }
}
