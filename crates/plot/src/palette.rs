//! A color-blind safe palette that assigns each system the same color everywhere.

use std::collections::{BTreeMap, BTreeSet};

/// Colors on white and on black backgrounds. After Okabe and Ito (2008), with the two palest made
/// darker on white; they are distinct for all common kinds of color blindness.
pub const COLORS: [(&str, &str); 9] = [
    ("#6b7280", "#a3acb8"), // gray
    ("#222222", "#eeeeee"), // black
    ("#0072b2", "#4aa3e0"), // blue
    ("#d55e00", "#ff8b3d"), // vermilion
    ("#00876a", "#2fc79a"), // bluish green
    ("#b5568c", "#e59ac4"), // reddish purple
    ("#c98a00", "#f5bd3a"), // orange
    ("#4b9fd1", "#9ad4f7"), // sky blue
    ("#857500", "#d8ca4a"), // yellow
];

/// The color of the system under test, which no other has.
const OWN: usize = 3;

/// Dashes of the second and further systems with the same color.
const DASHES: [&str; 3] = ["", "6 3", "2 2"];

/// The style of a system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Index in [`COLORS`].
    pub color: usize,
    /// Index in `DASHES`, and the shape of its markers.
    pub variant: usize,
}

impl Style {
    /// The SVG dash pattern, empty for a solid line.
    pub fn dash(self) -> &'static str {
        DASHES[self.variant % DASHES.len()]
    }
}

/// The styles of all systems of a report.
#[derive(Clone, Debug, Default)]
pub struct Palette(BTreeMap<String, Style>);

impl Palette {
    /// Well-known systems always have the same style; the others share the rest, in the order of
    /// their names.
    pub fn new<'a>(systems: impl IntoIterator<Item = &'a str>) -> Self {
        let systems: BTreeSet<&str> = systems.into_iter().collect();
        let known = |system: &str| match system {
            "alone" => Some(0),
            "simultaneous" => Some(1),
            "mptcp" => Some(2),
            "sumlink:fbdt" => Some(OWN),
            "aggligator" => Some(4),
            "noq" => Some(5),
            _ => None,
        };
        let mut taken: Vec<usize> = systems.iter().filter_map(|system| known(system)).collect();
        // Gray and black are reserved for the references.
        taken.extend([0, 1]);
        let free: Vec<usize> = (2..COLORS.len())
            .rev()
            .filter(|color| !taken.contains(color))
            .collect();
        // Further systems repeat the colors, except that of the system under test.
        let again: Vec<usize> = (2..COLORS.len()).filter(|color| *color != OWN).collect();
        let rest = systems.iter().filter(|system| known(system).is_none());
        let fixed = systems.iter().filter_map(|system| {
            let style = Style {
                color: known(system)?,
                variant: 0,
            };
            Some(((*system).to_owned(), style))
        });
        let mut styles: BTreeMap<String, Style> = fixed.collect();
        for (index, system) in rest.enumerate() {
            let style = match free.get(index) {
                Some(color) => Style {
                    color: *color,
                    variant: 0,
                },
                None => {
                    let index = index - free.len();
                    Style {
                        color: again[index % again.len()],
                        variant: 1 + index / again.len(),
                    }
                }
            };
            styles.insert((*system).to_owned(), style);
        }
        Self(styles)
    }

    /// The style of a system.
    pub fn style(&self, system: &str) -> Style {
        self.0.get(system).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_systems_look_alike() {
        let names: Vec<String> = (0..12).map(|n| format!("sumlink:s{n}")).collect();
        let known = ["alone", "simultaneous", "mptcp", "sumlink:fbdt"];
        let all: Vec<&str> = known
            .into_iter()
            .chain(names.iter().map(String::as_str))
            .collect();
        let palette = Palette::new(all.iter().copied());
        let styles: Vec<Style> = all.iter().map(|name| palette.style(name)).collect();
        // There are three shapes of markers.
        assert!(styles.iter().all(|style| style.variant < 3));
        for (index, style) in styles.iter().enumerate() {
            assert!(!styles[..index].contains(style), "{}", all[index]);
        }
        let own = palette.style("sumlink:fbdt").color;
        let of_own = styles.iter().filter(|style| style.color == own);
        assert_eq!(
            of_own.count(),
            1,
            "the system under test has its color alone"
        );
        assert_eq!(
            palette.style("mptcp"),
            Palette::new(["mptcp"]).style("mptcp")
        );
    }
}
