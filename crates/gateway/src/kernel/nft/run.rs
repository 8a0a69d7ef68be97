//! Runs `nft`.

use std::io;
use std::process::{Output, Stdio};

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::super::NFT_TABLE;

/// Whether this system's nftables can capture.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NftSupport {
    /// REDIRECT, TPROXY and route lookups work.
    Works,
    /// The program `nft` is missing.
    NoProgram,
    /// The program or the kernel refuses a table with these, for this reason.
    Refused(String),
}

/// Name of the table that a probe adds and deletes.
const PROBE_TABLE: &str = "sumlink-probe";

/// Longest part of an error message that is kept, in characters.
const MESSAGE_LIMIT: usize = 200;

/// Probes by adding a temporary table with each expression that a plan may use. Its chains have no
/// hook, so no packet passes through them, except that of type nat, which matches no interface.
pub(in super::super) async fn probe() -> NftSupport {
    let table = json!({ "family": "inet", "name": PROBE_TABLE });
    let chain = |name: &str, kind: &str, hook: &str, priority: i32| {
        json!({ "add": { "chain": {
            "family": "inet", "table": PROBE_TABLE, "name": name, "type": kind, "hook": hook,
            "prio": priority, "policy": "accept",
        } } })
    };
    let rule = |chain: &str, statements: Value| {
        json!({ "add": { "rule": {
            "family": "inet", "table": PROBE_TABLE, "chain": chain, "expr": statements,
        } } })
    };
    // No interface has an empty name.
    let never = json!({ "match": {
        "op": "==", "left": { "meta": { "key": "oifname" } }, "right": "sumlink-probe",
    } });
    let never_from = json!({ "match": {
        "op": "==", "left": { "meta": { "key": "iifname" } }, "right": "sumlink-probe",
    } });
    let tcp = json!({ "match": {
        "op": "==", "left": { "meta": { "key": "l4proto" } }, "right": "tcp",
    } });
    let fib = json!({ "match": {
        "op": "==",
        "left": { "fib": { "result": "oifname", "flags": ["daddr", "mark"] } },
        "right": "sumlink-probe",
    } });
    let local = json!({ "match": {
        "op": "==",
        "left": { "fib": { "result": "type", "flags": ["daddr"] } },
        "right": "local",
    } });
    let tproxy = |family: &str, address: &str| {
        let only = json!({ "match": {
            "op": "==",
            "left": { "meta": { "key": "nfproto" } },
            "right": if family == "ip" { "ipv4" } else { "ipv6" },
        } });
        json!([never_from, only, tcp, fib, local,
            { "tproxy": { "family": family, "addr": address, "port": 1 } }])
    };
    let reject = json!({ "reject": { "type": "icmpx", "expr": "admin-prohibited" } });
    let connection = json!({ "match": {
        "op": "==", "left": { "ct": { "key": "direction" } }, "right": "reply",
    } });
    let keep = json!({ "mangle": { "key": { "ct": { "key": "mark" } }, "value": 1 } });
    let commands = json!({ "nftables": [
        { "add": { "table": table } },
        { "delete": { "table": table } },
        { "add": { "table": table } },
        chain("host", "nat", "output", -100),
        rule("host", json!([never, tcp, { "redirect": { "port": 1 } }])),
        chain("output", "route", "output", -150),
        rule("output", json!([never, connection, keep])),
        chain("prerouting", "filter", "prerouting", -150),
        rule("prerouting", tproxy("ip", "127.0.0.1")),
        rule("prerouting", tproxy("ip6", "::1")),
        rule("prerouting", json!([never_from, reject])),
        { "delete": { "table": table } },
    ] });
    match run(&["-j", "-f", "-"], Some(commands.to_string())).await {
        Ok(_) => NftSupport::Works,
        Err(error) if error.kind() == io::ErrorKind::NotFound => NftSupport::NoProgram,
        Err(error) => NftSupport::Refused(error.to_string()),
    }
}

/// Loads commands in JSON, in one transaction.
pub(in super::super) async fn load(commands: &Value) -> io::Result<()> {
    run(&["-j", "-f", "-"], Some(commands.to_string())).await?;
    Ok(())
}

/// Deletes our table; returns whether there was one. Without the program there is none.
pub(in super::super) async fn delete() -> io::Result<bool> {
    if listing().await?.is_none() {
        return Ok(false);
    }
    run(&["delete", "table", "inet", NFT_TABLE], None).await?;
    Ok(true)
}

/// Our table as nft displays it, which changes only with the table's rules.
pub(in super::super) async fn listing() -> io::Result<Option<String>> {
    let tables = match run(&["list", "tables", "inet"], None).await {
        Ok(tables) => tables,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // A kernel without nf_tables has no tables.
        Err(error) if is_unsupported(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let ours = format!("table inet {NFT_TABLE}");
    if !tables.lines().any(|line| line.trim() == ours) {
        return Ok(None);
    }
    let listed = run(&["list", "table", "inet", NFT_TABLE], None).await;
    match listed {
        Ok(text) => Ok(Some(text)),
        // It was deleted in between.
        Err(error) if error.to_string().contains("No such file") => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a chain of another program drops forwarded packets by default, as Docker's does.
pub(in super::super) async fn is_forwarding_dropped() -> bool {
    let Ok(text) = run(&["-j", "list", "chains"], None).await else {
        return false;
    };
    let Ok(document) = serde_json::from_str::<Value>(&text) else {
        return false;
    };
    document["nftables"].as_array().is_some_and(|entries| {
        entries.iter().any(|entry| {
            let chain = &entry["chain"];
            chain["hook"] == "forward" && chain["policy"] == "drop"
        })
    })
}

fn is_unsupported(error: &io::Error) -> bool {
    let text = error.to_string();
    [
        "not supported",
        "Protocol not",
        "cache initialization failed",
        "Unable to initialize",
    ]
    .iter()
    .any(|part| text.contains(part))
}

/// Runs `nft` with this input; returns its output, or its first complaint as an error.
async fn run(arguments: &[&str], input: Option<String>) -> io::Result<String> {
    let mut command = Command::new("nft");
    command
        .args(arguments)
        .stdin(if input.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn()?;
    if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
        // If nft exits early, its exit code shows it.
        let _ = stdin.write_all(input.as_bytes()).await;
    }
    let output = child.wait_with_output().await?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(io::Error::other(complaint(&output)))
}

/// The first line of nft's complaint.
fn complaint(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find(|line| !line.trim().is_empty());
    let line = line.unwrap_or("nft failed without a message").trim();
    line.chars().take(MESSAGE_LIMIT).collect()
}
