//! Whether this machine's own firewall lets clients reach a port: what nftables shows.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;
use tokio::time::timeout;

/// Time for `nft`.
const PATIENCE: Duration = Duration::from_secs(5);

/// The effect of the rules on incoming packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Incoming {
    /// No chain drops packets by default.
    Open,
    /// A chain drops packets by default, and a rule of it accepts the port.
    Accepted,
    /// A chain drops packets by default, and no rule of it accepts the port.
    Dropped,
    /// The rules cannot be read, for this reason.
    Unknown(&'static str),
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
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => {
            Incoming::Unknown("the program nft is missing")
        }
        _ if !nix::unistd::geteuid().is_root() => {
            Incoming::Unknown("nft shows its rules to root only")
        }
        _ => Incoming::Unknown("nft does not show its rules as JSON"),
    }
}

fn judge(ruleset: &str, port: u16) -> Incoming {
    let Ok(ruleset) = serde_json::from_str::<Value>(ruleset) else {
        return Incoming::Unknown("nft's answer is not JSON");
    };
    let rules = Rules {
        objects: ruleset["nftables"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default(),
    };
    let mut result = Incoming::Open;
    for base in rules
        .of_kind("chain")
        .filter(|chain| chain["hook"] == "input")
    {
        let chains = rules.reachable(base);
        let drops = base["policy"] == "drop" || rules.of_chain(base).any(drops_all);
        let mut all = chains
            .iter()
            .copied()
            .flat_map(|chain| rules.of_chain(chain));
        match drops {
            false => {}
            // Each chain of the hook decides: one that drops is enough.
            true if !all.any(|rule| rules.accepts(rule, port)) => return Incoming::Dropped,
            true => result = Incoming::Accepted,
        }
    }
    result
}

/// A ruleset as nft prints it.
struct Rules<'a> {
    objects: &'a [Value],
}

impl<'a> Rules<'a> {
    fn of_kind(&self, kind: &'static str) -> impl Iterator<Item = &'a Value> + use<'a> {
        self.objects
            .iter()
            .filter_map(move |object| object.get(kind))
    }

    /// The rules of a chain.
    fn of_chain(&self, chain: &'a Value) -> impl Iterator<Item = &'a Value> + use<'a> {
        let is_same = move |rule: &Value| {
            let same = |key: &str| rule[key] == chain[key];
            same("family") && same("table") && rule["chain"] == chain["name"]
        };
        self.of_kind("rule").filter(move |rule| is_same(rule))
    }

    /// A chain, and those to which its rules lead.
    fn reachable(&self, base: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![base];
        let mut next = 0;
        while let Some(&chain) = found.get(next) {
            next += 1;
            let statements = self
                .of_chain(chain)
                .filter_map(|rule| rule["expr"].as_array());
            let targets: Vec<&Value> = statements
                .flatten()
                .filter_map(|statement| statement.get("jump").or_else(|| statement.get("goto")))
                .map(|verdict| &verdict["target"])
                .collect();
            let here = self.of_kind("chain").filter(|other| {
                let same = |key: &str| other[key] == chain[key];
                same("family") && same("table") && targets.contains(&&other["name"])
            });
            for other in here {
                if !found.contains(&other) {
                    found.push(other);
                }
            }
        }
        found
    }

