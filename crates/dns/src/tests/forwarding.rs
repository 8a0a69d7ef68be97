//! Answers to clients, from upstream and from the cache.

use super::*;
use crate::testing::{Data, address, alias, soa};
use crate::wire::{code, flag, kind};

#[tokio::test]
async fn an_unknown_record_type_passes_with_the_bits_of_dnssec() {
    let strange = Data::new(65_280, 300, b"\x00\xff anything".as_slice());
    let network = Network::answering(Answer {
        flags: flag::AUTHENTIC,
        has_opt: true,
        ..Answer::records([strange.clone()])
    });
    let forwarder = network.forwarder(settings());
    let query = Query {
        is_dnssec_ok: true,
        is_checking_disabled: true,
        ..Query::new("a.example", 65_280)
    };
    let reply = forwarder
        .answer(&query.encode(1, Form::Edns), Via::Udp)
        .await
        .unwrap();
    let message = Message::read(&reply).unwrap();
    let records: Vec<_> = message.records().collect();
    assert_eq!(
        (records[0].kind, records[0].data),
        (65_280, &strange.data[..])
    );
    // The forwarder's own OPT record, with the client's DO bit.
    assert_eq!(
        (records.len(), records[1].kind, records[1].ttl),
        (2, kind::OPT, 0x8000)
    );
    assert_eq!(message.flags & flag::AUTHENTIC, flag::AUTHENTIC);
    assert_eq!(
        message.flags & flag::CHECKING_DISABLED,
        flag::CHECKING_DISABLED
    );
    let asked = &network.asked()[0].client;
    assert!(asked.query.is_dnssec_ok && asked.query.is_checking_disabled);
    // A client that did not ask for the AD bit does not get it.
    let mut plain = Query::new("a.example", 65_280).encode(1, Form::Plain);
    plain[3] &= !0x20;
    let reply = forwarder.answer(&plain, Via::Udp).await.unwrap();
    let message = Message::read(&reply).unwrap();
    assert_eq!(message.flags & flag::AUTHENTIC, 0);
    assert_eq!(message.counts(), [1, 0, 0]);
}

#[tokio::test]
async fn the_question_comes_back_as_the_client_spelled_it() {
    let network = Network::answering(Answer::records([address("192.0.2.1", 60)]));
    let forwarder = network.forwarder(settings());
    for spelling in [&b"WwW"[..], b"www", b"wWw"] {
        let mut question = Query::new("www.example", kind::A).encode(9, Form::Plain);
        question[13..16].copy_from_slice(spelling);
        let reply = forwarder.answer(&question, Via::Udp).await.unwrap();
        assert_eq!(reply[13..16], *spelling);
    }
    assert_eq!(network.asked().len(), 1);
}

#[tokio::test]
async fn an_answer_is_cached_until_its_ttl_is_over() {
    let network = Network::answering(Answer::records([address("192.0.2.1", 60)]));
    let forwarder = network.forwarder(settings());
    let ttl = async || {
        let reply = ask(&forwarder, "a.example", kind::A).await;
        let message = Message::read(&reply).unwrap();
        let first = message.answers().next().unwrap();
        first.ttl
    };
    assert_eq!(ttl().await, 60);
    pass(20);
    assert_eq!(ttl().await, 40);
    pass(39);
    assert_eq!(ttl().await, 1);
    assert_eq!(network.asked().len(), 1);
    pass(1);
    assert_eq!(ttl().await, 60);
    assert_eq!(network.asked().len(), 2);
    let statistics = forwarder.statistics();
    assert_eq!((statistics.queries, statistics.cached), (4, 2));
    assert_eq!(
        (statistics.cache_entries, statistics.upstreams[0].queries),
        (1, 2)
    );
    assert!(statistics.upstreams[0].p50_us.is_some());
}

#[tokio::test]
async fn a_negative_answer_is_cached_as_its_soa_says() {
    let network = Network::answering(Answer::negative(code::NO_SUCH_NAME, Some(soa(300, 30))));
    let forwarder = network.forwarder(settings());
    for asked in [1, 1, 2] {
        assert_eq!(
            outcome(&forwarder, "a.example", kind::A).await,
            (code::NO_SUCH_NAME, 0)
        );
        assert_eq!(network.asked().len(), asked);
        pass(15);
    }
}

#[tokio::test]
async fn equal_questions_are_asked_once() {
    let network = Network::answering(Answer::records([address("192.0.2.1", 60)]));
    let forwarder = network.forwarder(settings());
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let forwarder = forwarder.clone();
        clients.spawn(async move { outcome(&forwarder, "a.example", kind::A).await });
    }
    while let Some(outcome) = clients.join_next().await {
        assert_eq!(outcome.unwrap(), (0, 1));
    }
    assert_eq!(network.asked().len(), 1);
    let statistics = forwarder.statistics();
    assert_eq!(statistics.merged + statistics.cached, 19);
}

#[tokio::test]
async fn a_client_that_gives_up_does_not_take_the_answer_from_others() {
    let network = Network::answering(Answer::records([address("192.0.2.1", 60)]));
    let forwarder = network.forwarder(settings());
    {
        let mut first = Box::pin(ask(&forwarder, "a.example", kind::A));
        assert!(is_waiting(&mut first).await);
    }
    assert_eq!(outcome(&forwarder, "a.example", kind::A).await, (0, 1));
    assert_eq!(network.asked().len(), 1);
}

