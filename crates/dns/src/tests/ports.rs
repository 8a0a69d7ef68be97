//! The ports, with real programs as clients.

use std::net::SocketAddr;
use std::process::Stdio;

use ipnet::IpNet;
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::*;
use crate::testing::{Data, address, alias, soa};
use crate::wire::{code, flag, kind};
use crate::{Limits, Server};

/// Longer than any step here takes.
const LONG: Duration = Duration::from_secs(30);

/// A server that ends with this value.
struct Running {
    address: SocketAddr,
    forwarder: Forwarder,
    _end: oneshot::Sender<()>,
}

async fn serve(network: &Network, clients: &[&str], limits: Limits) -> Running {
    let clients: Vec<IpNet> = clients.iter().map(|text| text.parse().unwrap()).collect();
    let forwarder = network.forwarder(settings());
    let any = "127.0.0.1:0".parse().unwrap();
    let server = Server::bind(&[any], clients, limits).await.unwrap();
    let address = server.local_addrs()[0];
    let (end, ended) = oneshot::channel::<()>();
    tokio::spawn(server.serve(forwarder.clone(), async {
        let _ = ended.await;
    }));
    Running {
        address,
        forwarder,
        _end: end,
    }
}

/// The resolver of these tests: a few names, long answers, and NXDOMAIN.
fn zone() -> Network {
    Network::new(|asked| {
        let question = &asked.client.query.question;
        let answer = match (question.name.to_string().as_str(), question.kind) {
            ("www.example", kind::A) => Answer::records([
                alias("cdn.example", 300),
                address("192.0.2.1", 60).of("cdn.example"),
            ]),
            ("www.example", kind::AAAA) => Answer::records([address("2001:db8::1", 60)]),
            ("long.example", 16) => {
                let text = |number: u8| Data::new(16, 60, [&[200u8][..], &[number; 200]].concat());
                let answer = Answer::records((b'a'..=b'y').map(text));
                match asked.is_stream {
                    true => answer,
                    false => Answer {
                        flags: flag::TRUNCATED,
                        ..Answer::default()
                    },
                }
            }
            ("strange.example", _) => Answer::records([Data::new(question.kind, 60, [1, 2, 3])]),
            _ => Answer::negative(code::NO_SUCH_NAME, Some(soa(300, 60))),
        };
        Reaction::Answer(answer)
    })
}

