//! Marks on a raster, which bound the size of the chart for any trace.

use std::collections::BTreeMap;

use sumlink_plot::{Axis, Ink, Svg};

/// Raster positions per pixel.
pub(super) const RASTER: f64 = 2.0;
/// The height of the smallest mark, in raster positions.
const MIN: i64 = 3;

/// Vertical marks by horizontal position, each with its start and end.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks(BTreeMap<i64, Vec<(i64, i64)>>);

impl Marks {
    /// Adds a mark for a range of bytes at a horizontal position in pixels.
    pub(super) fn add(&mut self, at: f64, (from, to): (u64, u64), y: &Axis) {
        let top = (y.at(to as f64) * RASTER).floor() as i64;
        let bottom = (y.at(from as f64) * RASTER).ceil() as i64;
        let place = (at * RASTER).round() as i64;
        let marks = self.0.entry(place).or_default();
        marks.push((top, bottom.max(top + MIN)));
    }

    /// Draws the marks with this width; adjacent ones are merged.
    pub(super) fn put(self, svg: &mut Svg, width: f64, ink: Ink) {
        for (place, marks) in self.0 {
            for (top, bottom) in merge(marks) {
                let size = (width, (bottom - top) as f64 / RASTER);
                svg.rect((place as f64 / RASTER, top as f64 / RASTER), size, ink);
            }
        }
    }
}

/// Merges adjacent marks.
pub(super) fn merge(mut marks: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    marks.sort_unstable();
    let mut merged: Vec<(i64, i64)> = Vec::new();
    for (from, to) in marks {
        match merged.last_mut() {
            Some(last) if from <= last.1 + 1 => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    merged
}
