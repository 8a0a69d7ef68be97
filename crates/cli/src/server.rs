//! `sumlink server`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use sumlink_engine::scheduler::OwnSchedulers;
use sumlink_transport::egress::EgressPolicy;
use sumlink_transport::{LinkReport, Server, ServerHandle};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{broadcast, oneshot};

use crate::activation;
use crate::args::ServerArgs;
use crate::clients::{Keeper, Running, addresses};
use crate::config::{self, ClientsSettings, ConfigError, File, ServerPlan};
use crate::control::{
    ClientsRequest, Controlled, InviteRequest, LinkChange, Refusal, RefusalKind, Report,
};
use crate::error::CliError;
use crate::monitor::Reporting;
use crate::output::Events;
use crate::signals::Stop;

/// Runs the verb until a signal ends it. Flags and file can name the schedulers of the engine and
/// of `own`.
pub async fn run(args: ServerArgs, own: OwnSchedulers) -> Result<(), CliError> {
    let events = Events::new(args.json)?;
    events.end(serve(args, own, &events).await)
}

async fn serve(args: ServerArgs, own: OwnSchedulers, events: &Events) -> Result<(), CliError> {
    let reload = Reload::new(&args, own.clone());
    let plan = ServerPlan::start(args, &own)?;
    let mut stop = Stop::without_hangup()?;
    let mut hangup = signal(SignalKind::hangup())?;

    let mut reporting =
        Reporting::open(plan.control.as_deref(), plan.monitor.clone(), events).await?;
    let public = plan.config.key.public();
    let udp = plan.config.udp;
    let mut config = plan.config;
    let configured = config.authorized.clone();
    let store = Running::start(&plan.clients, public, configured, events).await?;
    if let Some(store) = &store {
        config.authorized.clone_from(&store.admitted);
        config.invitations = Some(Arc::new(store.keeper.clone()));
    }
    let clients = config.authorized.len();
    let keeper = store.as_ref().map(|store| store.keeper.clone());
    let server = match activation::sockets()? {
        Some(sockets) => Server::adopt(config, sockets).await?,
        None => Server::bind(config).await?,
    };
    let (handle, listen) = (server.handle(), server.local_addr()?);
    if let Some(keeper) = &keeper {
        let addresses = addresses(&plan.clients, listen).await;
        keeper.attach(handle.clone(), addresses);
    }
    tracing::info!(%listen, udp, public_key = %public, clients, "server listens");
    events.emit(&json!({
        "event": "listening", "address": listen, "udp": udp, "public_key": public,
    }));
    let following = events.follow(handle.events());

    let (end, ended) = oneshot::channel::<()>();
    let mut serving = tokio::spawn(server.run(async {
        // A message and a dropped sender both mean the end.
        let _ = ended.await;
    }));
    let answering = reporting.answer(Serving {
        handle: handle.clone(),
        events: events.clone(),
        keeper: keeper.clone(),
        clients: plan.clients,
        listen,
    });
    tokio::pin!(answering);
    loop {
        tokio::select! {
            name = stop.next() => {
                tracing::info!("{name}: closing every session");
                break;
            }
            _ = hangup.recv() => reload.run(&handle, keeper.as_ref(), events),
            () = &mut answering => {}
            ended = &mut serving => {
                let reason = ended.err().map_or("the server ended unexpectedly".to_owned(), |e| e.to_string());
                return Err(std::io::Error::other(reason).into());
            }
        }
    }
    drop(end);
    let done = stop.graceful(async {
        if let Err(error) = serving.await {
            tracing::error!(%error, "server task failed");
        }
    });
    done.await?;
    if let Some(store) = store {
        // After the sessions, so that their last bytes are written.
        store.end();
    }
    following.end().await;
    events.emit(&json!({ "event": "stopped" }));
    Ok(())
}

/// A running server at its control socket and its monitoring port.
#[derive(Clone)]
struct Serving {
    handle: ServerHandle,
    events: Events,
    /// The clients that are managed at run time.
    keeper: Option<Keeper>,
    clients: ClientsSettings,
    listen: SocketAddr,
}

impl Controlled for Serving {
    async fn report(&self) -> Report {
        let sessions = self.handle.status().await;
        let note = match self.handle.is_draining() {
            true => format!("draining: no new sessions; {} left", sessions.len()),
            false => String::new(),
        };
        Report {
            totals: self.handle.totals(&sessions),
            refused: self.handle.refused(),
            ..Report::new("server", note, sessions)
        }
    }

