//! The commands that a page of the documentation asks its reader to run.

use std::path::Path;

/// One fenced block of shell commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Where the block is run, from the comment before it: `<!-- machine -->`.
    pub place: String,
    /// The line of the page on which its commands begin, from 1.
    pub line: usize,
    /// The commands as written.
    pub commands: String,
}

/// The blocks of a page, in its order.
///
/// # Panics
/// If the page cannot be read, or one of its blocks does not name where it is run.
#[must_use]
pub fn blocks(page: &Path) -> Vec<Block> {
    let text = std::fs::read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
    let mut blocks: Vec<Block> = Vec::new();
    let (mut place, mut is_open) = (None, false);
    for (index, line) in text.lines().enumerate() {
        if is_open {
            if line == "```" {
                is_open = false;
            } else if let Some(block) = blocks.last_mut() {
                block.commands.push_str(line);
                block.commands.push('\n');
            }
        } else if line == "```sh" {
            let said: Option<String> = place.take();
            let place = said.unwrap_or_else(|| panic!("{}:{}: no comment says where", page.display(), index + 1));
            blocks.push(Block { place, line: index + 2, commands: String::new() });
            is_open = true;
        } else {
            let comment = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
            place = comment.map(str::to_owned);
        }
    }
    assert!(!is_open, "{}: the last block has no end", page.display());
    blocks
}
