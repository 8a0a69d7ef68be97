//! The names (SNI) that a session's connections send: any server's for the first one, then the name
//! of the server that has the session, so that load balancers lead all of them there.

use rustls::pki_types::ServerName;
use tokio::sync::watch;

use crate::api::config::ClientConfig;
use crate::carrier::tls;

/// The names of one session.
#[derive(Debug)]
pub(crate) struct Names {
    /// The name of whichever server.
    any: ServerName<'static>,
    /// The name of the session's server, which the first WELCOME decides; the inner `None` is a
    /// server without one.
    own: watch::Sender<Option<Option<ServerName<'static>>>>,
}

impl Names {
    pub(crate) fn new(config: &ClientConfig) -> Self {
        Self {
            any: any_server(config.sni.as_deref(), &config.server),
            own: watch::channel(None).0,
        }
    }

    /// For connections to the server of this name only.
    pub(crate) fn of(name: ServerName<'static>) -> Self {
        Self {
            any: name,
            own: watch::channel(None).0,
        }
    }

    /// The name for a connection that joins the session, or creates it if there is none.
    pub(crate) fn current(&self) -> ServerName<'static> {
        self.own().unwrap_or_else(|| self.any.clone())
    }

    /// The name of the session's server, if it has one.
    pub(crate) fn own(&self) -> Option<ServerName<'static>> {
        self.own.borrow().clone().flatten()
    }

    /// Notes the name in a WELCOME of the session; false if another server has answered.
    pub(crate) fn note(&self, name: Option<ServerName<'static>>) -> bool {
        let mut is_same = true;
        self.own.send_if_modified(|own| {
            is_same = own.as_ref().is_none_or(|own| *own == name);
            let is_first = own.is_none();
            if is_first {
                *own = Some(name);
            }
            is_first
        });
        is_same
    }

    /// Waits until the session's server has a name; forever if it has none.
    pub(crate) async fn named(&self) -> ServerName<'static> {
        let mut own = self.own.subscribe();
        let named = own.wait_for(|own| matches!(own, Some(Some(_)))).await;
        match named.ok().and_then(|own| own.clone().flatten()) {
            Some(name) => name,
            None => std::future::pending().await,
        }
    }
}

/// The configured name; by default the host of the server, if it is no address. The placeholder for
/// none is not sent.
pub(crate) fn any_server(sni: Option<&str>, server: &str) -> ServerName<'static> {
    let host = || server.rsplit_once(':').map_or(server, |(host, _)| host);
    let name = sni.unwrap_or_else(host).trim_end_matches('.');
    match ServerName::try_from(name.to_owned()) {
        Ok(name @ ServerName::DnsName(_)) => name,
        _ => tls::server_name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ServerName<'static> {
        ServerName::try_from(text.to_owned()).unwrap()
    }

    #[test]
    fn the_default_is_the_host_unless_it_is_an_address() {
        assert_eq!(
            any_server(None, "bond.example.org:443"),
            name("bond.example.org")
        );
        assert_eq!(
            any_server(None, "bond.example.org.:443"),
            name("bond.example.org")
        );
        assert_eq!(
            any_server(Some("www.example"), "192.0.2.1:443"),
            name("www.example")
        );
        for (sni, server) in [
            (None, "192.0.2.1:443"),
            (None, "[2001:db8::1]:443"),
            (Some(""), "bond.example.org:443"),
        ] {
            assert_eq!(any_server(sni, server), tls::server_name(), "{server}");
        }
    }

    #[test]
    fn the_first_welcome_decides() {
        let names = Names::of(name("bond.example"));
        assert_eq!(names.current(), name("bond.example"));
        assert!(names.note(Some(name("a.example"))));
        assert_eq!(
            (names.current(), names.own()),
            (name("a.example"), Some(name("a.example")))
        );
        assert!(names.note(Some(name("a.example"))));
        assert!(!names.note(Some(name("b.example"))) && !names.note(None));
        assert_eq!(names.current(), name("a.example"));
        // A server without a name stays without one.
        let names = Names::of(name("bond.example"));
        assert!(names.note(None) && names.note(None));
        assert!(!names.note(Some(name("a.example"))));
        assert_eq!(names.current(), name("bond.example"));
    }
}
