//! The shape of the file: its tables and keys. Texts stay texts, with their positions.

use std::path::PathBuf;

use serde::Deserialize;
use sumlink::config::Field;
use toml::Spanned;

/// File of an edge node.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Edge {
    pub(super) role: Field<String>,
    pub(super) mode: Field<String>,
    pub(super) steering: Field<String>,
    pub(super) uplink: Field<String>,
    pub(super) acks: Field<String>,
    pub(super) boost: Field<String>,
    pub(super) sack: Field<String>,
    pub(super) tunnel: Field<i64>,
    pub(super) probe: Field<String>,
    pub(super) dead_after: Field<String>,
    pub(super) control: Field<PathBuf>,
    pub(super) metrics: Field<String>,
    #[serde(default)]
    pub(super) tun: Tun,
    #[serde(default)]
    pub(super) lwa: Lwa,
    #[serde(default)]
    pub(super) visible: Visible,
    #[serde(default)]
    pub(super) flows: Flows,
    #[serde(default)]
    pub(super) link: Vec<Spanned<EdgeLink>>,
}

/// `[tun]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tun {
    pub(super) name: Field<String>,
    #[serde(default)]
    pub(super) addresses: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) routes: Vec<Spanned<String>>,
    pub(super) mtu: Field<i64>,
    pub(super) mss: Field<i64>,
    pub(super) offload: Field<String>,
}

/// `[lwa]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Lwa {
    pub(super) bits: Field<i64>,
    pub(super) timer: Field<String>,
    pub(super) memory: Field<String>,
}

/// `[flows]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Flows {
    pub(super) most: Field<i64>,
    pub(super) kept_per_flow: Field<String>,
    pub(super) kept: Field<String>,
    pub(super) idle: Field<String>,
    pub(super) idle_half_open: Field<String>,
    pub(super) orphaned: Field<String>,
}

/// `[visible]`; the names are those of table I of the paper or of the core.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Visible {
    pub(super) min_free: Field<f64>,
    pub(super) boost_fraction: Field<f64>,
    pub(super) rise: Field<f64>,
    pub(super) fall: Field<f64>,
    pub(super) held_at_first: Field<f64>,
    pub(super) max_retransmissions: Field<i64>,
    pub(super) repair_after: Field<f64>,
    pub(super) min_repair: Field<String>,
    pub(super) give_up: Field<String>,
}

/// `[[link]]` in the file of an edge node.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EdgeLink {
    pub(super) name: Spanned<String>,
    pub(super) local: Spanned<String>,
    pub(super) remote: Spanned<String>,
    pub(super) interface: Field<String>,
    pub(super) rate: Field<String>,
    pub(super) backlog: Field<String>,
    pub(super) queue: Field<i64>,
}
