//! The carriers of a link: their group, their totals, and the pauses between dials.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::num::NonZeroU8;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sumlink_transport::config::{Carriers, ClientConfig, ServerConfig, SessionConfig};
use sumlink_transport::{CarrierGroups, Client, SecretKey};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::{Running, bytes, echo};

/// The sessions of the carriers passed to it.
#[derive(Debug, Default)]
struct Joined(Mutex<Vec<[u8; 16]>>);

impl CarrierGroups for Joined {
    fn join(&self, _: BorrowedFd<'_>, session: &[u8; 16]) -> io::Result<()> {
        self.0.lock().unwrap().push(*session);
        // An error here does not end the carrier.
        Err(io::Error::other("no"))
    }
}

#[tokio::test]
async fn each_end_gets_every_carrier_and_its_session() {
    let key = SecretKey::generate().unwrap();
    let [at_client, at_server] = [(); 2].map(|()| Arc::new(Joined::default()));
    let groups = Arc::clone(&at_server);
    let running = Running::start(&[&key], |config| config.groups = Some(groups)).await;
    let mut config = running.client(&key);
    config.groups = Some(at_client.clone());
    config.carriers = Carriers::Fixed(NonZeroU8::new(3).unwrap());
    let _client = Client::connect(config).await.unwrap();
    let sessions = [&at_client, &at_server].map(|joined| {
        let joined = Arc::clone(joined);
        async move {
            while joined.0.lock().unwrap().len() < 3 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let sessions = joined.0.lock().unwrap();
            sessions.clone()
        }
    });
    let [client, server] = sessions;
    let both = async { tokio::join!(client, server) };
    let (client, server) = tokio::time::timeout(Duration::from_secs(60), both)
        .await
        .expect("three carriers");
    assert_eq!(client, [client[0]; 3]);
    assert_eq!(server, client);
}

/// The first connection is cut in the middle of the session; the totals keep its bytes.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_keeps_its_totals_when_its_path_is_replaced() {
    let key = SecretKey::generate().unwrap();
    let name = |config: &mut ServerConfig| config.authorized[0].name = "laptop".to_owned();
    let server = Running::start(&[&key], name).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let way = listener.local_addr().unwrap();
    let (cut, is_cut) = watch::channel(0);
    let to = server.address;
    tokio::spawn(async move {
        let mut number = 0;
        while let Ok((mut client, _)) = listener.accept().await {
            number += 1;
            let mut is_cut = is_cut.clone();
            tokio::spawn(async move {
                let mut server = TcpStream::connect(to).await.unwrap();
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                    _ = is_cut.wait_for(|cut| *cut >= number) => {}
                }
            });
        }
    });
    let mut config = server.client(&key);
    config.server = way.to_string();
    let client = Client::connect(config).await.unwrap();
    let mut stream = client.open_stream(echo().await).await.unwrap();
    let data = bytes(300_000);
    let mut received = vec![0; data.len()];
    let (mut reader, mut writer) = tokio::io::split(&mut stream);
    let (read, written) = tokio::join!(reader.read_exact(&mut received), writer.write_all(&data));
    read.unwrap();
    written.unwrap();
    let before = client.status().await.links.remove(0);
    assert_eq!(
        (before.link.as_str(), before.paths, before.paths_total),
        ("lo", 1, 1)
    );
    assert!(
        before.bytes_sent > 300_000 && before.bytes_received > 300_000,
        "{before:?}"
    );
    cut.send_replace(1);
    let status = loop {
        let status = client.status().await;
        if status
            .links
            .iter()
            .any(|link| (link.paths, link.paths_total) == (1, 2))
        {
            break status;
        }
        tokio::task::yield_now().await;
    };
    let after = &status.links[0];
    assert!(after.bytes_sent >= before.bytes_sent, "{after:?}");
    assert!(after.bytes_received >= before.bytes_received, "{after:?}");
    assert!(
        after.send_share > 0.99 && after.receive_share > 0.99,
        "{after:?}"
    );
    assert!(
        status.paths[0].bytes_received < 300_000,
        "{:?}",
        status.paths
    );
    assert_eq!(status.client, "");
    let at_server = server.handle.status().await.remove(0);
    assert_eq!(at_server.client, "laptop");
    assert!(
        at_server.links[0].bytes_received >= 300_000,
        "{:?}",
        at_server.links
    );
    client.close().await;
}

/// A relay to the server that counts its connections.
async fn counting_way(server: SocketAddr) -> (SocketAddr, watch::Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (count, counted) = watch::channel(0);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            count.send_modify(|dials| *dials += 1);
            tokio::spawn(async move {
                let mut server = TcpStream::connect(server).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    (address, counted)
}

/// A link should have four connections, but only two of them survive. After the third dial there
/// must be fewer than `many` dials within three seconds. Without pauses there would be far more; a
/// slow machine dials less.
async fn dials_are_fewer_than(
    many: usize,
    at_server: impl FnOnce(&mut ServerConfig),
    at_client: impl FnOnce(&mut ClientConfig),
) {
    let key = SecretKey::generate().unwrap();
    let server = Running::start(&[&key], at_server).await;
    let (way, mut dials) = counting_way(server.address).await;
    let mut config = server.client(&key);
    config.server = way.to_string();
    config.carriers = Carriers::Fixed(NonZeroU8::new(4).unwrap());
    at_client(&mut config);
    let client = Client::connect(config).await.unwrap();
    tokio::time::timeout(Duration::from_secs(60), dials.wait_for(|dials| *dials >= 3))
        .await
        .expect("a third dial")
        .unwrap();
    let so_many = dials.wait_for(|dials| *dials >= many);
    let reached = tokio::time::timeout(Duration::from_secs(3), so_many).await;
    assert!(reached.is_err(), "{many} dials in three seconds");
    let paths = client.status().await.paths;
    let active = paths.iter().filter(|path| path.state == "active").count();
    assert!(active >= 2, "the first two go on: {paths:?}");
}

fn takes_two_paths(config: &mut SessionConfig) {
    config.scheduler = "musher".to_owned();
    config.own_schedulers = sumlink_schedulers::all();
}

/// Dials that are refused at once run in parallel: four. The next ones follow after five seconds.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_whose_path_the_clients_own_session_refuses_is_dialed_after_a_pause() {
    let at_client = |config: &mut ClientConfig| takes_two_paths(&mut config.session);
    dials_are_fewer_than(8, |_| {}, at_client).await;
}

/// The third dial, and again after 0.25, 0.75 and 1.75 s: six.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_a_path_is_dialed_after_pauses_that_grow() {
    let at_server = |config: &mut ServerConfig| takes_two_paths(&mut config.session);
    dials_are_fewer_than(10, at_server, |_| {}).await;
}

/// Breaks every connection that joins after the first two.
#[derive(Debug, Default)]
struct Breaks(AtomicUsize);

impl CarrierGroups for Breaks {
    fn join(&self, socket: BorrowedFd<'_>, _: &[u8; 16]) -> io::Result<()> {
        if self.0.fetch_add(1, Ordering::Relaxed) >= 2 {
            let tcp = std::net::TcpStream::from(socket.try_clone_to_owned()?);
            tcp.shutdown(Shutdown::Both)?;
        }
        Ok(())
    }
}

/// Two every 0.25 s: a connection that joins does not shorten the pause after another one has
/// ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_with_short_lived_paths_is_dialed_with_pauses() {
    let at_client = |config: &mut ClientConfig| config.groups = Some(Arc::new(Breaks::default()));
    dials_are_fewer_than(60, |_| {}, at_client).await;
}
