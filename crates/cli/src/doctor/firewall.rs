//! Whether this machine's own firewall lets clients reach a port: what nftables shows.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;
use tokio::time::timeout;

/// Time for `nft`.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the rules mean for incoming packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Incoming {
    /// No chain drops packets by default.
    Open,
    /// A chain drops packets by default, and some rule names the port.
    Named,
    /// A chain drops packets by default, and no rule names the port.
    Dropped,
    /// The rules cannot be read: no `nft`, or no permission.
    Unknown,
}

/// Reads the rules of this network namespace for a port.
pub(super) async fn incoming(port: u16) -> Incoming {
    let mut nft = Command::new("nft");
    nft.args(["-j", "list", "ruleset"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    match timeout(PATIENCE, nft.output()).await {
        Ok(Ok(output)) if output.status.success() => {
            judge(&String::from_utf8_lossy(&output.stdout), port)
        }
        _ => Incoming::Unknown,
    }
}

fn judge(ruleset: &str, port: u16) -> Incoming {
    let Ok(ruleset) = serde_json::from_str::<Value>(ruleset) else {
        return Incoming::Unknown;
    };
    let objects = ruleset["nftables"].as_array();
    let objects = objects.map(Vec::as_slice).unwrap_or_default();
    let drops = objects
        .iter()
        .map(|object| &object["chain"])
        .any(|chain| chain["hook"] == "input" && chain["policy"] == "drop");
    let names = || {
        let rules = objects.iter().filter(|object| object.get("rule").is_some());
        rules.clone().any(|rule| names_port(rule, port)) || sets(objects, port)
    };
    match drops {
        false => Incoming::Open,
        true if names() => Incoming::Named,
        true => Incoming::Dropped,
    }
}

/// Whether a set of ports contains it.
fn sets(objects: &[Value], port: u16) -> bool {
    let mut sets = objects.iter().filter_map(|object| object.get("set"));
    sets.any(|set| set["type"] == "inet_service" && contains(&set["elem"], port))
}

/// Whether a part of a rule matches a destination port that contains it.
fn names_port(value: &Value, port: u16) -> bool {
    match value {
        Value::Object(fields) => {
            let is_match = fields
                .get("left")
                .is_some_and(|left| left["payload"]["field"] == "dport");
            let right = fields.get("right");
            let accepts = |right: &Value| match fields.get("op") {
                Some(op) if op == "!=" => !contains(right, port),
                _ => contains(right, port),
            };
            is_match && right.is_some_and(accepts)
                || fields.values().any(|field| names_port(field, port))
        }
        Value::Array(parts) => parts.iter().any(|part| names_port(part, port)),
        _ => false,
    }
}

/// Whether a number, a range or a set contains the port.
fn contains(value: &Value, port: u16) -> bool {
    match value {
        Value::Number(number) => number.as_u64() == Some(port.into()),
        Value::Array(parts) => parts.iter().any(|part| contains(part, port)),
        Value::Object(fields) => {
            if let Some([first, last]) = fields
                .get("range")
                .and_then(Value::as_array)
                .map(Vec::as_slice)
            {
                let bound = |value: &Value| value.as_u64().unwrap_or(u64::MAX);
                return (bound(first)..=bound(last)).contains(&port.into());
            }
            fields.values().any(|field| contains(field, port))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules(policy: &str, right: Value) -> String {
        json!({ "nftables": [
            { "metainfo": { "version": "1.1.3" } },
            { "chain": { "family": "inet", "table": "filter", "name": "input", "hook": "input",
                "policy": policy } },
            { "rule": { "family": "inet", "table": "filter", "chain": "input", "expr": [
                { "match": { "op": "==",
                    "left": { "payload": { "protocol": "tcp", "field": "dport" } },
                    "right": right } },
                { "accept": null },
            ] } },
        ] })
        .to_string()
    }

    #[test]
    fn a_chain_that_drops_needs_a_rule_for_the_port() {
        for right in [
            json!(7443),
            json!({ "set": [22, 7443] }),
            json!({ "range": [7000, 8000] }),
            json!({ "set": [22, { "range": [7443, 7450] }] }),
        ] {
            assert_eq!(judge(&rules("drop", right), 7443), Incoming::Named);
        }
        for right in [json!(22), json!({ "range": [8000, 9000] })] {
            assert_eq!(judge(&rules("drop", right), 7443), Incoming::Dropped);
        }
        assert_eq!(judge(&rules("accept", json!(22)), 7443), Incoming::Open);
        assert_eq!(judge("", 7443), Incoming::Unknown);
        assert_eq!(judge("{}", 7443), Incoming::Open);
    }
}
