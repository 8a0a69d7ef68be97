//! Identities: one ed25519 key pair for each client and each server, pinned by the other side.
//!
//! A public key is written as 44 characters of base64 and is the only value that the two sides
//! exchange beforehand. A secret key has a separate file in PKCS#8 PEM form (RFC 8410), so that
//! `openssl genpkey -algorithm ed25519` makes one and `openssl pkey -text` reads ours.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::{PemObject, SectionKind};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sumlink_util::{is_shortage, plain};

/// An ed25519 public key (RFC 8032), which identifies a peer.
///
/// Its text form, in [`Display`](fmt::Display), [`FromStr`] and serde alike, is standard base64
/// with padding: 44 characters. A value of this type is never one of the few points of small order,
/// for which signatures can be forged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey([u8; 32]);

/// Why a text or a sequence of bytes is not a [`PublicKey`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublicKeyError {
    /// Not 44 characters of standard base64.
    #[error("a public key is 44 characters of base64, as `sumlink pubkey FILE` prints it")]
    Malformed,
    /// A point of small order, such as all zeros: a placeholder or an attack.
    #[error(
        "this public key is a placeholder for which signatures can be forged: use the peer's real \
        key"
    )]
    Weak,
}

/// The ed25519 key pair with which a client or a server proves its identity.
///
/// Cheap to clone. [`Debug`](fmt::Debug) shows the public half only.
#[derive(Clone)]
pub struct SecretKey {
    /// PKCS#8 encoding, version 1 or 2.
    pkcs8: Arc<[u8]>,
    /// The public half, derived once.
    public: PublicKey,
}

/// Why a secret key could not be made, loaded or saved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The file is missing or the system refuses to read it.
    #[error(
        "cannot read the key file {path}: {source}{advice}",
        source = plain(.source),
        advice = advice(.source)
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Users other than the owner may read or write the file.
    #[error(
        "the key file {path} is open to other users (mode {mode:04o}): run `chmod 600 {path}`, \
        and make a new key if another user may have read it"
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file is empty.
    #[error("the key file {path} is empty: make a key with `sumlink keygen --out FILE`")]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file is not exactly one PEM block with a private key.
    #[error(
        "the key file {path} does not hold exactly one `BEGIN PRIVATE KEY` block (PKCS#8 PEM): \
        make a key with `sumlink keygen --out FILE`"
    )]
    NotAKey {
        /// The file.
        path: PathBuf,
    },
    /// The private key is protected by a passphrase.
    #[error(
        "the key in {path} is encrypted with a passphrase: decrypt it with `openssl pkey -in \
        {path} -out FILE`"
    )]
    Encrypted {
        /// The file.
        path: PathBuf,
    },
    /// A damaged private key, or one of another algorithm (RSA, ECDSA, X25519, ...).
    #[error(
        "the key in {path} is not an intact ed25519 key: make one with `sumlink keygen --out FILE`"
    )]
    WrongKind {
        /// The file.
        path: PathBuf,
    },
    /// The file already exists; keys are never overwritten.
    #[error("{path} already exists and was not changed: choose another name or remove it first")]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be written.
    #[error(
        "cannot write the key file {path}: {source}; choose a directory that exists and that you \
        may write to",
        source = plain(.source)
    )]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The operating system provides no random numbers.
    #[error(
        "cannot make a key: the operating system has no random numbers yet; try again after it \
        has booted, or where getrandom(2) is allowed"
    )]
    NoRandomness,
}

/// What to do about an unreadable file.
fn advice(source: &io::Error) -> &'static str {
    match is_shortage(source) {
        true => "",
        false => "; check its path and owner, or make a key with `sumlink keygen --out FILE`",
    }
}

impl KeyError {
    /// Whether the same attempt may succeed later, because the system lacks descriptors or memory.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unreadable { source, .. } | Self::Unwritable { source, .. } => {
                is_shortage(source)
            }
            _ => false,
        }
    }
}

impl PublicKey {
    /// A key from its 32 bytes (RFC 8032, section 5.1.2); a point of small order is refused.
    pub fn from_bytes(bytes: [u8; 32]) -> Result<Self, PublicKeyError> {
        let mut y = bytes;
        y[31] &= 0x7f; // the sign of x changes nothing about the order
        if SMALL_ORDER.contains(&y) {
            Err(PublicKeyError::Weak)
        } else {
            Ok(Self(bytes))
        }
    }

    /// The 32 bytes of the key.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The key as a SubjectPublicKeyInfo in DER (RFC 8410, section 4): what TLS carries (RFC 7250).
    pub(crate) fn to_spki(self) -> Vec<u8> {
        [&SPKI_PREFIX[..], &self.0].concat()
    }

