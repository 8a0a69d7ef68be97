//! TLS on the traffic's own sockets: what a program has to do anyway that is to be as safe as sumlink.
//!
//! The configuration is that of sumlink's carriers (the same library, provider, cipher suites and keys), so that what it
//! costs is the cost of the same cipher.

use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::{ClientConnection, ServerConfig, ServerConnection, StreamOwned};
use sumlink_transport::tls;

use super::Keys;
use super::connection::{CHUNK, Wire};

/// The server's side, for any number of connections.
pub(super) fn acceptor(keys: &Keys) -> Result<Arc<ServerConfig>, String> {
    let authorized = tls::Authorized::new([keys.peer]);
    Ok(tls::server_config(&keys.secret()?, &authorized))
}

/// Makes an accepted connection one with TLS; the handshake comes with the first bytes.
pub(super) fn accept(
    config: Arc<ServerConfig>,
    stream: TcpStream,
) -> io::Result<StreamOwned<ServerConnection, Socket>> {
    let mut connection = ServerConnection::new(config).map_err(io::Error::other)?;
    // The library's own limit would make four calls of what a socket takes at once.
    connection.set_buffer_limit(Some(CHUNK));
    Ok(StreamOwned::new(connection, Socket::new(stream)))
}

/// The client's side of a connection.
pub(super) fn connect(
    keys: &Keys,
    stream: TcpStream,
) -> Result<StreamOwned<ClientConnection, Socket>, String> {
    let config = tls::client_config(&keys.secret()?, &keys.peer);
    let connection = ClientConnection::new(config, tls::server_name());
    let mut connection = connection.map_err(|error| error.to_string())?;
    connection.set_buffer_limit(Some(CHUNK));
    Ok(StreamOwned::new(connection, Socket::new(stream)))
}

impl Wire for StreamOwned<ClientConnection, Socket> {
    fn tcp(&self) -> &TcpStream {
        self.sock.0.get_ref()
    }
}

impl Wire for StreamOwned<ServerConnection, Socket> {
    fn tcp(&self) -> &TcpStream {
        self.sock.0.get_ref()
    }
}

/// A socket that is read in large pieces: the TLS library asks for a few kilobytes at a time.
pub(super) struct Socket(BufReader<TcpStream>);

impl Socket {
    fn new(stream: TcpStream) -> Self {
        Self(BufReader::with_capacity(CHUNK, stream))
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.get_mut().write(bytes)
    }

    fn write_vectored(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.get_mut().write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::path::PathBuf;
    use std::thread;

    use sumlink_transport::SecretKey;

    use super::*;

    #[test]
    fn both_ends_prove_who_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let key = |name: &str| -> (PathBuf, SecretKey) {
            let (path, key) = (directory.path().join(name), SecretKey::generate().unwrap());
            key.save(&path).unwrap();
            (path, key)
        };
        let ((client, client_key), (server, server_key)) = (key("client"), key("server"));
        let keys = |own: &PathBuf, peer: &SecretKey| Keys {
            own: own.clone(),
            peer: peer.public(),
        };
        let config = acceptor(&keys(&server, &client_key)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let served = thread::spawn(move || {
            let mut ends = Vec::new();
            for stream in listener.incoming().take(2) {
                let mut socket = accept(Arc::clone(&config), stream.unwrap()).unwrap();
                let mut text = [0; 5];
                ends.push(socket.read_exact(&mut text).map(|()| text));
            }
            ends
        });
        let dial = |keys: &Keys| connect(keys, TcpStream::connect(address).unwrap()).unwrap();
        dial(&keys(&client, &server_key))
            .write_all(b"hello")
            .unwrap();
        // A stranger to the server, whatever the stranger knows of it.
        let mut stranger = dial(&keys(&server, &server_key));
        let _ = stranger.write_all(b"hello");
        let _ = stranger.read(&mut [0; 1]);
        let ends = served.join().unwrap();
        assert_eq!(ends[0].as_ref().unwrap(), b"hello");
        assert!(ends[1].is_err());
    }
}
