//! The server's name is looked up again while a session runs.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};

use super::fixture::session;
use super::{Outcome, until_true};
use crate::api::error::ConnectError;
use crate::carrier::keys::SecretKey;
use crate::fixture::{client_config, server_config};
use crate::links::resolver::{Pauses, Resolver};
use crate::server::Server;
use crate::session::command::Command;

/// A resolver may take half a minute; closing the client does not wait for it.
#[tokio::test]
async fn stopping_does_not_wait_for_the_resolver() {
    let key = SecretKey::generate().unwrap();
    let config = client_config(&key, &key, "slow.invalid:1");
    let (driver, mut manager) = session(&key, config);
    let (asked, is_asked) = oneshot::channel();
    let asked = Mutex::new(Some(asked));
    manager.resolver = Resolver::with(pauses(Duration::ZERO), move || {
        if let Some(asked) = asked.lock().unwrap().take() {
            asked.send(()).unwrap();
        }
        std::future::pending().boxed()
    });
    let (close, mut closing) = watch::channel(false);
    let stopped = tokio::spawn(async move { manager.run(driver, &mut closing, || ()).await });
    is_asked.await.unwrap();
    close.send_replace(true);
    let outcome = tokio::time::timeout(Duration::from_secs(10), stopped).await;
    assert!(matches!(outcome, Ok(Ok(Outcome::Closed))), "{outcome:?}");
}

/// The server and its name disappear: the remaining work is done with pauses.
#[tokio::test]
async fn a_name_that_no_longer_resolves_causes_no_busy_loop() {
    let (server, client) = (
        SecretKey::generate().unwrap(),
        SecretKey::generate().unwrap(),
    );
    let running = Server::bind(server_config(&server, &client)).await.unwrap();
    let address = running.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(running.run(async {
        let _ = stopped.await;
    }));
    let mut config = client_config(&server, &client, "gone.invalid:1");
    config.session.session_timeout = Duration::from_secs(3);
    let (driver, mut manager) = session(&server, config);
    let look_ups = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&look_ups);
    manager.resolver = Resolver::with(pauses(Duration::from_secs(1)), move || {
        let first = count.fetch_add(1, Ordering::Relaxed) == 0;
        let gone = ConnectError::ServerAddress("the resolver knows nothing".to_owned());
        async move { first.then(|| vec![address]).ok_or(gone) }.boxed()
    });
    let (connected, is_connected) = oneshot::channel();
    let (_closing, mut closing) = watch::channel(false);
    let session = tokio::spawn(async move {
        let connected = || connected.send(()).unwrap();
        manager.run(driver, &mut closing, connected).await
    });
    is_connected.await.unwrap();
    // Aborted, so that it sends no CLOSE: the session waits for a path until its timeout.
    running.abort();
    drop(stop);
    let dials = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&dials);
    let taken = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    let dialed = tokio::spawn(async move {
        while taken.accept().await.is_ok() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let outcome = session.await.unwrap();
    dialed.abort();
    assert!(matches!(outcome, Outcome::Lost { .. }), "{outcome:?}");
    // In three seconds: one lookup per second, and dials with pauses from 250 ms upwards.
    let (look_ups, dials) = (
        look_ups.load(Ordering::Relaxed),
        dials.load(Ordering::Relaxed),
    );
    assert!((2..=5).contains(&look_ups), "{look_ups} look-ups");
    assert!((2..=8).contains(&dials), "{dials} dials");
}

/// The server's name changes while the server is unreachable, and the client follows it.
#[tokio::test]
async fn a_server_that_has_moved_is_followed_within_three_seconds() {
    let (server, client) = (
        SecretKey::generate().unwrap(),
        SecretKey::generate().unwrap(),
    );
    let first = Server::bind(server_config(&server, &client)).await.unwrap();
    let old = first.local_addr().unwrap();
    let way = silenced_way(old).await;
    let mut config = client_config(&server, &client, "moves.invalid:1");
    config.session.session_timeout = Duration::from_secs(30);
    let (driver, mut manager) = session(&server, config);
    let now_at = Arc::new(Mutex::new(way.address));
    let asked = Arc::clone(&now_at);
    manager.resolver = Resolver::new("moves.invalid:1", None).answering(move || {
        let address = *asked.lock().unwrap();
        async move { Ok(vec![address]) }.boxed()
    });
    let (connected, is_connected) = oneshot::channel();
    let (close, mut closing) = watch::channel(false);
    let serving = tokio::spawn(first.run(std::future::pending()));
    let commands = manager.commands.clone();
    let session = tokio::spawn(async move {
        let connected = || connected.send(()).unwrap();
        manager.run(driver, &mut closing, connected).await
    });
    is_connected.await.unwrap();
    // The old address is silent, without any error.
    way.silence();
    *now_at.lock().unwrap() = old;
    let began = Instant::now();
    let is_there = async {
        loop {
            let (reply, status) = oneshot::channel();
            let _ = commands.send(Command::Status(reply));
            let paths = status.await.unwrap().paths;
            let is_new = |path: &crate::api::status::PathStatus| {
                path.state == "active" && path.remote == old.to_string()
            };
            if paths.iter().any(is_new) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), is_there)
        .await
        .expect("the client looks the name up again");
    let took = began.elapsed();
    // Three seconds to detect the silent path, and at most three more.
    assert!(took < Duration::from_secs(10), "{took:?}");
    close.send_replace(true);
    session.await.unwrap();
    serving.abort();
}

/// An address that leads to a server until it goes silent.
struct Way {
    address: SocketAddr,
    silent: watch::Sender<bool>,
}

impl Way {
    fn silence(&self) {
        self.silent.send_replace(true);
    }
}

async fn silenced_way(server: SocketAddr) -> Way {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (silent, is_silent) = watch::channel(false);
    tokio::spawn(async move {
        loop {
            let (mut near, _) = listener.accept().await.unwrap();
            let mut is_silent = is_silent.clone();
            tokio::spawn(async move {
                let mut far = tokio::net::TcpStream::connect(server).await.unwrap();
                tokio::select! {
                    biased;
                    () = until_true(&mut is_silent) => std::future::pending().await,
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                }
            });
        }
    });
    Way { address, silent }
}

fn pauses(both: Duration) -> Pauses {
    Pauses {
        reached: both,
        lost: both,
    }
}
