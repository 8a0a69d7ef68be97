//! Sessions whose links come, fail and get new terms.

use std::sync::atomic::{AtomicBool, Ordering};

use sumlink_bond::Early;
use sumlink_engine::{PathId, Priority};
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::oneshot;

use super::fixture::session;
use super::*;
use crate::api::client::Client;
use crate::carrier::keys::SecretKey;
use crate::fixture::{Silent, client_config, serve, server_config};
use crate::server::Server;
use crate::session::command::Opening;
use sumlink_exit::target::Target;
use sumlink_test_support::netns::Netns;

/// The caller of the first connection gets the error, however long dials continue.
#[tokio::test]
async fn a_session_that_times_out_before_the_first_path_has_failed() {
    let key = SecretKey::generate().unwrap();
    let silent = Silent::new().await;
    let mut config = client_config(&key, &key, &silent.address.to_string());
    config.session.session_timeout = Duration::from_secs(1);
    let (driver, manager) = session(&key, config);
    let (_closing, mut closing) = watch::channel(false);
    let outcome = manager.run(driver, &mut closing, || panic!("connected"));
    let outcome = outcome.await;
    let Outcome::Failed(error) = outcome else {
        panic!("{outcome:?}");
    };
    let text = error.to_string();
    assert!(text.contains("within the session's timeout"), "{text}");
}

/// The server receives every SYN but has no return route over the first link, which the routing
/// tables prefer. That dial runs into its timeout, and the other link does not wait for it.
#[test]
fn a_dead_first_link_delays_no_other() {
    let (Some(here), Some(there)) = (Netns::new(), Netns::new()) else {
        return;
    };
    for (link, net, metric) in [("dead", "192.0.2", 1), ("live", "198.51.100", 2)] {
        here.ip(&format!(
            "link add {link} type veth peer name {link} netns {}",
            there.name()
        ));
        there.ip(&format!("link set {link} address 02:00:00:00:00:0{metric}"));
        for ns in [&here, &there] {
            ns.ip(&format!("link set {link} addrgenmode none"));
            ns.ip(&format!("link set {link} up"));
        }
        here.ip(&format!("addr add {net}.1/24 dev {link}"));
        here.ip(&format!(
            "neigh add {net}.254 lladdr 02:00:00:00:00:0{metric} dev {link} nud permanent"
        ));
        here.ip(&format!(
            "route add default via {net}.254 dev {link} metric {metric}"
        ));
    }
    there.ip("addr add 198.51.100.254/24 dev live");
    there.ip("addr add 203.0.113.1/32 dev lo");

    let (server, key) = (
        SecretKey::generate().unwrap(),
        SecretKey::generate().unwrap(),
    );
    let mut config = server_config(&server, &key);
    config.listen = "203.0.113.1:7443".parse().unwrap();
    let (ready, is_ready) = std::sync::mpsc::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = std::thread::spawn(move || {
        there.run(async move || {
            let server = Server::bind(config).await.unwrap();
            ready.send(()).unwrap();
            let until = async {
                let _ = stopped.await;
            };
            server.run(until).await;
        });
    });
    is_ready.recv().unwrap();
    let mut config = client_config(&server, &key, "203.0.113.1:7443");
    config.links.clear();
    let paths = here.run(async move || {
        let client = Client::connect(config).await.unwrap();
        let paths = client.status().await.paths;
        client.close().await;
        paths
    });
    drop(stop);
    serving.join().unwrap();
    let states: Vec<(&str, &str)> = paths
        .iter()
        .map(|path| (path.link.as_str(), path.state.as_str()))
        .collect();
    // While the first link's dial is still in progress.
    assert!(states.contains(&("live", "active")), "{states:?}");
    assert!(states.contains(&("dead", "connecting")), "{states:?}");
}

/// A capped link may be used again on the next day, and its live paths get the new terms
/// without any event.
#[tokio::test]
async fn a_new_day_ends_a_data_cap() {
    static NEXT_DAY: AtomicBool = AtomicBool::new(false);
    let today = || {
        let day = 22 + u32::from(NEXT_DAY.load(Ordering::Relaxed));
        chrono::NaiveDate::from_ymd_opt(2026, 11, day).unwrap()
    };
    let key = SecretKey::generate().unwrap();
    let mut config = client_config(&key, &key, "127.0.0.1:1");
    config.links[0].policy.cap_day = Some(1000);
    let policies = Policies::with(&config.links, None, today).unwrap();
    let (commands, mut received) = unbounded_channel();
    let (_news, news) = unbounded_channel();
    let states = LinkStates::default();
    let mut manager = Manager::new(
        Arc::new(config),
        [7; 16],
        commands,
        news,
        states,
        policies.clone(),
    );
    manager.servers = vec!["127.0.0.1:1".parse().unwrap()];
    let path = (PathId(0), "127.0.0.1:2".parse().unwrap());
    let link = manager.links.entry("lo".to_owned()).or_default();
    link.plan.paths.push(path);
    policies.count("lo", 1000);
    for (next_day, priority) in [(false, Priority::Backup), (true, Priority::Primary)] {
        NEXT_DAY.store(next_day, Ordering::Relaxed);
        manager.look_again().await;
        match received.try_recv().ok() {
            Some(Command::Terms(PathId(0), terms)) => assert_eq!(terms.own.priority, priority),
            other => panic!("{other:?}"),
        }
    }
}

/// The traffic of a session without streams, joins and PINGs, causes no wake-up.
#[tokio::test]
async fn a_session_reports_that_its_streams_move_bytes() {
    let (server, key) = (
        SecretKey::generate().unwrap(),
        SecretKey::generate().unwrap(),
    );
    let address = serve(server_config(&server, &key)).await;
    let (driver, mut manager) = session(&server, client_config(&server, &key, "127.0.0.1:1"));
    let driver = tokio::spawn(driver);
    manager.servers = vec![address];
    manager.refresh(true).await.unwrap();
    let dialed = manager.dials.join_next().await.unwrap().unwrap();
    assert!(manager.on_dialed(dialed, false).unwrap());
    let (reply, status) = oneshot::channel();
    let _ = manager.commands.send(Command::Status(reply));
    assert_eq!(status.await.unwrap().paths.len(), 1);
    assert!(manager.news.try_recv().is_err());
    let (reply, stream) = oneshot::channel();
    let _ = manager.commands.send(Command::Open(Opening {
        target: Target::from(address).encode(),
        class: None,
        early: Some(Early::Never),
        reply,
        since: Instant::now(),
    }));
    assert!(stream.await.unwrap().is_ok());
    let news = tokio::time::timeout(Duration::from_secs(10), manager.news.recv()).await;
    assert_eq!(news, Ok(Some(CarrierNews::Moving)));
    driver.abort();
}
