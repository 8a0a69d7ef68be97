//! The tag of an invitation, which travels as a protocol name (ALPN).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};

/// The tag of a secret.
pub type Tag = [u8; 16];

/// The tag of a secret. It does not help to find the secret.
pub fn tag(secret: &[u8; 16]) -> Tag {
    let hash = digest(
        &SHA256,
        &[b"sumlink invitation tag\0", &secret[..]].concat(),
    );
    let mut tag = [0; 16];
    tag.copy_from_slice(&hash.as_ref()[..16]);
    tag
}

/// The second protocol name of a client with this tag, after [`JOIN_ALPN`](crate::tls::JOIN_ALPN).
pub fn tag_protocol(tag: &Tag) -> Vec<u8> {
    [TAG_PROTOCOL, URL_SAFE_NO_PAD.encode(tag).as_bytes()].concat()
}

/// The tag among a client's protocol names.
pub(crate) fn tag_of<'a>(mut names: impl Iterator<Item = &'a [u8]>) -> Option<Tag> {
    let text = names.find_map(|name| name.strip_prefix(TAG_PROTOCOL))?;
    URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()
}

/// The beginning of the protocol name with a tag.
const TAG_PROTOCOL: &[u8] = b"sumlink-invitation/";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carrier::tls::JOIN_ALPN;

    #[test]
    fn a_tag_travels_as_a_protocol_name() {
        let tag = tag(&[7; 16]);
        let name = tag_protocol(&tag);
        assert_eq!(name.len(), TAG_PROTOCOL.len() + 22);
        assert_eq!(tag_of([JOIN_ALPN, &name].into_iter()), Some(tag));
        assert_eq!(tag_of([JOIN_ALPN].into_iter()), None);
        assert_eq!(tag_of([&name[..name.len() - 1]].into_iter()), None);
        assert_ne!(super::tag(&[8; 16]), tag);
    }
}
