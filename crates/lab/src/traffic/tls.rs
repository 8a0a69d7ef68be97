//! TLS on the traffic's own sockets: the effort that any program needs to match sumlink's security.
//!
//! The configuration is that of sumlink's carriers (the same library, provider, cipher suites and
//! keys), so its cost is that of the same cipher.

use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::ops::DerefMut;
use std::sync::Arc;

use rustls::{
    ClientConnection, ConnectionCommon, ServerConfig, ServerConnection, SideData, StreamOwned,
};
use sumlink_transport::tls;

use super::Keys;
use super::connection::{CHUNK, Wire};

/// The server's side, for any number of connections.
pub(super) fn acceptor(keys: &Keys) -> Result<Arc<ServerConfig>, String> {
    let authorized = tls::Authorized::new([keys.peer]);
    Ok(tls::server_config(&keys.secret()?, &authorized))
}

/// Wraps an accepted connection in TLS; the handshake takes place with the first bytes.
pub(super) fn accept(
    config: Arc<ServerConfig>,
    stream: TcpStream,
) -> io::Result<Secured<ServerConnection>> {
    let mut connection = ServerConnection::new(config).map_err(io::Error::other)?;
    // The library's default limit would split the data of one system call into four.
    connection.set_buffer_limit(Some(CHUNK));
    Ok(Secured(StreamOwned::new(connection, Socket::new(stream))))
}

/// The client's side of a connection.
pub(super) fn connect(keys: &Keys, stream: TcpStream) -> Result<Secured<ClientConnection>, String> {
    let config = tls::client_config(&keys.secret()?, &keys.peer);
    let connection = ClientConnection::new(config, tls::server_name());
    let mut connection = connection.map_err(|error| error.to_string())?;
    connection.set_buffer_limit(Some(CHUNK));
    Ok(Secured(StreamOwned::new(connection, Socket::new(stream))))
}

/// A TLS connection on a blocking socket with timeouts. Writing never reads, except for the
/// handshake. The TLS library's own stream reads when a write reaches its limit, and then waits for
/// a peer that sends nothing.
#[derive(Debug)]
pub(super) struct Secured<C>(StreamOwned<C, Socket>);

impl<C, S> Secured<C>
where
    C: DerefMut<Target = ConnectionCommon<S>>,
    S: SideData,
{
    /// Writes the encrypted bytes.
    fn drain(&mut self) -> io::Result<()> {
        while self.0.conn.wants_write() {
            if self.0.conn.write_tls(&mut self.0.sock)? == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }
}

impl<C, S> Read for Secured<C>
where
    C: DerefMut<Target = ConnectionCommon<S>>,
    S: SideData,
{
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl<C, S> Write for Secured<C>
where
    C: DerefMut<Target = ConnectionCommon<S>>,
    S: SideData,
{
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.conn.is_handshaking() {
            self.0.conn.complete_io(&mut self.0.sock)?;
        }
        self.drain()?;
        let taken = self.0.conn.writer().write(bytes)?;
        // The bytes are accepted: the next call reports an error of this one.
        let _ = self.drain();
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.drain()
    }
}

impl Wire for Secured<ClientConnection> {
    fn tcp(&self) -> &TcpStream {
        self.0.sock.0.get_ref()
    }
}

impl Wire for Secured<ServerConnection> {
    fn tcp(&self) -> &TcpStream {
        self.0.sock.0.get_ref()
    }
}

/// A socket with large reads: the TLS library asks for a few kilobytes at a time.
#[derive(Debug)]
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
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use sumlink_transport::SecretKey;

    use super::*;

    #[test]
    fn both_ends_authenticate() {
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
        // A client with an unknown key, although it knows the server's.
        let mut unknown = dial(&keys(&server, &server_key));
        let _ = unknown.write_all(b"hello");
        let _ = unknown.read(&mut [0; 1]);
        let ends = served.join().unwrap();
        assert_eq!(ends[0].as_ref().unwrap(), b"hello");
        assert!(ends[1].is_err());
    }

    /// With a slow reader, a write blocks longer than its timeout and continues when there is
    /// space.
    #[test]
    fn a_full_write_buffer_does_not_wait_for_data_from_the_reader() {
        let directory = tempfile::tempdir().unwrap();
        let [client, server] = ["client", "server"].map(|name| {
            let (path, key) = (directory.path().join(name), SecretKey::generate().unwrap());
            key.save(&path).unwrap();
            (path, key)
        });
        let keys = |own: &(PathBuf, SecretKey), peer: &(PathBuf, SecretKey)| Keys {
            own: own.0.clone(),
            peer: peer.1.public(),
        };
        let config = acceptor(&keys(&server, &client)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (full, is_full) = mpsc::channel();
        let sender = thread::spawn(move || {
            let mut socket = accept(config, listener.accept().unwrap().0).unwrap();
            socket.read_exact(&mut [0; 5]).unwrap();
            let limit = Some(Duration::from_millis(10));
            socket.tcp().set_write_timeout(limit).unwrap();
            let chunk = vec![7; CHUNK];
            let mut taken = 0;
            let error = loop {
                match socket.write(&chunk) {
                    Ok(len) => taken += len,
                    Err(error) => break error,
                }
            };
            full.send(error.kind()).unwrap();
            while socket.flush().is_err() {}
            taken
        });
        let stream = TcpStream::connect(address).unwrap();
        let mut reader = connect(&keys(&client, &server), stream).unwrap();
        reader.write_all(b"hello").unwrap();
        let kind = is_full.recv_timeout(Duration::from_secs(30));
        assert_eq!(kind, Ok(ErrorKind::WouldBlock));
        let mut read = 0;
        let mut buffer = vec![0; CHUNK];
        loop {
            match reader.read(&mut buffer) {
                Ok(len) => read += len,
                // The sender has gone without close_notify.
                Err(error) => break assert_eq!(error.kind(), ErrorKind::UnexpectedEof),
            }
        }
        assert_eq!(read, sender.join().unwrap());
    }
}
