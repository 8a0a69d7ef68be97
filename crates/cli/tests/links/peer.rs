//! A peer of the server that sends what a test wants.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConfig, ClientConnection, StreamOwned};
use sumlink_engine::frame::{Frame, Hello, VERSION};
use sumlink_lab::Side;
use sumlink_transport::{SecretKey, tls};

use crate::bond::SERVER;
use sumlink_test_support::emulated::{Bench, PATIENCE};

/// A connection after the TLS handshake.
pub(crate) struct Peer {
    stream: StreamOwned<ClientConnection, TcpStream>,
    buffer: Vec<u8>,
}

/// The next message of the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Welcome,
    Refuse {
        code: u64,
    },
    Pong {
        token: u64,
    },
    Close {
        code: u64,
    },
    /// The connection is over.
    End,
}

/// A TCP connection from the client's namespace to the server.
pub(crate) fn dial(bench: &Bench) -> TcpStream {
    let stream = bench
        .lab
        .run(Side::Client, || TcpStream::connect(SERVER))
        .unwrap()
        .unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
        .set_write_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream
}

/// The TLS configuration of a client with this key.
pub(crate) fn tls_config(bench: &Bench, key: &SecretKey) -> Arc<ClientConfig> {
    tls::client_config(key, &bench.server_key.parse().unwrap())
}

impl Peer {
    /// Completes the TLS handshake; the server may still refuse the key with its first answer.
    pub(crate) fn new(bench: &Bench, config: Arc<ClientConfig>) -> io::Result<Self> {
        let mut tcp = dial(bench);
        let mut tls = ClientConnection::new(config, tls::server_name()).unwrap();
        while tls.is_handshaking() {
            tls.complete_io(&mut tcp)?;
        }
        Ok(Self {
            stream: StreamOwned::new(tls, tcp),
            buffer: Vec::new(),
        })
    }

    /// Opens a session or joins a path to one.
    pub(crate) fn join(
        bench: &Bench,
        config: &Arc<ClientConfig>,
        session: [u8; 16],
        new: bool,
        path: u64,
    ) -> (Self, Answer) {
        let mut peer = Self::new(bench, Arc::clone(config)).unwrap();
        peer.send(&hello(VERSION, new, session, path)).unwrap();
        let answer = peer.next();
        (peer, answer)
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// The next answer or end; skips reports and credit.
    pub(crate) fn next(&mut self) -> Answer {
        let mut bytes = [0; 4096];
        loop {
            while let Some((frame, len)) = Frame::decode(&self.buffer).unwrap() {
                let answer = match frame {
                    Frame::Welcome { .. } => Some(Answer::Welcome),
                    Frame::Refuse { code, .. } => Some(Answer::Refuse { code }),
                    Frame::Pong { token } => Some(Answer::Pong { token }),
                    Frame::Close { code, .. } => Some(Answer::Close { code }),
                    _ => None,
                };
                self.buffer.drain(..len);
                if let Some(answer) = answer {
                    return answer;
                }
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return Answer::End,
                Ok(len) => self.buffer.extend_from_slice(&bytes[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    panic!("the server does not answer")
                }
                Err(_) => return Answer::End,
            }
        }
    }
}

/// A HELLO frame.
pub(crate) fn hello(version: u64, new: bool, session: [u8; 16], path: u64) -> Vec<u8> {
    encode(&Frame::Hello(Hello {
        version,
        new,
        session,
        path,
        link: b"bad0",
    }))
}

pub(crate) fn encode(frame: &Frame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    frame.encode(&mut out);
    out
}
