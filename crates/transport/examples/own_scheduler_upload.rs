//! Sends a file to a program behind a server with a scheduler of this program.
//!
//! ```text
//! cargo run -p sumlink-transport --example own_scheduler_upload -- \
//!     SERVER:PORT SERVER_KEY client.key HOST:PORT FILE
//! ```
//!
//! The scheduler decides about the bytes that this client sends. The server schedules its own
//! direction: a server with such a scheduler sets `own_schedulers` in its `ServerConfig`'s session.

#![allow(clippy::print_stderr, reason = "an example")]

use std::error::Error;
use std::path::Path;

use sumlink_engine::PathId;
use sumlink_engine::scheduler::{OwnSchedulers, Pick, Scheduler, View, lowest_unsent};
use sumlink_transport::config::{ClientConfig, SessionConfig};
use sumlink_transport::{Client, SecretKey};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Sends the stream's bytes in order, and only over the path with the highest rate.
#[derive(Debug)]
struct Fastest;

impl Scheduler for Fastest {
    fn name(&self) -> &'static str {
        "fastest"
    }

    fn pick(&mut self, path: PathId, budget: u64, view: &View<'_>) -> Pick {
        let rates = view.active_paths().map(sumlink_engine::Path::rate);
        let highest = rates.max_by(f64::total_cmp);
        match view.path(path) {
            Some(asking) if Some(asking.rate()) == highest => lowest_unsent(view, budget),
            // It is asked again after every change: another path may have become the slower one.
            _ => Pick::Idle,
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, server_key, key, target, file] = arguments.as_slice() else {
        return Err(
            "usage: own_scheduler_upload SERVER:PORT SERVER_KEY KEY_FILE HOST:PORT FILE".into(),
        );
    };
    let mut own_schedulers = OwnSchedulers::default();
    own_schedulers.add("fastest", |_| Box::new(Fastest))?;

    let key = SecretKey::load(Path::new(key))?;
    let config = ClientConfig::new(server, server_key.parse()?, key).session(SessionConfig {
        scheduler: "fastest".to_owned(),
        own_schedulers,
        ..SessionConfig::default()
    });
    let client = Client::connect(config).await?;

    let mut stream = client.open_stream(target.parse()?).await?;
    let bytes = std::fs::read(file)?;
    stream.write_all(&bytes).await?;
    stream.shutdown().await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    eprintln!(
        "{} bytes sent, {} bytes of answer",
        bytes.len(),
        answer.len()
    );
    for path in client.status().await.paths {
        eprintln!("{}: {} bytes sent", path.link, path.bytes_sent);
    }
    client.close().await;
    Ok(())
}
