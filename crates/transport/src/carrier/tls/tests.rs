use std::io;

use proptest::prelude::*;
use rustls::client::ResolvesClientCert;
use rustls::{ClientConnection, Connection, ServerConnection, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;

fn key() -> SecretKey {
    SecretKey::generate().unwrap()
}

/// Carries bytes both ways until neither side has data to send; returns the first error of each
/// side, as the I/O error that a TLS stream would return.
fn shake(
    client: ClientConfig,
    server: Arc<ServerConfig>,
) -> (Result<PublicKey, io::Error>, Result<PublicKey, io::Error>) {
    let client = ClientConnection::new(Arc::new(client), server_name()).unwrap();
    let mut client = Connection::from(client);
    let mut server = Connection::from(ServerConnection::new(server).unwrap());
    let (mut client_error, mut server_error) = (None, None);
    while client.wants_write() || server.wants_write() {
        carry(&mut client, &mut server, &mut server_error);
        carry(&mut server, &mut client, &mut client_error);
    }
    let result = |connection: &Connection, error: Option<io::Error>| match error {
        Some(error) => Err(error),
        None => peer(connection).map_err(io::Error::other),
    };
    (result(&client, client_error), result(&server, server_error))
}

/// Both sides' errors of a handshake that fails on both; `own` is the client's key.
fn faults(
    client: ClientConfig,
    server: Arc<ServerConfig>,
    own: PublicKey,
) -> (HandshakeError, HandshakeError) {
    let (at_client, at_server) = shake(client, server);
    (
        HandshakeError::at_client(&at_client.unwrap_err(), &own),
        HandshakeError::at_server(&at_server.unwrap_err()),
    )
}

fn carry(from: &mut Connection, to: &mut Connection, error: &mut Option<io::Error>) {
    let mut wire = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut wire).unwrap();
    }
    if error.is_none() {
        *error = feed(to, &wire).err();
    }
}

fn feed(to: &mut Connection, mut wire: &[u8]) -> io::Result<()> {
    while !wire.is_empty() {
        to.read_tls(&mut wire)?;
        to.process_new_packets()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    }
    Ok(())
}

fn config(key: &SecretKey, server: &SecretKey) -> ClientConfig {
    ClientConfig::clone(&client_config(key, &server.public()))
}

#[test]
fn each_side_learns_the_others_key() {
    let (client, server) = (key(), key());
    let authorized = Authorized::new([key().public(), client.public()]);
    let (at_client, at_server) = shake(
        config(&client, &server),
        server_config(&server, &authorized),
    );
    assert_eq!(at_client.unwrap(), server.public());
    assert_eq!(at_server.unwrap(), client.public());
}

#[test]
fn a_server_with_another_key_is_rejected_by_name() {
    let (client, server, pinned) = (key(), key(), key());
    let authorized = Authorized::new([client.public()]);
    let (error, at_server) = faults(
        config(&client, &pinned),
        server_config(&server, &authorized),
        client.public(),
    );
    let (seen, pinned) = (server.public(), pinned.public());
    assert_eq!(error, HandshakeError::WrongServerKey { seen, pinned });
    assert!(
        error
            .to_string()
            .contains(&format!("{seen}, not the pinned {pinned}"))
    );
    assert_eq!(at_server, HandshakeError::PinnedElsewhere);
}

#[test]
fn an_unknown_client_is_refused_until_authorized_and_again_after_revocation() {
    let (client, server) = (key(), key());
    let authorized = Authorized::new([key().public()]);
    let config = config(&client, &server);
    let server = server_config(&server, &authorized);
    let refused = || {
        let key = client.public();
        let (at_client, at_server) = faults(config.clone(), server.clone(), key);
        assert_eq!(at_client, HandshakeError::NotAuthorized { key });
        assert_eq!(at_server, HandshakeError::UnknownClient { key });
    };
    refused();
    authorized.replace([client.public()]);
    let (at_client, at_server) = shake(config.clone(), server.clone());
    assert!(at_client.is_ok() && at_server.is_ok());
    authorized.replace([]);
    // The same configuration, which would hold a ticket if tickets existed.
    refused();
}

