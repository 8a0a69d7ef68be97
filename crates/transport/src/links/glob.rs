//! Names of links with wildcards, as in a shell (POSIX.1-2024, XCU section 2.14).

use std::ops::RangeInclusive;

/// Whether a link's name fits a pattern: `*` stands for any characters, also none, `?` for exactly
/// one, `[a-c0]` for one of the set and `[!a-c0]` for one that is not in it, everything else for itself.
/// `wwan*` fits `wwan0`; `eth?` fits `eth1` but not `eth10`, `eth[01]` fits `eth1` but not `eth2`.
///
/// A `]` right at the start of a set belongs to it, and a `[` that is never closed stands for itself.
/// Takes at most the product of both lengths in steps, whatever the pattern.
pub fn name_matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (parse(pattern), name.chars().collect::<Vec<_>>());
    let (mut p, mut n) = (0, 0);
    // The last star seen, and the character of the name up to which it reaches.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(Piece::Star) => {
                star = Some((p, n));
                p += 1;
            }
            Some(piece) if piece.fits(name[n]) => {
                p += 1;
                n += 1;
            }
            // The last star takes one character more. Earlier ones need not be tried again: what the
            // last one skips they could only have skipped as well.
            _ => match &mut star {
                Some((star, reach)) => {
                    *reach += 1;
                    (p, n) = (*star + 1, *reach);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|piece| *piece == Piece::Star)
}

/// Whether a configured name is a pattern, so that the lack of a link that fits is no mistake.
pub fn is_pattern(name: &str) -> bool {
    parse(name)
        .iter()
        .any(|piece| !matches!(piece, Piece::One(_)))
}

/// A part of a pattern.
#[derive(Debug, PartialEq, Eq)]
enum Piece {
    /// Any characters.
    Star,
    /// Any one character.
    Any,
    /// This character.
    One(char),
    /// One character that is in the ranges, or that is not.
    Set {
        negated: bool,
        ranges: Vec<RangeInclusive<char>>,
    },
}

impl Piece {
    fn fits(&self, c: char) -> bool {
        match self {
            Self::Star | Self::Any => true,
            Self::One(one) => *one == c,
            Self::Set { negated, ranges } => {
                ranges.iter().any(|range| range.contains(&c)) != *negated
            }
        }
    }
}

fn parse(pattern: &str) -> Vec<Piece> {
    let pattern: Vec<char> = pattern.chars().collect();
    let mut rest = pattern.as_slice();
    let mut pieces = Vec::new();
    while let Some((first, behind)) = rest.split_first() {
        let set = if *first == '[' { set(behind) } else { None };
        let (piece, behind) = match (first, set) {
            (_, Some(set)) => set,
            ('*', _) => (Piece::Star, behind),
            ('?', _) => (Piece::Any, behind),
            (one, _) => (Piece::One(*one), behind),
        };
        pieces.push(piece);
        rest = behind;
    }
    pieces
}

/// The set whose `[` has been read, and what is behind its `]`; nothing if it has none.
fn set(text: &[char]) -> Option<(Piece, &[char])> {
    let (negated, text) = match text {
        // `^` is what most shells take beside the standard's `!`.
        ['!' | '^', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    // An empty set would fit nothing, so the first `]` does not end it.
    let end = 1 + text.get(1..)?.iter().position(|c| *c == ']')?;
    let (mut inside, behind) = (&text[..end], &text[end + 1..]);
    let mut ranges = Vec::new();
    while let Some((first, rest)) = inside.split_first() {
        let (last, rest) = match rest {
            ['-', last, rest @ ..] => (last, rest),
            _ => (first, rest),
        };
        ranges.push(*first..=*last);
        inside = rest;
    }
    Some((Piece::Set { negated, ranges }, behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_fit_themselves_only() {
        assert!(name_matches("eth0", "eth0"));
        assert!(!name_matches("eth0", "eth1"));
        assert!(!name_matches("eth0", "eth"));
        assert!(!name_matches("eth", "eth0"));
        assert!(name_matches("", ""));
        assert!(!name_matches("", "eth0"));
    }

    #[test]
    fn wildcards_fit_as_in_a_shell() {
        for (pattern, name) in [
            ("*", ""),
            ("*", "wlan0"),
            ("wwan*", "wwan"),
            ("wwan*", "wwan12"),
            ("eth?", "eth1"),
            ("*0", "eth0"),
            ("*0", "00"),
            ("e*p*s?", "enp3s0"),
            ("w*n*0", "wlan10"),
            ("**", "x"),
        ] {
            assert!(name_matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("eth?", "eth"),
            ("eth?", "eth10"),
            ("wwan*", "wlan0"),
            ("*0", "eth1"),
            ("?", ""),
        ] {
            assert!(!name_matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn sets_fit_as_in_a_shell() {
        for (pattern, fits, does_not) in [
            ("a[01]", "a0 a1", "a a2 a01 a[01]"),
            ("eth[0-2]", "eth0 eth2", "eth3 eth-"),
            ("w[lw]an[0-9]*", "wlan0 wwan12", "wan0 wxan0"),
            ("eth[!0]", "eth1", "eth0 eth"),
            ("eth[^0-1]", "eth2", "eth0 eth1"),
            ("a[]0]", "a] a0", "a a[]0]"),
            ("a[!]0]", "a1", "a] a0"),
            ("a[0-]", "a0 a-", "a1"),
            ("a[-0]", "a0 a-", "a1"),
            ("a[*?]", "a* a?", "a0"),
            ("a[2-1]", "", "a1 a2"),
            ("*[0-1].[0-9]", "eth0.1 b.0.7", "eth2.1"),
            // Never closed, so no set.
            ("a[01", "a[01", "a0"),
            ("a[", "a[", "a"),
            ("a[]", "a[]", "a]"),
            ("a[!]", "a[!]", "a!"),
        ] {
            for name in fits.split_whitespace() {
                assert!(name_matches(pattern, name), "{pattern} {name}");
            }
            for name in does_not.split_whitespace() {
                assert!(!name_matches(pattern, name), "{pattern} {name}");
            }
        }
    }

    #[test]
    fn a_hostile_pattern_costs_no_time() {
        assert!(!name_matches(
            &format!("{}b", "*a".repeat(200)),
            &"a".repeat(2000)
        ));
    }

    #[test]
    fn patterns_are_told_from_names() {
        for pattern in ["wwan*", "eth?", "eth[01]"] {
            assert!(is_pattern(pattern), "{pattern}");
        }
        for name in ["eth0", "a[01", "a]"] {
            assert!(!is_pattern(name), "{name}");
        }
    }
}
