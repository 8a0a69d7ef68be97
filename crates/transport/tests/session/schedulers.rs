//! Schedulers that a program brings along.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sumlink_engine::scheduler::{OwnSchedulers, Pick, Scheduler, View, lowest_unsent};
use sumlink_engine::{PathId, Role};
use sumlink_transport::config::SessionConfig;
use sumlink_transport::{Client, SecretKey};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{Running, bytes, echo};

/// Sends bytes in order on the path that asks, and counts them.
#[derive(Debug)]
struct Counts(Arc<AtomicU64>);

impl Scheduler for Counts {
    fn name(&self) -> &'static str {
        "counts"
    }

    fn pick(&mut self, _: PathId, budget: u64, view: &View<'_>) -> Pick {
        let pick = lowest_unsent(view, budget);
        if let Pick::Send { range, .. } = &pick {
            self.0.fetch_add(range.end - range.start, Ordering::Relaxed);
        }
        pick
    }

    fn max_paths(&self) -> Option<usize> {
        Some(1)
    }
}

/// A registry with the scheduler `counts`, and the number of bytes that it has sent.
fn counting() -> (OwnSchedulers, Arc<AtomicU64>) {
    let sent = Arc::new(AtomicU64::new(0));
    let (mut own, counter) = (OwnSchedulers::default(), Arc::clone(&sent));
    let make = move |_: Role| Box::new(Counts(Arc::clone(&counter))) as Box<dyn Scheduler>;
    own.add("counts", make).unwrap();
    (own, sent)
}

/// Each side chooses the scheduler of the bytes that it sends.
#[tokio::test(flavor = "multi_thread")]
async fn schedulers_of_the_program_send_the_bytes_of_their_side() {
    let key = SecretKey::generate().unwrap();
    let [(at_server, down), (at_client, up)] = [counting(), counting()];
    let choose = |session: &mut SessionConfig, own: OwnSchedulers| {
        session.scheduler = "counts".to_owned();
        session.own_schedulers = own;
    };
    let server = Running::start(&[&key], |config| choose(&mut config.session, at_server)).await;
    let mut config = server.client(&key);
    choose(&mut config.session, at_client);
    let client = Client::connect(config).await.unwrap();
    let mut stream = client.open_stream(echo().await).await.unwrap();
    let data = bytes(1_000_000);
    let mut received = vec![0; data.len()];
    let (mut reader, mut writer) = tokio::io::split(&mut stream);
    let (read, written) = tokio::join!(reader.read_exact(&mut received), writer.write_all(&data));
    read.unwrap();
    written.unwrap();
    assert!(received == data);
    for sent in [&up, &down] {
        assert_eq!(sent.load(Ordering::Relaxed), 1_000_000);
    }
    assert_eq!(client.status().await.scheduler, "counts");
    assert_eq!(server.handle.status().await[0].scheduler, "counts");
    client.close().await;
}

#[tokio::test]
async fn a_scheduler_that_only_the_peer_has_is_refused() {
    let key = SecretKey::generate().unwrap();
    let (own, _) = counting();
    let server = Running::start(&[&key], |config| config.session.own_schedulers = own).await;
    let mut config = server.client(&key);
    config.session.scheduler = "counts".to_owned();
    let refusal = Client::connect(config).await.unwrap_err().to_string();
    assert!(
        refusal.contains("unknown scheduler \"counts\""),
        "{refusal}"
    );
}
