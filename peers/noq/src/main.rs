//! TCP connections through one multipath QUIC connection of noq, for comparisons in the laboratory.
//!
//! ```text
//! noq-tunnel server --listen IP:PORT --target IP:PORT --congestion NAME --certificate FILE
//! noq-tunnel client --listen IP:PORT --server IP:PORT --congestion NAME --certificate FILE --path LINK=IP ...
//! ```
//!
//! Every TCP connection becomes a bidirectional stream. The first path goes where the machine's
//! routes lead, each further `--path` has its own source address, which the routes must lead over
//! its link. The server writes its certificate to the file, the client trusts only that.

use std::collections::HashMap;
use std::error::Error;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use noq::{
    ClientConfig, Connection, Endpoint, EndpointConfig, ServerConfig, TransportConfig, VarInt,
};
use noq_proto::congestion::{Bbr3Config, ControllerFactory, CubicConfig, NewRenoConfig};
use noq_proto::{FourTuple, PathStatus};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Buffers of sockets and flow-control windows: what TCP may have in the laboratory.
const BUFFER: u32 = 32 << 20;
/// Time until a path that could not be opened is tried again.
const AGAIN: Duration = Duration::from_millis(200);
/// Name in the certificate.
const NAME: &str = "noq-tunnel";

#[tokio::main]
async fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let role = words.next().unwrap_or_default();
    if role == "--version" {
        println!("noq-tunnel {}", env!("CARGO_PKG_VERSION"));
        return Ok(());
    }
    let mut options = HashMap::new();
    let mut paths = Vec::new();
    while let (Some(key), Some(value)) = (words.next(), words.next()) {
        if key == "--path" {
            paths.push(value);
        } else {
            options.insert(key, value);
        }
    }
    let options = Options(options);
    match role.as_str() {
        "server" => server(&options).await,
        "client" => client(&options, &paths).await,
        _ => Err("usage: noq-tunnel server|client --listen IP:PORT ...".into()),
    }
}

struct Options(HashMap<String, String>);

impl Options {
    fn text(&self, key: &str) -> Result<&str> {
        let value = self.0.get(key).map(String::as_str);
        value.ok_or_else(|| format!("{key} is missing").into())
    }

    fn address(&self, key: &str) -> Result<SocketAddr> {
        Ok(self.text(key)?.parse()?)
    }
}

/// The same windows for both sides, as large as TCP's buffers.
fn transport(congestion: &str) -> Result<Arc<TransportConfig>> {
    let factory: Arc<dyn ControllerFactory + Send + Sync> = match congestion {
        "cubic" => Arc::new(CubicConfig::default()),
        "reno" => Arc::new(NewRenoConfig::default()),
        "bbr" => Arc::new(Bbr3Config::default()),
        other => return Err(format!("no congestion control '{other}'").into()),
    };
    let mut config = TransportConfig::default();
    config
        .congestion_controller_factory(factory)
        .max_concurrent_multipath_paths(32)
        .stream_receive_window(VarInt::from_u32(BUFFER))
        .receive_window(VarInt::from_u32(2 * BUFFER))
        .send_window(2 * u64::from(BUFFER))
        .max_concurrent_bidi_streams(VarInt::from_u32(1024));
    Ok(Arc::new(config))
}

/// A UDP socket with large buffers.
fn socket(address: SocketAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    setsockopt(&socket, sockopt::RcvBufForce, &(BUFFER as usize))?;
    setsockopt(&socket, sockopt::SndBufForce, &(BUFFER as usize))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

async fn server(options: &Options) -> Result<()> {
    let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned()])?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let mut config = ServerConfig::with_single_cert(vec![made.cert.der().clone()], key)?;
    config.transport_config(transport(options.text("--congestion")?)?);
    let endpoint = Endpoint::new(
        EndpointConfig::default(),
        Some(config),
        socket(options.address("--listen")?)?,
        Arc::new(noq::TokioRuntime),
    )?;
    let target = options.address("--target")?;
    std::fs::write(options.text("--certificate")?, made.cert.der())?;
    println!("ready");
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async move {
            let connection = incoming.await?;
            while let Ok((send, receive)) = connection.accept_bi().await {
                tokio::spawn(async move {
                    let stream = TcpStream::connect(target).await?;
                    relay(stream, send, receive).await
                });
            }
            Result::Ok(())
        });
    }
    Ok(())
}

async fn client(options: &Options, paths: &[String]) -> Result<()> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from(std::fs::read(
        options.text("--certificate")?,
    )?))?;
    let mut config = ClientConfig::with_root_certificates(Arc::new(roots))?;
    config.transport_config(transport(options.text("--congestion")?)?);
    let endpoint = Endpoint::new(
        EndpointConfig::default(),
        None,
        socket("0.0.0.0:0".parse()?)?,
        Arc::new(noq::TokioRuntime),
    )?;
    endpoint.set_default_client_config(config);
    let server = options.address("--server")?;
    let connection = endpoint.connect(server, NAME)?.await?;
    println!("path 0 opened");
    // The first link has the handshake's path.
    for path in paths.iter().skip(1) {
        let (link, ip) = path.split_once('=').ok_or("--path LINK=IP")?;
        open(connection.clone(), link.to_owned(), server, ip.parse()?);
    }
    let listener = TcpListener::bind(options.address("--listen")?).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let connection = connection.clone();
        tokio::spawn(async move {
            let (send, receive) = connection.open_bi().await?;
            relay(stream, send, receive).await
        });
    }
}

/// Opens a path, again and again until that succeeds: the link may be down.
fn open(connection: Connection, link: String, server: SocketAddr, ip: IpAddr) {
    tokio::spawn(async move {
        loop {
            let four = FourTuple::new(server, Some(ip));
            match connection.open_path(four, PathStatus::Available).await {
                Ok(path) => {
                    println!("path {:?} opened on {link}", path.id());
                    // The path lives as long as somebody holds it.
                    connection.closed().await;
                    drop(path);
                    return;
                }
                Err(error) => {
                    eprintln!("{link}: {error}");
                    if connection.close_reason().is_some() {
                        return;
                    }
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    });
}

/// Copies both directions until each has ended.
async fn relay(
    mut stream: TcpStream,
    mut send: noq::SendStream,
    mut receive: noq::RecvStream,
) -> Result<()> {
    let (mut from, mut to) = stream.split();
    let up = async {
        let mut buffer = vec![0; 256 << 10];
        loop {
            let len = tokio::io::AsyncReadExt::read(&mut from, &mut buffer).await?;
            if len == 0 {
                send.finish()?;
                return Result::Ok(());
            }
            send.write_all(&buffer[..len]).await?;
        }
    };
    let down = async {
        while let Some(chunk) = receive.read_chunk(256 << 10).await? {
            to.write_all(&chunk).await?;
        }
        to.shutdown().await?;
        Result::Ok(())
    };
    let (up, down) = tokio::join!(up, down);
    up.and(down)
}
