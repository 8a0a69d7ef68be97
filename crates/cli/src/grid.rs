//! Tables that keep their columns at every refresh: the width of the terminal alone decides which
//! columns are shown.

use crate::table::{printable, shortened, wrap};

/// A column of a [`Grid`].
#[derive(Clone, Copy, Debug)]
pub struct Column {
    head: &'static str,
    /// Fixed width in characters; longer cells lose their middle.
    width: usize,
    /// Right-aligned.
    is_numeric: bool,
    /// Columns of rank 0 are always shown; those of the highest rank are dropped first.
    rank: u8,
}

impl Column {
    /// A column of text.
    pub const fn text(head: &'static str, width: usize, rank: u8) -> Self {
        Self {
            head,
            width,
            is_numeric: false,
            rank,
        }
    }

    /// A column of numbers.
    pub const fn number(head: &'static str, width: usize, rank: u8) -> Self {
        Self {
            is_numeric: true,
            ..Self::text(head, width, rank)
        }
    }
}

/// Extent to which a grid is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// The columns that fit into this number of characters.
    Fit(usize),
    /// All columns in full, in lines of at most this number of characters; columns that do not fit
    /// are shown in blocks below.
    All(usize),
}

/// Rows of cells with a remark each: in a last column if it fits, otherwise below the row.
#[derive(Debug)]
pub struct Grid {
    columns: &'static [Column],
    /// Heading of the remarks; `None` if rows have none.
    remark: Option<&'static str>,
    rows: Vec<(Vec<String>, String)>,
}

/// Spaces between columns.
const GAP: usize = 2;

/// Least width of a column of remarks.
const MIN_REMARK_WIDTH: usize = 30;

/// Indentation of remarks below a row.
const INDENT: usize = 2;

impl Grid {
    /// Makes a grid whose first column names the row.
    pub fn new(columns: &'static [Column], remark: Option<&'static str>) -> Self {
        Self {
            columns,
            remark,
            rows: Vec::new(),
        }
    }

    /// Adds a row. Cells may come from a peer: control characters are replaced.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>, remark: &str) {
        let cells = cells.into_iter().map(|cell| printable(&cell)).collect();
        self.rows.push((cells, printable(remark)));
    }

    /// The lines of the grid, each with its newline and without trailing spaces.
    pub fn render(&self, view: View) -> String {
        match view {
            View::Fit(width) => {
                let widths: Vec<usize> = self.columns.iter().map(|column| column.width).collect();
                let shown = self.fitting(width);
                let room = self.remark_width(&shown, &widths, width);
                self.block(&shown, &widths, width, room, true)
            }
            View::All(width) => {
                let widths: Vec<usize> = (0..self.columns.len()).map(|c| self.natural(c)).collect();
                let blocks = blocks(&widths, width);
                let last = blocks.len() - 1;
                let lines = blocks.iter().enumerate().map(|(number, shown)| {
                    let room = self.remark_width(shown, &widths, width);
                    self.block(shown, &widths, width, room, number == last)
                });
                lines.collect::<Vec<_>>().join("\n")
            }
        }
    }

    /// The columns that fit; those of the highest rank are dropped first.
    fn fitting(&self, width: usize) -> Vec<usize> {
        let of = |most: u8| -> Vec<usize> {
            let columns = self.columns.iter().enumerate();
            let shown = columns.filter(|(_, column)| column.rank <= most);
            shown.map(|(index, _)| index).collect()
        };
        let needed = |shown: &[usize]| -> usize {
            let widths = shown.iter().map(|column| self.columns[*column].width + GAP);
            widths.sum::<usize>().saturating_sub(GAP)
        };
        let highest = self.columns.iter().map(|column| column.rank).max();
        let ranks = (1..=highest.unwrap_or(0)).rev();
        let mut all = ranks.map(of);
        all.find(|shown| needed(shown) <= width)
            .unwrap_or_else(|| of(0))
    }

    /// Width of the longest cell of a column, or of its heading.
    fn natural(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|(cells, _)| cells.get(column));
        let longest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        longest.max(self.columns[column].head.chars().count())
    }

    /// Width of the column of remarks, if it is wide enough.
    fn remark_width(&self, shown: &[usize], widths: &[usize], width: usize) -> Option<usize> {
        self.remark?;
        let taken: usize = shown.iter().map(|column| widths[*column] + GAP).sum();
        Some(width.saturating_sub(taken)).filter(|room| *room >= MIN_REMARK_WIDTH)
    }

    /// Renders these columns of all rows, and the remarks if `remarks`.
    fn block(
        &self,
        shown: &[usize],
        widths: &[usize],
        width: usize,
        room: Option<usize>,
        remarks: bool,
    ) -> String {
        let line = |cell: &dyn Fn(usize) -> String, last: &str| {
            let cells = shown.iter().map(|column| {
                let (text, width) = (cell(*column), widths[*column]);
                let text = shortened(&text, width);
                match self.columns[*column].is_numeric {
                    true => format!("{text:>width$}"),
                    false => format!("{text:<width$}"),
                }
            });
            let mut cells: Vec<String> = cells.collect();
            cells.push(last.to_owned());
            let line = cells.join(&" ".repeat(GAP));
            format!("{}\n", line.trim_end())
        };
        let head = self.remark.filter(|_| remarks && room.is_some());
        let mut out = line(
            &|column| self.columns[column].head.to_owned(),
            head.unwrap_or(""),
        );
        for (cells, remark) in &self.rows {
            let cell = |column: usize| cells.get(column).cloned().unwrap_or_default();
            let beside = room.filter(|_| remarks).map(|room| wrap(remark, room));
            let mut beside = beside.unwrap_or_default().into_iter();
            out.push_str(&line(&cell, &beside.next().unwrap_or_default()));
            for more in beside {
                out.push_str(&line(&|_| String::new(), &more));
            }
            if remarks && room.is_none() && !remark.is_empty() {
                for text in wrap(remark, width.saturating_sub(INDENT).max(MIN_REMARK_WIDTH)) {
                    out.push_str(&format!("{}{text}\n", " ".repeat(INDENT)));
                }
            }
        }
        out
    }
}

