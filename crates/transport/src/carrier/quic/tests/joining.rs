//! Clients join over QUIC, or get the reason why they cannot.

use std::time::Duration;

use bytes::Bytes;
use sumlink_engine::PathId;
use sumlink_engine::frame::RefuseCode;
use tokio::net::UdpSocket;

use super::super::fixture::{Ends, SESSION, SOON, key};
use super::super::{QuicDialer, QuicError};
use super::{receive, send};
use crate::carrier::handshake::{CarrierError, encode_hello, encode_welcome};
use crate::carrier::tls::HandshakeError;

#[tokio::test]
async fn a_client_joins_and_datagrams_pass_both_ways() {
    let ends = Ends::new();
    let client = async {
        let opened = ends.open(ends.address()).await.unwrap();
        opened.hello(SESSION, PathId(3), "wlan0".to_owned()).await
    };
    let server = async {
        let asked = ends.accept().await.unwrap();
        assert_eq!(asked.client(), &ends.client.public());
        assert_eq!((asked.session(), asked.path()), (&SESSION, PathId(3)));
        assert_eq!(asked.link(), "wlan0");
        asked.welcome().await
    };
    let (client, server) = tokio::join!(client, server);
    let (mut client, mut server) = (client.unwrap(), server.unwrap());
    assert_eq!(Some(server.remote()), client.local());
    assert_eq!(client.remote(), ends.address());
    send(&mut client, Bytes::from_static(b"ping")).await;
    assert_eq!(receive(&mut server).await, [&b"ping"[..]]);
    send(&mut server, Bytes::new()).await;
    assert_eq!(receive(&mut client).await, [&b""[..]]);
}

#[tokio::test]
async fn a_client_with_an_unknown_key_is_refused() {
    let ends = Ends::new();
    let stranger = key();
    let dialer = QuicDialer::new(stranger.clone(), &ends.server.public());
    let client = async {
        let opened = dialer
            .connect(Some("lo"), ends.address(), None, SOON)
            .await?;
        opened.hello(SESSION, PathId(0), "lo".to_owned()).await
    };
    let (client, server) = tokio::join!(client, ends.accept());
    let key = stranger.public();
    assert!(
        matches!(client, Err(QuicError::Keys(HandshakeError::NotAuthorized { key: own }))
            if own == key),
        "{client:?}"
    );
    assert!(
        matches!(server, Err(QuicError::Keys(HandshakeError::UnknownClient { key: seen }))
            if seen == key),
        "{server:?}"
    );
}

#[tokio::test]
async fn a_server_with_another_key_is_rejected() {
    let ends = Ends::new();
    let pinned = key().public();
    let dialer = QuicDialer::new(ends.client.clone(), &pinned);
    let connect = dialer.connect(Some("lo"), ends.address(), None, SOON);
    let (client, server) = tokio::join!(connect, ends.accept());
    let expected = HandshakeError::WrongServerKey {
        seen: ends.server.public(),
        pinned,
    };
    assert!(
        matches!(&client, Err(QuicError::Keys(error)) if *error == expected),
        "{client:?}"
    );
    assert!(!client.unwrap_err().is_blocked());
    assert!(
        matches!(
            server,
            Err(QuicError::Keys(HandshakeError::PinnedElsewhere))
        ),
        "{server:?}"
    );
}

#[tokio::test]
async fn a_refused_client_gets_the_reason() {
    let ends = Ends::new();
    let client = async {
        let opened = ends.open(ends.address()).await.unwrap();
        opened.hello(SESSION, PathId(0), "lo".to_owned()).await
    };
    let server = async {
        let asked = ends.accept().await.unwrap();
        asked.refuse(RefuseCode::NoSuchSession, "gone").await;
    };
    let (client, ()) = tokio::join!(client, server);
    let Err(QuicError::Join(CarrierError::Refused { code, reason })) = client else {
        panic!("{client:?}");
    };
    assert_eq!((code, reason.as_str()), (RefuseCode::NoSuchSession, "gone"));
}

#[tokio::test]
async fn only_a_hello_that_joins_is_accepted() {
    let ends = Ends::new();
    let joins = encode_hello(SESSION, false, PathId(0), "lo");
    let creates = encode_hello(SESSION, true, PathId(0), "lo");
    for frame in [
        creates,
        [joins.clone(), joins].concat(),
        encode_welcome(),
        vec![0xff; 3000],
    ] {
        let client = async {
            let opened = ends.open(ends.address()).await.unwrap();
            opened.ask(&frame, PathId(0), "lo".to_owned()).await
        };
        let (client, server) = tokio::join!(client, ends.accept());
        assert!(
            matches!(
                client,
                Err(QuicError::Join(CarrierError::Refused {
                    code: RefuseCode::Protocol,
                    ..
                }))
            ),
            "{client:?}"
        );
        assert!(
            matches!(server, Err(QuicError::Join(CarrierError::Protocol(_)))),
            "{server:?}"
        );
    }
}

#[tokio::test]
async fn a_link_with_small_packets_is_named_before_any_packet_is_sent() {
    let ends = Ends::new();
    let dialer = ends.dialer();
    let connect = dialer.connect(Some("lo"), ends.address(), Some(1227), SOON);
    let error = connect.await.unwrap_err();
    assert!(
        matches!(
            error,
            QuicError::SmallPackets {
                limit: 1227,
                needed: 1228
            }
        ),
        "{error}"
    );
    assert!(error.is_blocked());
}

#[tokio::test]
async fn blocked_udp_is_recognized() {
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let dialer = QuicDialer::new(key(), &key().public());
    let patience = Duration::from_millis(100);
    let connect = dialer.connect(Some("lo"), address, None, patience);
    let error = connect.await.unwrap_err();
    assert!(
        matches!(error, QuicError::TimedOut { heard: false, .. }),
        "{error}"
    );
    assert!(error.is_blocked());
    drop(silent);
    let connect = dialer.connect(Some("lo"), address, None, SOON);
    let error = connect.await.unwrap_err();
    assert!(
        matches!(error, QuicError::Refused { remote } if remote == address),
        "{error}"
    );
    assert!(error.is_blocked());
}
