//! The real `curl` through each kind of port.

use std::process::Output;

use crate::common::{Proxy, origin, within};
use sumlink_proxy::{Service, Target};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

const BODY: usize = 5_000_000;

/// A web server that answers GET with pseudo-random bytes, and PUT with the uploaded body.
async fn web_server(listen: &str) -> Target {
    let (listener, target) = origin(listen).await;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                let (mut length, mut line) = (None, String::new());
                while stream.read_line(&mut line).await.is_ok() && line != "\r\n" {
                    if let Some(value) = line.strip_prefix("Content-Length: ") {
                        length = value.trim().parse().ok();
                    }
                    line.clear();
                }
                let mut body = body();
                if let Some(length) = length {
                    body = vec![0; length];
                    stream.read_exact(&mut body).await.unwrap();
                }
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                stream.write_all(head.as_bytes()).await.unwrap();
                stream.write_all(&body).await.unwrap();
            });
        }
    });
    target
}

/// Bytes that do not repeat at the distance of a lost or doubled buffer.
fn body() -> Vec<u8> {
    let mut x: u32 = 1;
    let next = || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Some((x >> 24) as u8)
    };
    std::iter::from_fn(next).take(BODY).collect()
}

async fn curl(args: &[&str]) -> Output {
    let mut command = Command::new("curl");
    // The user's environment and configuration file must not change the route.
    command
        .args(["--disable", "--silent", "--show-error", "--max-time", "25"])
        .args(args);
    for variable in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
        command
            .env_remove(variable)
            .env_remove(variable.to_uppercase());
    }
    within(command.output()).await.expect("curl is installed")
}

#[tokio::test]
async fn curl_gets_the_same_bytes_through_every_port() {
    let body = body();
    for listen in ["127.0.0.1:0", "[::1]:0"] {
        let target = web_server(listen).await;
        let socks = Proxy::start(listen, Service::Socks5).await;
        let http = Proxy::start(listen, Service::HttpProxy).await;
        let forward = Proxy::start(listen, Service::Forward(target.clone())).await;
        let url = format!("http://{target}/file");
        let forward_url = format!("http://{}/file", forward.address);
        let (socks, http) = (socks.address.to_string(), http.url());
        for args in [
            &["--socks5-hostname", &socks, &url][..],
            &["--socks5", &socks, &url],
            &[
                "--socks5-hostname",
                &socks,
                "--proxy-user",
                "name:password",
                &url,
            ],
            &["--proxy", &http, &url],
            &["--proxy", &http, "--http1.0", &url],
            &["--proxy", &http, "--proxytunnel", &url],
            &["--noproxy", "*", &forward_url],
        ] {
            let output = curl(args).await;
            assert!(output.status.success(), "{args:?}: {output:?}");
            assert!(
                output.stdout == body,
                "{args:?}: {} bytes",
                output.stdout.len()
            );
        }
    }
}

#[tokio::test]
async fn curl_uploads_and_reuses_its_proxy() {
    let target = web_server("127.0.0.1:0").await;
    let proxy = Proxy::start("127.0.0.1:0", Service::HttpProxy).await;
    let (url, http) = (format!("http://{target}/file"), proxy.url());
    let upload = ["--proxy", &http, "-X", "PUT", "--data-binary", "some bytes"];
    // Two requests in one run: the second must not use the first one's connection.
    let output = curl(&[&upload[..], &[&url, &url]].concat()).await;
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, b"some bytessome bytes");
}

#[tokio::test]
async fn curl_resolves_names_behind_the_proxy_and_explains_failures() {
    let port = web_server("127.0.0.1:0").await.port;
    let socks = Proxy::start("127.0.0.1:0", Service::Socks5).await;
    let http = Proxy::start("127.0.0.1:0", Service::HttpProxy).await;
    let (socks, http) = (socks.address.to_string(), http.url());
    let url = format!("http://only-known-behind-the-proxy.test:{port}/");
    for proxy in [["--socks5-hostname", &socks], ["--proxy", &http]] {
        let output = curl(&[&proxy[..], &[&url]].concat()).await;
        assert!(output.status.success(), "{output:?}");
    }
    let output = curl(&["--proxy", &http, "http://unknown.test/"]).await;
    assert_eq!(output.stdout, b"the name does not resolve at the server\n");
    // CURLE_PROXY: the proxy handshake failed.
    let output = curl(&["--socks5-hostname", &socks, "http://closed.test/"]).await;
    assert_eq!(output.status.code(), Some(97), "{output:?}");
    let output = curl(&["--proxy", &format!("http://{socks}"), "http://a/"]).await;
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("This is a SOCKS5 port"));
}
