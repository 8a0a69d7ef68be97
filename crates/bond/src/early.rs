//! Whether a program waits for the server's word.

use std::str::FromStr;

/// When a stream is given to its program before the server has said that the target is connected.
///
/// What the program writes then arrives a round trip sooner. A target that is not to be reached shows when the stream is used,
/// and no longer as the reason why it could not be opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Early {
    /// Never.
    Never,
    /// Where the session has connected a stream to the same target within the last minute, and none has failed since.
    #[default]
    Known,
    /// Always, but where the last one to the same target has failed within the last minute: then the program is told why.
    Always,
}

impl Early {
    /// What they are called, in files and flags.
    pub const NAMES: [&str; 3] = ["never", "known", "always"];
}

impl FromStr for Early {
    type Err = String;

    /// One of [`Early::NAMES`].
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "never" => Ok(Self::Never),
            "known" => Ok(Self::Known),
            "always" => Ok(Self::Always),
            _ => Err(format!("`{text}` is not one of {}", Self::NAMES.join(", "))),
        }
    }
}
