//! Plain text tables, and numbers for people.

use sumlink_engine::peer_text::is_plain;

/// Aligned columns of cells, as many as the header has.
#[derive(Debug)]
pub struct Table {
    /// The header first, then the rows.
    rows: Vec<Vec<String>>,
    /// Whether each column holds numbers, which are right-aligned.
    numeric: Vec<bool>,
    /// Texts below the rows; empty without [`last_below`](Self::last_below).
    below: Vec<String>,
    /// Longest line of these texts, in characters.
    width: usize,
}

impl Table {
    /// Makes a table with these columns; a name that starts with `>` heads a column of numbers.
    pub fn new(columns: &[&str]) -> Self {
        let header = columns
            .iter()
            .map(|c| c.trim_start_matches('>').to_owned())
            .collect();
        Self {
            rows: vec![header],
            numeric: columns.iter().map(|c| c.starts_with('>')).collect(),
            below: Vec::new(),
            width: usize::MAX,
        }
    }

    /// Adds a row. Cells may come from a peer: control characters are replaced.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows
            .push(cells.into_iter().map(|cell| printable(&cell)).collect());
    }

    /// Fits the table into `width` characters by wrapping its last column.
    pub fn wrap_last(&mut self, width: usize) {
        let widths = self.widths();
        let before = widths.len().saturating_sub(1);
        let taken: usize = widths[..before].iter().map(|width| width + GAP).sum();
        let room = width.saturating_sub(taken).max(MIN_WIDTH);
        for mut row in std::mem::take(&mut self.rows) {
            let mut lines = row
                .pop()
                .map(|cell| wrap(&cell, room))
                .into_iter()
                .flatten();
            row.extend(lines.next());
            self.rows.push(row);
            for line in lines {
                let mut row = vec![String::new(); before];
                row.push(line);
                self.rows.push(row);
            }
        }
    }

    /// Fits the table into `width` characters by cutting the longest texts of one column in their
    /// middle, because both ends of a name identify it better than its first half.
    pub fn cut(&mut self, width: usize, name: &str) {
        let Some(column) = self.rows[0].iter().position(|head| head == name) else {
            return;
        };
        let widths = self.widths();
        let gaps = GAP * widths.len().saturating_sub(1);
        let others: usize = widths.iter().sum::<usize>() - widths[column] + gaps;
        let room = width.saturating_sub(others).max(MIN_WIDTH);
        for cell in self.rows.iter_mut().filter_map(|row| row.get_mut(column)) {
            *cell = shortened(cell, room);
        }
    }

    /// Fits the table into `width` characters by moving the texts of the last column below their
    /// rows, if they do not fit beside them.
    pub fn last_below(&mut self, width: usize) {
        let widths = self.widths();
        let gaps = GAP * widths.len().saturating_sub(1);
        if widths.iter().sum::<usize>() + gaps <= width {
            return;
        }
        self.numeric.pop();
        let rows = self.rows.iter_mut();
        self.below = rows.map(|row| row.pop().unwrap_or_default()).collect();
        // The heading of a column that is no longer there.
        self.below[0].clear();
        self.width = width.max(MIN_WIDTH);
    }

    fn widths(&self) -> Vec<usize> {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        (0..self.numeric.len()).map(width).collect()
    }

    /// The lines of the table, each with its newline and without trailing spaces.
    pub fn render(&self) -> String {
        let widths = self.widths();
        let mut out = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for ((cell, width), numeric) in row.iter().zip(&widths).zip(&self.numeric) {
                match numeric {
                    true => line.push_str(&format!("{cell:>width$}")),
                    false => line.push_str(&format!("{cell:<width$}")),
                }
                line.push_str(&" ".repeat(GAP));
            }
            out.push_str(line.trim_end());
            out.push('\n');
            let below = self.below.get(number).filter(|text| !text.is_empty());
            for line in below
                .into_iter()
                .flat_map(|text| wrap(text, self.width - GAP))
            {
                out.push_str(&format!("{:GAP$}{line}\n", ""));
            }
        }
        out
    }
}

/// Spaces between columns.
const GAP: usize = 2;

/// Least readable width of a column of text.
const MIN_WIDTH: usize = 16;

/// The text in lines of at most `width` characters, broken between words; a longer word has its own
/// line.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last().map_or(0, |line| line.chars().count());
        match lines.last_mut() {
            Some(last) if line == 0 => last.push_str(word),
            Some(last) if line + 1 + word.chars().count() <= width => {
                last.push(' ');
                last.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The text in at most `width` characters; an ellipsis replaces the middle of a longer one.
pub fn shortened(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let (head, tail) = (kept / 2, kept - kept / 2);
    let begin = text.chars().take(head);
    let end = text.chars().skip(length - tail);
    begin.chain(['…']).chain(end).collect()
}

/// The text with every non-printable character replaced.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if is_plain(c) { c } else { '\u{fffd}' })
        .collect()
}

/// Bytes in decimal units, with three significant digits.
pub fn bytes(n: u64) -> String {
    scaled(n as f64, &["B", "kB", "MB", "GB", "TB", "PB", "EB"])
}

/// A rate in bit/s in decimal units, with three significant digits.
pub fn rate(bps: f64) -> String {
    scaled(bps, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
}

/// The rate of a flow, or a dash below 100 bit/s, which idle connections cost.
pub fn flow(bps: f64) -> String {
    match bps < 100.0 {
        true => "-".to_owned(),
        false => rate(bps),
    }
}

/// A share in whole percents.
pub fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

/// Seconds as days, hours, minutes and seconds; the two largest that are not zero.
pub fn duration(seconds: f64) -> String {
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
    // A value that would round up to 1000 gets the next unit.
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
    fn a_text_is_wrapped_between_words() {
        assert_eq!(
            wrap("nothing delivered for 1200 ms", 21),
            ["nothing delivered for", "1200 ms"]
        );
        assert_eq!(wrap("incomprehensible", 4), ["incomprehensible"]);
        let mut table = Table::new(&["LINK", "WHY"]);
        table.row(["wlan0", "nothing delivered for 1200 ms"].map(str::to_owned));
        table.wrap_last(30);
        assert_eq!(
            table.render(),
            "LINK   WHY\nwlan0  nothing delivered for\n       1200 ms\n"
        );
    }

    #[test]
    fn a_column_of_long_texts_is_cut_and_the_others_are_not() {
        let cut = |target: &str, width| {
            let mut table = Table::new(&[">STREAM", "TARGET", ">SENT"]);
            table.row(["4", target, "1.20 kB"].map(str::to_owned));
            table.cut(width, "TARGET");
            table.render()
        };
        let long = "a-name-without-end.example.org:443";
        assert_eq!(
            cut(long, 36),
            "STREAM  TARGET                  SENT\n     4  a-name-wi…e.org:443  1.20 kB\n"
        );
        assert!(cut(long, usize::MAX).contains(long));
        assert!(cut("short:1", 0).contains("short:1"), "what fits stays");
        // Too narrow: the least readable width is kept.
        assert_eq!(cut(long, 0), cut(long, 17 + MIN_WIDTH));
        assert_eq!(shortened("äöüäöü", 4), "ä…öü");
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
        assert_eq!([0.0, 1.0, 99.0, f64::NAN].map(flow)[..3], ["-"; 3]);
        assert_eq!(flow(800.0), "800 bit/s");
    }

    #[test]
    fn durations_show_two_units() {
        assert_eq!(duration(59.9), "59s");
        assert_eq!(duration(61.0), "1m 01s");
        assert_eq!(duration(7_260.0), "2h 01m");
        assert_eq!(duration(200_000.0), "2d 07h");
    }
}