/// Claims a key without having its secret key.
#[test]
fn a_stolen_public_key_is_not_enough() {
    let (client, server, victim) = (key(), key(), key());
    let forged = CertifiedKey::new(
        vec![CertificateDer::from(victim.public().to_spki())],
        provider::sign::any_eddsa_type(&client.pkcs8()).unwrap(),
    );
    let mut config = config(&client, &server);
    config.client_auth_cert_resolver =
        Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::new(forged)));
    let authorized = Authorized::new([victim.public()]);
    let (_, at_server) = shake(config, server_config(&server, &authorized));
    let error = HandshakeError::at_server(&at_server.unwrap_err());
    assert!(matches!(error, HandshakeError::Tls(_)), "{error}");
}

#[derive(Debug)]
struct NoIdentity;

impl ResolvesClientCert for NoIdentity {
    fn resolve(
        &self,
        _root_hint_subjects: &[&[u8]],
        _sigschemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn only_raw_public_keys(&self) -> bool {
        true
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[test]
fn a_client_without_a_key_is_refused() {
    let (client, server) = (key(), key());
    let mut config = config(&client, &server);
    config.client_auth_cert_resolver = Arc::new(NoIdentity);
    let authorized = Authorized::new([client.public()]);
    let server = server_config(&server, &authorized);
    let (at_client, at_server) = faults(config, server, client.public());
    assert_eq!(at_client, HandshakeError::NoKey);
    assert_eq!(at_server, HandshakeError::NoKey);
}

#[test]
fn an_ordinary_tls_client_is_refused() {
    let server = key();
    let config = ClientConfig::builder_with_provider(crypto())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let server = server_config(&server, &Authorized::default());
    let (at_client, at_server) = faults(config, server, key().public());
    assert_eq!(at_client, HandshakeError::NotSumlink);
    assert_eq!(at_server, HandshakeError::NotSumlink);
}

#[test]
fn another_version_of_the_protocol_is_a_version_mismatch() {
    let (client, server) = (key(), key());
    let mut config = config(&client, &server);
    config.alpn_protocols = vec![b"sumlink/0".to_vec()];
    let server = server_config(&server, &Authorized::new([client.public()]));
    let mismatch = HandshakeError::VersionMismatch;
    let (at_client, at_server) = faults(config.clone(), server.clone(), client.public());
    assert_eq!((&at_client, &at_server), (&mismatch, &mismatch));
    assert!(mismatch.to_string().contains("sumlink/1"), "{mismatch}");

    // A peer that offers no protocol at all passes the handshake, but not `peer`.
    config.alpn_protocols.clear();
    let (_, at_server) = shake(config, server);
    assert_eq!(at_server.unwrap_err().to_string(), mismatch.to_string());
}

/// A ClientHello of TLS 1.2 (RFC 5246, section 7.4.1.2): one cipher suite, no extensions but
/// the signature algorithms.
fn tls12_hello() -> Vec<u8> {
    let mut hello = vec![3, 3];
    hello.extend([7; 32]); // random
    hello.extend([0]); // no session id
    hello.extend([0, 2, 0xc0, 0x2f]); // TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
    hello.extend([1, 0]); // no compression
    let extensions = [0x00, 0x0d, 0, 4, 0, 2, 0x08, 0x07]; // signature_algorithms: ed25519
    hello.extend([0, extensions.len() as u8]);
    hello.extend(extensions);
    let mut record = vec![
        22,
        3,
        1,
        0,
        hello.len() as u8 + 4,
        1,
        0,
        0,
        hello.len() as u8,
    ];
    record.extend(hello);
    record
}

fn server_hears(wire: &[u8]) -> HandshakeError {
    let config = server_config(&key(), &Authorized::default());
    let mut server = Connection::from(ServerConnection::new(config).unwrap());
    HandshakeError::at_server(&feed(&mut server, wire).unwrap_err())
}

#[test]
fn tls_1_2_is_refused() {
    assert_eq!(server_hears(&tls12_hello()), HandshakeError::NotSumlink);
}

#[test]
fn both_sides_report_data_that_is_not_tls() {
    for garbage in [
        &b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"[..],
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x05\x01\x00\x00\x00\x00\x00",
        &[0; 64],
        &[0xff; 64],
    ] {
        assert_eq!(server_hears(garbage), HandshakeError::NotTls, "{garbage:?}");
        let config = client_config(&key(), &key().public());
        let client = ClientConnection::new(config, server_name()).unwrap();
        let error = feed(&mut Connection::from(client), garbage).unwrap_err();
        let error = HandshakeError::at_client(&error, &key().public());
        assert_eq!(error, HandshakeError::NotTls, "{garbage:?}");
    }
}

#[test]
fn a_broken_connection_is_not_a_tls_error() {
    let at_server = |kind: io::ErrorKind| HandshakeError::at_server(&kind.into());
    assert_eq!(
        at_server(io::ErrorKind::UnexpectedEof),
        HandshakeError::Closed
    );
    assert_eq!(
        at_server(io::ErrorKind::ConnectionReset),
        HandshakeError::Closed
    );
    let timed_out = io::ErrorKind::TimedOut;
    assert_eq!(at_server(timed_out), HandshakeError::Io(timed_out));
}

/// A client's first flight.
fn client_hello() -> Vec<u8> {
    let config = client_config(&key(), &key().public());
    let mut client = ClientConnection::new(config, server_name()).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    hello
}

proptest! {
    #[test]
    fn a_damaged_hello_never_panics(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        keep in any::<prop::sample::Index>(),
    ) {
        let mut hello = client_hello();
        for (at, byte) in damage {
            let at = at.index(hello.len());
            hello[at] = byte;
        }
        let keep = keep.index(hello.len() + 1);
        let config = server_config(&key(), &Authorized::default());
        let mut server = Connection::from(ServerConnection::new(config).unwrap());
        if let Err(error) = feed(&mut server, &hello[..keep]) {
            let line = HandshakeError::at_server(&error).to_string();
            prop_assert!(!line.contains('\n'), "{line}");
        }
        prop_assert!(server.is_handshaking());
    }
}

#[tokio::test]
async fn over_tcp_a_refused_client_reads_the_reason_after_it_has_sent_its_first_bytes() {
    let (client, server) = (key(), key());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(server_config(&server, &Authorized::default()));
    let at_server = async {
        let (tcp, _) = listener.accept().await.unwrap();
        HandshakeError::at_server(&acceptor.accept(tcp).await.unwrap_err())
    };
    let at_client = async {
        let tcp = TcpStream::connect(address).await.unwrap();
        let connector = TlsConnector::from(client_config(&client, &server.public()));
        let mut tls = connector.connect(server_name(), tcp).await.unwrap();
        assert_eq!(peer(tls.get_ref().1), Ok(server.public()));
        // The server may have closed by now; only its answer counts.
        let _ = tls.write_all(&[0; 1000]).await;
        HandshakeError::at_client(&tls.read(&mut [0]).await.unwrap_err(), &client.public())
    };
    let (at_server, at_client) = tokio::join!(at_server, at_client);
    let key = client.public();
    assert_eq!(at_server, HandshakeError::UnknownClient { key });
    assert_eq!(at_client, HandshakeError::NotAuthorized { key });
}

#[tokio::test]
async fn over_tcp_both_sides_report_a_peer_that_hangs_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connector = TlsConnector::from(client_config(&key(), &key().public()));
    let connecting = tokio::spawn(async move {
        let tcp = TcpStream::connect(address).await.unwrap();
        HandshakeError::at_client(
            &connector.connect(server_name(), tcp).await.unwrap_err(),
            &key().public(),
        )
    });
    drop(listener.accept().await.unwrap());
    assert_eq!(connecting.await.unwrap(), HandshakeError::Closed);

    let mut tcp = TcpStream::connect(address).await.unwrap();
    tcp.write_all(&client_hello()[..100]).await.unwrap();
    drop(tcp);
    let acceptor = TlsAcceptor::from(server_config(&key(), &Authorized::default()));
    let (tcp, _) = listener.accept().await.unwrap();
    let error = acceptor.accept(tcp).await.unwrap_err();
    assert_eq!(HandshakeError::at_server(&error), HandshakeError::Closed);
}
