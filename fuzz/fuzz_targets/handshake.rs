//! TLS between a client and a server whose bytes an attacker changes, adds or removes: either end
//! fails with an error, or knows the correct key of its peer.
#![no_main]

use std::io::{Cursor, Read};
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use rustls::{ClientConnection, Connection, ServerConnection};
use sumlink_transport::tls::{self, Authorized};
use sumlink_transport::{PublicKey, SecretKey};

static KEYS: LazyLock<[SecretKey; 2]> =
    LazyLock::new(|| [0; 2].map(|_| SecretKey::generate().expect("random numbers")));

/// How many round trips a peer may cause before it has proved its key.
const ROUNDS: usize = 8;

fuzz_target!(|bytes: &[u8]| {
    let Some((&mode, bytes)) = bytes.split_first() else {
        return;
    };
    let [server_key, client_key] = &*KEYS;
    let authorized = Authorized::new([client_key.public()]);
    let config = tls::server_config(server_key, &authorized);
    let server = ServerConnection::new(config).expect("the configuration is valid");
    let config = tls::client_config(client_key, &server_key.public());
    let client =
        ClientConnection::new(config, tls::server_name()).expect("the configuration is valid");
    let (mut client, mut server) = (Connection::from(client), Connection::from(server));
    match mode % 4 {
        // Only the attacker's bytes.
        0 => drop(take(&mut server, bytes)),
        1 => drop(take(&mut client, bytes)),
        // An attacker in the middle: changes the client's or the server's bytes.
        2 => talk(&mut client, &mut server, bytes, &[]),
        _ => talk(&mut client, &mut server, &[], bytes),
    }
    knows(&client, server_key.public());
    knows(&server, client_key.public());
});

/// Passes received bytes to `to`.
fn take(to: &mut Connection, bytes: &[u8]) -> Result<(), ()> {
    let mut rest = Cursor::new(bytes);
    while (rest.position() as usize) < bytes.len() {
        match to.read_tls(&mut rest) {
            Ok(0) | Err(_) => return Err(()),
            Ok(_) => {}
        }
        to.process_new_packets().map_err(drop)?;
        let mut plain = [0; 256];
        while to.reader().read(&mut plain).is_ok_and(|len| len > 0) {}
    }
    Ok(())
}

/// The handshake, modified by the input: pairs of a number of bytes to leave unchanged and a change
/// of the next one.
fn talk(client: &mut Connection, server: &mut Connection, upwards: &[u8], downwards: &[u8]) {
    let (mut upwards, mut downwards) = (upwards.chunks(2), downwards.chunks(2));
    for _ in 0..ROUNDS {
        if pass(client, server, &mut upwards).is_err()
            || pass(server, client, &mut downwards).is_err()
        {
            return;
        }
    }
}

fn pass<'a>(
    from: &mut Connection,
    to: &mut Connection,
    changes: &mut impl Iterator<Item = &'a [u8]>,
) -> Result<(), ()> {
    let mut said = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut said).map_err(drop)?;
    }
    let mut at = 0;
    while at < said.len()
        && let Some(change) = changes.next()
    {
        at += usize::from(change[0]);
        if let (Some(byte), Some(by)) = (said.get_mut(at), change.get(1)) {
            *byte ^= by;
        }
    }
    take(to, &said)
}

/// An end that considers the handshake complete knows the correct key.
fn knows(end: &Connection, key: PublicKey) {
    if !end.is_handshaking() {
        assert_eq!(tls::peer(end).ok(), Some(key));
    }
}
