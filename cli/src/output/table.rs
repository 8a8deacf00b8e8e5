//! Tables.

use std::ops::{Deref, DerefMut};

use anyhow::Result;
use comfy_table::{Attribute, Cell, Color, ColumnConstraint, ContentArrangement, Width, presets};

use super::{line, note};

/// Width up to which a column of text is not wrapped, characters.
const TEXT_WIDTH: usize = 16;

/// Maximum width that a word of a text keeps, characters: longer than ids and most names.
const WORD_WIDTH_MAX: usize = 64;

/// A table. Its columns are as wide as their contents, so that ids stay whole. Only columns of text are wrapped to the
/// width of the terminal, between words.
pub(crate) struct Table {
    table: comfy_table::Table,
    /// Indices of the columns of text.
    texts: Vec<usize>,
}

impl Deref for Table {
    type Target = comfy_table::Table;

    fn deref(&self) -> &Self::Target {
        &self.table
    }
}

impl DerefMut for Table {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.table
    }
}

/// Creates a table with these headings.
pub(crate) fn table(headings: impl IntoIterator<Item = impl ToString>) -> Table {
    let mut table = comfy_table::Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(headings.into_iter().map(|heading| Cell::new(heading).add_attribute(Attribute::Bold)));
    for column in table.column_iter_mut() {
        column.set_padding((0, 2)).set_constraint(ColumnConstraint::ContentWidth);
    }
    Table { table, texts: Vec::new() }
}

impl Table {
    /// Makes the columns with these headings columns of text.
    pub(crate) fn wrapping(mut self, headings: &[&str]) -> Self {
        let named = self.table.header().into_iter().flat_map(|row| row.cell_iter()).map(Cell::content);
        self.texts =
            named.enumerate().filter(|(_, name)| headings.contains(&&**name)).map(|(index, _)| index).collect();
        self
    }

    /// Formats the table without spaces at the ends of lines.
    pub(crate) fn trim_fmt(&self) -> String {
        let mut table = self.table.clone();
        for index in &self.texts {
            let cells = || self.table.column_cells_with_header_iter(*index).flatten().map(Cell::content);
            let widest = |text: &str| text.lines().map(width).max().unwrap_or_default();
            let longest = |text: &str| text.split_whitespace().map(width).max().unwrap_or_default();
            let content = cells().map(|text| widest(&text)).max().unwrap_or_default();
            let word = cells().map(|text| longest(&text)).max().unwrap_or_default();
            let least = word.min(WORD_WIDTH_MAX).max(content.min(TEXT_WIDTH));
            if let Some(column) = table.column_mut(*index).filter(|column| !column.is_hidden()) {
                let least = least + usize::from(column.padding_width());
                let least = Width::Fixed(u16::try_from(least).unwrap_or(u16::MAX));
                column.set_constraint(ColumnConstraint::LowerBoundary(least));
            }
        }
        table.trim_fmt()
    }
}

fn width(text: &str) -> usize {
    console::measure_text_width(text)
}

/// A cell with a state, coloured by its severity.
pub(crate) fn state_cell(state: &str) -> Cell {
    let cell = Cell::new(state);
    match state {
        "succeeded" | "completed" | "delivered" | "ready" | "ok" | "allow" => cell.fg(Color::Green),
        "failed" | "exhausted" | "lost" | "fail" | "reject" => cell.fg(Color::Red),
        "cancelled" | "expired" | "disabled" | "paused" | "draining" | "warn" => cell.fg(Color::Yellow),
        "running" | "validating" | "finalizing" => cell.fg(Color::Cyan),
        _ => cell,
    }
}

/// Prints a table, or a note if it is empty.
pub(crate) fn print_table(table: &Table, when_empty: &str) -> Result<()> {
    if table.is_empty() {
        note(when_empty);
        return Ok(());
    }
    line(table.trim_fmt())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0192f0c1a2b37cde8f00112233445500";

    #[test]
    fn ids_stay_whole_and_the_text_gives_way() {
        let mut jobs = table(["job", "endpoint", "state", "waiting"]).wrapping(&["waiting"]);
        let why = "every machine is busy with jobs of other endpoints, and none may be rented";
        jobs.add_row([ID, "a-long-name-of-an-endpoint@12", "queued", why]);
        for columns in [80, 100] {
            jobs.set_width(columns);
            let shown = jobs.trim_fmt();
            assert!(shown.contains(ID) && shown.contains("a-long-name-of-an-endpoint@12"), "{shown}");
            for word in why.split(' ') {
                assert!(shown.contains(word), "{word}:\n{shown}");
            }
            assert!(shown.lines().count() > 2, "the text is wrapped:\n{shown}");
        }
        assert!(jobs.trim_fmt().lines().all(|line| line.len() <= 100), "{}", jobs.trim_fmt());
    }

    #[test]
    fn a_table_without_text_is_not_wrapped() {
        let mut retried = table(["job", "new job", "state"]);
        retried.add_row([ID, ID, "queued"]);
        retried.set_width(40);
        assert_eq!(retried.trim_fmt().lines().count(), 2);
    }
}
