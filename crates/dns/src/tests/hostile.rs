//! Hostile and malformed answers and questions.

use std::net::IpAddr;

use hickory_proto::op::Message as Reference;
use proptest::prelude::*;

use super::*;
use crate::testing::{Data, address, alias, service, soa};
use crate::wire::{Name, code, kind};

fn good() -> Answer {
    Answer::records([address("192.0.2.100", 60)])
}

#[tokio::test(start_paused = true)]
async fn answers_to_something_else_are_ignored() {
    for is_stream in [false, true] {
        let network = Network::new(|asked| {
            let query = &asked.client.query;
            let right = answer(query, good());
            let own = asked.client.id;
            let with = |bytes: &[u8], id: u16| {
                let mut bytes = bytes.to_vec();
                bytes[..2].copy_from_slice(&id.to_be_bytes());
                bytes
            };
            let other_name = answer(&Query::new("b.example", kind::A), good());
            let other_type = answer(&Query::new("a.example", kind::AAAA), good());
            let mut question = right.clone();
            question[2] &= 0x7f;
            let mut looped = right.clone();
            // The address record's name is a pointer to itself.
            let place = looped.len() - 16;
            looped[place + 1] = place as u8;
            let mut endless = right.clone();
            endless[7] = 200;
            Reaction::Exactly(vec![
                Vec::new(),
                vec![0; 5],
                with(&right, own ^ 1),
                with(&right, own.wrapping_add(1)),
                with(&other_name, own),
                with(&other_type, own),
                with(&question, own),
                with(&endless, own),
                with(&right[..right.len() - 1], own),
                with(&right, own),
                with(&looped, own),
            ])
        });
        let address = if is_stream {
            "tcp://192.0.2.1"
        } else {
            "udp://192.0.2.1"
        };
        let rules = Rules::new(vec![network.upstream(address)]);
        let forwarder = Forwarder::with_clock(settings(), rules, clock);
        assert_eq!(outcome(&forwarder, "a.example", kind::A).await, (0, 1));
        assert_eq!(network.asked().len(), 1);
    }
}

#[tokio::test]
async fn a_record_whose_name_is_a_loop_reaches_no_observer() {
    let network = Network::new(|asked| {
        let mut bytes = answer(&asked.client.query, good());
        let place = bytes.len() - 16;
        bytes[place + 1] = place as u8;
        Reaction::Raw(vec![bytes[2..].to_vec()])
    });
    let forwarder = network.forwarder(Settings {
        observer: Some(Arc::new(|_, _, _| panic!("it has no name"))),
        ..settings()
    });
    assert_eq!(outcome(&forwarder, "a.example", kind::A).await, (0, 1));
}

#[tokio::test]
async fn ids_and_sources_of_questions_differ() {
    let network = Network::answering(good());
    let forwarder = network.forwarder(Settings {
        cache_bytes: 0,
        ..settings()
    });
    for _ in 0..50 {
        ask(&forwarder, "a.example", kind::A).await;
    }
    let mut ids: Vec<u16> = network
        .asked()
        .iter()
        .map(|asked| asked.client.id)
        .collect();
    ids.sort_unstable();
    ids.dedup();
    // Of 50 random IDs, three pairs of equal ones are as good as impossible.
    assert!(ids.len() >= 47, "{ids:?}");
    assert!(ids.last().unwrap() - ids[0] > 10_000, "{ids:?}");
}

fn label() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("a".to_owned()),
        Just("b".to_owned()),
        "[a-z0-9_][a-z0-9]{0,19}"
    ]
}

fn domain() -> impl Strategy<Value = String> {
    proptest::collection::vec(label(), 1..5).prop_map(|labels| labels.join("."))
}

fn record() -> impl Strategy<Value = Data> {
    let kind_of = prop_oneof![
        any::<[u8; 4]>().prop_map(|ip| address(&IpAddr::from(ip).to_string(), 0)),
        any::<[u8; 16]>().prop_map(|ip| address(&IpAddr::from(ip).to_string(), 0)),
        domain().prop_map(|name| alias(&name, 0)),
        any::<u32>().prop_map(|minimum| soa(0, minimum)),
        any::<[u8; 4]>().prop_map(|ip| service(&[ip.into()], 0)),
        (
            65_400..65_500u16,
            proptest::collection::vec(any::<u8>(), 1..50)
        )
            .prop_map(|(kind, data)| Data::new(kind, 0, data)),
    ];
    (kind_of, proptest::option::of(domain()), any::<u32>()).prop_map(|(record, owner, ttl)| Data {
        ttl,
        owner: owner.map(|owner| owner.parse().unwrap()),
        ..record
    })
}

fn response() -> impl Strategy<Value = Answer> {
    (
        proptest::collection::vec(record(), 0..8),
        proptest::collection::vec(record(), 0..3),
        any::<bool>(),
    )
        .prop_map(|(answers, authorities, has_opt)| Answer {
            answers,
            authorities,
            has_opt,
            ..Answer::default()
        })
}

