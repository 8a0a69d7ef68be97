//! Link names with wildcards, as in a shell (POSIX.1-2024, XCU section 2.14).

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Whether a link's name matches a pattern: `*` stands for any number of characters, `?` for
/// exactly one, `[a-c0]` for one of the set and `[!a-c0]` for one outside it; other characters
/// stand for themselves. `wwan*` matches `wwan0`; `eth?` matches `eth1` but not `eth10`, `eth[01]`
/// matches `eth1` but not `eth2`.
///
/// A `]` at the start of a set belongs to it, and a `[` that is never closed stands for itself. The
/// number of steps is at most the product of both lengths, whatever the pattern.
pub fn name_matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (parse(pattern), name.chars().collect::<Vec<_>>());
    let (mut p, mut n) = (0, 0);
    // The last star seen, and the position in the name up to which it reaches.
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
            // The last star takes one more character. Earlier stars need not be retried: they could
            // only have skipped the same characters as the last one.
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

/// Whether a configured name is a pattern, for which no matching link is not an error.
pub fn is_pattern(name: &str) -> bool {
    parse(name)
        .iter()
        .any(|piece| !matches!(piece, Piece::One(_)))
}

/// How the names that match one pattern relate to those that match another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// No name matches both.
    Apart,
    /// Some names match both, and some only the first pattern.
    Partly,
    /// Every name that matches the first pattern also matches the second.
    Within,
}

/// How far `other` covers `pattern`. Both are followed through all names at once, character by
/// character.
///
/// Patterns of 127 characters or more, and those that take thousands of steps, count as
/// [`Overlap::Partly`].
pub fn overlap(pattern: &str, other: &str) -> Overlap {
    const MAX_STEPS: usize = 4096;
    let (first, second) = (parse(pattern), parse(other));
    // One bit per position, and one for the end.
    if first.len().max(second.len()) >= 127 {
        return Overlap::Partly;
    }
    let letters = letters(&[&first, &second]);
    let start = (positions(&first, 1), positions(&second, 1));
    let mut seen = BTreeSet::from([start]);
    let mut pending = vec![start];
    let (mut both, mut alone) = (false, false);
    while let Some((p, o)) = pending.pop() {
        let is_end = |pieces: &[Piece], positions: u128| positions >> pieces.len() & 1 == 1;
        match (is_end(&first, p), is_end(&second, o)) {
            (true, true) => both = true,
            (true, false) => alone = true,
            (false, _) => {}
        }
        for letter in &letters {
            let next = (after(&first, p, *letter), after(&second, o, *letter));
            if next.0 != 0 && seen.insert(next) {
                pending.push(next);
            }
        }
        if seen.len() > MAX_STEPS {
            return Overlap::Partly;
        }
    }
    match (both, alone) {
        (false, _) => Overlap::Apart,
        (true, true) => Overlap::Partly,
        (true, false) => Overlap::Within,
    }
}

/// Representative characters: all characters between two of them match the same pieces.
fn letters(patterns: &[&[Piece]]) -> BTreeSet<char> {
    let next = |c: char| char::from_u32(c as u32 + 1).unwrap_or(c);
    let mut letters = BTreeSet::from(['\0']);
    for piece in patterns.iter().copied().flatten() {
        match piece {
            Piece::Star | Piece::Any => {}
            Piece::One(c) => letters.extend([*c, next(*c)]),
            Piece::Set { ranges, .. } => {
                let ends = ranges.iter();
                letters.extend(ends.flat_map(|range| [*range.start(), next(*range.end())]));
            }
        }
    }
    letters
}

/// The positions (one bit each), extended by those that stars reach without consuming a character.
/// A pattern has fewer than 128.
fn positions(pieces: &[Piece], mut positions: u128) -> u128 {
    for (at, piece) in pieces.iter().enumerate() {
        if *piece == Piece::Star && positions >> at & 1 == 1 {
            positions |= 2 << at;
        }
    }
    positions
}

/// The positions after one more character.
fn after(pieces: &[Piece], before: u128, letter: char) -> u128 {
    let mut next = 0;
    for (at, piece) in pieces.iter().enumerate() {
        if before >> at & 1 == 1 && piece.fits(letter) {
            next |= if *piece == Piece::Star {
                1 << at
            } else {
                2 << at
            };
        }
    }
    positions(pieces, next)
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
    /// One character inside the ranges, or outside them.
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

/// Parses a set after its `[`, and returns it with the text after its `]`; `None` if it is not
/// closed.
fn set(text: &[char]) -> Option<(Piece, &[char])> {
    let (negated, text) = match text {
        // Most shells accept `^` besides the standard's `!`.
        ['!' | '^', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    // An empty set would match nothing, so the first `]` does not end it.
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
            // Never closed, so not a set.
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
    fn a_pattern_lies_within_another_one_where_each_of_its_names_does() {
        for (pattern, other, expected) in [
            ("eth0", "eth0", Overlap::Within),
            ("eth0", "eth*", Overlap::Within),
            ("eth*", "eth0", Overlap::Partly),
            ("wwan*", "w*", Overlap::Within),
            ("w*", "wwan*", Overlap::Partly),
            ("w*0", "*n0", Overlap::Partly),
            ("eth[01]", "eth?", Overlap::Within),
            ("eth[0-9]", "eth[!5]", Overlap::Partly),
            ("eth[0-4]", "eth[!5]", Overlap::Within),
            ("eth[!5]", "eth[5]", Overlap::Apart),
            ("eth?", "eth[!5]", Overlap::Partly),
            ("eth?", "eth[5!]*", Overlap::Partly),
            ("eth*", "wlan*", Overlap::Apart),
            ("*", "*", Overlap::Within),
            ("**a", "*a", Overlap::Within),
            ("?*", "*?", Overlap::Within),
            ("a[2-1]", "*", Overlap::Apart),
        ] {
            assert_eq!(overlap(pattern, other), expected, "{pattern} {other}");
        }
    }

    #[test]
    fn a_hostile_pattern_costs_no_time() {
        let stars = "*a".repeat(32);
        assert_ne!(overlap(&stars, &"*?".repeat(32)), Overlap::Apart);
        assert!(!name_matches(
            &format!("{}b", "*a".repeat(200)),
            &"a".repeat(2000)
        ));
    }

    #[test]
    fn patterns_are_distinguished_from_names() {
        for pattern in ["wwan*", "eth?", "eth[01]"] {
            assert!(is_pattern(pattern), "{pattern}");
        }
        for name in ["eth0", "a[01", "a]"] {
            assert!(!is_pattern(name), "{name}");
        }
    }
}
