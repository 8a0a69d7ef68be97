//! Connections to upstreams without TLS.

use super::*;
use crate::testing::address;
use crate::wire::{code, kind};

fn good() -> Reaction {
    Reaction::Answer(Answer::records([address("192.0.2.100", 60)]))
}

fn over_tcp(network: &Network) -> Forwarder {
    let rules = Rules::new(vec![network.upstream("tcp://192.0.2.53")]);
    Forwarder::with_clock(settings(), rules, clock)
}

#[tokio::test]
async fn questions_share_a_connection_and_do_not_wait_for_each_other() {
    // The answer to the first question comes after that to the second one.
    let mut first: Option<Vec<u8>> = None;
    let network = Network::new(move |asked| {
        let mut bytes = answer(
            &asked.client.query,
            Answer::records([address("192.0.2.100", 60)]),
        );
        bytes[..2].copy_from_slice(&asked.client.id.to_be_bytes());
        match first.take() {
            None => {
                first = Some(bytes);
                Reaction::Silence
            }
            Some(earlier) => Reaction::Exactly(vec![bytes, earlier]),
        }
    });
    let forwarder = over_tcp(&network);
    let (one, two) = tokio::join!(
        outcome(&forwarder, "a.example", kind::A),
        outcome(&forwarder, "b.example", kind::A),
    );
    assert_eq!((one, two), ((0, 1), (0, 1)));
    assert_eq!(*network.opened.lock().unwrap(), 1);
}

#[tokio::test]
async fn a_closed_connection_is_made_again_without_a_failure() {
    for closes in [1, 2] {
        let mut asked = 0;
        let network = Network::new(move |_| {
            asked += 1;
            // The first answer comes, and then the connection ends.
            match asked {
                1 => good(),
                2 => Reaction::Close,
                3 if closes == 2 => Reaction::Close,
                _ => good(),
            }
        });
        let forwarder = over_tcp(&network);
        assert_eq!(outcome(&forwarder, "a.example", kind::A).await, (0, 1));
        let second = outcome(&forwarder, "b.example", kind::A).await;
        // One that ends twice, also when it is new, is at fault.
        let expected = if closes == 1 {
            (0, 1)
        } else {
            (code::SERVER_FAILURE, 0)
        };
        assert_eq!(second, expected);
        assert_eq!(*network.opened.lock().unwrap(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_and_a_dead_one_is_given_up() {
    let network =
        Network::new(
            |asked| match asked.client.query.question.name.to_string().as_str() {
                "silent.example" => Reaction::Silence,
                _ => good(),
            },
        );
    let forwarder = over_tcp(&network);
    for (name, opened) in [("a.example", 1), ("b.example", 1)] {
        assert_eq!(outcome(&forwarder, name, kind::A).await, (0, 1));
        assert_eq!(*network.opened.lock().unwrap(), opened);
    }
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(outcome(&forwarder, "c.example", kind::A).await, (0, 1));
    assert_eq!(*network.opened.lock().unwrap(), 2);
    let silent = outcome(&forwarder, "silent.example", kind::A).await;
    assert_eq!(silent, (code::SERVER_FAILURE, 0));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(outcome(&forwarder, "d.example", kind::A).await, (0, 1));
    assert_eq!(*network.opened.lock().unwrap(), 3);
}

#[tokio::test]
async fn a_resolver_that_cannot_be_reached_is_a_failure_at_once() {
    #[derive(Clone)]
    struct Down;
    impl Opener for Down {
        type Stream = Buffered<DuplexStream>;
        async fn open(&self, _: Target, _: Option<Class>) -> Result<Self::Stream, OpenError> {
            Err(OpenError::Refused)
        }
    }
    impl DatagramOpener for Down {
        type Socket = PairSocket;
        async fn bind(&self, _: Option<Class>) -> Result<PairSocket, OpenError> {
            Err(OpenError::SessionClosed)
        }
    }
    for address in ["server", "udp://192.0.2.1", "tcp://192.0.2.1"] {
        let upstream = Upstream::new(address.parse().unwrap(), Down, &Roots::system());
        let forwarder = Forwarder::new(settings(), Rules::new(vec![upstream]));
        let failed = outcome(&forwarder, "a.example", kind::A).await;
        assert_eq!(failed, (code::SERVER_FAILURE, 0), "{address}");
    }
}
