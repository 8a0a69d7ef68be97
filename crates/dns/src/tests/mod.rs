//! The forwarder with upstreams in memory, and with real clients.

use std::cell::Cell;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use sumlink_exit::datagram::{DatagramSocket, PairSocket, Received, pair};
use sumlink_exit::relay::Buffered;
use sumlink_exit::target::Target;
use sumlink_proxy::{Class, DatagramOpener, OpenError, Opener};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::testing::{Answer, answer};
use crate::wire::{ClientQuery, Form, Message, Query};
use crate::{Forwarder, Roots, Rules, Settings, Upstream, Via};

mod forwarding;
mod hostile;
mod ports;
mod rules;
mod secure;
mod transports;
mod upstreams;

thread_local! {
    static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// The clock of the cache in tests, each of which has one thread.
fn clock() -> Duration {
    NOW.get()
}

/// Lets time pass for the cache.
fn pass(seconds: u64) {
    NOW.set(NOW.get() + Duration::from_secs(seconds));
}

/// A question at an upstream.
#[derive(Clone, Debug)]
struct Asked {
    target: Target,
    is_stream: bool,
    client: ClientQuery,
}

/// The reaction of an upstream.
#[derive(Clone, Debug)]
enum Reaction {
    Answer(Answer),
    /// These messages, the ID of the question in front of each.
    Raw(Vec<Vec<u8>>),
    /// These messages as they are.
    Exactly(Vec<Vec<u8>>),
    Silence,
    /// The stream ends.
    Close,
    /// An ICMP error; a stream ends.
    Failed,
}

type Script = Arc<Mutex<dyn FnMut(&Asked) -> Reaction + Send>>;

/// Ends a stream that was opened to a target.
type Accept = Arc<dyn Fn(DuplexStream, Network, Target) + Send + Sync>;

/// A network of resolvers with one script. Its streams and datagrams are in memory.
#[derive(Clone)]
struct Network {
    script: Script,
    asked: Arc<Mutex<Vec<Asked>>>,
    opened: Arc<Mutex<usize>>,
    without_datagrams: bool,
    /// Ends streams with TLS or HTTP.
    accept: Option<Accept>,
}

impl Network {
    fn new(script: impl FnMut(&Asked) -> Reaction + Send + 'static) -> Self {
        Self {
            script: Arc::new(Mutex::new(script)),
            asked: Arc::default(),
            opened: Arc::default(),
            without_datagrams: false,
            accept: None,
        }
    }

    /// Answers everything with the same records.
    fn answering(answer: Answer) -> Self {
        Self::new(move |_| Reaction::Answer(answer.clone()))
    }

    fn upstream(&self, address: &str) -> Upstream {
        Upstream::new(address.parse().unwrap(), self.clone(), &Roots::system())
    }

    /// A forwarder that asks `udp://192.0.2.53`.
    fn forwarder(&self, settings: Settings) -> Forwarder {
        let rules = Rules::new(vec![self.upstream("udp://192.0.2.53")]);
        Forwarder::with_clock(settings, rules, clock)
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// The names that were asked, with the addresses of the resolvers.
    fn names(&self) -> Vec<String> {
        let shown =
            |asked: &Asked| format!("{} {}", asked.client.query.question.name, asked.target);
        self.asked().iter().map(shown).collect()
    }

    /// The messages that come back, and whether the stream stays.
    fn react(&self, target: &Target, is_stream: bool, message: &[u8]) -> (Reaction, Vec<Vec<u8>>) {
        let client = ClientQuery::read(message).unwrap();
        let asked = Asked {
            target: target.clone(),
            is_stream,
            client,
        };
        self.asked.lock().unwrap().push(asked.clone());
        let reaction = (self.script.lock().unwrap())(&asked);
        let id = asked.client.id.to_be_bytes();
        let replies = match &reaction {
            Reaction::Answer(content) => {
                let mut bytes = answer(&asked.client.query, content.clone());
                bytes[..2].copy_from_slice(&id);
                vec![bytes]
            }
            Reaction::Raw(messages) => messages
                .iter()
                .map(|rest| [&id[..], rest].concat())
                .collect(),
            Reaction::Exactly(messages) => messages.clone(),
            Reaction::Silence | Reaction::Close | Reaction::Failed => Vec::new(),
        };
        (reaction, replies)
    }

    async fn serve_stream(
        self,
        target: Target,
        mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    ) {
        while let Ok(length) = stream.read_u16().await {
            let mut message = vec![0; length.into()];
            stream.read_exact(&mut message).await.unwrap();
            let (reaction, replies) = self.react(&target, true, &message);
            for reply in replies {
                stream.write_u16(reply.len() as u16).await.unwrap();
                stream.write_all(&reply).await.unwrap();
            }
            stream.flush().await.unwrap();
            if matches!(reaction, Reaction::Close | Reaction::Failed) {
                return;
            }
        }
    }

    async fn serve_datagrams(self, mut socket: PairSocket) {
        let mut events = Vec::new();
        while socket.receive(&mut events, 16).await > 0 {
            for (target, event) in events.drain(..) {
                let Received::Datagram(message) = event else {
                    continue;
                };
                let (reaction, replies) = self.react(&target, false, &message);
                for reply in replies {
                    let _ = socket.send(&target, Bytes::from(reply), None);
                }
                if matches!(reaction, Reaction::Failed) {
                    socket.report(&target, sumlink_exit::datagram::FlowFailure::Refused);
                }
            }
        }
    }
}

impl Opener for Network {
    type Stream = Buffered<DuplexStream>;

    async fn open(&self, target: Target, _: Option<Class>) -> Result<Self::Stream, OpenError> {
        *self.opened.lock().unwrap() += 1;
        let (near, far) = tokio::io::duplex(64 * 1024);
        match &self.accept {
            Some(accept) => accept(far, self.clone(), target),
            None => drop(tokio::spawn(self.clone().serve_stream(target, far))),
        }
        Ok(Buffered::new(near))
    }
}

impl DatagramOpener for Network {
    type Socket = PairSocket;

    async fn bind(&self, _: Option<Class>) -> Result<PairSocket, OpenError> {
        if self.without_datagrams {
            return Err(OpenError::Unreachable);
        }
        let (near, far) = pair(100);
        tokio::spawn(self.clone().serve_datagrams(far));
        Ok(near)
    }
}

/// Settings of tests, without a limit that they do not test.
fn settings() -> Settings {
    Settings::default()
}

/// The answer to a client over TCP.
async fn ask(forwarder: &Forwarder, name: &str, kind: u16) -> Vec<u8> {
    let question = Query::new(name, kind).encode(0x1234, Form::Edns);
    forwarder.answer(&question, Via::Tcp).await.unwrap()
}

/// The response code and the numbers of records in the answer.
async fn outcome(forwarder: &Forwarder, name: &str, kind: u16) -> (u16, usize) {
    let reply = ask(forwarder, name, kind).await;
    let message = Message::read(&reply).unwrap();
    assert_eq!(message.id, 0x1234);
    (message.code(), message.answers().count())
}

/// Polls a future once; whether it waits.
async fn is_waiting(future: &mut (impl Future + Unpin)) -> bool {
    std::future::poll_fn(|cx| {
        let polled = std::pin::Pin::new(&mut *future).poll(cx);
        std::task::Poll::Ready(polled.is_pending())
    })
    .await
}
