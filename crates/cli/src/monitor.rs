//! The monitoring port of a client, server or gateway.

use std::sync::Arc;

use serde_json::json;
use sumlink_monitor::{Monitor, Report, Settings, Watched};
use sumlink_transport::{LinkPolicy, LinkReport};
use tokio::sync::broadcast;

use crate::control::{self, ControlSocket, Controlled, LinkChange};
use crate::error::CliError;
use crate::output::Events;

/// Where a program answers questions about itself.
#[derive(Debug)]
pub(crate) struct Reporting {
    control: Option<ControlSocket>,
    monitor: Option<Monitor>,
}

impl Reporting {
    /// Opens the control socket and the monitoring port, if they are configured.
    pub(crate) async fn open(
        control: Option<&std::path::Path>,
        monitor: Option<Settings>,
        events: &Events,
    ) -> Result<Self, CliError> {
        let control = control.map(ControlSocket::bind).transpose()?;
        Self::with(control, monitor, events).await
    }

    /// The same with a control socket that is open.
    pub(crate) async fn with(
        control: Option<ControlSocket>,
        monitor: Option<Settings>,
        events: &Events,
    ) -> Result<Self, CliError> {
        let Some(settings) = monitor else {
            let monitor = None;
            return Ok(Self { control, monitor });
        };
        let monitor = Monitor::bind(settings).await?;
        let address = monitor.local_addr()?;
        tracing::info!(%address, "status page and metrics");
        events.emit(&json!({ "event": "monitoring", "address": address }));
        let monitor = Some(monitor);
        Ok(Self { control, monitor })
    }

    /// Answers without end. The control socket stays until `self` is dropped.
    pub(crate) async fn answer(&mut self, program: impl Controlled) {
        let (control, monitor) = (&self.control, self.monitor.take());
        let control = async {
            match control {
                Some(control) => control.serve(program.clone()).await,
                None => std::future::pending().await,
            }
        };
        let monitor = async {
            match monitor {
                Some(monitor) => monitor.serve(Watching(program.clone())).await,
                None => std::future::pending().await,
            }
        };
        tokio::join!(control, monitor);
    }
}

/// A program at its monitoring port.
struct Watching<C>(C);

impl<C: Controlled> Watched for Watching<C> {
    async fn report(&self) -> Report {
        control::report(&self.0).await
    }

    async fn set_link(
        &self,
        name: String,
        policy: Option<LinkPolicy>,
    ) -> Result<LinkReport, String> {
        let change = LinkChange {
            policy,
            keep: false,
        };
        let changed = self.0.link(name, Some(change)).await;
        changed.map_err(|refusal| refusal.error)
    }

    fn events(&self) -> broadcast::Receiver<Arc<str>> {
        let events = self.0.events();
        events.unwrap_or_else(|| broadcast::channel(1).1)
    }
}
