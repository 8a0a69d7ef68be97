//! The QUIC connections of a session without flows of datagrams.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sumlink_exit::datagram::DatagramSocket;
use sumlink_exit::target::Target;
use tokio::sync::{oneshot, watch};

use super::fixture::session_with;
use crate::carrier::keys::SecretKey;
use crate::fixture::{client_config, serve, server_config};
use crate::session::command::Command;
use crate::session::sources::Sources;

#[tokio::test]
async fn a_session_without_flows_ends_its_quic_connections_and_the_next_flow_makes_new_ones() {
    let [server, key] = [(); 2].map(|()| SecretKey::generate().unwrap());
    let address = serve(server_config(&server, &key)).await;
    let config = client_config(&server, &key, &address.to_string());
    let sources = Arc::<Sources>::default();
    let (mut driver, manager) = session_with(&server, config, &sources);
    driver.keep_datagrams_for(Duration::from_secs(1));
    let commands = manager.commands.clone();
    let (close, mut closing) = watch::channel(false);
    let session = tokio::spawn(async move { manager.run(driver, &mut closing, || ()).await });
    let carrier_is = async |wanted: &str| {
        loop {
            let (reply, status) = oneshot::channel();
            commands.send(Command::Status(reply)).unwrap();
            let paths = status.await.unwrap().datagram_paths;
            if let [path] = paths.as_slice()
                && path.carrier == wanted
            {
                return path.reason.clone();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let wait = async {
        carrier_is("udp").await;
        let reason = carrier_is("tcp").await;
        assert!(reason.contains("no datagrams"), "{reason}");
        let source = sources.bind(None, None);
        let target = Target::from(SocketAddr::from(([127, 0, 0, 1], 9)));
        let data = Bytes::from_static(b"data");
        source.send(&target, data, None).unwrap();
        carrier_is("udp").await;
    };
    tokio::time::timeout(Duration::from_secs(30), wait)
        .await
        .expect("QUIC ends and returns");
    close.send_replace(true);
    session.await.unwrap();
}
