//! The nftables table, and the program `nft` that loads it.

mod part;
mod run;
mod table;

use serde_json::{Value, json};

use super::NFT_TABLE;
use part::Part;

pub use run::NftSupport;
pub(super) use run::{delete, is_forwarding_dropped, listing, load, probe};
pub(super) use table::table;

/// The table `inet sumlink`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    chains: Vec<Chain>,
}

/// A base chain, which accepts what no rule decides.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Chain {
    name: &'static str,
    kind: &'static str,
    hook: &'static str,
    /// Name and value of the priority (nft(8), "standard priority names").
    priority: (&'static str, i32),
    rules: Vec<Vec<Part>>,
}

impl Table {
    /// Input of `nft -j -f -`: replaces the table, if there is one, in one transaction.
    pub(super) fn to_json(&self) -> Value {
        let table = json!({ "family": "inet", "name": NFT_TABLE });
        let mut commands = vec![
            // Deleting a table that does not exist would fail.
            json!({ "add": { "table": table } }),
            json!({ "delete": { "table": table } }),
            json!({ "add": { "table": table } }),
        ];
        for chain in &self.chains {
            commands.push(json!({ "add": { "chain": {
                "family": "inet",
                "table": NFT_TABLE,
                "name": chain.name,
                "type": chain.kind,
                "hook": chain.hook,
                "prio": chain.priority.1,
                "policy": "accept",
            } } }));
        }
        for chain in &self.chains {
            for rule in &chain.rules {
                let statements: Vec<&Value> = rule.iter().map(|part| &part.json).collect();
                commands.push(json!({ "add": { "rule": {
                    "family": "inet",
                    "table": NFT_TABLE,
                    "chain": chain.name,
                    "expr": statements,
                } } }));
            }
        }
        json!({ "nftables": commands })
    }

    /// The table in the language of nft(8), a line each.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("table inet {NFT_TABLE} {{")];
        for chain in &self.chains {
            lines.push(format!("    chain {} {{", chain.name));
            lines.push(format!(
                "        type {} hook {} priority {}; policy accept;",
                chain.kind, chain.hook, chain.priority.0
            ));
            for rule in &chain.rules {
                let words: Vec<&str> = rule.iter().map(|part| part.text.as_str()).collect();
                lines.push(format!("        {}", words.join(" ")));
            }
            lines.push("    }".to_owned());
        }
        lines.push("}".to_owned());
        lines
    }
}
