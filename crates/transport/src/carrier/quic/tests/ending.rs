//! Carriers end: closed by either side, by a restart of the server, or by silence.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use super::super::fixture::{Direction, Ends, Road, SOON, listen};
use super::super::{Ended, QuicError, SendError};
use super::numbered;
use crate::carrier::tls::Authorized;

#[tokio::test]
async fn each_side_learns_why_the_other_closed() {
    let ends = Ends::new();
    let (client, server) = ends.join(ends.address()).await;
    let (at_client, at_server) = (client.closed(), server.closed());
    client.close("the link was removed");
    let (at_client, at_server) = tokio::join!(at_client, at_server);
    assert_eq!(at_client, Ended::Here);
    assert_eq!(
        at_server.to_string(),
        "closed by the peer (the link was removed)"
    );

    let (mut client, server) = ends.join(ends.address()).await;
    drop(server);
    let end = timeout(SOON, client.receive(&mut Vec::new(), 1)).await;
    assert_eq!(end.unwrap().unwrap_err().to_string(), "closed by the peer");
    // Nothing waits for a carrier that has ended.
    timeout(SOON, client.writable()).await.unwrap();
    let error = client.send(Bytes::from_static(b"late")).unwrap_err();
    assert!(
        matches!(error, SendError::Ended(Ended::Peer { .. })),
        "{error}"
    );

    let (client, _server) = ends.join(ends.address()).await;
    ends.listener.close("stopping", SOON).await;
    let end = client.closed().await;
    assert_eq!(end.to_string(), "closed by the peer (stopping)");
    assert!(ends.listener.next().await.is_none());
}

#[tokio::test]
async fn a_restarted_server_ends_its_former_carriers_at_once() {
    let ends = Ends::new();
    let successor = listen(&ends.server, &Authorized::default());
    let (former, latter) = (ends.address(), successor.local_addr().unwrap());
    let is_restarted = Arc::new(AtomicBool::new(false));
    let restarted = Arc::clone(&is_restarted);
    let road = Road::new(move |_, packet| {
        let to = if restarted.load(Ordering::Relaxed) {
            latter
        } else {
            former
        };
        (vec![packet], to)
    })
    .await;
    let (mut client, _server) = ends.join(road.address).await;
    is_restarted.store(true, Ordering::Relaxed);
    let end = client.closed();
    client.send(numbered(0, 500)).unwrap();
    assert_eq!(timeout(SOON, end).await.unwrap(), Ended::Restarted);
}

#[tokio::test]
async fn a_client_that_falls_silent_is_given_up() {
    let ends = Ends::new();
    let server = ends.address();
    // Only the two Initial packets and the Retry packet in between get through.
    let (mut up, mut down) = (2, 1);
    let road = Road::new(move |direction, packet| {
        let left = match direction {
            Direction::ToServer => &mut up,
            Direction::ToClient => &mut down,
        };
        let passes = *left > 0;
        *left -= usize::from(passes);
        (passes.then_some(packet).into_iter().collect(), server)
    })
    .await;
    let dialer = ends.dialer();
    let patience = Duration::from_millis(500);
    let client = dialer.connect(Some("lo"), road.address, None, patience);
    let server = async { ends.listener.next().await.unwrap().prove(patience).await };
    let (client, server) = tokio::join!(client, server);
    for error in [client.map(drop).unwrap_err(), server.map(drop).unwrap_err()] {
        assert!(
            matches!(error, QuicError::TimedOut { heard: true, .. }),
            "{error}"
        );
    }
}
