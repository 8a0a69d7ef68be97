//! Hostile clients: the server limits what they can do.

use std::future::poll_fn;

use sumlink_engine::PathId;
use sumlink_engine::frame::{Frame, RefuseCode};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::streams::DIAL_TIMEOUT;
use super::*;
use crate::carrier::Carrier;
use crate::carrier::handshake::{CarrierError, ClientCarrier};
use crate::carrier::keys::SecretKey;
use crate::fixture::{Silent, serve, server_config};

const PATIENCE: Duration = Duration::from_secs(30);

/// A server on loopback, with the keys of its client.
async fn running(change: impl FnOnce(&mut ServerConfig)) -> Hostile {
    let (server, key) = (
        SecretKey::generate().unwrap(),
        SecretKey::generate().unwrap(),
    );
    let mut config = server_config(&server, &key);
    change(&mut config);
    let address = serve(config).await;
    let tls = tls::client_config(&key, &server.public());
    let key = key.public();
    Hostile { address, tls, key }
}

/// A client whose behavior the test controls.
struct Hostile {
    address: std::net::SocketAddr,
    tls: Arc<rustls::ClientConfig>,
    key: PublicKey,
}

impl Hostile {
    /// A connection after the TLS handshake.
    async fn connect(&self) -> ClientCarrier {
        self.try_connect().await.unwrap()
    }

    /// [`Hostile::connect`], with an error if the server drops the connection.
    async fn try_connect(&self) -> Result<ClientCarrier, CarrierError> {
        let tcp = TcpStream::connect(self.address).await?;
        ClientCarrier::connect(tcp, &self.tls, tls::server_name(), &self.key).await
    }
}

/// Brings path `path` into a session; path 0 creates the session.
async fn hello(carrier: ClientCarrier, session: u8, path: u32) -> Result<Carrier, CarrierError> {
    let link = "lo".to_owned();
    let joined = carrier.hello([session; 16], path == 0, PathId(path), link);
    joined.await.map(|(carrier, _)| carrier)
}

