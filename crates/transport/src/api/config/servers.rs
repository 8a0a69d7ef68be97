//! Several servers of one client.

use crate::carrier::keys::PublicKey;

/// A server besides the first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alternative {
    /// Its host and port.
    pub server: String,
    /// Its public key.
    pub server_key: PublicKey,
}

/// How a client chooses among several servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerChoice {
    /// The one that answers first over any link: round trip, loss and load decide. The client stays
    /// with it while it answers.
    #[default]
    Fastest,
    /// The first of the list that answers. The client returns to an earlier one that answers again
    /// while it has neither streams nor flows.
    Listed,
}

impl ServerChoice {
    /// The names in configuration files.
    pub const NAMES: [&'static str; 2] = ["fastest", "listed"];
}

impl std::str::FromStr for ServerChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "fastest" => Ok(Self::Fastest),
            "listed" => Ok(Self::Listed),
            _ => Err(format!("write one of: {}", Self::NAMES.join(", "))),
        }
    }
}
