//! Addresses of interfaces that are made from another interface.

use std::fmt;
use std::str::FromStr;

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mac([u8; 6]);

/// Bit of the first byte: locally administered (IEEE 802, 8.2).
const LOCAL: u8 = 0b10;
/// Bit of the first byte: group address.
const GROUP: u8 = 0b01;

/// Derives the address of a further interface: the card's own with the local bit set and the number
/// above the two bits. Numbers 1 to 15 give addresses that differ from each other and from the
/// card's, and the result is always the same.
pub(super) fn derived(card: Mac, number: u8) -> Mac {
    let Mac(mut bytes) = card;
    bytes[0] = ((bytes[0] | LOCAL) & !GROUP) ^ (number << 2);
    Mac(bytes)
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let bytes = text
            .split(':')
            .map(|byte| u8::from_str_radix(byte, 16).map_err(drop));
        let bytes: Vec<u8> = bytes.collect::<Result<_, _>>()?;
        bytes.try_into().map(Self).map_err(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_local_stable_and_distinct() {
        for card in [
            "00:11:22:33:44:55",
            "02:11:22:33:44:55",
            "fe:ff:ff:ff:ff:ff",
        ] {
            let card: Mac = card.parse().unwrap();
            let mut all = vec![card];
            for number in 1..16 {
                let mac = derived(card, number);
                assert_eq!(mac, derived(card, number));
                assert_eq!(mac.0[0] & (LOCAL | GROUP), LOCAL);
                assert!(!all.contains(&mac), "{mac}");
                all.push(mac);
            }
        }
        assert_eq!(
            derived("00:11:22:33:44:55".parse().unwrap(), 1).to_string(),
            "06:11:22:33:44:55"
        );
    }

    #[test]
    fn invalid_addresses_are_refused() {
        for text in [
            "",
            "0.0.0.0",
            "00:11:22:33:44",
            "00:11:22:33:44:55:66",
            "zz:11:22:33:44:55",
        ] {
            assert_eq!(text.parse::<Mac>(), Err(()), "{text}");
        }
    }
}
