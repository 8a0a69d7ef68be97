//! Limits the series of a chart: more than six lines or marks are hard to tell apart.

/// Maximum number of series in a chart. The table beside it lists all of them.
pub const MAX_SERIES: usize = 6;

/// The series that a chart shows, and the number that only the table has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown<'a> {
    /// Names, in the order of the candidates.
    pub names: Vec<&'a str>,
    /// Number of candidates that are not shown.
    pub left_out: usize,
}

impl<'a> Shown<'a> {
    /// Chooses at most [`MAX_SERIES`] of the candidates: the links alone (`alone`), then
    /// `sumlink:fbdt`, then the best of the others. The largest merit is the best; candidates
    /// without a merit come last, and equal ones are chosen in their order.
    pub fn of(candidates: &[(&'a str, Option<f64>)]) -> Self {
        let place = |name: &str| match name {
            "alone" => 0,
            "sumlink:fbdt" => 1,
            _ => 2,
        };
        let merit = |index: usize| {
            let merit = candidates[index].1.filter(|merit| !merit.is_nan());
            merit.unwrap_or(f64::NEG_INFINITY)
        };
        let mut ranked: Vec<usize> = (0..candidates.len()).collect();
        ranked.sort_by(|a, b| {
            let places = place(candidates[*a].0).cmp(&place(candidates[*b].0));
            places.then(merit(*b).total_cmp(&merit(*a)))
        });
        let left_out = ranked.len().saturating_sub(MAX_SERIES);
        ranked.truncate(MAX_SERIES);
        ranked.sort_unstable();
        Self {
            names: ranked.iter().map(|index| candidates[*index].0).collect(),
            left_out,
        }
    }

    /// Whether the chart shows this series.
    pub fn has(&self, name: &str) -> bool {
        self.names.contains(&name)
    }

    /// The note beside the chart; `None` if it shows all series.
    pub fn note(&self) -> Option<String> {
        more(self.left_out)
    }
}

/// A note about series that only the table has; `None` without any.
pub fn more(left_out: usize) -> Option<String> {
    (left_out > 0).then(|| format!("and {left_out} more in the table"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_series_give_six_and_a_note() {
        let candidates = [
            ("a", Some(1.0)),
            ("b", Some(9.0)),
            ("sumlink:fbdt", Some(0.5)),
            ("c", None),
            ("d", Some(8.0)),
            ("e", Some(7.0)),
            ("alone", Some(0.1)),
            ("f", Some(-2.0)),
            ("g", Some(3.0)),
            ("h", Some(f64::NAN)),
        ];
        let shown = Shown::of(&candidates);
        assert_eq!(shown.names, ["b", "sumlink:fbdt", "d", "e", "alone", "g"]);
        assert_eq!(shown.note().as_deref(), Some("and 4 more in the table"));
        assert!(shown.has("alone") && !shown.has("a"));
    }

    #[test]
    fn six_series_are_all_shown() {
        let candidates = ["a", "b", "c", "d", "e", "f"].map(|name| (name, None));
        let shown = Shown::of(&candidates);
        assert_eq!(shown.names, ["a", "b", "c", "d", "e", "f"]);
        assert_eq!(shown.note(), None);
    }
}
