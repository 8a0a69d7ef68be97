//! A SOCKS5 server (RFC 1928): CONNECT and UDP ASSOCIATE by name, IPv4 or IPv6.
//!
//! No authentication is required. A client that offers only name and password (RFC 1929) is
//! accepted with any: the port is local, and programs that insist on credentials should work. The
//! name may select the class of the stream ([`crate::ClassRule`]). BIND is answered with "command
//! not supported", and so is UDP ASSOCIATE without a [`DatagramOpener`].
//!
//! An association ends with its connection. It takes datagrams only from the host that has the
//! connection, and from one port of it: the one in the request, or else that of the first datagram.
//! Fragments are dropped. A reply names its sender as the program has addressed it.

use std::time::Duration;

use sumlink_transport::target::Target;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::associations::Associations;
use crate::classes::Classes;
use crate::{DatagramOpener, Opener};
pub(crate) use associate::send_all;
use message::{Command, Credentials, Greeting, MAX_MESSAGE, MessageError, Method, Reply, Request};
use sumlink_exit::relay::{Upload, part, relay};

mod associate;
pub mod message;

/// How long a client may take from connecting to its request.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Most bytes that a client may send ahead of the reply to its request.
const MAX_EARLY: usize = 4 * MAX_MESSAGE;

/// Serves one connection until it ends.
pub(crate) async fn serve<O: Opener, D: DatagramOpener>(
    mut local: TcpStream,
    opener: O,
    associations: Associations<D>,
    classes: Classes,
) {
    let mut early = Vec::with_capacity(MAX_EARLY);
    let named = classes.needs_user();
    let negotiated = timeout(HANDSHAKE_TIMEOUT, negotiate(&mut local, &mut early, named));
    let refusal = match negotiated.await {
        Ok(Ok((Asked::Datagrams(request), user))) => match associations.opener {
            Some(_) => {
                associate::serve(local, &request, user, associations, classes).await;
                return;
            }
            None => {
                debug!("SOCKS5 UDP ASSOCIATE is not supported here");
                Reply::CommandNotSupported.encode().to_vec()
            }
        },
        Ok(Ok((Asked::Stream(target), user))) => match opener
            .open(target.clone(), classes.of(&target, user.as_deref()))
            .await
        {
            Ok(stream) => {
                debug!(%target, "SOCKS5 connected");
                if local.write_all(&Reply::Succeeded.encode()).await.is_ok() {
                    relay(local, stream, &early, Upload::Unlimited).await;
                }
                return;
            }
            Err(error) => {
                debug!(%target, %error, "cannot open the SOCKS5 target");
                Reply::from(error).encode().to_vec()
            }
        },
        Ok(Err(Refusal::Answered(answer))) => answer,
        Ok(Err(Refusal::Gone)) => return,
        Err(_) => {
            debug!("SOCKS5 handshake not completed within {HANDSHAKE_TIMEOUT:?}");
            return;
        }
    };
    if local.write_all(&refusal).await.is_ok() {
        part(local).await;
    }
}

/// The request of a client.
enum Asked {
    /// A connection to this target.
    Stream(Target),
    /// An association.
    Datagrams(Request),
}

/// Why a handshake ended without a target.
enum Refusal {
    /// The client receives these bytes.
    Answered(Vec<u8>),
    /// The client closed the connection.
    Gone,
}

/// Negotiates up to the request and leaves the bytes after it in `received`. Returns the request,
/// and the user name if the client sent one; with `named`, the name is requested if the client
/// offers it.
async fn negotiate(
    local: &mut TcpStream,
    received: &mut Vec<u8>,
    named: bool,
) -> Result<(Asked, Option<Vec<u8>>), Refusal> {
    let greeting = read(local, received, Greeting::decode).await?;
    let method = greeting.method(named);
    if method == Method::NoneAcceptable {
        warn!(
            offered = ?greeting.methods,
            "SOCKS5 client refused; it offers no supported authentication method"
        );
        return Err(Refusal::Answered(method.encode().to_vec()));
    }
    write(local, &method.encode()).await?;
    let mut user = None;
    if method == Method::Credentials {
        user = Some(read(local, received, Credentials::decode).await?.username);
        write(local, &Credentials::ACCEPTED).await?;
    }
    let request = read(local, received, Request::decode).await?;
    match request.command {
        Command::Connect => {}
        Command::UdpAssociate => return Ok((Asked::Datagrams(request), user)),
        command => {
            debug!(?command, "SOCKS5 command not supported");
            let reply = Reply::CommandNotSupported.encode();
            return Err(Refusal::Answered(reply.to_vec()));
        }
    }
    let target = request.target().map_err(|error| {
        warn!(%error, "SOCKS5 request refused; its target is invalid");
        Refusal::Answered(Reply::Failure.encode().to_vec())
    })?;
    Ok((Asked::Stream(target), user))
}

/// Reads until `decode` has its message, and removes it from `received`.
async fn read<T>(
    local: &mut TcpStream,
    received: &mut Vec<u8>,
    decode: impl Fn(&[u8]) -> Result<Option<(T, usize)>, MessageError>,
) -> Result<T, Refusal> {
    loop {
        match decode(received) {
            Ok(Some((message, length))) => {
                received.drain(..length);
                return Ok(message);
            }
            Ok(None) => {}
            Err(error) => {
                warn!(%error, "SOCKS5 handshake refused");
                return Err(Refusal::Answered(answer(&error)));
            }
        }
        // A complete message is shorter than the limit, so its rest always fits.
        let room = MAX_EARLY.saturating_sub(received.len()) as u64;
        match (&mut *local).take(room).read_buf(received).await {
            Ok(0) | Err(_) => return Err(Refusal::Gone),
            Ok(_) => {}
        }
    }
}

async fn write(local: &mut TcpStream, bytes: &[u8]) -> Result<(), Refusal> {
    local.write_all(bytes).await.map_err(|_| Refusal::Gone)
}

/// The answer to a client that does not speak SOCKS5, in its own protocol if it has one.
fn answer(error: &MessageError) -> Vec<u8> {
    match error {
        MessageError::Http => {
            let body = "This is a SOCKS5 port, not an HTTP one. Set it as the SOCKS proxy \
                        (socks5h://), or use the HTTP proxy port.\n";
            crate::http_proxy::response("400 Bad Request", body)
        }
        // The SOCKS4 reply "request rejected or failed".
        MessageError::Socks4 => vec![0, 91, 0, 0, 0, 0, 0, 0],
        MessageError::AddressType(_) => Reply::AddressTypeNotSupported.encode().to_vec(),
        _ => Vec::new(),
    }
}