fn is_limit(error: &CarrierError) -> bool {
    matches!(
        error,
        CarrierError::Refused {
            code: RefuseCode::Limit,
            ..
        }
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_concurrent_joins_gets_the_last_place() {
    const PATHS: usize = 4;
    const ROUNDS: u8 = 20;
    let client = running(|config| {
        config.limits.paths = PATHS;
        config.limits.sessions = ROUNDS.into();
        config.limits.memory = u64::MAX;
    })
    .await;
    for round in 0..ROUNDS {
        let mut paths = Vec::new();
        for path in 0..PATHS as u32 - 1 {
            let joined = hello(client.connect().await, round, path).await;
            paths.push(joined.unwrap());
        }
        // After TLS, so that only the HELLOs race.
        let (one, other) = (client.connect().await, client.connect().await);
        let (one, other) = tokio::join!(
            tokio::spawn(hello(one, round, 10)),
            tokio::spawn(hello(other, round, 11))
        );
        let (one, other) = (one.unwrap(), other.unwrap());
        let refused = match (&one, &other) {
            (Ok(_), Err(error)) | (Err(error), Ok(_)) => error,
            (Ok(_), Ok(_)) => panic!("round {round}: one place, but both connections have it"),
            (Err(error), Err(_)) => {
                panic!("round {round}: neither connection has the place: {error}")
            }
        };
        assert!(is_limit(refused), "{refused}");
        // A freed place can be taken again.
        drop((one, other));
        let again = async {
            while let Err(error) = hello(client.connect().await, round, 12).await {
                assert!(is_limit(&error), "{error}");
            }
        };
        timeout(PATIENCE, again).await.unwrap();
    }
}

#[tokio::test]
async fn a_key_revoked_before_its_hello_gets_no_session() {
    let (server, key) = (
        SecretKey::generate().unwrap(),
        SecretKey::generate().unwrap(),
    );
    let bound = Server::bind(server_config(&server, &key)).await.unwrap();
    let (address, handle) = (bound.local_addr().unwrap(), bound.handle());
    tokio::spawn(bound.run(std::future::pending()));
    let tls = tls::client_config(&key, &server.public());
    let key = key.public();
    let client = Hostile { address, tls, key };
    // After TLS, where keys are checked.
    let (before, held_back) = (client.connect().await, client.connect().await);
    let joined = hello(before, 1, 0).await.unwrap();
    handle.set_authorized(&[]);
    let error = hello(held_back, 2, 0).await.unwrap_err();
    let is_refused = matches!(&error, CarrierError::Refused { reason, .. } if reason.as_str().contains("no longer authorized"));
    assert!(is_refused, "{error}");
    drop(joined);
}

/// A running server and its handle.
async fn with_handle(change: impl FnOnce(&mut ServerConfig)) -> (Hostile, ServerHandle) {
    let (server, key) = (
        SecretKey::generate().unwrap(),
        SecretKey::generate().unwrap(),
    );
    let mut config = server_config(&server, &key);
    change(&mut config);
    let bound = Server::bind(config).await.unwrap();
    let (address, handle) = (bound.local_addr().unwrap(), bound.handle());
    tokio::spawn(bound.run(std::future::pending()));
    let tls = tls::client_config(&key, &server.public());
    let key = key.public();
    (Hostile { address, tls, key }, handle)
}

/// Waits until the server has `all` sessions, `without_path` of them without a path.
async fn sessions(handle: &ServerHandle, all: usize, without_path: usize) {
    let looking = async {
        loop {
            let status = handle.status().await;
            let empty = status.iter().filter(|session| session.paths.is_empty());
            if (status.len(), empty.count()) == (all, without_path) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, looking).await.unwrap();
}

#[tokio::test]
async fn a_restarting_client_replaces_its_dead_sessions() {
    let (client, handle) = with_handle(|config| config.limits.sessions = 3).await;
    // As from another machine with the same key.
    let alive = hello(client.connect().await, 100, 0).await.unwrap();
    for start in 0..10 {
        let carrier = hello(client.connect().await, start, 0).await;
        let carrier = carrier.unwrap_or_else(|error| panic!("start {start}: {error}"));
        drop(carrier);
        let dead = usize::from(start).min(1) + 1;
        sessions(&handle, dead + 1, dead).await;
    }
    // The oldest session has ended, and the latest can be joined.
    let error = hello(client.connect().await, 0, 1).await.unwrap_err();
    assert!(error.to_string().contains("session"), "{error}");
    let back = hello(client.connect().await, 9, 1).await.unwrap();
    let third = hello(client.connect().await, 101, 0).await.unwrap();
    // Sessions with a path are not displaced.
    let error = hello(client.connect().await, 102, 0).await.unwrap_err();
    assert!(is_limit(&error), "{error}");
    sessions(&handle, 3, 0).await;
    drop((alive, back, third));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_silent_connections_keeps_no_client_out() {
    let client = running(|config| {
        config.half_open.total = 32;
        config.half_open.reserved = 8;
        config.half_open.per_address = 24;
    })
    .await;
    // All from the client's address: only the content distinguishes them from the client.
    let flooding = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let (address, count) = (client.address, Arc::clone(&flooding));
    let flood = tokio::spawn(async move {
        let mut held = std::collections::VecDeque::new();
        loop {
            if let Ok(tcp) = TcpStream::connect(address).await {
                held.push_back(tcp);
                count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
            if held.len() > 100 {
                held.pop_front();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let full = async {
        while flooding.load(std::sync::atomic::Ordering::Relaxed) < 64 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, full).await.unwrap();
    let joined = async {
        let mut paths = Vec::new();
        while paths.len() < 5 {
            // On a busy machine the client may be displaced before it has sent anything; it then
            // tries again.
            let Ok(carrier) = client.try_connect().await else {
                continue;
            };
            paths.push(hello(carrier, 1, paths.len() as u32).await.unwrap());
        }
        paths
    };
    let paths = timeout(PATIENCE, joined).await.unwrap();
    assert_eq!(paths.len(), 5);
    flood.abort();
}

/// Frames of a flood still to be sent, and the server's allowance.
struct Flood {
    carrier: Carrier,
    target: Vec<u8>,
    /// Streams opened so far, and the number that the server allows.
    opened: u64,
    allowed: u64,
    /// Received bytes that do not yet form a whole frame.
    received: Vec<u8>,
}

impl Flood {
    /// Opens and resets streams as fast as the server allows, until there were `streams`.
    async fn run(&mut self, streams: u64) {
        while self.opened < streams {
            let mut frames = Vec::new();
            for number in self.opened..self.allowed.min(streams) {
                // Even numbers belong to the client.
                let (stream, target) = (number * 2, &self.target);
                let class = 0;
                Frame::Open {
                    stream,
                    class,
                    target,
                }
                .encode(&mut frames);
                let (code, size) = (0, 0);
                Frame::Reset { stream, code, size }.encode(&mut frames);
            }
            self.opened = self.allowed.min(streams);
            self.carrier.send(&frames).unwrap();
            poll_fn(|cx| self.carrier.poll_writable(cx)).await.unwrap();
            if self.opened < streams {
                self.listen().await;
            }
        }
    }

    /// Reads the server's next frames.
    async fn listen(&mut self) {
        let received = &mut self.received;
        let some = poll_fn(|cx| {
            self.carrier
                .poll_receive(cx, 1 << 16, |bytes| received.extend_from_slice(bytes))
        });
        assert!(
            some.await.unwrap() > 0,
            "the server has ended the connection"
        );
        while let Some((frame, len)) = Frame::decode(&self.received).unwrap() {
            if let Frame::CreditStreams { limit } = frame {
                self.allowed = limit;
            }
            self.received.drain(..len);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_opens_and_resets_has_a_bounded_number_of_dials() {
    const STREAMS: u64 = 8;
    let silent = Silent::new().await;
    let client = running(|config| config.session.max_streams = STREAMS).await;
    let carrier = hello(client.connect().await, 1, 0).await;
    let target: Target = silent.address.into();
    let mut flood = Flood {
        carrier: carrier.unwrap(),
        target: target.encode(),
        opened: 0,
        allowed: 0,
        received: Vec::new(),
    };
    let mut most = 0;
    for streams in 1..=100 {
        timeout(PATIENCE, flood.run(streams * STREAMS))
            .await
            .unwrap();
        most = most.max(silent.dials());
    }
    assert!(
        most <= STREAMS as usize,
        "{most} sockets for {STREAMS} streams"
    );
    // The server has handled them all, and no dial outlives its stream.
    let ended = async {
        while silent.dials() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(DIAL_TIMEOUT / 3, ended).await.unwrap();
}
