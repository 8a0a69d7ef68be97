//! The client's side of published ports: requests that are repeated until the server grants them,
//! and the connections to the ports.

use std::convert::Infallible;
use std::future::pending;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sumlink_bond::Early;
use sumlink_exit::dial::{Turn, Turns, dial_freely};
use sumlink_exit::outgoing::Outgoing;
use sumlink_exit::relay::{Upload, relay};
use sumlink_exit::target::{Host, OpenError, OwnService, PUBLISH, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::datagrams;
use super::traffic::Traffic;
use super::wire::{Answer, Head, Refusal, Request};
use crate::api::config::ClientConfig;
use crate::api::publish::{Protocol, PublicPort, Publish, PublishStatus};
use crate::api::stream::Stream;
use crate::local::descriptors;
use crate::local::proxy_header::header;
use crate::local::tasks::spawn_begun;
use crate::session::command::{Command, open_in};
use crate::session::driver::Incoming;
use crate::session::sources::Sources;

/// Pause before a refused port is requested again; it doubles up to the second value.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Longest wait for the server's answer to a request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// Longest wait for the beginning of a connection's stream, which the server sends along with it.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection to a target behind the client may take.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Receives the session's command channel; `None` while there is no session.
type Session = watch::Receiver<Option<UnboundedSender<Command>>>;

/// The published ports of a client.
#[derive(Debug)]
pub(crate) struct Publisher {
    entries: Vec<Entry>,
    /// How packets to the targets leave: they bypass the rules that lead others into the bond.
    outgoing: Outgoing,
    /// Connections of all ports.
    connections: Semaphore,
}

/// One published port.
#[derive(Debug)]
struct Entry {
    publish: Publish,
    state: Mutex<State>,
    traffic: Traffic,
}

#[derive(Debug, Default)]
struct State {
    is_published: bool,
    /// Why the last request was refused.
    refusal: Option<String>,
}

impl Publisher {
    pub(crate) fn new(config: &ClientConfig) -> Self {
        let entries = config.publish.iter().map(|publish| Entry {
            publish: publish.clone(),
            state: Mutex::default(),
            traffic: Traffic::default(),
        });
        Self {
            entries: entries.collect(),
            outgoing: Outgoing {
                device: None,
                mark: config.mark,
            },
            connections: Semaphore::new(descriptors::for_streams()),
        }
    }

    /// Whether the server may open streams to this client.
    pub(crate) fn takes_streams(&self) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| entry.publish.listen.protocol == Protocol::Tcp)
    }

    /// Requests the ports in each session, until the returned tasks are dropped.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        session: &Session,
        sources: &Arc<Sources>,
    ) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for number in 0..self.entries.len() {
            let (publisher, session) = (Arc::clone(self), session.clone());
            let sources = Arc::clone(sources);
            tasks.spawn(async move { publisher.keep(number, session, &sources).await });
        }
        tasks
    }

    pub(crate) fn status(&self) -> Vec<PublishStatus> {
        self.entries.iter().map(Entry::status).collect()
    }

    /// Keeps one port published.
    async fn keep(&self, number: usize, mut session: Session, sources: &Arc<Sources>) {
        let Some(entry) = self.entries.get(number) else {
            return;
        };
        let Publish { listen, target, .. } = &entry.publish;
        let mut pause = PAUSE.0;
        let mut logged = String::new();
        loop {
            let Ok(commands) = session.wait_for(Option::is_some).await.map(|s| s.clone()) else {
                return;
            };
            let Some(commands) = commands else { continue };
            let begun = Instant::now();
            let lease = self.lease(number, entry, commands, sources).await;
            entry.set(false, lease.as_ref().err().cloned());
            match lease {
                Err(reason) if reason != logged => {
                    tracing::warn!(
                        %listen, %target, "cannot publish a port: {reason}; trying again"
                    );
                    logged = reason;
                }
                Err(_) => {}
                Ok(end) => {
                    logged.clear();
                    if begun.elapsed() > PAUSE.1 {
                        pause = PAUSE.0;
                    }
                    if end == End::Peer {
                        tracing::warn!(
                            %listen, %target,
                            "a port is no longer published: the server has ended it; trying again"
                        );
                    }
                }
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(PAUSE.1),
                changed = session.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    pause = PAUSE.0;
                }
            }
        }
    }

    /// Publishes a port in one session; returns when it has ended, or an error with the reason if
    /// the server refuses it.
    async fn lease(
        &self,
        number: usize,
        entry: &Entry,
        commands: UnboundedSender<Command>,
        sources: &Arc<Sources>,
    ) -> Result<End, String> {
        let Publish { listen, target, .. } = &entry.publish;
        // A new one for each lease: the server's end of a former one has gone.
        let source = match listen.protocol {
            Protocol::Udp => Some(sources.bind(None, None)),
            Protocol::Tcp => None,
        };
        let request = Request {
            entry: u16::try_from(number).unwrap_or(u16::MAX),
            source: source.as_ref().map_or(0, |source| source.id()),
            listen: *listen,
        };
        let asked = timeout(ANSWER_TIMEOUT, ask(commands, &request));
        let mut stream = asked
            .await
            .unwrap_or_else(|_| Err("the server does not answer".to_owned()))?;
        entry.set(true, None);
        tracing::info!(%listen, %target, "port published");
        let ended = until_end(&mut stream);
        Ok(match source {
            None => ended.await,
            Some(source) => {
                let served = datagrams::serve(source, target, &self.outgoing, &entry.traffic);
                tokio::select! {
                    end = ended => end,
                    // Sources end with the bond.
                    () = served => End::Session,
                }
            }
        })
    }

    /// Connects a stream of the server to the target of its port, and relays.
    async fn serve(&self, incoming: Incoming, turn: Turn, commands: &UnboundedSender<Command>) {
        let Incoming {
            id,
            target,
            mut stream,
        } = incoming;
        match self.connect(&target, &mut stream, turn).await {
            Ok((tcp, entry)) => {
                let Ok(_place) = self.connections.try_acquire() else {
                    let _ = commands.send(Command::Refuse(id, OpenError::LimitReached));
                    return;
                };
                let _ = commands.send(Command::Accept(id));
                let _counted = entry.traffic.count();
                relay(tcp, stream, &[], Upload::Unlimited).await;
            }
            Err(error) => {
                let _ = commands.send(Command::Refuse(id, error));
            }
        }
    }

    async fn connect(
        &self,
        public: &[u8],
        stream: &mut Stream,
        turn: Turn,
    ) -> Result<(TcpStream, &Entry), OpenError> {
        let public = Target::decode(public).map_err(|_| OpenError::BadTarget)?;
        if public.own_service() != Some(OwnService::Publish) {
            return Err(OpenError::NotAllowed);
        }
        let head = timeout(HEAD_TIMEOUT, Head::read(stream)).await;
        let head = head
            .map_err(|_| OpenError::TimedOut)?
            .map_err(|_| OpenError::BadTarget)?;
        let entry = self.entries.get(usize::from(head.entry));
        let entry = entry.filter(|entry| {
            let PublicPort { protocol, port, .. } = entry.publish.listen;
            (protocol, port) == (Protocol::Tcp, public.port)
        });
        let entry = entry.ok_or(OpenError::NotAllowed)?;
        let target = &entry.publish.target;
        let dialed = tokio::select! {
            dialed = dial_freely(target, DIAL_TIMEOUT, turn, &self.outgoing) => dialed,
            // The remote has given up.
            error = stream.failed() => return Err(error),
        };
        let mut tcp = dialed.inspect_err(|error| {
            let peer = head.peer;
            tracing::debug!(%target, %peer, %error, "cannot connect a published port's target");
        })?;
        if entry.publish.proxy_protocol {
            let header = header(head.peer, head.local);
            tcp.write_all(&header)
                .await
                .map_err(|_| OpenError::Refused)?;
        }
        Ok((tcp, entry))
    }
}