/// Divides the columns into blocks that fit, each with the first column.
fn blocks(widths: &[usize], width: usize) -> Vec<Vec<usize>> {
    let mut blocks = vec![vec![0]];
    let first = widths.first().copied().unwrap_or(0);
    let mut taken = first;
    for (column, own) in widths.iter().enumerate().skip(1) {
        let is_full = taken.saturating_add(GAP + own) > width;
        match blocks.last_mut() {
            Some(block) if !is_full || block.len() == 1 => {
                block.push(column);
                taken += GAP + own;
            }
            _ => {
                blocks.push(vec![0, column]);
                taken = first + GAP + own;
            }
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] = [
        Column::text("LINK", 8, 0),
        Column::number("RATE", 9, 0),
        Column::number("SENT", 7, 1),
        Column::number("LOSS", 4, 2),
    ];

    fn grid(link: &str, why: &str) -> Grid {
        let mut grid = Grid::new(&COLUMNS, Some("WHY"));
        let cells = [link, "60 Mbit/s", "1.20 MB", "1 %"].map(str::to_owned);
        grid.row(cells, why);
        grid
    }

    #[test]
    fn the_columns_depend_on_the_width_and_not_on_the_cells() {
        let heads = |grid: &Grid, width| {
            let text = grid.render(View::Fit(width));
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(
                widest <= Some(width.max(INDENT + MIN_REMARK_WIDTH)),
                "{width}: {text}"
            );
            text.lines().next().unwrap().to_owned()
        };
        let long = "nothing was delivered for a long time, over any of its paths";
        for width in 0..200 {
            let (short, long) = (grid("a", ""), grid("a-very-long-name", long));
            assert_eq!(heads(&short, width), heads(&long, width), "{width}");
        }
        let heads = [19, 27, 28, 33, 34, 65, 66].map(|width| heads(&grid("a", "x"), width));
        let words = heads.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        let expected = [
            "LINK RATE",
            "LINK RATE",
            "LINK RATE SENT",
            "LINK RATE SENT",
            "LINK RATE SENT LOSS",
            "LINK RATE SENT LOSS",
            "LINK RATE SENT LOSS WHY",
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn a_remark_that_does_not_fit_is_below_its_row() {
        assert_eq!(
            grid("wlan0", "delivers").render(View::Fit(20)),
            "LINK           RATE\nwlan0     60 Mbit/s\n  delivers\n"
        );
    }

    #[test]
    fn all_columns_in_narrow_lines_are_in_blocks_with_full_headings() {
        let all = grid("a-very-long-name", "delivers").render(View::All(36));
        assert_eq!(
            all,
            "LINK                   RATE     SENT\na-very-long-name  60 Mbit/s  1.20 MB\n\n\
             LINK              LOSS\na-very-long-name   1 %\n  delivers\n"
        );
        let line = grid("a-very-long-name", "delivers").render(View::All(usize::MAX));
        assert_eq!(line.lines().count(), 2);
    }

    #[test]
    fn a_peer_cannot_steer_the_terminal() {
        let text = grid("\x1b[2J", "\x07").render(View::Fit(80));
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
    }
}
