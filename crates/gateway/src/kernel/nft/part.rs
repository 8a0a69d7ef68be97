//! Parts of a rule, each in the language of nft(8) and in its JSON (libnftables-json(5)).

use ipnet::IpNet;
use serde_json::{Value, json};

use super::super::MARK_MASK;

/// A match or a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) text: String,
    pub(super) json: Value,
}

impl Part {
    fn new(text: impl Into<String>, json: Value) -> Self {
        Self {
            text: text.into(),
            json,
        }
    }

    fn matching(text: impl Into<String>, op: &str, left: Value, right: Value) -> Self {
        Self::new(
            text,
            json!({ "match": { "op": op, "left": left, "right": right } }),
        )
    }
}

/// The mark of a packet, or of its connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mark {
    Packet,
    Connection,
}

impl Mark {
    fn text(self) -> &'static str {
        match self {
            Self::Packet => "meta mark",
            Self::Connection => "ct mark",
        }
    }

    fn json(self) -> Value {
        match self {
            Self::Packet => json!({ "meta": { "key": "mark" } }),
            Self::Connection => json!({ "ct": { "key": "mark" } }),
        }
    }

    /// Whether our bits have this value.
    pub(super) fn is(self, value: u32) -> Part {
        self.compare("==", value)
    }

    /// Whether our bits have another value.
    pub(super) fn is_not(self, value: u32) -> Part {
        self.compare("!=", value)
    }

    fn compare(self, op: &str, value: u32) -> Part {
        let text = format!("{} & {MARK_MASK:#x} {op} {value:#x}", self.text());
        Part::matching(
            text,
            op,
            json!({ "&": [self.json(), MARK_MASK] }),
            json!(value),
        )
    }

    /// Sets our bits.
    pub(super) fn set(self, value: u32) -> Part {
        let others = !MARK_MASK;
        let kept = json!({ "&": [self.json(), others] });
        let (kept_text, value_json) = match value {
            0 => (format!("{} & {others:#x}", self.text()), kept),
            _ => (
                format!("{} & {others:#x} | {value:#x}", self.text()),
                json!({ "|": [kept, value] }),
            ),
        };
        Part::new(
            format!("{} set {kept_text}", self.text()),
            json!({ "mangle": { "key": self.json(), "value": value_json } }),
        )
    }
}

/// Packets from none of these interfaces.
pub(super) fn from_none(interfaces: &[String]) -> Part {
    let quoted: Vec<String> = interfaces
        .iter()
        .map(|name| format!("\"{name}\""))
        .collect();
    Part::matching(
        format!("iifname != {{ {} }}", quoted.join(", ")),
        "!=",
        json!({ "meta": { "key": "iifname" } }),
        json!({ "set": interfaces }),
    )
}

/// Packets that leave by this interface.
pub(super) fn to_interface(name: &str) -> Part {
    Part::matching(
        format!("oifname \"{name}\""),
        "==",
        json!({ "meta": { "key": "oifname" } }),
        json!(name),
    )
}

/// Packets that leave by one of these interfaces.
pub(super) fn to_any(interfaces: &[String]) -> Part {
    let quoted: Vec<String> = interfaces
        .iter()
        .map(|name| format!("\"{name}\""))
        .collect();
    Part::matching(
        format!("oifname {{ {} }}", quoted.join(", ")),
        "==",
        json!({ "meta": { "key": "oifname" } }),
        json!({ "set": interfaces }),
    )
}

/// Packets for an address in one of these networks, all of the family `ip` or `ip6`; they must not
/// overlap.
pub(super) fn destination_in(protocol: &str, networks: &[IpNet]) -> Part {
    let listed: Vec<String> = networks.iter().map(ToString::to_string).collect();
    let prefixes: Vec<Value> = networks
        .iter()
        .map(|net| json!({ "prefix": { "addr": net.addr(), "len": net.prefix_len() } }))
        .collect();
    Part::matching(
        format!("{protocol} daddr {{ {} }}", listed.join(", ")),
        "==",
        json!({ "payload": { "protocol": protocol, "field": "daddr" } }),
        json!({ "set": prefixes }),
    )
}

