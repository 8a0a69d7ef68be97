//! Marks for values beyond an axis: an arrow at its end, and the numbers.

use super::axis::End;
use super::{Anchor, Axis, Ink, Svg, joined};

/// Half of the width of an arrow.
const HALF: f64 = 4.0;
/// Size of the numbers, and approximate width of a digit.
const SIZE: f64 = 9.5;
const DIGIT: f64 = 5.6;

/// Orientation of an axis, and the position of the mark across it, in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Across {
    /// Horizontal axis; the mark is at this vertical position.
    Y(f64),
    /// Vertical axis; the mark is at this horizontal position.
    X(f64),
}

/// Values as shown in a picture, each with its ink.
pub type Inked = (f64, Ink);

impl Svg {
    /// Draws an arrow at an end of the axis for the values beyond it, with their numbers beside it,
    /// each in its ink. Ignores values on the axis.
    pub fn beyond(
        &mut self,
        axis: &Axis,
        across: Across,
        values: &[Inked],
        number: impl Fn(f64) -> String,
    ) {
        for end in [End::Low, End::High] {
            let out = values
                .iter()
                .filter(|(value, _)| axis.beyond(*value) == Some(end));
            let out: Vec<Inked> = out.copied().collect();
            if out.is_empty() {
                continue;
            }
            let (place, inward) = match end {
                End::Low => (axis.place.0, (axis.place.1 - axis.place.0).signum()),
                End::High => (axis.place.1, (axis.place.0 - axis.place.1).signum()),
            };
            match across {
                Across::Y(y) => {
                    let base = place + inward * 2.0 * HALF;
                    self.arrow([(place, y), (base, y - HALF), (base, y + HALF)]);
                    let mut at = base + inward * 3.0;
                    for (value, ink) in out {
                        let text = number(value);
                        let anchor = if inward > 0.0 {
                            Anchor::Start
                        } else {
                            Anchor::End
                        };
                        self.number((at, y + 3.5), ink, anchor, &text);
                        at += inward * (DIGIT * text.chars().count() as f64 + 6.0);
                    }
                }
                Across::X(x) => {
                    let base = place + inward * 2.0 * HALF;
                    self.arrow([(x, place), (x - HALF, base), (x + HALF, base)]);
                    let mut at = x + HALF + 3.0;
                    for (value, ink) in out {
                        let text = number(value);
                        self.number((at, base.max(place) + 1.0), ink, Anchor::Start, &text);
                        at += DIGIT * text.chars().count() as f64 + 6.0;
                    }
                }
            }
        }
    }

    fn arrow(&mut self, points: [(f64, f64); 3]) {
        let shape = format!(
            "<polygon points=\"{}\" {}/>\n",
            joined(&points),
            Ink::Text.fill()
        );
        self.text.push_str(&shape);
    }

    /// A number with a background-colored outline, since it may overlap marks.
    fn number(&mut self, place: (f64, f64), ink: Ink, anchor: Anchor, text: &str) {
        let paper =
            "stroke=\"#ffffff\" stroke-width=\"3\" paint-order=\"stroke\" data-beyond=\"1\"";
        self.text(place, SIZE, ink, anchor, paper, text);
    }
}

#[cfg(test)]
mod tests {
    use super::super::short;
    use super::*;

    fn draw(axis: &Axis, across: Across, values: &[f64]) -> String {
        let mut svg = Svg::new(400.0, 100.0, "t");
        let values: Vec<Inked> = values.iter().map(|value| (*value, Ink::Text)).collect();
        svg.beyond(axis, across, &values, short);
        svg.finish()
    }

    #[test]
    fn each_value_beyond_an_axis_has_its_number_and_each_end_one_arrow() {
        let axis = Axis::limited([10.0], (0.0, 30.0), (100.0, 300.0), 5.0);
        let svg = draw(&axis, Across::Y(50.0), &[34.78, -18.76, 5.0, 99.0]);
        assert_eq!(svg.matches("<polygon").count(), 2, "{svg}");
        for number in [">34.8<", ">-18.8<", ">99<"] {
            assert!(svg.contains(number), "{number}: {svg}");
        }
        assert!(
            svg.contains("points=\"300.0,50.0 292.0,46.0 292.0,54.0\""),
            "{svg}"
        );
        assert!(
            svg.contains("points=\"100.0,50.0 108.0,46.0 108.0,54.0\""),
            "{svg}"
        );
        let upwards = Axis::limited([10.0], (0.0, 30.0), (90.0, 10.0), 5.0);
        let svg = draw(&upwards, Across::X(20.0), &[34.78]);
        assert!(
            svg.contains("points=\"20.0,10.0 16.0,18.0 24.0,18.0\""),
            "{svg}"
        );
        assert!(!draw(&axis, Across::Y(50.0), &[0.0, 10.0]).contains("<polygon"));
    }
}
