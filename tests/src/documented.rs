//! The commands that a page of the documentation asks its reader to run, and the other blocks of code of the pages.

mod shell;

use std::path::Path;

pub use self::shell::commands;

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

/// A fenced block of code of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// The page, relative to the repository.
    pub page: String,
    /// The line of its first line of text, from 1.
    pub line: usize,
    /// The language, e.g. `sh`; empty if the fence does not name one.
    pub language: String,
    /// The rest of the info string, e.g. `no-run` or `title="stoke.toml"`.
    pub info: String,
    /// The text, without the indentation of the fence.
    pub text: String,
}

impl Fence {
    /// The value of `title="..."`: the name of the file that the block shows.
    #[must_use]
    pub fn title(&self) -> Option<&str> {
        self.info.split_once("title=\"")?.1.split_once('"').map(|(title, _)| title)
    }

    /// Whether the block is marked as one that no test can check.
    #[must_use]
    pub fn is_unchecked(&self) -> bool {
        self.info.split_whitespace().any(|word| word == "no-run")
    }

    /// The place of the block, for messages.
    #[must_use]
    pub fn place(&self) -> String {
        format!("{}:{}", self.page, self.line)
    }
}

/// The fenced blocks of a page, in its order. `name` is its path for messages.
///
/// # Panics
/// If a block has no end.
#[must_use]
pub fn fences(name: &str, text: &str) -> Vec<Fence> {
    let mut found: Vec<Fence> = Vec::new();
    let mut open: Option<(String, usize)> = None;
    for (index, line) in text.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let ticks = line.trim_start().chars().take_while(|c| *c == '`').count();
        let rest = line.trim_start().trim_start_matches('`').trim();
        match (&open, found.last_mut()) {
            (Some((fence, _)), _) if ticks >= fence.len() && rest.is_empty() => open = None,
            (Some((_, outer)), Some(block)) => {
                let kept =
                    line.char_indices().find(|(at, c)| *at >= *outer || *c != ' ').map_or(line.len(), |(at, _)| at);
                block.text.push_str(&line[kept..]);
                block.text.push('\n');
            }
            _ if ticks >= 3 => {
                let (language, info) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
                let (page, language, info) = (name.to_owned(), language.to_owned(), info.trim().to_owned());
                found.push(Fence { page, line: index + 2, language, info, text: String::new() });
                open = Some(("`".repeat(ticks), indent));
            }
            _ => {}
        }
    }
    assert!(open.is_none(), "{name}: the last block has no end");
    found
}

/// The fenced blocks of every Markdown file of the repository except ADRs, which describe the past.
///
/// # Panics
/// If git does not list the files, or one cannot be read.
#[must_use]
pub fn all_fences() -> Vec<Fence> {
    pages().iter().flat_map(|(name, text)| fences(name, text)).collect()
}

/// The code within the prose of every page that [`all_fences`] reads except the changelog, each with its page.
///
/// # Panics
/// As [`all_fences`].
#[must_use]
pub fn all_spans() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (name, text) in pages().into_iter().filter(|(name, _)| name != "CHANGELOG.md") {
        let (mut is_open, mut prose) = (false, String::new());
        for line in text.lines() {
            let is_fence = line.trim_start().starts_with("```");
            is_open ^= is_fence;
            if !is_open && !is_fence {
                prose.push_str(line);
                prose.push(' ');
            }
        }
        found.extend(prose.split('`').skip(1).step_by(2).map(|span| (name.clone(), span.to_owned())));
    }
    found
}

/// Every Markdown file of the repository except ADRs: its path and its text.
fn pages() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"];
    let listed = std::process::Command::new("git").args(arguments).current_dir(&root).output();
    let listed = String::from_utf8(listed.unwrap_or_else(|error| panic!("git: {error}")).stdout);
    let listed = listed.unwrap_or_else(|error| panic!("git: {error}"));
    let names = listed.split_terminator('\0');
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    names
        .filter(|name| !name.starts_with("docs/adr/") && root.join(name).is_file())
        .map(|name| (name.to_owned(), read(name)))
        .collect()
}