    fn events(&self) -> Option<broadcast::Receiver<Arc<str>>> {
        Some(self.events.subscribe())
    }

    fn drain(&self, on: bool) -> Result<(), Refusal> {
        if self.handle.is_draining() != on {
            match on {
                true => tracing::info!("draining: new sessions are refused, others go on"),
                false => tracing::info!("new sessions are admitted again"),
            }
            self.events.emit(&json!({ "event": "draining", "on": on }));
        }
        self.handle.set_draining(on);
        Ok(())
    }

    async fn clients(&self, asked: ClientsRequest) -> Result<serde_json::Value, Refusal> {
        let Some(keeper) = &self.keeper else {
            return Err(Refusal::not_here(
                "this server has no store of clients: add `[clients] store` to its file",
            ));
        };
        let asked = match asked {
            ClientsRequest::Invite(asked) if asked.addresses.is_empty() => {
                let addresses = addresses(&self.clients, self.listen).await;
                ClientsRequest::Invite(InviteRequest { addresses, ..asked })
            }
            asked => asked,
        };
        keeper.ask(asked).await
    }

    async fn link(&self, _: String, _: Option<LinkChange>) -> Result<LinkReport, Refusal> {
        Err(Refusal {
            error: "links belong to the client: ask at the client's control socket".to_owned(),
            kind: RefusalKind::Usage,
        })
    }
}

/// Handles SIGHUP: reads the authorized keys and the egress rules again. Removing a key ends its
/// sessions and no others; rules apply to new streams. All other settings need a restart.
struct Reload {
    file: Option<PathBuf>,
    /// Keys given as flags replace those of the file, as at the start.
    keys_by_flags: bool,
    /// The same for rules.
    egress_by_flags: bool,
    /// The schedulers that the file can name besides those of the engine.
    own_schedulers: OwnSchedulers,
}

impl Reload {
    fn new(args: &ServerArgs, own_schedulers: OwnSchedulers) -> Self {
        Self {
            file: args.config.clone(),
            keys_by_flags: !args.authorize.is_empty(),
            egress_by_flags: !args.egress.is_empty(),
            own_schedulers,
        }
    }

    fn run(&self, handle: &ServerHandle, keeper: Option<&Keeper>, events: &Events) {
        let Some(file) = &self.file else {
            tracing::warn!("SIGHUP ignored: there is no configuration file to reload");
            return;
        };
        match self.apply(file, handle, keeper) {
            Ok(clients) => {
                tracing::info!(clients, file = %file.display(), "SIGHUP: clients and egress rules reloaded; other changes of the file apply after a restart");
                events.emit(&json!({ "event": "reloaded", "clients": clients }));
            }
            Err(error) => {
                tracing::error!("SIGHUP: reload failed, nothing changed: {error}");
                events.emit(&json!({ "event": "reload_failed", "reason": error.to_string() }));
            }
        }
    }

    /// Applies the file and returns its number of clients.
    fn apply(
        &self,
        file: &Path,
        handle: &ServerHandle,
        keeper: Option<&Keeper>,
    ) -> Result<usize, ConfigError> {
        // Reading a FIFO would wait for its writer, and everything else with it.
        if std::fs::metadata(file).is_ok_and(|found| !found.is_file()) {
            return Err(ConfigError::Unreadable {
                file: file.to_owned(),
                reason: std::io::Error::other("not a file"),
            });
        }
        let settings = match config::read_settings(file, &self.own_schedulers)? {
            File::Server(settings) => settings,
            other => {
                return Err(ConfigError::OtherRole {
                    file: file.to_owned(),
                    is: other.role(),
                });
            }
        };
        if !self.keys_by_flags {
            if settings.authorized.is_empty() && keeper.is_none() {
                // Revoking the last key must work like revoking any other.
                tracing::warn!(
                    file = %file.display(),
                    "SIGHUP: the file has no [[client]] block, so no client may connect"
                );
            }
            match keeper {
                Some(keeper) => keeper.configured(settings.authorized.clone()),
                None => handle.set_authorized(&settings.authorized),
            }
        }
        if !self.egress_by_flags {
            handle.set_egress(EgressPolicy::new(settings.egress));
        }
        Ok(settings.authorized.len())
    }
}
