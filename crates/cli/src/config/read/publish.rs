//! `[[publish]]` in the file of a client, and `[dns]` in that of a server.

use std::net::{IpAddr, SocketAddr};

use sumlink_transport::publish::{MAX_PUBLISHED, Protocol, Publish};
use sumlink_transport::resolver::ResolverSource;
use sumlink_transport::target::DNS_PORT;

use super::super::raw;
use super::Reader;

impl Reader<'_> {
    /// The ports of the server that lead to hosts behind the client.
    pub(super) fn publish(&mut self, blocks: Vec<raw::Publish>) -> Vec<Publish> {
        let mut ports: Vec<Publish> = Vec::new();
        for block in blocks {
            let span = block.listen.span();
            let listen = self.parse(Some(block.listen), |s| s.parse());
            let target = self.parse(Some(block.target), |s| s.parse());
            let proxy = block.proxy_protocol;
            let proxy_protocol = proxy.as_ref().is_some_and(|proxy| *proxy.get_ref());
            let (Some(listen), Some(target)) = (listen, target) else {
                continue;
            };
            let port = Publish {
                listen,
                target,
                proxy_protocol,
            };
            if let Some(proxy) = proxy.filter(|_| listen.protocol == Protocol::Udp)
                && proxy_protocol
            {
                self.problem(
                    proxy.span(),
                    "the PROXY protocol is for TCP: remove `proxy_protocol`, or publish a tcp port",
                );
            } else if let Some(other) = ports.iter().find(|other| other.listen.collides(&listen)) {
                let other = other.listen;
                self.problem(
                    span,
                    format!("{listen} and {other} cannot be published at once: remove one"),
                );
            } else if ports.len() >= MAX_PUBLISHED {
                self.problem(
                    span,
                    format!("a client publishes at most {MAX_PUBLISHED} ports: remove some"),
                );
            } else {
                ports.push(port);
            }
        }
        ports
    }

    /// The resolvers for name lookups of the clients; those of the system without the key, and none
    /// if the list is empty.
    pub(super) fn resolvers(&mut self, dns: raw::Dns) -> ResolverSource {
        let Some(listed) = dns.resolvers else {
            return ResolverSource::default();
        };
        match listed.is_empty() {
            true => ResolverSource::Off,
            false => ResolverSource::Listed(self.parse_all(listed, |s| parse_resolver(s))),
        }
    }
}

/// Parses the address of a resolver, with or without a port.
fn parse_resolver(text: &str) -> Result<SocketAddr, String> {
    let ip = text.parse::<IpAddr>().ok();
    let address = ip.map(|ip| SocketAddr::new(ip, DNS_PORT));
    let address = address.or_else(|| text.parse().ok());
    address.filter(|address| address.port() > 0).ok_or_else(|| {
        format!("`{text}` is not the address of a resolver: write it like 192.0.2.53")
    })
}

#[cfg(test)]
mod tests {
    use sumlink_engine::scheduler::OwnSchedulers;

    use super::*;
    use crate::config::{File, read_settings};

    fn read(text: &str) -> Result<File, String> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("x.toml");
        std::fs::write(&file, text).unwrap();
        read_settings(&file, &OwnSchedulers::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_client_publishes_and_a_server_permits() {
        let client = "server = \"h:1\"\n[[publish]]\nlisten = \"tcp:8443\"\n\
                      target = \"192.168.7.10:443\"\nproxy_protocol = true\n\
                      [[publish]]\nlisten = \"udp:8443\"\ntarget = \"nas.lan:5000\"\n";
        let Ok(File::Client(client)) = read(client) else {
            panic!("not a client's file");
        };
        assert_eq!(client.publish.len(), 2);
        assert!(client.publish[0].proxy_protocol && !client.publish[1].proxy_protocol);
        assert_eq!(client.publish[1].target.to_string(), "nas.lan:5000");
        let key = sumlink_transport::SecretKey::generate().unwrap().public();
        let server = format!(
            "listen = \"1\"\n[[client]]\nkey = \"{key}\"\npublish = [\"tcp:443\", \"udp:1-9\"]\n\
             [dns]\nresolvers = [\"192.0.2.53\", \"[::1]:5353\"]\n[limits]\npublished = 7\n"
        );
        let Ok(File::Server(server)) = read(&server) else {
            panic!("not a server's file");
        };
        assert_eq!(server.authorized[0].publish.len(), 2);
        assert_eq!(server.limits.published, 7);
        let addresses = ["192.0.2.53:53", "[::1]:5353"].map(|text| text.parse().unwrap());
        let listed = ResolverSource::Listed(addresses.into());
        assert_eq!(server.resolvers, listed);
        let dns = |text: &str| match read(&format!("listen = \"1\"\n{text}")) {
            Ok(File::Server(server)) => server.resolvers,
            other => panic!("{other:?}"),
        };
        assert_eq!(dns(""), ResolverSource::default());
        assert_eq!(dns("[dns]\nresolvers = []\n"), ResolverSource::Off);
    }

    #[test]
    fn mistakes_are_reported_by_line() {
        let client = |blocks: &str| read(&format!("server = \"h:1\"\n{blocks}")).unwrap_err();
        let block = |listen: &str, more: &str| {
            format!("[[publish]]\nlisten = \"{listen}\"\ntarget = \"h:1\"\n{more}")
        };
        for (text, line, part) in [
            (block("8443", ""), 3, "begin with `tcp:`"),
            (block("udp:1", "proxy_protocol = true\n"), 5, "is for TCP"),
            (
                format!("{}{}", block("tcp:1", ""), block("tcp:1.2.3.4:1", "")),
                6,
                "at once",
            ),
        ] {
            let error = client(&text);
            assert!(error.contains(part), "{error}");
            assert!(error.contains(&format!(":{line}:")), "{error}");
        }
        let error = read("listen = \"1\"\n[dns]\nresolvers = [\"dns.example\"]\n").unwrap_err();
        assert!(
            error.contains(":3:") && error.contains("192.0.2.53"),
            "{error}"
        );
    }
}