    /// The reverse of [`PublicKey::to_spki`]; `None` for any other input from a peer.
    pub(crate) fn from_spki(spki: &[u8]) -> Option<Self> {
        let key = spki.strip_prefix(&SPKI_PREFIX)?;
        Self::from_bytes(key.try_into().ok()?).ok()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl FromStr for PublicKey {
    type Err = PublicKeyError;

    fn from_str(text: &str) -> Result<Self, PublicKeyError> {
        let bytes = STANDARD
            .decode(text)
            .map_err(|_| PublicKeyError::Malformed)?;
        Self::from_bytes(bytes.try_into().map_err(|_| PublicKeyError::Malformed)?)
    }
}

impl Serialize for PublicKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PublicKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl SecretKey {
    /// A new random key; fails only with [`KeyError::NoRandomness`].
    pub fn generate() -> Result<Self, KeyError> {
        let mut seed = [0; 32];
        SystemRandom::new()
            .fill(&mut seed)
            .map_err(|_| KeyError::NoRandomness)?;
        // Version 1, without the public key: OpenSSL 3.0 does not read version 2.
        let pkcs8 = [&PKCS8_V1_PREFIX[..], &seed].concat();
        Self::from_pkcs8(pkcs8).ok_or(KeyError::NoRandomness)
    }

    /// Reads a key from a PEM file that only its owner may read and write.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let unreadable = |source| KeyError::Unreadable {
            path: path.to_owned(),
            source,
        };
        // Opening a pipe could block forever, and the advice to change the mode of a directory
        // would do harm.
        if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
            return Err(unreadable(io::Error::other("it is not a regular file")));
        }
        let file = File::open(path).map_err(unreadable)?;
        // The mode of the opened file, which the path may no longer name.
        let mode = file.metadata().map_err(unreadable)?.mode() & 0o7777;
        let mut text = Vec::new();
        file.take(MAX_FILE)
            .read_to_end(&mut text)
            .map_err(unreadable)?;
        // The advice to change the mode is only for a file with a key.
        let key = Self::from_pem(&text, path)?;
        if mode & 0o077 != 0 {
            return Err(KeyError::Exposed {
                path: path.to_owned(),
                mode,
            });
        }
        Ok(key)
    }

    /// Writes the key to a new file with mode 0600; an existing file is never touched.
    pub fn save(&self, path: &Path) -> Result<(), KeyError> {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(|source| match source.kind() {
                io::ErrorKind::AlreadyExists => KeyError::Exists {
                    path: path.to_owned(),
                },
                _ => KeyError::Unwritable {
                    path: path.to_owned(),
                    source,
                },
            })?;
        file.write_all(self.to_pem().as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(|source| {
                // A partial key is useless and would block the next attempt.
                let _ = std::fs::remove_file(path);
                KeyError::Unwritable {
                    path: path.to_owned(),
                    source,
                }
            })
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// The key in PKCS#8 DER, for the TLS library.
    pub(crate) fn pkcs8(&self) -> PrivatePkcs8KeyDer<'_> {
        PrivatePkcs8KeyDer::from(&self.pkcs8[..])
    }

    fn from_pkcs8(pkcs8: Vec<u8>) -> Option<Self> {
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&pkcs8).ok()?;
        let public = PublicKey::from_bytes(pair.public_key().as_ref().try_into().ok()?).ok()?;
        Some(Self {
            pkcs8: pkcs8.into(),
            public,
        })
    }

    fn from_pem(text: &[u8], path: &Path) -> Result<Self, KeyError> {
        let path = || path.to_owned();
        if text.iter().all(u8::is_ascii_whitespace) {
            return Err(KeyError::Empty { path: path() });
        }
        if text
            .windows(ENCRYPTED.len())
            .any(|window| window == ENCRYPTED)
        {
            return Err(KeyError::Encrypted { path: path() });
        }
        let mut blocks = <(SectionKind, Vec<u8>)>::pem_slice_iter(text);
        match (blocks.next(), blocks.next()) {
            (Some(Ok((SectionKind::PrivateKey, pkcs8))), None) => {
                Self::from_pkcs8(pkcs8).ok_or_else(|| KeyError::WrongKind { path: path() })
            }
            (Some(Ok((SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey, _))), _) => {
                Err(KeyError::WrongKind { path: path() })
            }
            _ => Err(KeyError::NotAKey { path: path() }),
        }
    }

    fn to_pem(&self) -> String {
        let mut pem = String::from("-----BEGIN PRIVATE KEY-----\n");
        let body = STANDARD.encode(&self.pkcs8);
        // RFC 7468, section 2: lines of 64 characters.
        for line in body.as_bytes().chunks(64) {
            pem.extend(line.iter().copied().map(char::from));
            pem.push('\n');
        }
        pem.push_str("-----END PRIVATE KEY-----\n");
        pem
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretKey")
            .field("public", &self.public)
            .finish_non_exhaustive()
    }
}

