//! Requests at the control socket: one JSON object on one line.

use serde::{Deserialize, Serialize};
use sumlink_transport::LinkPolicy;

use super::clients_request::ClientsRequest;

/// Longest request, in bytes.
pub(crate) const MAX_REQUEST: usize = 4096;

/// A request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "cmd", rename_all = "snake_case")]
pub(crate) enum Request {
    /// Requests the whole report.
    Status {},
    /// Requests the events from now on.
    Events {},
    /// Shows or changes one link of a client.
    Link {
        /// Name of the link.
        name: String,
        /// Change of its policy; without it the policy is only shown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        change: Option<LinkChange>,
    },
    /// Sets the rate of a link of an edge node.
    Rate(LinkRate),
    /// Shows, changes or tests the routing rules of a gateway.
    Route(RouteRequest),
    /// Shows or changes the clients of a server.
    Clients(ClientsRequest),
    /// Whether a server refuses new sessions.
    Drain {
        /// Whether it does from now on.
        on: bool,
    },
    /// Ends a gateway.
    Stop {},
}

/// A change of a link's policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkChange {
    /// The whole new policy; `None`, `null` in JSON, returns to the configuration.
    #[serde(deserialize_with = "Option::deserialize")]
    pub policy: Option<LinkPolicy>,
    /// Whether it survives a restart of the client.
    #[serde(default)]
    pub keep: bool,
}

/// A question about the routing rules of a gateway, or a change of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum RouteRequest {
    /// All rules in their order.
    List {},
    /// Adds a rule before all others.
    Add {
        /// The rule in the form of the command line.
        rule: String,
        /// Whether it survives a restart.
        #[serde(default)]
        keep: bool,
    },
    /// Removes a rule.
    Remove {
        /// Its id in the list.
        id: u64,
    },
    /// Which rule decides about a connection or flow, and why.
    Test {
        /// The destination: a name or an address.
        host: String,
        /// Its port.
        port: u16,
        /// `tcp` or `udp`.
        protocol: String,
        /// Address of the host on the LAN that connects; without one, this machine.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<std::net::IpAddr>,
    },
}

/// The rate limit of a link of an edge node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkRate {
    /// The link.
    pub name: String,
    /// Bits per second of UDP packets with their IP headers. 0 stops the link; without a value, its
    /// socket sets the rate.
    pub rate_bps: Option<u64>,
}

impl Request {
    /// Parses a request from the bytes up to the end of its line; the error is one sentence.
    pub(crate) fn decode(line: &[u8]) -> Result<Self, String> {
        if line.is_empty() {
            return Err("no request arrived: the connection ended first".to_owned());
        }
        if !line.ends_with(b"\n") && line.len() >= MAX_REQUEST {
            return Err(format!("the request is longer than {MAX_REQUEST} bytes"));
        }
        serde_json::from_slice(line).map_err(|error| format!("unknown request: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_cannot_be_read_is_answered_with_the_reason() {
        let decode = |line: &[u8]| Request::decode(line).unwrap_err();
        assert!(decode(b"").contains("ended first"));
        assert!(decode(b"\xff\n").contains("unknown request"));
        let cut = [b"{\"cmd\":".as_slice(), &[b' '; MAX_REQUEST]].concat();
        assert!(decode(&cut[..MAX_REQUEST]).contains("longer than 4096 bytes"));
        // The end of the connection ends a line, too.
        assert_eq!(
            Request::decode(b"{\"cmd\":\"status\"}"),
            Ok(Request::Status {})
        );
    }

    /// An empty change is more likely an oversight than the wish to discard the policy.
    #[test]
    fn a_change_names_its_policy() {
        let decode = |change: &str| {
            let line = format!("{{\"cmd\":\"link\",\"name\":\"a\",\"change\":{change}}}");
            Request::decode(line.as_bytes())
        };
        assert!(decode("{}").unwrap_err().contains("missing field `policy`"));
        let Ok(Request::Link { change, .. }) = decode("{\"policy\":null}") else {
            panic!("a change with a policy is complete");
        };
        let expected = LinkChange {
            policy: None,
            keep: false,
        };
        assert_eq!(change, Some(expected));
        for op in ["quota", "expire"] {
            let line = format!("{{\"cmd\":\"clients\",\"op\":\"{op}\",\"name\":\"a\"}}");
            let reason = Request::decode(line.as_bytes()).unwrap_err();
            assert!(reason.contains("missing field"), "{op}: {reason}");
        }
    }
}
