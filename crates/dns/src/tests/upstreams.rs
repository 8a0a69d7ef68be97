//! Several upstreams, and faults of each.

use super::*;
use crate::testing::address;
use crate::wire::{code, kind};
use tokio::time::Instant;

const ADDRESSES: [&str; 3] = ["udp://192.0.2.1", "udp://192.0.2.2", "udp://192.0.2.3"];

fn forwarder(network: &Network) -> Forwarder {
    let upstreams = ADDRESSES.map(|address| network.upstream(address));
    Forwarder::with_clock(settings(), Rules::new(upstreams.into()), clock)
}

fn good() -> Reaction {
    Reaction::Answer(Answer::records([address("192.0.2.100", 60)]))
}

/// A network in which only the upstream with the last digit `2` answers; others react so.
fn only_second(other: Reaction) -> Network {
    Network::new(move |asked| match asked.target.to_string().as_str() {
        "192.0.2.2:53" => good(),
        _ => other.clone(),
    })
}

#[tokio::test(start_paused = true)]
async fn the_next_upstream_is_asked_and_the_good_one_is_remembered() {
    for other in [
        Reaction::Silence,
        Reaction::Failed,
        Reaction::Answer(Answer::negative(code::SERVER_FAILURE, None)),
        Reaction::Answer(Answer::negative(code::REFUSED, None)),
    ] {
        let is_silent = matches!(other, Reaction::Silence);
        let network = only_second(other);
        let forwarder = forwarder(&network);
        let begin = Instant::now();
        assert_eq!(outcome(&forwarder, "a.example", kind::A).await, (0, 1));
        let expected = Duration::from_secs(if is_silent { 1 } else { 0 });
        assert!(
            begin.elapsed() >= expected
                && begin.elapsed() < expected * 2 + Duration::from_millis(100)
        );
        let before = network.asked().len();
        assert_eq!(outcome(&forwarder, "b.example", kind::A).await, (0, 1));
        assert_eq!(network.names()[before..], ["b.example 192.0.2.2:53"]);
        let statistics = forwarder.statistics();
        assert_eq!(statistics.upstreams[1].queries, 2);
        assert_eq!(statistics.upstreams[1].failed, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn no_upstream_answers_and_the_client_learns_it_in_time() {
    let network = Network::new(|_| Reaction::Silence);
    let forwarder = forwarder(&network);
    let begin = Instant::now();
    assert_eq!(
        outcome(&forwarder, "a.example", kind::A).await,
        (code::SERVER_FAILURE, 0)
    );
    assert!(begin.elapsed() < Duration::from_secs(5));
    let statistics = forwarder.statistics();
    assert_eq!(statistics.failed, 1);
    assert!(
        statistics
            .upstreams
            .iter()
            .all(|upstream| upstream.failed == 1),
        "{statistics:?}"
    );
    let none = Forwarder::new(settings(), Rules::new(Vec::new()));
    assert_eq!(
        outcome(&none, "a.example", kind::A).await,
        (code::SERVER_FAILURE, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_failure_counts_only_if_no_upstream_knows_better() {
    let network = Network::new(|asked| match asked.target.to_string().as_str() {
        "192.0.2.3:53" => Reaction::Silence,
        _ => Reaction::Answer(Answer::negative(code::REFUSED, None)),
    });
    let forwarder = forwarder(&network);
    assert_eq!(
        outcome(&forwarder, "a.example", kind::A).await,
        (code::REFUSED, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_datagram_is_sent_again() {
    let mut lost = 1;
    let network = Network::new(move |_| match lost {
        0 => good(),
        _ => {
            lost -= 1;
            Reaction::Silence
        }
    });
    let forwarder = network.forwarder(settings());
    let begin = Instant::now();
    assert_eq!(outcome(&forwarder, "a.example", kind::A).await, (0, 1));
    assert!(begin.elapsed() < Duration::from_millis(1100));
}

#[tokio::test]
async fn a_resolver_without_edns_is_asked_without_it() {
    for is_stream in [false, true] {
        let network = Network::new(|asked| match asked.client.edns {
            // Only a header, as old resolvers answer.
            Some(_) => Reaction::Raw(vec![b"\x81\x81\0\0\0\0\0\0\0\0".to_vec()]),
            None => good(),
        });
        let address = if is_stream {
            "tcp://192.0.2.1"
        } else {
            "udp://192.0.2.1"
        };
        let rules = Rules::new(vec![network.upstream(address)]);
        let forwarder = Forwarder::with_clock(settings(), rules, clock);
        assert_eq!(outcome(&forwarder, "a.example", kind::A).await, (0, 1));
        assert_eq!(network.asked().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn tcp_helps_where_datagrams_get_lost_or_are_not_carried() {
    let script = |asked: &Asked| {
        if asked.is_stream {
            good()
        } else {
            Reaction::Silence
        }
    };
    let lossy = Network::new(script);
    let older = Network {
        without_datagrams: true,
        ..Network::new(script)
    };
    let closed = Network::new(|asked| {
        if asked.is_stream {
            good()
        } else {
            Reaction::Failed
        }
    });
    for (network, least, most) in [(lossy, 1500, 1600), (older, 0, 100), (closed, 0, 100)] {
        let forwarder = network.forwarder(settings());
        let begin = Instant::now();
        assert_eq!(outcome(&forwarder, "a.example", kind::A).await, (0, 1));
        let time = begin.elapsed().as_millis();
        assert!((least..most).contains(&time), "{time} ms");
    }
}
