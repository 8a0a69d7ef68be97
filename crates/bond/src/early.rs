//! Whether a program waits until the server has connected a stream to its target.

use std::str::FromStr;

/// When a program gets a stream before the server has confirmed the connection to the target.
///
/// The program's data then arrives a round trip sooner. The error of an unreachable target occurs
/// when the stream is used, and not when it is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Early {
    /// Never.
    Never,
    /// If the session has connected a stream to the same target within the last minute, and none
    /// has failed since.
    #[default]
    Known,
    /// Always, unless the last stream to the same target failed within the last minute: then
    /// opening waits and returns the reason.
    Always,
}

impl Early {
    /// The names of the variants, in files and flags.
    pub const NAMES: [&str; 3] = ["never", "known", "always"];
}

impl FromStr for Early {
    type Err = String;

    /// Parses one of [`Early::NAMES`].
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "never" => Ok(Self::Never),
            "known" => Ok(Self::Known),
            "always" => Ok(Self::Always),
            _ => Err(format!("`{text}` is not one of {}", Self::NAMES.join(", "))),
        }
    }
}
