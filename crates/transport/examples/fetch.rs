//! Fetches a page over every link of this machine at once.
//!
//! `cargo run -p sumlink-transport --example fetch -- SERVER:PORT SERVER_KEY client.key
//! HOST:PORT/PATH`

#![allow(clippy::print_stderr, reason = "an example")]

use std::error::Error;
use std::path::Path;

use sumlink_transport::config::{Carriers, ClientConfig, SessionConfig};
use sumlink_transport::{Client, SecretKey, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, server_key, key, url] = arguments.as_slice() else {
        return Err("usage: fetch SERVER:PORT SERVER_KEY KEY_FILE HOST:PORT/PATH".into());
    };
    let (target, path) = url.split_once('/').unwrap_or((url, ""));
    let target: Target = target.parse()?;

    let client = Client::connect(ClientConfig {
        server: server.clone(),
        server_key: server_key.parse()?,
        key: SecretKey::load(Path::new(key))?,
        links: Vec::new(), // every link that leads to the server
        congestion: None,
        groups: None,
        carriers: Carriers::ONE,
        state: None,
        session: SessionConfig::default(),
    })
    .await?;

    let mut events = client.events();
    tokio::spawn(async move {
        while let Ok(event) = events.recv().await {
            eprintln!("{event:?}");
        }
    });

    let mut stream = client.open_stream(target.clone()).await?;
    let request = format!("GET /{path} HTTP/1.0\r\nHost: {target}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    // Not shut down yet: many servers treat the end of the client's direction as a cancelled
    // request.
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    stream.shutdown().await?;

    let head = answer
        .windows(4)
        .position(|w| w == b"\r\n\r\n")
        .ok_or("no HTTP answer")?;
    let text = String::from_utf8_lossy(&answer[..head]).to_lowercase();
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"));
    let body = answer.len() - head - 4;
    if length.is_some_and(|length| length.trim().parse() != Ok(body)) {
        return Err(format!("cut short: {body} bytes of{}", length.unwrap_or_default()).into());
    }
    eprintln!("{}: {body} bytes", text.lines().next().unwrap_or_default());
    for path in client.status().await.paths {
        eprintln!(
            "{}: {:.0} % of them, srtt {:.1} ms",
            path.link,
            100.0 * path.receive_share,
            path.srtt_ms
        );
    }
    client.close().await;
    Ok(())
}