impl Entry {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, is_published: bool, refusal: Option<String>) {
        *self.state() = State {
            is_published,
            refusal,
        };
    }

    fn status(&self) -> PublishStatus {
        let state = self.state();
        let word = match (state.is_published, &state.refusal) {
            (true, _) => "published",
            (false, Some(_)) => "refused",
            (false, None) => "requested",
        };
        PublishStatus {
            listen: self.publish.listen.to_string(),
            target: self.publish.target.to_string(),
            state: word.to_owned(),
            reason: state.refusal.clone().unwrap_or_default(),
            connections: self.traffic.open.load(Ordering::Relaxed),
            connections_total: self.traffic.total.load(Ordering::Relaxed),
        }
    }
}

/// Serves the streams that the server opens in one session. Never ends; dropping the future resets
/// them.
pub(crate) async fn session_of(
    publisher: Arc<Publisher>,
    mut incoming: UnboundedReceiver<Incoming>,
    commands: UnboundedSender<Command>,
) -> Infallible {
    let mut tasks = JoinSet::new();
    let mut turns = Turns::default();
    loop {
        tokio::select! {
            Some(next) = incoming.recv() => {
                let (publisher, commands) = (Arc::clone(&publisher), commands.clone());
                let turn = turns.next(&next.target);
                let task = async move { publisher.serve(next, turn, &commands).await };
                spawn_begun(&mut tasks, task).await;
            }
            Some(_) = tasks.join_next() => {}
            else => pending::<()>().await,
        }
    }
}

/// Asks the server for a port; returns the stream that keeps it, or why it is refused.
async fn ask(commands: UnboundedSender<Command>, request: &Request) -> Result<Stream, String> {
    let target = Target {
        host: Host::Name(PUBLISH.to_owned()),
        port: request.listen.port,
    };
    let opened = open_in(commands, &target, None, Early::Never).await;
    let mut stream = opened.map_err(|error| match error {
        // An older server looks up the name.
        OpenError::NameNotResolved => {
            "the server does not publish ports: it needs a newer version".to_owned()
        }
        error => error.to_string(),
    })?;
    let lost = |_| "the session was lost".to_owned();
    stream.write_all(&request.encode()).await.map_err(lost)?;
    let answer = Answer::read(&mut stream).await.map_err(lost)?;
    match answer.result {
        Ok(()) => Ok(stream),
        Err(_) if !answer.reason.is_empty() => Err(answer.reason),
        Err(Refusal::NotPermitted) => Err("the server does not permit it".to_owned()),
        Err(Refusal::Taken) => Err("the port is taken at the server".to_owned()),
        Err(Refusal::Limit) => Err("a limit is reached at the server".to_owned()),
        Err(Refusal::System | Refusal::Other) => Err("the server refuses it".to_owned()),
    }
}

/// How a lease has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The peer has ended it.
    Peer,
    /// The session has ended.
    Session,
}

/// Waits until the peer or the session has ended a lease.
pub(crate) async fn until_end(stream: &mut Stream) -> End {
    let mut ignored = [0; 64];
    loop {
        match stream.read(&mut ignored).await {
            Ok(0) => return End::Peer,
            Ok(_) => {}
            Err(error) => {
                let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
                return match inner {
                    Some(OpenError::SessionClosed) => End::Session,
                    _ => End::Peer,
                };
            }
        }
    }
}
