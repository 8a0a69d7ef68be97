//! The points of an experiment as rows of a table.

/// A figure of a point.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Missing.
    Nothing,
    /// A whole number.
    Count(u64),
    /// A number.
    Number(f64),
    /// A name.
    Text(String),
}

/// Figures by name, in the order in which a table shows them. All points of an experiment have the
/// same names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point(Vec<(&'static str, Value)>);

impl Point {
    /// A point without figures.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a number.
    pub fn number(&mut self, name: &'static str, number: f64) {
        self.0.push((name, Value::Number(number)));
    }

    /// Adds a number that may be missing.
    pub fn maybe(&mut self, name: &'static str, number: Option<f64>) {
        self.0
            .push((name, number.map_or(Value::Nothing, Value::Number)));
    }

    /// Adds a whole number.
    pub fn count(&mut self, name: &'static str, count: u64) {
        self.0.push((name, Value::Count(count)));
    }

    /// Adds a name.
    pub fn text(&mut self, name: &'static str, text: &str) {
        self.0.push((name, Value::Text(text.to_owned())));
    }

    /// All figures, in order.
    pub fn values(&self) -> &[(&'static str, Value)] {
        &self.0
    }

    /// The number with that name, if any.
    pub fn find(&self, name: &str) -> Option<f64> {
        let value = self.0.iter().find(|(known, _)| *known == name)?;
        match &value.1 {
            Value::Number(number) => Some(*number),
            Value::Count(count) => Some(*count as f64),
            Value::Nothing | Value::Text(_) => None,
        }
    }

    /// Its access scheme.
    pub fn scheme(&self) -> &str {
        let scheme = self.0.iter().find(|(name, _)| *name == "scheme");
        match scheme {
            Some((_, Value::Text(text))) => text,
            _ => "",
        }
    }
}

/// Rounds to the six significant digits that figures show. More digits are noise, such as in sums
/// of tenths of seconds, which no binary fraction represents exactly.
pub fn rounded(number: f64) -> f64 {
    format!("{number:.5e}").parse().unwrap_or(number)
}

/// A table with a line for each point under a header of names; missing values are empty.
pub fn csv(points: &[Point]) -> String {
    let joined = |all: Vec<String>| all.join(",") + "\n";
    let names = points.first().map(|point| {
        let names = point.values().iter().map(|(name, _)| (*name).to_owned());
        joined(names.collect())
    });
    let row = |point: &Point| {
        let cells = point.values().iter().map(|(_, value)| match value {
            Value::Nothing => String::new(),
            Value::Count(count) => count.to_string(),
            Value::Number(number) => rounded(*number).to_string(),
            Value::Text(text) => text.clone(),
        });
        joined(cells.collect())
    };
    let rows = points.iter().map(row);
    names.into_iter().chain(rows).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_six_digits_and_no_noise() {
        assert_eq!(rounded(0.1 + 0.2), 0.3);
        assert_eq!(rounded(-1234567.8), -1234570.0);
        assert_eq!((rounded(0.0), rounded(1e-9)), (0.0, 1e-9));
        assert_eq!(rounded(f64::NEG_INFINITY), f64::NEG_INFINITY);
        let mut point = Point::new();
        point.text("scheme", "jpoc");
        point.number("gap_s", 3.0 * 0.1);
        point.maybe("mbps", None);
        assert_eq!(csv(&[point]), "scheme,gap_s,mbps\njpoc,0.3,\n");
    }
}