/// Maximum length of a key file, in bytes; the rest is not read.
const MAX_FILE: u64 = 64 << 10;

/// The first line of a PEM block with a passphrase (RFC 7468, section 11).
const ENCRYPTED: &[u8] = b"-----BEGIN ENCRYPTED PRIVATE KEY-----";

/// The bytes before the 32 key bytes of an ed25519 SubjectPublicKeyInfo (RFC 8410, section 4).
const SPKI_PREFIX: [u8; 12] = *b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";

/// The bytes before the 32 key bytes of an ed25519 PKCS#8 version 1 key (RFC 8410, section 7).
const PKCS8_V1_PREFIX: [u8; 16] =
    *b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";

/// The y coordinates, little endian, of the points whose order divides 8, p = 2^255 - 19: 0 and 1
/// with their unreduced forms p and p + 1, p - 1, and the two solutions +-y of d y^4 + 2 y^2 = 1.
const SMALL_ORDER: [[u8; 32]; 7] = [
    [0; 32],
    little_endian(1, 0, 0),
    little_endian(0xec, 0xff, 0x7f),
    little_endian(0xed, 0xff, 0x7f),
    little_endian(0xee, 0xff, 0x7f),
    *b"\x26\xe8\x95\x8f\xc2\xb2\x27\xb0\x45\xc3\xf4\x89\xf2\xef\x98\xf0\xd5\xdf\xac\x05\xd3\xc6\x33\x39\xb1\x38\x02\x88\x6d\x53\xfc\x05",
    *b"\xc7\x17\x6a\x70\x3d\x4d\xd8\x4f\xba\x3c\x0b\x76\x0d\x10\x67\x0f\x2a\x20\x53\xfa\x2c\x39\xcc\xc6\x4e\xc7\xfd\x77\x92\xac\x03\x7a",
];

