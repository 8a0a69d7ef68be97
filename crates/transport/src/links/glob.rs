//! Names of links with wildcards.

/// Whether a link's name fits a pattern: `*` stands for any characters, also none, `?` for exactly
/// one, everything else for itself. `wwan*` fits `wwan0`; `eth?` fits `eth1` but not `eth10`.
///
/// Takes at most the product of both lengths in steps, whatever the pattern.
pub fn name_matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // The last star seen, and the character of the name up to which it reaches.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => {
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
    pattern[p..].iter().all(|c| *c == '*')
}

/// Whether a configured name is a pattern, so that the lack of a link that fits is no mistake.
pub fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?'])
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
    fn a_hostile_pattern_costs_no_time() {
        assert!(!name_matches(
            &format!("{}b", "*a".repeat(200)),
            &"a".repeat(2000)
        ));
    }

    #[test]
    fn patterns_are_told_from_names() {
        assert!(is_pattern("wwan*") && is_pattern("eth?") && !is_pattern("eth0"));
    }
}
