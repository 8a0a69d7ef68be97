//! The secret of a monitoring port.

use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};
use sumlink_util::plain;

/// Fewest characters of a token: 16 random ones cannot be guessed over a network.
const MIN_LENGTH: usize = 16;

/// A secret that requests carry: `Authorization: Bearer TOKEN`, or as the password of HTTP's basic
/// authentication, for which a browser asks.
///
/// Only its hash is kept. Comparing hashes takes the same time however much of a guess is right.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; 32]);

/// Why a token cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read {}: {}", file.display(), plain(reason))]
    Read {
        /// The file.
        file: PathBuf,
        /// The system's error.
        reason: io::Error,
    },
    /// Other users can read the file.
    #[error("{}: other users can read the token: chmod 600", .0.display())]
    Public(PathBuf),
    /// The file has something else.
    #[error(
        "{}: a token has at least {MIN_LENGTH} visible ASCII characters on one line: make one with \
         `openssl rand -hex 16`",
        .0.display()
    )]
    Wrong(PathBuf),
}

impl Token {
    /// Reads a file with the token on one line.
    ///
    /// # Errors
    ///
    /// The file cannot be read, other users can read it, or it has no token.
    pub fn load(file: &Path) -> Result<Self, TokenError> {
        let read = |reason| TokenError::Read {
            file: file.to_owned(),
            reason,
        };
        let metadata = std::fs::metadata(file).map_err(read)?;
        if !metadata.is_file() {
            // A pipe could delay the start without end.
            let reason = io::Error::new(io::ErrorKind::InvalidInput, "it is not a file");
            return Err(read(reason));
        }
        let mode = metadata.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(TokenError::Public(file.to_owned()));
        }
        let text = std::fs::read(file).map_err(read)?;
        let text = String::from_utf8_lossy(&text);
        Self::new(text.trim()).ok_or_else(|| TokenError::Wrong(file.to_owned()))
    }

    /// Makes a token of at least 16 visible ASCII characters; none if the text is anything else.
    pub fn new(text: &str) -> Option<Self> {
        let is_token = text.len() >= MIN_LENGTH && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_token.then(|| Self(hash(text.as_bytes())))
    }

    /// Whether the value of an `Authorization` header has this token.
    pub(crate) fn admits(&self, authorization: &[u8]) -> bool {
        let Some(space) = authorization.iter().position(|&byte| byte == b' ') else {
            return false;
        };
        let (scheme, rest) = authorization.split_at(space);
        let rest = rest.trim_ascii();
        if scheme.eq_ignore_ascii_case(b"bearer") {
            return self.is(rest);
        }
        if !scheme.eq_ignore_ascii_case(b"basic") {
            return false;
        }
        // USER:PASSWORD (RFC 7617); any user.
        let Ok(pair) = STANDARD.decode(rest) else {
            return false;
        };
        let colon = pair.iter().position(|&byte| byte == b':');
        colon.is_some_and(|colon| self.is(&pair[colon + 1..]))
    }

    fn is(&self, guess: &[u8]) -> bool {
        hash(guess) == self.0
    }
}

fn hash(text: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, text).as_ref());
    hash
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    #[test]
    fn a_request_has_the_token_in_either_form() {
        let token = Token::new("correct-horse-battery").unwrap();
        let basic = |pair: &str| format!("Basic {}", STANDARD.encode(pair));
        for good in [
            "Bearer correct-horse-battery".to_owned(),
            "bearer  correct-horse-battery ".to_owned(),
            basic("anyone:correct-horse-battery"),
            basic(":correct-horse-battery"),
        ] {
            assert!(token.admits(good.as_bytes()), "{good}");
        }
        for bad in [
            "correct-horse-battery".to_owned(),
            "Bearer correct-horse-batterz".to_owned(),
            "Bearer ".to_owned(),
            "Basic correct-horse-battery".to_owned(),
            basic("correct-horse-battery"),
            basic("a:b:correct-horse-battery"),
            "Digest correct-horse-battery".to_owned(),
        ] {
            assert!(!token.admits(bad.as_bytes()), "{bad}");
        }
        assert_eq!(format!("{token:?}"), "Token");
    }

    #[test]
    fn a_file_with_a_token_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let load = |text: &str, mode: u32| {
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            Token::load(&file).map_err(|error| error.to_string())
        };
        let token = load("0123456789abcdef\n", 0o600).unwrap();
        assert_eq!(token, Token::new("0123456789abcdef").unwrap());
        let refused = [
            (load("0123456789abcdef", 0o640), "chmod 600"),
            (load("short", 0o600), "at least 16"),
            (load("two words in here", 0o600), "at least 16"),
            (load("", 0o600), "at least 16"),
        ];
        for (refused, reason) in refused {
            let error = refused.unwrap_err();
            assert!(error.contains(reason), "{error}");
            assert_eq!(error.lines().count(), 1);
        }
        let missing = Token::load(&dir.path().join("none")).unwrap_err();
        assert!(matches!(missing, TokenError::Read { .. }));
    }
}