async fn dig(server: SocketAddr, arguments: &[&str]) -> String {
    let mut command = tokio::process::Command::new("dig");
    command
        .args([
            "@127.0.0.1",
            "-p",
            &server.port().to_string(),
            "+tries=1",
            "+timeout=5",
        ])
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = timeout(LONG, command.output()).await.unwrap();
    let output = output.expect("dig is required (package bind9-dnsutils)");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn dig_gets_answers_over_udp_and_tcp() {
    let running = serve(&zone(), &["127.0.0.0/8"], Limits::default()).await;
    for transport in ["+notcp", "+tcp"] {
        let short = dig(running.address, &[transport, "+short", "www.example", "A"]).await;
        assert_eq!(short, "cdn.example.\n192.0.2.1\n");
        let short = dig(
            running.address,
            &[transport, "+short", "www.example", "AAAA"],
        )
        .await;
        assert_eq!(short, "2001:db8::1\n");
        let missing = dig(running.address, &[transport, "missing.example"]).await;
        assert!(missing.contains("status: NXDOMAIN"), "{missing}");
        assert!(missing.contains("EDNS: version: 0"), "{missing}");
        let plain = dig(running.address, &[transport, "+noedns", "www.example"]).await;
        assert!(
            plain.contains("status: NOERROR") && !plain.contains("EDNS"),
            "{plain}"
        );
        let strange = dig(
            running.address,
            &[transport, "+short", "strange.example", "TYPE65280"],
        )
        .await;
        assert_eq!(strange, "\\# 3 010203\n");
        let short = dig(running.address, &[transport, "+short", "a.localhost"]).await;
        assert_eq!(short, "127.0.0.1\n");
        let chaos = dig(
            running.address,
            &[transport, "+edns=1", "+noednsneg", "www.example"],
        )
        .await;
        assert!(chaos.contains("status: BADVERS"), "{chaos}");
    }
    let statistics = running.forwarder.statistics();
    assert_eq!(statistics.failed, 0, "{statistics:?}");
    assert!(statistics.cached >= 5, "{statistics:?}");
}

#[tokio::test]
async fn dig_gets_a_long_answer_over_tcp_by_itself() {
    let running = serve(&zone(), &["127.0.0.0/8"], Limits::default()).await;
    let long = dig(running.address, &["long.example", "TXT"]).await;
    assert!(long.contains("Truncated, retrying in TCP mode"), "{long}");
    assert!(long.contains("ANSWER: 25"), "{long}");
    let ignored = dig(running.address, &["+ignore", "long.example", "TXT"]).await;
    assert!(ignored.contains(" tc "), "{ignored}");
    assert_eq!(running.forwarder.statistics().truncated, 2);
}

#[tokio::test]
async fn strangers_get_nothing() {
    let running = serve(&zone(), &["192.0.2.0/24", "::1/128"], Limits::default()).await;
    let question = Query::new("www.example", kind::A).encode(7, Form::Edns);
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(&question, running.address).await.unwrap();
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let mut answer = Vec::new();
    let read = timeout(LONG, stream.read_to_end(&mut answer))
        .await
        .unwrap();
    assert!(matches!(read, Err(_) | Ok(0)), "{read:?}");
    let counted = async {
        while running.forwarder.statistics().strangers < 2 {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, counted).await.unwrap();
    // Both questions have been dealt with, so an answer would be here.
    let mut buffer = [0; 512];
    let error = socket.try_recv(&mut buffer).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    assert_eq!(running.forwarder.statistics().queries, 0);
}

#[tokio::test]
async fn a_client_beyond_its_rate_gets_nothing() {
    let limits = Limits {
        rate: 1,
        burst: 3,
        ..Limits::default()
    };
    let running = serve(&zone(), &["127.0.0.0/8"], limits).await;
    let question = Query::new("www.example", kind::A).encode(7, Form::Edns);
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for _ in 0..20 {
        socket.send_to(&question, running.address).await.unwrap();
    }
    let counted = async {
        while running.forwarder.statistics().limited < 10 {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, counted).await.unwrap();
    assert!(running.forwarder.statistics().queries < 11);
}

#[tokio::test]
async fn questions_of_one_connection_are_answered_in_any_order() {
    // The first question is answered after the second one.
    let network =
        Network::new(
            |asked| match asked.client.query.question.name.to_string().as_str() {
                "slow.example" => Reaction::Silence,
                _ => Reaction::Answer(Answer::records([address("192.0.2.1", 60)])),
            },
        );
    let running = serve(&network, &["127.0.0.0/8"], Limits::default()).await;
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    for (id, name) in [(1, "slow.example"), (2, "fast.example")] {
        let question = Query::new(name, kind::A).encode(id, Form::Edns);
        stream.write_u16(question.len() as u16).await.unwrap();
        stream.write_all(&question).await.unwrap();
    }
    for (id, code) in [(2, code::NO_ERROR), (1, code::SERVER_FAILURE)] {
        let read = async {
            let length = stream.read_u16().await.unwrap();
            let mut reply = vec![0; length.into()];
            stream.read_exact(&mut reply).await.unwrap();
            reply
        };
        let reply = timeout(LONG, read).await.unwrap();
        let message = Message::read(&reply).unwrap();
        assert_eq!((message.id, message.code()), (id, code));
    }
}

#[tokio::test]
async fn idle_and_slow_connections_are_closed_and_others_have_room() {
    let limits = Limits {
        idle: Duration::from_millis(200),
        connections_per_client: 2,
        ..Limits::default()
    };
    let running = serve(&zone(), &["127.0.0.0/8"], limits).await;
    let mut idle = TcpStream::connect(running.address).await.unwrap();
    let mut slow = TcpStream::connect(running.address).await.unwrap();
    slow.write_all(&[0, 40, 1, 2, 3]).await.unwrap();
    let mut third = TcpStream::connect(running.address).await.unwrap();
    let mut rest = Vec::new();
    // The third is beyond the limit of a client; the others end after their time.
    for stream in [&mut third, &mut idle, &mut slow] {
        let read = timeout(LONG, stream.read_to_end(&mut rest)).await.unwrap();
        assert!(matches!(read, Err(_) | Ok(0)));
    }
    assert_eq!(running.forwarder.statistics().limited, 1);
    let again = async {
        loop {
            let short = dig(running.address, &["+tcp", "+short", "www.example"]).await;
            if short.contains("192.0.2.1") {
                break;
            }
        }
    };
    timeout(LONG, again).await.unwrap();
}

#[tokio::test]
async fn a_taken_port_and_a_foreign_address_are_reported() {
    let running = serve(&zone(), &[], Limits::default()).await;
    let error = Server::bind(&[running.address], Vec::new(), Limits::default())
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("another program has the port"),
        "{error}"
    );
    let foreign = "192.0.2.1:53".parse().unwrap();
    let error = Server::bind(&[foreign], Vec::new(), Limits::default())
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("does not have that address"),
        "{error}"
    );
}