#[tokio::test]
async fn a_long_answer_is_truncated_over_udp_and_whole_over_tcp() {
    let records = (0..100).map(|last| address(&format!("192.0.2.{last}"), 60));
    let records: Vec<Data> = records.collect();
    let network = Network::new(move |asked| match asked.is_stream {
        true => Reaction::Answer(Answer::records(records.clone())),
        false => Reaction::Answer(Answer {
            flags: flag::TRUNCATED,
            ..Answer::default()
        }),
    });
    let forwarder = network.forwarder(settings());
    for (form, size) in [(Form::Plain, 512), (Form::Edns, 1232)] {
        let question = Query::new("a.example", kind::A).encode(7, form);
        let short = forwarder.answer(&question, Via::Udp).await.unwrap();
        let message = Message::read(&short).unwrap();
        assert_eq!(message.flags & flag::TRUNCATED, flag::TRUNCATED);
        assert_eq!(message.answers().count(), 0);
        assert!(short.len() <= size);
        let long = forwarder.answer(&question, Via::Tcp).await.unwrap();
        assert_eq!(Message::read(&long).unwrap().answers().count(), 100);
    }
    assert_eq!(forwarder.statistics().truncated, 2);
    let asked: Vec<bool> = network
        .asked()
        .iter()
        .map(|asked| asked.is_stream)
        .collect();
    assert_eq!(asked, [false, true]);
}

#[tokio::test]
async fn without_ipv6_there_are_no_addresses_of_it() {
    let network = Network::answering(Answer::records([address("192.0.2.1", 60)]));
    let forwarder = network.forwarder(Settings {
        ipv6: false,
        ..settings()
    });
    assert_eq!(
        outcome(&forwarder, "a.example", kind::AAAA).await,
        (code::NO_ERROR, 0)
    );
    assert_eq!(
        outcome(&forwarder, "a.example", kind::A).await,
        (code::NO_ERROR, 1)
    );
    assert_eq!(network.asked().len(), 1);
    assert_eq!(forwarder.statistics().local, 1);
}

#[tokio::test]
async fn addresses_are_reported_before_the_answer_also_from_the_cache() {
    let reported: Arc<Mutex<Vec<String>>> = Arc::default();
    let network = Network::answering(Answer::records([
        alias("cdn.example", 300),
        address("192.0.2.1", 60).of("cdn.example"),
    ]));
    let observer = {
        let reported = Arc::clone(&reported);
        move |names: &[String], address, ttl: Duration| {
            let line = format!("{} {address} {}", names.join(" "), ttl.as_secs());
            reported.lock().unwrap().push(line);
        }
    };
    let forwarder = network.forwarder(Settings {
        observer: Some(Arc::new(observer)),
        ..settings()
    });
    for ttl in [60, 50] {
        assert_eq!(outcome(&forwarder, "www.example", kind::A).await, (0, 2));
        let line = format!("www.example cdn.example 192.0.2.1 {ttl}");
        assert_eq!(reported.lock().unwrap().pop(), Some(line));
        pass(10);
    }
}

#[tokio::test(start_paused = true)]
async fn expired_data_serves_while_no_upstream_answers_if_allowed() {
    for stale in [0, 3600] {
        let mut rounds = 0;
        let network = Network::new(move |_| {
            rounds += 1;
            match rounds {
                1 => Reaction::Answer(Answer::records([address("192.0.2.1", 60)])),
                2 => Reaction::Answer(Answer::negative(code::SERVER_FAILURE, None)),
                _ => Reaction::Silence,
            }
        });
        let forwarder = network.forwarder(Settings {
            serve_stale: Duration::from_secs(stale),
            ..settings()
        });
        assert_eq!(outcome(&forwarder, "a.example", kind::A).await, (0, 1));
        pass(100);
        for _ in 0..2 {
            let reply = ask(&forwarder, "a.example", kind::A).await;
            let message = Message::read(&reply).unwrap();
            if stale > 0 {
                assert_eq!(message.answers().next().unwrap().ttl, 30);
            } else {
                assert_eq!(message.code(), code::SERVER_FAILURE);
            }
            pass(2);
        }
        let statistics = forwarder.statistics();
        let counted = (statistics.stale, statistics.failed);
        assert_eq!(counted, if stale > 0 { (2, 0) } else { (0, 2) });
    }
}

#[tokio::test]
async fn a_failure_is_kept_for_a_second() {
    let network = Network::answering(Answer::negative(code::REFUSED, None));
    let forwarder = network.forwarder(settings());
    for asked in [1, 1, 2] {
        if asked == 2 {
            pass(1);
        }
        assert_eq!(
            outcome(&forwarder, "a.example", kind::A).await,
            (code::REFUSED, 0)
        );
        assert_eq!(network.asked().len(), asked);
    }
}

#[tokio::test(start_paused = true)]
async fn too_many_open_questions_fail_at_once() {
    let network = Network::new(|_| Reaction::Silence);
    let forwarder = network.forwarder(Settings {
        max_open: 1,
        ..settings()
    });
    let mut first = Box::pin(ask(&forwarder, "a.example", kind::A));
    assert!(is_waiting(&mut first).await);
    let begin = tokio::time::Instant::now();
    assert_eq!(
        outcome(&forwarder, "b.example", kind::A).await,
        (code::SERVER_FAILURE, 0)
    );
    assert_eq!(begin.elapsed(), Duration::ZERO);
}
