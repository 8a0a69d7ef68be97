//! The figures of the thesis' chapter 3, as data: each function gives the points of one.

pub mod access;
pub mod office;
pub mod overhead;
pub mod participation;
pub mod timeline;

/// A distribution by three of its quantiles.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// 10 % quantile.
    pub low: f64,
    /// 50 % quantile.
    pub median: f64,
    /// 90 % quantile.
    pub high: f64,
    /// Mean.
    pub mean: f64,
}

impl Spread {
    /// Of some values; zeros without values.
    pub fn of(mut values: Vec<f64>) -> Self {
        if values.is_empty() {
            return Self::default();
        }
        values.sort_by(f64::total_cmp);
        let at = |part: f64| values[((values.len() - 1) as f64 * part).round() as usize];
        Self {
            low: at(0.1),
            median: at(0.5),
            high: at(0.9),
            mean: values.iter().sum::<f64>() / values.len() as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_a_hundred_and_one() {
        let spread = Spread::of((0..=100).rev().map(f64::from).collect());
        assert_eq!(
            (spread.low, spread.median, spread.high, spread.mean),
            (10.0, 50.0, 90.0, 50.0)
        );
        assert_eq!(Spread::of(Vec::new()), Spread::default());
    }
}
