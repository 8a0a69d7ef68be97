//! Plain text tables, and numbers as people read them.

/// Columns of cells that line up, as many as the header has.
#[derive(Debug)]
pub(crate) struct Table {
    /// The header first, then the rows.
    rows: Vec<Vec<String>>,
    /// For each column whether it holds numbers, which line up at the right.
    numeric: Vec<bool>,
}

impl Table {
    /// A table with these columns; a name that starts with `>` heads a column of numbers.
    pub(crate) fn new(columns: &[&str]) -> Self {
        let header = columns
            .iter()
            .map(|c| c.trim_start_matches('>').to_owned())
            .collect();
        Self {
            rows: vec![header],
            numeric: columns.iter().map(|c| c.starts_with('>')).collect(),
        }
    }

    /// Adds a row. Cells may come from a peer: characters that steer a terminal are replaced.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows
            .push(cells.into_iter().map(|cell| printable(&cell)).collect());
    }

    /// The lines of the table, each with its newline and without blanks at its end.
    pub(crate) fn render(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.numeric.len()).map(width).collect();
        let mut out = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, width), numeric) in row.iter().zip(&widths).zip(&self.numeric) {
                match numeric {
                    true => line.push_str(&format!("{cell:>width$}  ")),
                    false => line.push_str(&format!("{cell:<width$}  ")),
                }
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

/// The text with every control character replaced.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// Bytes in decimal units, three significant digits.
pub(crate) fn bytes(n: u64) -> String {
    scaled(n as f64, &["B", "kB", "MB", "GB", "TB", "PB", "EB"])
}

/// A rate in bit/s in decimal units, three significant digits.
pub(crate) fn rate(bps: f64) -> String {
    scaled(bps, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
}

/// A part of the whole, in whole percents.
pub(crate) fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

/// Seconds as days, hours, minutes and seconds, the two largest that are not zero.
pub(crate) fn duration(seconds: f64) -> String {
    let s = seconds.max(0.0) as u64;
    match s {
        0..60 => format!("{s}s"),
        60..3_600 => format!("{}m {:02}s", s / 60, s % 60),
        3_600..86_400 => format!("{}h {:02}m", s / 3_600, s / 60 % 60),
        _ => format!("{}d {:02}h", s / 86_400, s / 3_600 % 24),
    }
}

fn scaled(value: f64, units: &[&str]) -> String {
    let mut value = value.max(0.0);
    let mut unit = 0;
    // What would round up to 1000 belongs to the next unit.
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = match value {
        _ if unit == 0 => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["LINK", ">RATE", "WHY"]);
        table.row(["wlan0", "60 Mbit/s", "delivers"].map(str::to_owned));
        table.row(["w", "6", ""].map(str::to_owned));
        assert_eq!(
            table.render(),
            "LINK        RATE  WHY\nwlan0  60 Mbit/s  delivers\nw              6\n"
        );
    }

    #[test]
    fn a_peer_cannot_steer_the_terminal() {
        assert_eq!(printable("a\x1b[2Jb\n"), "a\u{fffd}[2Jb\u{fffd}");
    }

    #[test]
    fn numbers_have_three_digits_and_the_right_unit() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_234), "1.23 kB");
        assert_eq!(bytes(999_499), "999 kB");
        assert_eq!(bytes(999_999), "1.00 MB");
        assert_eq!(rate(55_500_000.0), "55.5 Mbit/s");
        assert_eq!(rate(2.4e9), "2.40 Gbit/s");
        assert_eq!(rate(-1.0), "0 bit/s");
    }

    #[test]
    fn durations_show_two_units() {
        assert_eq!(duration(59.9), "59s");
        assert_eq!(duration(61.0), "1m 01s");
        assert_eq!(duration(7_260.0), "2h 01m");
        assert_eq!(duration(200_000.0), "2d 07h");
    }
}
