//! Many clients of three servers, one of which dies.

use std::path::Path;
use std::time::{Duration, Instant};

use sumlink_transport::config::{Alternative, ClientConfig, LinkConfig};
use sumlink_transport::{Client, PublicKey, SecretKey, descriptors};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Scene;

/// Number of clients.
const CLIENTS: usize = 300;

/// Time for all of them to connect, or to return. On an idle machine they return in two seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether a client has an active path, and not to this server.
async fn is_elsewhere(client: &Client, server: &str) -> bool {
    let status = client.status().await;
    let is_active = status.paths.iter().any(|path| path.state == "active");
    is_active && status.server != server
}

/// Adds clients to the database, which the servers do not read while they do not run.
fn add_clients(scene: &Scene, keys: &[SecretKey]) {
    let rows = keys.iter().enumerate().map(|(number, key)| {
        let hex: String = key
            .public()
            .as_bytes()
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        format!(
            "INSERT INTO sumlink_clients SELECT decode('{hex}', 'hex'), 'client-{number}', \
             created, disabled, expires, quota, 0, 0, sent_now, received_now, changed \
             FROM sumlink_clients WHERE name = 'first';"
        )
    });
    let rows: String = rows.collect();
    scene.database.sql("sumlink", &rows);
}

#[test]
fn all_clients_of_a_killed_server_are_back_at_the_others() {
    descriptors::raise();
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let joined = scene
        .join(&scene.invitation("a", "first"), "first")
        .output();
    assert!(joined.unwrap().status.success());
    for (mut server, _) in scene.servers.drain(..) {
        server.signal("TERM");
        server.wait();
    }
    let keys: Vec<SecretKey> = (0..CLIENTS)
        .map(|_| SecretKey::generate().unwrap())
        .collect();
    add_clients(&scene, &keys);
    for name in ["a", "b", "c"] {
        scene.start(name);
    }
    let key_of = |name: &str| {
        let key = SecretKey::load(Path::new(&scene.bench.path(&format!("{name}.key"))));
        key.unwrap().public()
    };
    let names = ["a", "b", "c"].into_iter().map(key_of);
    let servers: Vec<(String, PublicKey)> = scene
        .servers
        .iter()
        .map(|(_, address)| address.clone())
        .zip(names)
        .collect();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let elapsed = runtime.block_on(async {
        let mut connecting = JoinSet::new();
        for key in keys {
            let others = servers[1..].iter().map(|(server, server_key)| Alternative {
                server: server.clone(),
                server_key: *server_key,
            });
            let config = ClientConfig::new(&servers[0].0, servers[0].1, key)
                .alternatives(others.collect())
                .links(vec![LinkConfig::named("lo")]);
            connecting.spawn(async move { Client::connect(config).await.unwrap() });
        }
        let clients = tokio::time::timeout(PATIENCE, connecting.join_all())
            .await
            .unwrap();
        let mut of_server = vec![0; servers.len()];
        for client in &clients {
            let at = servers
                .iter()
                .position(|(server, _)| *server == client.server());
            of_server[at.unwrap()] += 1;
        }
        let (busiest, count) = of_server
            .iter()
            .enumerate()
            .max_by_key(|(_, count)| **count)
            .unwrap();
        println!("clients at each server: {of_server:?}");
        assert!(*count >= CLIENTS / 3);
        scene.servers[busiest].0.signal("KILL");
        scene.servers[busiest].0.wait();
        let begun = Instant::now();
        for client in &clients {
            while !is_elsewhere(client, &servers[busiest].0).await {
                assert!(
                    begun.elapsed() < PATIENCE,
                    "{count} of {CLIENTS} clients were there"
                );
                sleep(Duration::from_millis(20)).await;
            }
        }
        begun.elapsed()
    });
    println!("all are back after {elapsed:.2?}");
}
