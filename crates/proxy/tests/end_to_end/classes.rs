//! The class of a stream according to the rules.

use std::sync::{Arc, Mutex};

use socket2::{Domain, Socket, Type};
use sumlink_proxy::{Class, ClassRule, Listener, OpenError, Opener, Service, Target};
use tokio::net::TcpStream;

use crate::common::{Direct, Proxy, echo, exchange};

/// Opens directly, and records the requested classes.
#[derive(Clone, Default)]
struct Noting(Arc<Mutex<Vec<Option<Class>>>>);

impl Opener for Noting {
    type Stream = <Direct as Opener>::Stream;

    async fn open(&self, target: Target, class: Option<Class>) -> Result<Self::Stream, OpenError> {
        self.0.lock().unwrap().push(class);
        Direct.open(target, class).await
    }
}

/// A served entry with rules for the DSCP 46, the user `tv`, and one port.
async fn entry(service: Service, port: u16) -> (Proxy, Noting) {
    let rule = |class| ClassRule {
        ports: None,
        dscp: None,
        user: None,
        class,
    };
    let rules = [
        ClassRule {
            dscp: Some("ef".parse().unwrap()),
            ..rule(Class::Conversational)
        },
        ClassRule {
            user: Some("tv".to_owned()),
            ..rule(Class::Streaming)
        },
        ClassRule {
            ports: Some(port.to_string().parse().unwrap()),
            ..rule(Class::Interactive)
        },
    ];
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), service).await;
    let noting = Noting::default();
    let listener = listener.unwrap().with_classes(rules.into());
    (Proxy::serve_with(listener, noting.clone()), noting)
}

/// Connects with a type of service.
async fn connect(proxy: &Proxy, tos: u32) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_tos_v4(tos).unwrap();
    socket.connect(&proxy.address.into()).unwrap();
    socket.set_nonblocking(true).unwrap();
    TcpStream::from_std(socket.into()).unwrap()
}

#[tokio::test]
async fn dscp_port_and_user_choose_the_class() {
    let target = echo("127.0.0.1:0").await;
    let other = echo("127.0.0.1:0").await;
    let (proxy, noting) = entry(Service::Socks5, target.port).await;
    let request = |target: &Target| {
        let mut request = vec![5, 1, 0, 1, 127, 0, 0, 1];
        request.extend(target.port.to_be_bytes());
        request
    };
    let succeeded = [5, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    let cases = [
        (46 << 2, &b""[..], &target, Some(Class::Conversational)),
        (0, b"tv", &other, Some(Class::Streaming)),
        (0, b"radio", &target, Some(Class::Interactive)),
        (0, b"", &target, Some(Class::Interactive)),
        (0, b"", &other, None),
    ];
    for (tos, user, target, _) in cases {
        let mut client = connect(&proxy, tos).await;
        // Both methods are offered; the proxy requests the name because a rule needs it.
        if user.is_empty() {
            exchange(&mut client, &[5, 1, 0], &[5, 0]).await;
        } else {
            exchange(&mut client, &[5, 2, 0, 2], &[5, 2]).await;
            let name = [&[1, user.len() as u8], user, &[1, b'x']].concat();
            exchange(&mut client, &name, &[1, 0]).await;
        }
        exchange(&mut client, &request(target), &succeeded).await;
        exchange(&mut client, b"hello", b"hello").await;
    }
    let expected: Vec<_> = cases.iter().map(|case| case.3).collect();
    assert_eq!(*noting.0.lock().unwrap(), expected);
}

#[tokio::test]
async fn forwards_and_http_tunnels_have_classes_too() {
    let target = echo("127.0.0.1:0").await;
    let (proxy, noting) = entry(Service::Forward(target.clone()), target.port).await;
    let mut client = connect(&proxy, 46 << 2).await;
    exchange(&mut client, b"hello", b"hello").await;
    assert_eq!(*noting.0.lock().unwrap(), [Some(Class::Conversational)]);
    let (proxy, noting) = entry(Service::HttpProxy, target.port).await;
    let mut client = connect(&proxy, 0).await;
    let request = format!("CONNECT {target} HTTP/1.1\r\n\r\n");
    let answer = b"HTTP/1.1 200 Connection established\r\n\r\n";
    exchange(&mut client, request.as_bytes(), answer).await;
    assert_eq!(*noting.0.lock().unwrap(), [Some(Class::Interactive)]);
}