    /// Whether a rule accepts packets to this port.
    fn accepts(&self, rule: &Value, port: u16) -> bool {
        let statements = rule["expr"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let accepts = statements
            .iter()
            .any(|statement| statement.get("accept").is_some());
        accepts
            && statements
                .iter()
                .any(|statement| self.names_port(statement, port))
    }

    /// Whether a statement matches the destination port.
    fn names_port(&self, statement: &Value, port: u16) -> bool {
        let matched = &statement["match"];
        if matched["left"]["payload"]["field"] != "dport" {
            return false;
        }
        match matched["op"].as_str() {
            Some("!=") => !self.contains(&matched["right"], port),
            _ => self.contains(&matched["right"], port),
        }
    }

    /// Whether a number, a range or a set contains the port.
    fn contains(&self, value: &Value, port: u16) -> bool {
        match value {
            Value::Number(number) => number.as_u64() == Some(port.into()),
            Value::Array(parts) => parts.iter().any(|part| self.contains(part, port)),
            Value::String(name) => name.strip_prefix('@').is_some_and(|name| {
                let mut sets = self.of_kind("set").filter(|set| set["name"] == name);
                sets.any(|set| self.contains(&set["elem"], port))
            }),
            Value::Object(fields) => match fields.get("range").and_then(Value::as_array) {
                Some(bounds) => {
                    let bound = |index: usize| bounds.get(index).and_then(Value::as_u64);
                    let port = u64::from(port);
                    bound(0).is_some_and(|first| first <= port)
                        && bound(1).is_some_and(|last| port <= last)
                }
                None => fields.values().any(|field| self.contains(field, port)),
            },
            _ => false,
        }
    }
}

/// Whether a rule drops or rejects every packet that reaches it.
fn drops_all(rule: &Value) -> bool {
    let statements = rule["expr"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let ends = |statement: &Value| is_one_of(statement, &["drop", "reject"]);
    let is_unconditional =
        |statement: &Value| ends(statement) || is_one_of(statement, &["counter", "log"]);
    statements.iter().any(ends) && statements.iter().all(is_unconditional)
}

fn is_one_of(statement: &Value, names: &[&str]) -> bool {
    names.iter().any(|name| statement.get(name).is_some())
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
            { "set": { "family": "inet", "table": "filter", "name": "open", "type": "inet_service",
                "elem": [443, 7443] } },
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
            json!("@open"),
        ] {
            let judged = judge(&rules("drop", right.clone()), 7443);
            assert_eq!(judged, Incoming::Accepted, "{right}");
        }
        for right in [json!(22), json!({ "range": [8000, 9000] }), json!("@other")] {
            assert_eq!(judge(&rules("drop", right), 7443), Incoming::Dropped);
        }
        assert_eq!(judge(&rules("accept", json!(22)), 7443), Incoming::Open);
        assert!(matches!(judge("", 7443), Incoming::Unknown(_)));
        assert_eq!(judge("{}", 7443), Incoming::Open);
    }

    /// As firewalld does: the policy accepts, other chains have the ports, and the end rejects.
    #[test]
    fn a_final_rejection_drops_as_well_and_chains_are_followed() {
        let chain = |name: &str, hook: Option<&str>| {
            let mut chain = json!({ "family": "inet", "table": "t", "name": name });
            if let Some(hook) = hook {
                (chain["hook"], chain["policy"]) = (hook.into(), "accept".into());
            }
            json!({ "chain": chain })
        };
        let rule = |chain: &str, expr: Value| {
            let (family, table) = ("inet", "t");
            json!({ "rule": { "family": family, "table": table, "chain": chain, "expr": expr } })
        };
        let dport = json!({ "match": { "op": "==", "right": 7443,
            "left": { "payload": { "protocol": "tcp", "field": "dport" } } } });
        let ruleset = |port: &str, verdict: &str| {
            json!({ "nftables": [
                chain("in", Some("input")),
                chain("out", Some("output")),
                chain("zone", None),
                rule("in", json!([{ "jump": { "target": "zone" } }])),
                rule("in", json!([{ "counter": null }, { "reject": { "type": "icmpx" } }])),
                rule(port, json!([dport, { verdict: null }])),
            ] })
            .to_string()
        };
        assert_eq!(judge(&ruleset("zone", "accept"), 7443), Incoming::Accepted);
        assert_eq!(judge(&ruleset("zone", "drop"), 7443), Incoming::Dropped);
        assert_eq!(judge(&ruleset("out", "accept"), 7443), Incoming::Dropped);
    }
}
