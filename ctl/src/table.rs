//! Text in columns, and quantities with units.

/// Rows under a heading, each column as wide as its widest cell. Columns of numbers are aligned to the right.
pub struct Table {
    rows: Vec<Vec<String>>,
    right: Vec<bool>,
}

impl Table {
    /// A table with these columns; `true` for a column of numbers.
    pub fn new(columns: &[(&str, bool)]) -> Table {
        Table {
            rows: vec![columns.iter().map(|(name, _)| (*name).to_string()).collect()],
            right: columns.iter().map(|(_, right)| *right).collect(),
        }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If the number of cells differs from the number of columns.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.right.len(), "a cell for each column");
        self.rows.push(cells);
    }

    /// The text, one line for each row.
    pub fn text(&self) -> String {
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.right.len()).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).zip(&self.right);
            let cells: Vec<String> = cells
                .map(
                    |((cell, width), right)| if *right { format!("{cell:>width$}") } else { format!("{cell:<width$}") },
                )
                .collect();
            text.push_str(cells.join("  ").trim_end());
            text.push('\n');
        }
        text
    }
}

/// A number of bytes in its largest unit, with one decimal.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // A value that would be rounded to 1024.0 is written in the next unit.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A limit; 0 reads `none`.
pub fn or_none(limit: u64, text: impl FnOnce(u64) -> String) -> String {
    if limit == 0 { "none".into() } else { text(limit) }
}

/// A time in its two largest units.
pub fn seconds(seconds: f64) -> String {
    let s = seconds.max(0.0) as u64;
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        3600..86400 => format!("{} h {} min", s / 3600, s / 60 % 60),
        _ => format!("{} d {} h", s / 86400, s / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[("NAME", false), ("COUNT", true)]);
        table.row(vec!["a".into(), "7".into()]);
        table.row(vec!["longer".into(), "123456".into()]);
        assert_eq!(table.text(), "NAME     COUNT\na            7\nlonger  123456\n");
    }

    #[test]
    fn quantities_are_short() {
        let cases = [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), ((1 << 20) - 1, "1.0 MiB"), (3 << 29, "1.5 GiB")];
        for (n, text) in cases {
            assert_eq!(bytes(n), text);
        }
        for (n, text) in [(5.9, "5 s"), (61.0, "1 min 1 s"), (7260.0, "2 h 1 min"), (90_000.0, "1 d 1 h")] {
            assert_eq!(seconds(n), text);
        }
    }
}
