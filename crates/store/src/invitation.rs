//! Invitations: the one-time secret, its digests at the server, and the link that carries it.
//!
//! The secret is 16 random bytes. Two digests are derived from it, and only they are stored: the
//! tag, which the client sends first and which finds the invitation, and the digest that the
//! secret itself is compared with. Neither helps to find the secret.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use subtle::ConstantTimeEq;
use sumlink_transport::{PublicKey, Target};

use crate::client::Quota;

/// The first proof of an invitation, which a client sends in the clear.
pub type Tag = [u8; 16];

/// A one-time secret. [`Debug`](fmt::Debug) does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 16]);

/// The digest of a secret that a store has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Digest([u8; 32]);

/// An open invitation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invitation {
    /// Identifies it.
    pub tag: Tag,
    /// Proves the secret.
    pub digest: Digest,
    /// The name that the client gets.
    pub name: String,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// When it ends, in seconds since 1970.
    pub expires: u64,
    /// The quota that the client gets.
    pub quota: Option<Quota>,
    /// When the client itself expires, in seconds since 1970.
    pub client_expires: Option<u64>,
}

/// The text of an invitation: `sumlink://join?a=HOST:PORT&k=KEY&s=SECRET`, with `o=HOST:PORT,KEY`
/// for each further server of the same clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvitationLink {
    /// The server's addresses, HOST:PORT each; at least one.
    pub addresses: Vec<String>,
    /// The server's public key.
    pub server_key: PublicKey,
    /// The secret.
    pub secret: Secret,
    /// An address and the key of other servers with the same clients.
    pub others: Vec<(String, PublicKey)>,
}

/// A server of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerEntry {
    /// The name of its machine, for people.
    pub name: String,
    /// Its public key.
    pub key: PublicKey,
    /// Its addresses as clients reach it, HOST:PORT each; at least one.
    pub addresses: Vec<String>,
}

