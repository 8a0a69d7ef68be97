//! `sumlink-edge run`: runs one end of an edge node until a signal ends it.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use sumlink::control::{
    ControlSocket, Controlled, LinkChange, LinkRate, Refusal, RefusalKind, Report,
};
use sumlink::error::CliError;
use sumlink::output::Events;
use sumlink::signals::Stop;
use sumlink_edge_node::{Node, NodeHandle, Notice};
use sumlink_transport::LinkReport;
use tokio::sync::mpsc;

use crate::args::EdgeArgs;
use crate::config::EdgeSettings;
use crate::error::{of_metrics, of_node};
use crate::metrics;
use crate::metrics_server::MetricsServer;

/// Interval of the lines of the trace.
const TRACE: Duration = Duration::from_millis(100);

/// Runs the verb until a signal ends it.
///
/// # Errors
///
/// The configuration is wrong, or the node could not start or continue.
pub async fn run(args: EdgeArgs) -> Result<(), CliError> {
    let events = Events::new(args.json)?;
    events.end(carry(args, &events).await)
}

async fn carry(args: EdgeArgs, events: &Events) -> Result<(), CliError> {
    let settings = EdgeSettings::start(&args)?;
    let mut stop = Stop::new()?;
    let control = settings.control.as_deref();
    let control = control.map(ControlSocket::bind).transpose()?;
    let metrics = match settings.metrics {
        Some(address) => Some(MetricsServer::bind(address).await.map_err(of_metrics)?),
        None => None,
    };
    let trace = args.trace.as_deref().map(TraceFile::create).transpose()?;
    let device = settings.node.tun.name.clone();
    let node = Node::open(settings.node).await.map_err(of_node)?;
    let mut running = node.start().map_err(of_node)?;
    tracing::info!(%device, "the device is up");
    events.emit(&json!({ "event": "ready", "device": device }));
    let handle = running.handle();
    let failed = tokio::select! {
        () = follow(&mut running.notices, events) => true,
        never = answer(control.as_ref(), handle.clone()) => never,
        () = expose(metrics.as_ref(), handle.clone()) => true,
        () = write_trace(trace, handle) => true,
        name = stop.next() => {
            tracing::info!("{name}: removing {device}");
            false
        }
    };
    let status = running.stop().map_err(of_node)?;
    if failed {
        // The node's thread ends only with an error, which has been returned above.
        return Err(std::io::Error::other("the edge node ended unexpectedly").into());
    }
    events.emit(&json!({ "event": "stopped", "status": status }));
    Ok(())
}

/// Emits the node's notices until their channel closes.
async fn follow(notices: &mut mpsc::Receiver<Notice>, events: &Events) {
    while let Some(notice) = notices.recv().await {
        events.emit(&notice);
    }
}

/// Answers at the control socket without end, if there is one.
async fn answer(control: Option<&ControlSocket>, handle: NodeHandle) -> bool {
    let Some(control) = control else {
        return std::future::pending().await;
    };
    control.serve(Running(handle)).await;
    true
}

/// A running node at its control socket.
#[derive(Clone)]
struct Running(NodeHandle);

impl Controlled for Running {
    async fn report(&self) -> Report {
        let status = self.0.status();
        let dead = status.links.iter().all(|link| link.state == "down");
        let note = match dead {
            true => "no link delivers; packets wait".to_owned(),
            false => String::new(),
        };
        let mut report = Report::new("edge", note, Vec::new());
        // Counters and names always fit in JSON.
        report.edge = serde_json::to_value(status).ok();
        report
    }

    async fn link(&self, _: String, _: Option<LinkChange>) -> Result<LinkReport, Refusal> {
        Err(Refusal {
            error: "links of an edge node have no policies; set the rate with --rate and all else \
                    in the file"
                .to_owned(),
            kind: RefusalKind::Usage,
        })
    }

    fn rate(&self, asked: &LinkRate) -> Result<(), Refusal> {
        match self.0.set_rate(&asked.name, asked.rate_bps) {
            true => Ok(()),
            false => Err(Refusal {
                error: format!("there is no link `{}`", asked.name),
                kind: RefusalKind::NoSuchLink,
            }),
        }
    }
}

/// Serves the metrics without end, if configured.
async fn expose(server: Option<&MetricsServer>, handle: NodeHandle) {
    match server {
        Some(server) => {
            server
                .serve(metrics::registry(move || handle.status()))
                .await
        }
        None => std::future::pending().await,
    }
}

/// The file of the trace.
struct TraceFile {
    file: BufWriter<File>,
    path: std::path::PathBuf,
}

impl TraceFile {
    fn create(path: &Path) -> Result<Self, CliError> {
        let write = |reason| CliError::Write {
            path: path.to_owned(),
            reason,
        };
        Ok(Self {
            file: BufWriter::new(File::create(path).map_err(write)?),
            path: path.to_owned(),
        })
    }

    fn line(&mut self, status: &sumlink_edge_node::NodeStatus) -> std::io::Result<()> {
        serde_json::to_writer(&mut self.file, status)?;
        self.file.write_all(b"\n")?;
        self.file.flush()
    }
}

/// Writes the trace without end, if requested. A full disk ends the trace with a warning; traffic
/// continues.
async fn write_trace(trace: Option<TraceFile>, handle: NodeHandle) {
    let Some(mut trace) = trace else {
        return std::future::pending().await;
    };
    let mut ticks = tokio::time::interval(TRACE);
    loop {
        ticks.tick().await;
        if let Err(reason) = trace.line(&handle.status()) {
            tracing::warn!(
                "cannot write the trace {}: {reason}; the trace ends here",
                trace.path.display()
            );
            return std::future::pending().await;
        }
    }
}