proptest! {
    /// An independent implementation reads the same records. It refuses messages with empty ones
    /// and with some of private types, so the test has none of those.
    #[test]
    fn messages_are_read_as_hickory_reads_them(name in domain(), response in response()) {
        let bytes = answer(&Query::new(&name, kind::A), response);
        let reference = Reference::from_vec(&bytes).unwrap();
        // hickory keeps the OPT record apart; ours is read again from the stored form.
        let stored = crate::wire::storable(&Message::read(&bytes).unwrap(), 0);
        let own = Message::read(&stored).unwrap();
        prop_assert_eq!(own.question.name.to_string(), name);
        let records: Vec<_> = own.records().collect();
        let theirs: Vec<_> = reference.answers.iter().chain(&reference.authorities).collect();
        prop_assert_eq!(records.len(), theirs.len());
        for (own_record, record) in records.iter().zip(theirs) {
            let owner = own.owner(own_record).unwrap().to_string();
            prop_assert_eq!(owner, record.name.to_ascii().trim_end_matches('.').to_lowercase());
            prop_assert_eq!(own_record.kind, u16::from(record.record_type()));
            prop_assert_eq!(own_record.ttl, crate::wire::seconds(record.ttl));
            if let Some(ip) = record.data.ip_addr() {
                prop_assert_eq!(crate::private::addresses(&own, own_record), [ip]);
            }
        }
        prop_assert!(Reference::from_vec(&stored).is_ok());
    }

    /// Messages that hickory writes, with all names compressed, are read as intended.
    #[test]
    fn names_that_hickory_compresses_are_read(names in proptest::collection::vec(domain(), 1..6)) {
        use hickory_proto::op::{MessageType, OpCode, Query as Asked};
        use hickory_proto::rr::{Name as Their, RData, Record, RecordType, rdata};
        let theirs: Vec<Their> =
            names.iter().map(|name| Their::from_ascii(format!("{name}.")).unwrap()).collect();
        let mut message = Reference::new(7, MessageType::Response, OpCode::Query);
        message.add_query(Asked::query(theirs[0].clone(), RecordType::A));
        for pair in theirs.windows(2) {
            let data = RData::CNAME(rdata::CNAME(pair[1].clone()));
            message.add_answer(Record::from_rdata(pair[0].clone(), 60, data));
        }
        let bytes = message.to_vec().unwrap();
        let own = Message::read(&bytes).unwrap();
        for (record, pair) in own.answers().zip(names.windows(2)) {
            prop_assert_eq!(own.owner(&record).unwrap().to_string(), &*pair[0]);
            let (alias, _) = Name::read(own.bytes, record.data_at).unwrap();
            prop_assert_eq!(alias.to_string(), &*pair[1]);
        }
    }

    /// Whatever an upstream sends: the client gets a message that hickory can read, or that has
    /// only records which the upstream made unreadable.
    #[test]
    fn no_answer_of_an_upstream_panics(
        response in response(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let network = Network::new(move |asked| {
                let mut bytes = answer(&asked.client.query, response.clone());
                for (place, value) in &changes {
                    let place = place.index(bytes.len());
                    bytes[place] = *value;
                }
                bytes[..2].copy_from_slice(&asked.client.id.to_be_bytes());
                Reaction::Exactly(vec![bytes])
            });
            let forwarder = network.forwarder(Settings {
                observer: Some(Arc::new(|names, _, _| assert!(!names.is_empty()))),
                ..settings()
            });
            for via in [Via::Udp, Via::Tcp] {
                let question = Query::new("a.example", kind::A).encode(0x1234, Form::Edns);
                let reply = forwarder.answer(&question, via).await.unwrap();
                let message = Message::read(&reply).unwrap();
                assert_eq!(message.id, 0x1234);
                assert!(via == Via::Tcp || reply.len() <= 1232);
            }
        });
    }

    /// Whatever a client sends: nothing panics, and an answer belongs to the question.
    #[test]
    fn no_question_of_a_client_panics(
        random in proptest::collection::vec(any::<u8>(), 0..100),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let mut question = Query::new("a.b.example", kind::A).encode(7, Form::Edns);
        for (place, value) in changes {
            let place = place.index(question.len());
            question[place] = value;
        }
        runtime.block_on(async {
            let forwarder = Network::answering(good()).forwarder(settings());
            for question in [random, question] {
                if let Some(reply) = forwarder.answer(&question, Via::Udp).await {
                    assert_eq!(reply[..2], question[..2]);
                    assert!(reply[2] & 0x80 != 0 && reply.len() <= 1232);
                }
            }
        });
    }
}

#[tokio::test]
async fn a_response_on_the_port_gets_no_answer() {
    let forwarder = Network::answering(good()).forwarder(settings());
    let mut response = Query::new("a.example", kind::A).encode(7, Form::Edns);
    response[2] |= 0x80;
    assert_eq!(forwarder.answer(&response, Via::Udp).await, None);
    let mut update = Query::new("a.example", kind::A).encode(7, Form::Edns);
    update[2] |= 5 << 3;
    let reply = forwarder.answer(&update, Via::Udp).await.unwrap();
    assert_eq!(u16::from(reply[3] & 15), code::NOT_IMPLEMENTED);
    assert_eq!(forwarder.statistics().malformed, 2);
}
