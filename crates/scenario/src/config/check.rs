//! Checks across links: names, numbers of links, and the emulator's capacity.

use std::collections::HashSet;

use super::{LinkSpec, Setting, Shape};
use crate::error::LinkError;
use sumlink_settings::units::format_rate;

/// The highest rate of one direction of a link in bit/s: the capacity of one thread packet by
/// packet, with both ends on the same machine.
pub const MAX_RATE: u64 = 2_500_000_000;

/// The highest rate of one direction of a link with segmentation offload, in bit/s.
pub const MAX_RATE_GSO: u64 = 10_000_000_000;

/// Maximum number of links in a laboratory.
pub const MAX_LINKS: usize = 64;

/// Checks the number of links, and that their names are unique.
pub fn check_links(links: &[LinkSpec]) -> Result<(), LinkError> {
    if links.is_empty() || links.len() > MAX_LINKS {
        return Err(LinkError::Count(links.len()));
    }
    let mut names = HashSet::new();
    for link in links {
        check_name(&link.name)?;
        if !names.insert(&link.name) {
            return Err(LinkError::DuplicateName(link.name.clone()));
        }
    }
    Ok(())
}

/// Checks that the emulator has the capacity for each link's rates.
pub(crate) fn check_rates(links: &[LinkSpec], gso: bool) -> Result<(), LinkError> {
    for link in links {
        for shape in &link.shapes {
            check_rate(&link.name, &Setting::Rate(shape.rate), gso)?;
        }
    }
    Ok(())
}

/// Checks that the emulator has the capacity for a rate setting; other settings pass.
pub fn check_rate(link: &str, setting: &Setting, gso: bool) -> Result<(), LinkError> {
    let rate = match setting {
        Setting::Rate(rate) => *rate,
        Setting::Trace(trace) => trace.mean_rate(),
        _ => return Ok(()),
    };
    if rate <= limit(gso) {
        return Ok(());
    }
    Err(LinkError::TooFast {
        link: link.to_owned(),
        rate: format_rate(rate),
        how: how(gso),
        limit: format_rate(limit(gso)),
        advice: if !gso && rate <= MAX_RATE_GSO {
            ", or let it carry super-packets (lab shell --gso; gso = true)"
        } else {
            ""
        },
    })
}

/// A warning for links with a total rate above the emulator's capacity.
pub(crate) fn load_warning(links: &[LinkSpec], gso: bool) -> Option<String> {
    // Bulk traffic goes in one direction; the other carries acknowledgments.
    let busier = |link: &LinkSpec| link.shapes.iter().map(Shape::long_term_rate).max();
    let sum: u64 = links.iter().filter_map(busier).sum();
    (sum > limit(gso)).then(|| {
        format!(
            "the links add up to {}, and the emulator carries about {} {}: figures measured at \
             full load will be refused; ask for less{}",
            format_rate(sum),
            format_rate(limit(gso)),
            how(gso),
            if gso { "" } else { ", or use gso" }
        )
    })
}

fn limit(gso: bool) -> u64 {
    if gso { MAX_RATE_GSO } else { MAX_RATE }
}

fn how(gso: bool) -> &'static str {
    if gso {
        "in super-packets"
    } else {
        "packet by packet"
    }
}

/// The number of the link of that name.
pub fn find_link(links: &[LinkSpec], name: &str) -> Result<usize, LinkError> {
    let unknown = || LinkError::Unknown {
        name: name.to_owned(),
        links: links
            .iter()
            .map(|l| l.name.as_str())
            .collect::<Vec<_>>()
            .join(", "),
    };
    links
        .iter()
        .position(|l| l.name == name)
        .ok_or_else(unknown)
}

pub(crate) fn check_name(name: &str) -> Result<(), LinkError> {
    let plausible = name.len() <= 15
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
        && name != "lo";
    if plausible {
        Ok(())
    } else {
        Err(LinkError::BadName(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(texts: &[&str]) -> Vec<LinkSpec> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_link_that_is_too_fast_is_refused_with_advice() {
        let fast = links(&["wifi:rate=8gbit"]);
        assert_eq!(
            check_rates(&fast, false).unwrap_err().to_string(),
            "link 'wifi': 8gbit is more than the emulator carries packet by packet; ask for at \
             most 2.5gbit, or let it carry super-packets (lab shell --gso; gso = true)"
        );
        assert_eq!(check_rates(&fast, true), Ok(()));
        let error = check_rates(&links(&["wifi:rate=1mbit,down.rate=80gbit"]), true).unwrap_err();
        assert!(
            error.to_string().ends_with("ask for at most 10gbit"),
            "{error}"
        );
    }

    #[test]
    fn an_excessive_total_rate_causes_a_warning() {
        let sum = links(&["a:rate=2gbit", "b:rate=400mbit,up.rate=1gbit"]);
        let warning = load_warning(&sum, false).unwrap();
        assert!(
            warning.starts_with("the links add up to 3gbit"),
            "{warning}"
        );
        assert_eq!(load_warning(&sum, true), None);
        assert_eq!(load_warning(&sum[..1], false), None);
    }

    #[test]
    fn names_are_unique_and_there_is_a_link() {
        assert_eq!(
            check_links(&links(&["a:rate=1mbit", "a:rate=2mbit"])),
            Err(LinkError::DuplicateName("a".to_owned()))
        );
        assert_eq!(check_links(&[]), Err(LinkError::Count(0)));
    }
}
