//! Rules by domain, and private addresses.

use super::*;
use crate::Action;
use crate::testing::address;
use crate::wire::{Name, code, kind};

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn rules(network: &Network) -> Rules {
    Rules::new(vec![network.upstream("udp://192.0.2.53")])
        .with(
            name("corp.example"),
            Action::Forward(vec![network.upstream("udp://10.0.0.53")]),
        )
        .with(name("ads.example"), Action::Block)
        .with(
            name("good.ads.example"),
            Action::ForwardPublic(vec![network.upstream("server")]),
        )
        .with(
            name("lan.home.arpa"),
            Action::Forward(vec![network.upstream("udp://10.0.0.1")]),
        )
}

#[tokio::test]
async fn each_name_goes_to_the_upstream_of_its_rule() {
    let network = Network::answering(Answer::records([address("192.0.2.1", 60)]));
    let forwarder = Forwarder::with_clock(settings(), rules(&network), clock);
    for (name, expected) in [
        ("www.example", (0, 1)),
        ("git.corp.example", (0, 1)),
        ("x.ads.example", (code::NO_SUCH_NAME, 0)),
        ("good.ads.example", (0, 1)),
        ("printer.lan.home.arpa", (0, 1)),
        ("other.home.arpa", (code::NO_SUCH_NAME, 0)),
    ] {
        assert_eq!(outcome(&forwarder, name, kind::A).await, expected, "{name}");
    }
    let expected = [
        "www.example 192.0.2.53:53",
        "git.corp.example 10.0.0.53:53",
        "good.ads.example resolver.sumlink.internal:53",
        "printer.lan.home.arpa 10.0.0.1:53",
    ];
    assert_eq!(network.names(), expected);
    let statistics = forwarder.statistics();
    assert_eq!((statistics.blocked, statistics.local), (1, 1));
    assert_eq!(statistics.upstreams.len(), 4);
    assert_eq!(statistics.upstreams[0].address, "udp://192.0.2.53:53");
}

#[tokio::test]
async fn a_public_name_with_a_private_address_is_not_answered() {
    let network = Network::answering(Answer::records([
        address("198.51.100.1", 60),
        address("192.168.1.1", 60),
    ]));
    let rules = rules(&network).with_private(name("nas.example"));
    let forwarder = Forwarder::with_clock(settings(), rules, clock);
    assert_eq!(
        outcome(&forwarder, "evil.example", kind::A).await,
        (code::NO_ERROR, 0)
    );
    assert_eq!(
        outcome(&forwarder, "evil.example", kind::A).await,
        (code::NO_ERROR, 0)
    );
    assert_eq!(
        outcome(&forwarder, "good.ads.example", kind::A).await,
        (code::NO_ERROR, 0)
    );
    assert_eq!(
        outcome(&forwarder, "git.corp.example", kind::A).await,
        (code::NO_ERROR, 2)
    );
    assert_eq!(
        outcome(&forwarder, "my.nas.example", kind::A).await,
        (code::NO_ERROR, 2)
    );
    assert_eq!(forwarder.statistics().rebinding, 3);
    let open = network.forwarder(Settings {
        rebinding_protection: false,
        ..settings()
    });
    assert_eq!(
        outcome(&open, "evil.example", kind::A).await,
        (code::NO_ERROR, 2)
    );
}

#[tokio::test]
async fn own_public_networks_are_private_if_named() {
    let network = Network::answering(Answer::records([address("2001:db8:7::1", 60)]));
    let forwarder = network.forwarder(Settings {
        own_networks: vec!["2001:db8:7::/48".parse().unwrap()],
        ..settings()
    });
    assert_eq!(
        outcome(&forwarder, "a.example", kind::AAAA).await,
        (code::NO_ERROR, 0)
    );
}

#[tokio::test]
async fn other_rules_apply_at_once_also_to_what_is_cached() {
    let network = Network::answering(Answer::records([address("192.0.2.1", 60)]));
    let forwarder = Forwarder::with_clock(settings(), rules(&network), clock);
    assert_eq!(outcome(&forwarder, "www.example", kind::A).await, (0, 1));
    forwarder.set_rules(Rules::new(vec![network.upstream("udp://192.0.2.54")]));
    assert_eq!(outcome(&forwarder, "www.example", kind::A).await, (0, 1));
    assert_eq!(outcome(&forwarder, "x.ads.example", kind::A).await, (0, 1));
    assert_eq!(network.names()[1], "www.example 192.0.2.54:53");
    assert_eq!(forwarder.statistics().upstreams.len(), 1);
}

#[tokio::test]
async fn an_answer_under_earlier_rules_is_not_kept() {
    let network = Network::answering(Answer::records([address("192.0.2.1", 60)]));
    let forwarder = Forwarder::with_clock(settings(), rules(&network), clock);
    let mut first = Box::pin(ask(&forwarder, "www.example", kind::A));
    assert!(is_waiting(&mut first).await);
    forwarder.set_rules(Rules::new(vec![network.upstream("udp://192.0.2.54")]));
    first.await;
    assert_eq!(forwarder.statistics().cache_entries, 0);
}
