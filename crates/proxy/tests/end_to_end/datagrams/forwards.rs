//! Forwards of datagrams, as seen by programs.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use sumlink_exit::datagram::MAX_PAYLOAD;
use sumlink_proxy::{Class, SourceLimit, UdpBindError, UdpForwarder};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

use super::{Session, echo, hear, remote, silent};

/// A forwarded port.
struct Forwarded {
    session: Session,
    address: SocketAddr,
    _served: JoinHandle<()>,
}

impl Forwarded {
    fn start(forward: &str) -> Self {
        Self::serve(UdpForwarder::bind(forward.parse().unwrap()).unwrap())
    }

    fn serve(forwarder: UdpForwarder) -> Self {
        let (session, mut address) = (Session::new(), forwarder.local_addr());
        if address.ip().is_unspecified() {
            address.set_ip([127, 0, 0, 1].into());
        }
        let served = forwarder.serve(session.clone(), std::future::pending());
        Self {
            session,
            address,
            _served: tokio::spawn(served),
        }
    }

    async fn exchange(&self, client: &UdpSocket, payload: &[u8]) {
        client.send_to(payload, self.address).await.unwrap();
        assert_eq!(hear(client).await, (payload.to_vec(), self.address));
    }
}

#[tokio::test]
async fn the_dscp_of_the_first_datagram_sets_the_class() {
    let target = echo("127.0.0.1:0").await;
    let forward = Forwarded::start(&format!("udp:127.0.0.1:0={target}"));
    let (client, _) = remote("127.0.0.1:0").await;
    socket2::SockRef::from(&client).set_tos_v4(46 << 2).unwrap();
    forward.exchange(&client, b"hello").await;
    let class = Some(Class::Conversational);
    assert_eq!(
        forward.session.classes(),
        [(None, class), (Some(target), class)]
    );
}

#[tokio::test]
async fn a_forward_answers_each_program_from_its_port() {
    let (v4, v6) = (echo("127.0.0.1:0").await, echo("[::1]:0").await);
    for forward in [
        format!("udp:127.0.0.1:0={v4}"),
        format!("udp:127.0.0.1:0={v6}"),
        format!("udp:*:0={v4}"),
    ] {
        let forward = Forwarded::start(&forward);
        let clients = [remote("127.0.0.1:0").await.0, remote("127.0.0.3:0").await.0];
        for (number, client) in clients.iter().enumerate() {
            for payload in [vec![number as u8], vec![], vec![number as u8; MAX_PAYLOAD]] {
                forward.exchange(client, &payload).await;
            }
        }
        assert_eq!(forward.session.sources(), 2);
        for client in &clients {
            forward.exchange(client, b"again").await;
        }
    }
}

#[tokio::test]
async fn a_forward_for_all_addresses_answers_from_the_one_that_was_asked() {
    let target = echo("127.0.0.1:0").await;
    let mut forward = Forwarded::start(&format!("udp:*:0={target}"));
    for asked in ["127.0.0.1", "127.0.0.9", "::1"] {
        let asked: IpAddr = asked.parse().unwrap();
        let own = if asked.is_ipv4() {
            "127.0.0.1:0"
        } else {
            "[::1]:0"
        };
        forward.address.set_ip(asked);
        forward.exchange(&remote(own).await.0, b"question").await;
    }
}

#[tokio::test]
async fn a_forward_passes_datagrams_of_its_target_only() {
    let (socket, target) = remote("127.0.0.1:0").await;
    let forward = Forwarded::start(&format!("udp:127.0.0.1:0={target}"));
    let (client, _) = remote("127.0.0.1:0").await;
    client.send_to(b"question", forward.address).await.unwrap();
    let (_, mapped) = hear(&socket).await;
    let (other, _) = remote("127.0.0.1:0").await;
    other.send_to(b"stranger", mapped).await.unwrap();
    socket.send_to(b"answer", mapped).await.unwrap();
    assert_eq!(hear(&client).await.0, b"answer");
}

#[tokio::test(start_paused = true)]
async fn an_idle_program_makes_room_at_a_forward() {
    let target = echo("127.0.0.1:0").await;
    let forward = format!("udp:127.0.0.1:0={target}").parse().unwrap();
    let limit = SourceLimit::new(2);
    let forwarder = UdpForwarder::bind(forward).unwrap().with_sources(limit);
    let forward = Forwarded::serve(forwarder);
    let clients = [0, 1, 2].map(|_| remote("127.0.0.1:0"));
    let [idle, busy, new] = clients;
    let (idle, busy, new) = (idle.await.0, busy.await.0, new.await.0);
    forward.exchange(&idle, b"once").await;
    forward.exchange(&busy, b"call").await;
    new.send_to(b"refused", forward.address).await.unwrap();
    assert!(silent(&new).await);
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        forward.exchange(&busy, b"call").await;
    }
    forward.exchange(&new, b"new").await;
    forward.session.until(2).await;
    forward.exchange(&busy, b"call").await;
}

#[tokio::test(start_paused = true)]
async fn a_program_that_returns_after_a_long_time_is_served_again() {
    let target = echo("127.0.0.1:0").await;
    let forward = Forwarded::start(&format!("udp:127.0.0.1:0={target}"));
    let (client, _) = remote("127.0.0.1:0").await;
    for _ in 0..3 {
        forward.exchange(&client, b"hello").await;
        tokio::time::sleep(Duration::from_secs(301)).await;
        forward.session.until(0).await;
    }
}

#[tokio::test]
async fn a_port_in_use_is_said_to_be_taken() {
    let (_taken, target) = remote("127.0.0.1:0").await;
    let error = UdpForwarder::bind(format!("udp:{target}=a:1").parse().unwrap()).unwrap_err();
    assert!(matches!(error, UdpBindError::Taken(_)), "{error}");
    assert!(error.to_string().contains("ss -lunp"));
}