/// A text that is no invitation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not a whole invitation ({0}): copy all of the line that `sumlink invite` printed")]
pub struct BadLink(&'static str);

/// The beginning of every invitation.
const PREFIX: &str = "sumlink://join?";

impl Secret {
    /// A random secret; `None` if the system has no random numbers.
    pub fn generate() -> Option<Self> {
        let mut bytes = [0; 16];
        SystemRandom::new().fill(&mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// A secret from its bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Its tag.
    pub fn tag(&self) -> Tag {
        sumlink_transport::join::tag(&self.0)
    }

    /// Its digest.
    pub fn digest(&self) -> Digest {
        let hash = digest(&SHA256, &[b"sumlink invitation\0", &self.0[..]].concat());
        let mut bytes = [0; 32];
        bytes.copy_from_slice(hash.as_ref());
        Digest(bytes)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Digest {
    /// A digest from its bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Whether it is that of the secret, in a time that does not depend on either.
    pub fn matches(&self, secret: &Secret) -> bool {
        self.0.ct_eq(&secret.digest().0).into()
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(..)")
    }
}

impl InvitationLink {
    /// Most addresses in a link, those of other servers included.
    pub const MAX_ADDRESSES: usize = 8;
}

impl fmt::Display for InvitationLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        for address in &self.addresses {
            write!(f, "a={}&", without_brackets(address))?;
        }
        for (address, key) in &self.others {
            write!(f, "o={}", without_brackets(address))?;
            match *key == self.server_key {
                true => f.write_str("&")?,
                false => write!(f, ",{}&", URL_SAFE_NO_PAD.encode(key.as_bytes()))?,
            }
        }
        let key = URL_SAFE_NO_PAD.encode(self.server_key.as_bytes());
        let secret = URL_SAFE_NO_PAD.encode(self.secret.as_bytes());
        write!(f, "k={key}&s={secret}")
    }
}

impl std::str::FromStr for InvitationLink {
    type Err = BadLink;

    fn from_str(text: &str) -> Result<Self, BadLink> {
        let query = text
            .trim()
            .strip_prefix(PREFIX)
            .ok_or(BadLink("it does not begin with sumlink://join?"))?;
        let (mut addresses, mut key, mut secret) = (Vec::new(), None, None);
        let mut others = Vec::new();
        for part in query.split('&') {
            match part.split_once('=') {
                Some(("a", value)) => addresses.push(address(value)?),
                Some(("k", value)) if key.is_none() => key = Some(bytes(value, "its key")?),
                Some(("s", value)) if secret.is_none() => {
                    secret = Some(bytes(value, "its secret")?);
                }
                Some(("o", value)) => others.push(other(value)?),
                // A later version may add others.
                Some((name, _)) if !matches!(name, "k" | "s") => {}
                _ => return Err(BadLink("a part of it is not NAME=VALUE")),
            }
        }
        if addresses.is_empty() || addresses.len() + others.len() > Self::MAX_ADDRESSES {
            return Err(BadLink("it has no address, or too many"));
        }
        let key = key.ok_or(BadLink("its key is missing"))?;
        let server_key = public(key)?;
        let others = others.into_iter();
        let others = others.map(|(address, key)| {
            let key = key.map_or(Ok(server_key), public)?;
            Ok((address, key))
        });
        Ok(Self {
            addresses,
            server_key,
            others: others.collect::<Result<_, _>>()?,
            secret: Secret(secret.ok_or(BadLink("its secret is missing"))?),
        })
    }
}

/// RFC 3986, section 3.4: a query has no brackets.
fn without_brackets(address: &str) -> String {
    address.replace('[', "%5B").replace(']', "%5D")
}

/// Another server: its address, and its key if that is another one.
fn other(text: &str) -> Result<(String, Option<[u8; 32]>), BadLink> {
    match text.split_once(',') {
        Some((text, key)) => Ok((address(text)?, Some(bytes(key, "its key")?))),
        None => Ok((address(text)?, None)),
    }
}

fn public(key: [u8; 32]) -> Result<PublicKey, BadLink> {
    PublicKey::from_bytes(key).map_err(|_| BadLink("its key is invalid"))
}

fn address(text: &str) -> Result<String, BadLink> {
    let text = text.replace("%5B", "[").replace("%5b", "[");
    let text = text.replace("%5D", "]").replace("%5d", "]");
    match text.parse::<Target>() {
        Ok(_) => Ok(text),
        Err(_) => Err(BadLink("an address of it is not HOST:PORT")),
    }
}

fn bytes<const N: usize>(text: &str, what: &'static str) -> Result<[u8; N], BadLink> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok();
    bytes
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or(BadLink(match what {
            "its key" => "its key is cut or changed",
            _ => "its secret is cut or changed",
        }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn link(addresses: &[&str]) -> InvitationLink {
        InvitationLink {
            addresses: addresses.iter().map(|&address| address.into()).collect(),
            server_key: PublicKey::from_bytes([7; 32]).unwrap(),
            secret: Secret([0xfb; 16]),
            others: Vec::new(),
        }
    }

    #[test]
    fn a_link_names_other_servers() {
        let [same, other] = [7, 8].map(|byte| PublicKey::from_bytes([byte; 32]).unwrap());
        let mut link = link(&["a.example.org:7443"]);
        link.others = vec![
            ("b.example.org:7443".to_owned(), other),
            ("[2001:db8::7]:443".to_owned(), same),
        ];
        let text = link.to_string();
        assert!(text.contains("&o=b.example.org:7443,CAgI"), "{text}");
        assert!(text.contains("&o=%5B2001:db8::7%5D:443&k="), "{text}");
        assert_eq!(text.parse(), Ok(link));
        for wrong in [text.replace(",C", ",CC"), text.replace("o=b", "o=:")] {
            assert!(wrong.parse::<InvitationLink>().is_err(), "{wrong}");
        }
        let others = "o=b.example.org:1&".repeat(8);
        let many = text.replace("a=a", &format!("{others}a=a"));
        assert!(many.parse::<InvitationLink>().is_err(), "{many}");
    }

    #[test]
    fn a_link_survives_its_text() {
        let link = link(&["vpn.example.org:7443", "192.0.2.7:443", "[2001:db8::7]:443"]);
        let text = link.to_string();
        assert!(text.starts_with("sumlink://join?a=vpn.example.org:7443&a=192.0.2.7:443&a=%5B"));
        assert!(text.ends_with("&s=-_v7-_v7-_v7-_v7-_v7-w"), "{text}");
        assert_eq!(text.parse(), Ok(link.clone()));
        assert_eq!(format!(" {text}&later=1\n").parse(), Ok(link));
    }

    #[test]
    fn a_damaged_link_is_refused() {
        let text = link(&["a:1"]).to_string();
        for len in 0..text.len() {
            assert!(text[..len].parse::<InvitationLink>().is_err(), "{len}");
        }
        for wrong in [
            text.replace("a=a:1&", ""),
            text.replace("a:1", "a"),
            text.replace("sumlink:", "https:"),
            format!("{text}&s=AAAA"),
            text.replace("k=", "k=A"),
        ] {
            assert!(wrong.parse::<InvitationLink>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_digest_matches_its_secret_only_and_hides_it() {
        let [one, other] = [1, 2].map(|byte| Secret([byte; 16]));
        assert!(one.digest().matches(&one) && !one.digest().matches(&other));
        assert_ne!(one.tag()[..], one.digest().as_bytes()[..16]);
        assert_eq!(
            format!("{one:?} {:?}", one.digest()),
            "Secret(..) Digest(..)"
        );
        assert_ne!(Secret::generate(), Secret::generate());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(sumlink://join\\?)?[aks=&%5BD:0-9A-Za-z_-]{0,80}") {
            let _ = text.parse::<InvitationLink>();
        }
    }
}
