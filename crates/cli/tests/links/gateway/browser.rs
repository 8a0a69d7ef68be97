//! A browser on a LAN host without proxy settings: pages over HTTP/2 and HTTP/3.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use quinn::crypto::rustls::QuicServerConfig;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use sumlink_lab::Side;
use sumlink_test_support::browser::{self, browser};
use sumlink_test_support::emulated::Bench;
use sumlink_test_support::emulated::lan::Lan;
use tokio::runtime::Runtime;

use super::{CAPTURES, Helper, V4, V6, assert_no_leak, lan};
use crate::quic::endpoint;

const NAME: &str = "www.example.test";
/// Scripts of the page; each writes a line with the protocol that brought it.
const PARTS: usize = 20;

/// Makes a certificate for [`NAME`]; the hash by which the browser knows it.
fn certificate(bench: &Bench) -> String {
    let script = format!(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 10 \
         -keyout key.pem -out cert.pem -subj /CN={NAME} -addext subjectAltName=DNS:{NAME} \
         2>/dev/null\n\
         openssl x509 -in cert.pem -outform der -out cert.der\n\
         openssl pkcs8 -topk8 -nocrypt -in key.pem -outform der -out key.der\n\
         openssl x509 -in cert.pem -pubkey -noout | openssl pkey -pubin -outform der |\n\
         openssl dgst -sha256 -binary | openssl enc -base64\n"
    );
    let hash = bench.run(Side::Internet, &["sh", "-e", "-c", &script]);
    hash.trim().to_owned()
}

fn page() -> String {
    let parts = (0..PARTS).map(|part| format!("<script src=/part/{part}></script>"));
    format!("<html><body>{}</body></html>", parts.collect::<String>())
}

/// The line that a script writes.
fn line(part: impl std::fmt::Display, protocol: &str) -> String {
    format!("document.write('<p>part {part} by {protocol}</p>');")
}

/// nginx with TLS on port 443, which speaks HTTP/2.
fn http2(bench: &Bench) -> Child {
    let config = format!(
        "user root root;\ndaemon off;\nmaster_process off;\npid tls.pid;\nerror_log stderr;\n\
         events {{ }}\nhttp {{\n  access_log off;\n  server {{\n    listen {V4}:443 ssl http2;\n    \
         listen [{V6}]:443 ssl http2;\n    \
         ssl_certificate cert.pem;\n    ssl_certificate_key key.pem;\n    \
         location = / {{ default_type text/html; return 200 \"{}\"; }}\n    \
         location ~ ^/part/(\\d+)$ {{ default_type application/javascript; return 200 \"{}\"; }}\n  \
         }}\n}}\n",
        page(),
        line("$1", "$server_protocol"),
    );
    let config = bench.write("tls.conf", config);
    let mut command = Command::new("nginx");
    command
        .arg("-p")
        .arg(bench.dir())
        .arg("-c")
        .arg(config)
        .args(["-e", "stderr"])
        .stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let child = bench.lab.spawn(Side::Internet, command).unwrap();
    bench.until_listening(Side::Internet, 443);
    child
}

/// A server of the same page by HTTP/3 only, as long as the runtime exists.
fn http3(bench: &Bench, runtime: &Runtime) {
    let der = |name: &str| fs::read(bench.path(name)).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from(der("cert.der"))],
            PrivatePkcs8KeyDer::from(der("key.der")).into(),
        )
        .unwrap();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let tls = QuicServerConfig::try_from(tls).unwrap();
    let config = quinn::ServerConfig::with_crypto(Arc::new(tls));
    for ip in [V4, V6] {
        let address = SocketAddr::new(ip.parse().unwrap(), 443);
        let bind = move || UdpSocket::bind(address).unwrap();
        let socket = bench.lab.run(Side::Internet, bind).unwrap();
        let _inside = runtime.enter();
        let endpoint = endpoint(socket, Some(config.clone()));
        runtime.spawn(async move {
            while let Some(incoming) = endpoint.accept().await {
                tokio::spawn(async move {
                    if let Ok(connection) = incoming.await {
                        serve(connection).await;
                    }
                });
            }
        });
    }
}

/// Answers requests until the browser closes the connection.
async fn serve(connection: quinn::Connection) {
    let connection = h3_quinn::Connection::new(connection);
    let made = h3::server::Connection::<_, Bytes>::new(connection).await;
    let Ok(mut connection) = made else { return };
    while let Ok(Some(resolver)) = connection.accept().await {
        tokio::spawn(async move {
            let Ok((request, mut stream)) = resolver.resolve_request().await else {
                return;
            };
            let path = request.uri().path();
            let (kind, body) = match path.strip_prefix("/part/") {
                Some(part) => ("application/javascript", line(part, "HTTP/3")),
                None => ("text/html", page()),
            };
            let response = http::Response::builder()
                .header("content-type", kind)
                .body(())
                .unwrap();
            let _ = stream.send_response(response).await;
            let _ = stream.send_data(body.into()).await;
            let _ = stream.finish().await;
        });
    }
}

/// The page as the browser of the LAN host shows it, after its scripts.
fn shown(lan: &Lan, browser: &str, hash: &str, more: &[&str], profile: &str) -> String {
    let directory = format!("--user-data-dir={}", lan.bench.path(profile).display());
    let known = format!("--ignore-certificate-errors-spki-list={hash}");
    let url = format!("https://{NAME}/");
    let words = [&[browser], browser::OPTIONS, &[&directory, &known], more];
    let words = [&words.concat()[..], &["--dump-dom", &url]].concat();
    let output = lan.try_on(Side::Lan, &words);
    let [shown, log] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    if !output.status.success() || !shown.contains("by ") {
        eprintln!("{browser}: {}: {log}", output.status);
    }
    shown
}

#[test]
fn a_browser_on_a_lan_host_loads_pages_over_http2_and_http3() {
    let Some(browser) = browser() else { return };
    let Some(mut lan) = lan() else { return };
    let hash = certificate(&lan.bench);
    let runtime = Runtime::new().unwrap();
    let nginx = Helper(http2(&lan.bench));
    http3(&lan.bench, &runtime);
    // Only HTTP/3 is left for the second round.
    let forced = format!("--origin-to-force-quic-on={NAME}:443");
    let rounds = [
        ("HTTP/2.0", Some(nginx), &[][..]),
        ("HTTP/3", None, &["--enable-quic", &forced]),
    ];
    for (protocol, nginx, more) in rounds {
        for capture in CAPTURES {
            let captures = lan.capture_links();
            lan.up(&format!("capture = \"{capture}\"\n"));
            let profile = format!("profile-{protocol}-{capture}").replace('/', "-");
            let shown = shown(&lan, browser, &hash, more, &profile);
            for part in 0..PARTS {
                let line = format!("part {part} by {protocol}<");
                assert!(shown.contains(&line), "{capture}, {protocol}: {shown}");
            }
            assert_eq!(lan.end_gateway(), Some(0), "{capture}");
            assert_no_leak(captures, capture);
        }
        drop(nginx);
    }
    runtime.shutdown_background();
}