const fn little_endian(first: u8, middle: u8, last: u8) -> [u8; 32] {
    let mut bytes = [middle; 32];
    bytes[0] = first;
    bytes[31] = last;
    bytes
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Made by `openssl genpkey -algorithm ed25519` (3.0): PKCS#8 version 1.
    const OPENSSL_V1: &str = "-----BEGIN PRIVATE KEY-----\n\
        MC4CAQAwBQYDK2VwBCIEINv2HScAchgHx1QPswZoQSnmBJkrY+bdJba5QV1RD50G\n\
        -----END PRIVATE KEY-----\n";
    const OPENSSL_V1_PUBLIC: &str = "VLstTzRuXEd0DqKtdMIOUkw8nlFycrHMzDDRy0Yw9vo=";

    fn file_with(text: &[u8], mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    fn load(text: &[u8]) -> Result<SecretKey, KeyError> {
        SecretKey::load(file_with(text, 0o600).path())
    }

    #[test]
    fn a_saved_key_is_private_and_comes_back_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key.pem");
        let key = SecretKey::generate().unwrap();
        key.save(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(SecretKey::load(&path).unwrap().public(), key.public());
        assert_ne!(SecretKey::generate().unwrap().public(), key.public());
    }

    #[test]
    fn an_existing_file_is_never_overwritten() {
        let file = file_with(b"precious", 0o600);
        let error = SecretKey::generate()
            .unwrap()
            .save(file.path())
            .unwrap_err();
        assert!(matches!(error, KeyError::Exists { .. }), "{error}");
        assert_eq!(fs::read(file.path()).unwrap(), b"precious");
    }

    #[test]
    fn openssl_and_ring_keys_load() {
        assert_eq!(
            load(OPENSSL_V1.as_bytes()).unwrap().public().to_string(),
            OPENSSL_V1_PUBLIC
        );
        let v2 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(v2.as_ref()).unwrap();
        let pem = SecretKey::from_pkcs8(v2.as_ref().to_vec())
            .unwrap()
            .to_pem();
        let public = load(pem.as_bytes()).unwrap().public();
        assert_eq!(public.as_bytes(), pair.public_key().as_ref());
    }

    #[test]
    fn a_file_open_to_others_is_refused_with_the_command_that_closes_it() {
        for mode in [0o640, 0o620, 0o604, 0o602, 0o644, 0o777] {
            let file = file_with(OPENSSL_V1.as_bytes(), mode);
            let error = SecretKey::load(file.path()).unwrap_err();
            assert!(
                matches!(error, KeyError::Exposed { .. }),
                "{mode:o}: {error}"
            );
            let command = format!("chmod 600 {}", file.path().display());
            assert!(error.to_string().contains(&command), "{error}");
        }
        assert!(SecretKey::load(file_with(OPENSSL_V1.as_bytes(), 0o400).path()).is_ok());
        let other = file_with(b"some host\n", 0o644);
        let error = SecretKey::load(other.path()).unwrap_err();
        assert!(matches!(error, KeyError::NotAKey { .. }), "{error}");
    }

    #[test]
    fn every_other_file_gets_a_specific_error() {
        let pem = |label: &str, body: &str| {
            format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n").into_bytes()
        };
        let missing = SecretKey::load(Path::new("/nonexistent/key")).unwrap_err();
        assert!(matches!(missing, KeyError::Unreadable { .. }), "{missing}");
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let directory = SecretKey::load(directory.path()).unwrap_err();
        assert!(
            matches!(directory, KeyError::Unreadable { .. }),
            "{directory}"
        );
        assert!(matches!(load(b""), Err(KeyError::Empty { .. })));
        assert!(matches!(load(b" \n"), Err(KeyError::Empty { .. })));
        assert!(matches!(
            load(b"\x00\xff garbage"),
            Err(KeyError::NotAKey { .. })
        ));
        assert!(matches!(
            load(&pem("PUBLIC KEY", "AAAA")),
            Err(KeyError::NotAKey { .. })
        ));
        assert!(matches!(
            load(&pem("PRIVATE KEY", "!!!!")),
            Err(KeyError::NotAKey { .. })
        ));
        assert!(matches!(
            load(&OPENSSL_V1.as_bytes()[..60]),
            Err(KeyError::NotAKey { .. })
        ));
        let twice = OPENSSL_V1.repeat(2);
        assert!(matches!(
            load(twice.as_bytes()),
            Err(KeyError::NotAKey { .. })
        ));
        assert!(matches!(
            load(&pem("PRIVATE KEY", "AAAA")),
            Err(KeyError::WrongKind { .. })
        ));
        assert!(matches!(
            load(&pem("EC PRIVATE KEY", "AAAA")),
            Err(KeyError::WrongKind { .. })
        ));
        // The same bytes with the algorithm identifier of X25519.
        let x25519 = OPENSSL_V1.replace("K2VwBC", "K2VuBC");
        assert!(matches!(
            load(x25519.as_bytes()),
            Err(KeyError::WrongKind { .. })
        ));
        let encrypted = pem("ENCRYPTED PRIVATE KEY", "AAAA");
        assert!(matches!(load(&encrypted), Err(KeyError::Encrypted { .. })));
    }

    #[test]
    fn a_secret_is_not_shown() {
        let key = load(OPENSSL_V1.as_bytes()).unwrap();
        assert_eq!(
            format!("{key:?}"),
            format!("SecretKey {{ public: PublicKey({OPENSSL_V1_PUBLIC}), .. }}")
        );
    }

    #[test]
    fn public_keys_come_back_from_text_and_tls_form() {
        let key: PublicKey = OPENSSL_V1_PUBLIC.parse().unwrap();
        assert_eq!(key.to_string(), OPENSSL_V1_PUBLIC);
        assert_eq!(PublicKey::from_spki(&key.to_spki()), Some(key));
        assert_eq!(PublicKey::from_spki(&key.to_spki()[..43]), None);
        assert_eq!(PublicKey::from_spki(&[0; 44]), None);
    }

    #[test]
    fn malformed_and_weak_public_keys_are_refused() {
        let parse = |text: &str| text.parse::<PublicKey>().unwrap_err();
        for text in [
            "",
            "AAAA",
            &OPENSSL_V1_PUBLIC[..43],
            "not a key",
            &"A".repeat(10_000),
        ] {
            assert_eq!(parse(text), PublicKeyError::Malformed, "{text}");
        }
        assert_eq!(
            parse(&format!("{OPENSSL_V1_PUBLIC} ")),
            PublicKeyError::Malformed
        );
        assert_eq!(parse(&STANDARD.encode([0; 32])), PublicKeyError::Weak);
        for mut point in SMALL_ORDER {
            point[31] |= 0x80;
            assert_eq!(PublicKey::from_bytes(point), Err(PublicKeyError::Weak));
        }
    }
}