/// Packets for an address of one of these types: `local`, `multicast` and so on.
pub(super) fn destination_is(kinds: &[&str]) -> Part {
    Part::matching(
        format!("fib daddr type {{ {} }}", kinds.join(", ")),
        "==",
        json!({ "fib": { "result": "type", "flags": ["daddr"] } }),
        json!({ "set": kinds }),
    )
}

/// Packets for which the routing tables, asked with the packet's mark, choose another interface.
pub(super) fn route_is_not_over(name: &str) -> Part {
    Part::matching(
        format!("fib daddr . mark oifname != \"{name}\""),
        "!=",
        json!({ "fib": { "result": "oifname", "flags": ["daddr", "mark"] } }),
        json!(name),
    )
}

/// Packets of a family: `ipv4` or `ipv6`.
pub(super) fn family(name: &str) -> Part {
    meta("nfproto", name)
}

/// Packets of a transport protocol.
pub(super) fn protocol(name: &str) -> Part {
    meta("l4proto", name)
}

fn meta(key: &str, value: &str) -> Part {
    Part::matching(
        format!("meta {key} {value}"),
        "==",
        json!({ "meta": { "key": key } }),
        json!(value),
    )
}

/// Echo requests of `icmp` or `icmpv6`.
pub(super) fn echo_request(protocol: &str) -> Part {
    Part::matching(
        format!("{protocol} type echo-request"),
        "==",
        json!({ "payload": { "protocol": protocol, "field": "type" } }),
        json!("echo-request"),
    )
}

/// Neighbor discovery (RFC 4861, section 4): the kernel answers a neighbor at whatever address it
/// asked from.
pub(super) fn neighbor_discovery() -> Part {
    let kinds = [
        "nd-router-solicit",
        "nd-router-advert",
        "nd-neighbor-solicit",
        "nd-neighbor-advert",
        "nd-redirect",
    ];
    Part::matching(
        format!("icmpv6 type {{ {} }}", kinds.join(", ")),
        "==",
        json!({ "payload": { "protocol": "icmpv6", "field": "type" } }),
        json!({ "set": kinds }),
    )
}

/// The first packet of a connection.
pub(super) fn new_connection() -> Part {
    let state = json!({ "ct": { "key": "state" } });
    Part::matching("ct state new", "in", state, json!("new"))
}

/// Packets towards the end that opened the connection.
pub(super) fn replies() -> Part {
    let direction = json!({ "ct": { "key": "direction" } });
    Part::matching("ct direction reply", "==", direction, json!("reply"))
}

/// Sends a connection to a local port.
pub(super) fn redirect(port: u16) -> Part {
    Part::new(
        format!("redirect to :{port}"),
        json!({ "redirect": { "port": port } }),
    )
}

/// Hands a packet to a transparent socket; ends the rule if there is none.
pub(super) fn tproxy(family: &str, address: &str, port: u16) -> Part {
    let shown = match family {
        "ip6" => format!("[{address}]"),
        _ => address.to_owned(),
    };
    Part::new(
        format!("tproxy {family} to {shown}:{port}"),
        json!({ "tproxy": { "family": family, "addr": address, "port": port } }),
    )
}

/// Answers with an ICMP error, "administratively prohibited".
pub(super) fn reject() -> Part {
    Part::new(
        "reject with icmpx admin-prohibited",
        json!({ "reject": { "type": "icmpx", "expr": "admin-prohibited" } }),
    )
}

/// Ends the chain.
pub(super) fn accept() -> Part {
    Part::new("accept", json!({ "accept": null }))
}

/// Discards the packet.
pub(super) fn drop() -> Part {
    Part::new("drop", json!({ "drop": null }))
}
