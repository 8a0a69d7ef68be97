//! Servers that the DNS lists.

use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::*;
use crate::api::config::ServerChoice;
use crate::carrier::keys::SecretKey;
use crate::links::{Lookup, Service};

/// The DNS: each time the next of these answers, `None` for a failure.
#[derive(Debug)]
struct Zone {
    answers: Vec<Option<Vec<(&'static str, u16)>>>,
    asked: AtomicUsize,
}

impl Lookup for Zone {
    fn look_up(&self, _: String, _: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        ready(Err(io::Error::other("not in this test"))).boxed()
    }

    fn look_up_services(&self, _: String) -> BoxFuture<'static, io::Result<Vec<Service>>> {
        let answer = &self.answers[self.asked.fetch_add(1, Ordering::Relaxed)];
        let services = answer.as_ref().map(|servers| {
            let service = |&(host, priority): &(&str, u16)| Service {
                host: host.to_owned(),
                port: 443,
                priority,
                weight: 1,
            };
            servers.iter().map(service).collect()
        });
        ready(services.ok_or_else(|| io::Error::other("no answer"))).boxed()
    }
}

type ZoneAnswer = Option<Vec<(&'static str, u16)>>;

fn servers(choice: ServerChoice, answers: Vec<ZoneAnswer>) -> Servers {
    let key = SecretKey::generate().unwrap();
    let mut config = ClientConfig::new("_sumlink._tcp.example.org", key.public(), key.clone())
        .server_choice(choice);
    config.lookup = Some(Arc::new(Zone {
        answers,
        asked: AtomicUsize::new(0),
    }));
    Servers::new(config, Policies::new(&[], None).unwrap())
}

fn listed_names(servers: &Servers) -> Vec<String> {
    let places = servers.places();
    let name = |place: &usize| servers.config(*place).server.clone();
    places.iter().map(name).collect()
}

#[tokio::test]
async fn servers_of_the_dns_come_and_go_and_keep_their_places() {
    let both = vec![("a", 1), ("b", 1)];
    let servers = servers(
        ServerChoice::Fastest,
        vec![Some(both), Some(vec![("b", 1), ("c", 2)]), None],
    );
    assert_eq!(listed_names(&servers), [""; 0]);
    servers.refresh(Duration::ZERO).await.unwrap();
    let mut first = listed_names(&servers);
    first.sort();
    assert_eq!(first, ["a:443", "b:443"]);
    let of_b = |servers: &Servers| {
        let places = servers.places();
        let is_b = |place: &usize| servers.config(*place).server == "b:443";
        places.into_iter().find(is_b).unwrap()
    };
    let place = of_b(&servers);
    servers.refresh(FRESH).await.unwrap();
    assert_eq!(of_b(&servers), place, "not asked again");
    servers.refresh(Duration::ZERO).await.unwrap();
    assert_eq!(of_b(&servers), place);
    let mut second = listed_names(&servers);
    second.sort();
    assert_eq!(second, ["b:443", "c:443"]);
    servers.refresh(Duration::ZERO).await.unwrap();
    assert_eq!(listed_names(&servers).len(), 2, "a failure changes nothing");
    let failed = BTreeSet::from([place]);
    assert!(servers.has_others(&failed));
}

#[tokio::test]
async fn a_session_returns_to_a_server_with_a_lower_priority_number() {
    for choice in [ServerChoice::Fastest, ServerChoice::Listed] {
        let all = vec![("spare", 20), ("main", 10)];
        let servers = servers(choice, vec![Some(all)]);
        servers.refresh(Duration::ZERO).await.unwrap();
        let place = |name: &str| {
            let places = servers.places();
            let is_it = |place: &usize| servers.config(*place).server == name;
            places.into_iter().find(is_it).unwrap()
        };
        let (main, spare) = (place("main:443"), place("spare:443"));
        assert_eq!(servers.preferred(spare), [main]);
        assert_eq!(servers.preferred(main), [0; 0]);
        servers.note_failure(main);
        assert_eq!(servers.preferred(spare), [0; 0], "a failed one rests");
    }
}

#[tokio::test]
async fn a_name_without_servers_is_an_error() {
    for answer in [None, Some(vec![]), Some(vec![(".", 0)])] {
        let servers = servers(ServerChoice::Fastest, vec![answer]);
        let error = servers.choose(&BTreeSet::new()).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("_sumlink._tcp.example.org"), "{text}");
    }
}
