//! Locked requirements as data. The requirement files of pip and uv are a language: they read other files, expand
//! environment variables and name servers. This module parses what tenants send, and only the output of
//! [`Lock::render`] reaches uv.
//!
//! A lock holds `name[extras]==version ; marker --hash=sha256:...`, `name @ https://... --hash=sha256:...`, and package
//! indexes. URLs and indexes must be below those that the operator allows. Comments and lines continued with `\` are
//! allowed; everything else is rejected with its line number.

mod lines;
mod marker;
mod version;

use std::fmt;

use self::lines::{Logical, logical};

/// Maximum size of a lock, bytes.
pub const LOCK_BYTES_MAX: usize = 512 << 10;
/// Maximum number of lines as written.
pub const LOCK_LINES_MAX: usize = 20_000;
/// Maximum size of a line as written, bytes.
pub const LINE_BYTES_MAX: usize = 8 << 10;
/// Maximum number of requirements in one lock.
pub const REQUIREMENTS_MAX: usize = 2_000;
/// Maximum number of hashes of one requirement: a release has one per file.
pub const HASHES_MAX: usize = 1_000;
/// Maximum number of package indexes in one lock.
const INDEXES_MAX: usize = 8;

const NAME_BYTES_MAX: usize = 128;
const EXTRAS_MAX: usize = 32;
const URL_BYTES_MAX: usize = 2_048;
const SHA256_DIGITS: usize = 64;

/// File name endings that uv recognizes as paths.
pub(crate) const ARCHIVES: [&str; 12] =
    [".whl", ".zip", ".gz", ".tgz", ".bz2", ".tbz", ".xz", ".txz", ".zst", ".lz", ".lzma", ".tar"];

/// The servers that a lock may name, as package indexes and in URLs of files.
#[derive(Debug, Clone, Copy)]
pub enum Indexes<'a> {
    /// The listed URLs and everything below them: `https://host/whl` allows `https://host/whl/cu121`.
    Listed(&'a [String]),
    /// Any server, for developers who build on their own computer.
    Any,
}

/// Parses the operator's list of package indexes: URLs separated by commas. Everything below a listed URL is allowed as
/// well.
///
/// # Errors
/// A message about the required form.
pub fn listed_indexes(text: &str) -> Result<Vec<String>, &'static str> {
    let named = text.split(',').map(str::trim).filter(|url| !url.is_empty());
    let named: Vec<String> = named.map(|url| url.trim_end_matches('/').to_owned()).collect();
    let is_address = |url: &String| {
        let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://")).unwrap_or_default();
        !rest.is_empty() && !rest.contains(['@', '$', '?', '#', ' '])
    };
    if named.iter().all(is_address) {
        return Ok(named);
    }
    Err(
        "must be a comma-separated list of http(s) addresses without credentials, e.g. \"https://pypi.org/simple\", or empty",
    )
}

/// The reason why a lock is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct LockError {
    /// The line, from 1; 0 if the error is about the whole lock.
    pub line: usize,
    /// Description of the error, and what to do.
    pub why: String,
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.why),
            line => write!(f, "line {line}: {}", self.why),
        }
    }
}

/// One requirement.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    name: String,
    extras: Vec<String>,
    from: Source,
    marker: Option<String>,
    /// Lowercase hex digits of SHA-256.
    hashes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    /// A version with its operator, e.g. `==1.17.0`.
    Index(String),
    Url(String),
}

/// Locked requirements that contain only names, versions, markers, hashes, and allowed indexes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lock {
    /// Options of uv, each with its URL.
    indexes: Vec<(&'static str, String)>,
    requirements: Vec<Requirement>,
}

impl Lock {
    /// Parses the text of a lock.
    ///
    /// # Errors
    /// [`LockError`] for everything that the module's documentation does not allow.
    pub fn parse(text: &str, indexes: Indexes<'_>) -> Result<Self, LockError> {
        let mut lock = Self::default();
        for line in logical(text)? {
            let refuse = |why: String| LockError { line: line.number, why };
            if line.text.starts_with('-') {
                let index = index(&line.text, indexes).map_err(refuse)?;
                lock.take_index(index).map_err(refuse)?;
            } else {
                lock.requirements.push(requirement(&line, indexes).map_err(refuse)?);
                if lock.requirements.len() > REQUIREMENTS_MAX {
                    return Err(refuse(format!("a lock may have at most {REQUIREMENTS_MAX} requirements")));
                }
                lock.check_hashed().map_err(refuse)?;
            }
        }
        Ok(lock)
    }

    fn take_index(&mut self, index: (&'static str, String)) -> Result<(), String> {
        if index.0 == INDEX && self.indexes.iter().any(|(option, _)| *option == INDEX) {
            return Err("--index-url is given twice; name further indexes with --extra-index-url".to_owned());
        }
        if self.indexes.len() == INDEXES_MAX {
            return Err(format!("a lock may name at most {INDEXES_MAX} package indexes"));
        }
        self.indexes.push(index);
        Ok(())
    }

    /// Rejects a lock in which only some requirements have hashes: uv verifies hashes of all or of none.
    fn check_hashed(&self) -> Result<(), String> {
        let [.., before, last] = self.requirements.as_slice() else { return Ok(()) };
        if before.hashes.is_empty() == last.hashes.is_empty() {
            return Ok(());
        }
        let without = if last.hashes.is_empty() { last } else { before };
        Err(format!(
            "{} has no --hash but other requirements have one; lock with `uv pip compile --generate-hashes`, or remove all hashes",
            without.name
        ))
    }

    /// Whether there are no requirements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The number of requirements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requirements.len()
    }

    /// Whether every requirement has hashes.
    #[must_use]
    pub fn is_hashed(&self) -> bool {
        self.requirements.first().is_some_and(|requirement| !requirement.hashes.is_empty())
    }

    /// The text for uv. Equal requirements give equal texts, regardless of the comments and line breaks of the lock.
    #[must_use]
    pub fn render(&self) -> String {
        if self.requirements.is_empty() {
            return String::new();
        }
        let mut text = String::new();
        for (option, url) in &self.indexes {
            text.extend([option, " ", url, "\n"]);
        }
        for requirement in &self.requirements {
            requirement.render(&mut text);
        }
        text
    }
}

impl Requirement {
    fn render(&self, text: &mut String) {
        text.push_str(&self.name);
        if !self.extras.is_empty() {
            text.extend(["[", &self.extras.join(","), "]"]);
        }
        match &self.from {
            Source::Index(version) => text.push_str(version),
            Source::Url(url) => text.extend([" @ ", url]),
        }
        if let Some(marker) = &self.marker {
            text.extend([" ; ", marker]);
        }
        for hash in &self.hashes {
            text.extend([" \\\n    --hash=sha256:", hash]);
        }
        text.push('\n');
    }
}

const INDEX: &str = "--index-url";
const EXTRA_INDEX: &str = "--extra-index-url";

/// Parses `--index-url URL`, the only option that a lock may contain.
fn index(line: &str, indexes: Indexes<'_>) -> Result<(&'static str, String), String> {
    let (option, rest) = line.split_at(line.find([' ', '=']).unwrap_or(line.len()));
    let option = match option {
        "-i" | INDEX => INDEX,
        EXTRA_INDEX => EXTRA_INDEX,
        other => {
            return Err(format!(
                "{} is not allowed in a lock, which holds name==version lines, hashes and --index-url; create the \
                    lock with `uv pip compile`, which resolves such references",
                quoted(other)
            ));
        }
    };
    let url = rest.strip_prefix('=').unwrap_or(rest).trim();
    let url = checked_url(url)?;
    if url.contains(['?', '%']) {
        return Err(format!("the index {} must be a plain address, without ? and %", quoted(url)));
    }
    check_listed(url, indexes, "remove the option")?;
    Ok((option, url.to_owned()))
}

/// Rejects a URL that is not below one that the operator allows; `instead` is the alternative.
fn check_listed(url: &str, indexes: Indexes<'_>, instead: &str) -> Result<(), String> {
    let Indexes::Listed(listed) = indexes else { return Ok(()) };
    if listed.iter().any(|listed| is_below(url, listed)) {
        return Ok(());
    }
    Err(format!(
        "{} is not below an allowed package index ({}); ask the operator to add it to package_indexes \
            (STOKE_PACKAGE_INDEXES) of the API and of the workers, or {instead}",
        quoted(url),
        if listed.is_empty() { "none is set".to_owned() } else { listed.join(", ") }
    ))
}

fn is_below(url: &str, listed: &str) -> bool {
    let rest = url.strip_prefix(listed.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn requirement(line: &Logical, indexes: Indexes<'_>) -> Result<Requirement, String> {
    // Hashes come last, each separated by a blank.
    let (what, options) = match line.text.find(" --") {
        Some(at) => line.text.split_at(at),
        None => (line.text.as_str(), ""),
    };
    let mut hashes = options.split(' ').filter(|word| !word.is_empty()).map(hash).collect::<Result<Vec<_>, _>>()?;
    let (name, rest) = name_of(what)?;
    let (extras, rest) = extras_of(rest)?;
    let rest = rest.trim_start();
    let (from, marker) = match rest.strip_prefix('@') {
        Some(rest) => {
            // A marker begins after a blank, because a URL may contain a semicolon.
            let (url, marker) = match rest.trim_start().split_once(' ') {
                Some((url, marker)) => (url, Some(marker.trim())),
                None => (rest.trim_start(), None),
            };
            let marker = marker.filter(|marker| !marker.is_empty()).map(|marker| {
                marker.strip_prefix(';').ok_or_else(|| format!("{} after the URL is not a marker", quoted(marker)))
            });
            (direct(url, &mut hashes, indexes)?, marker.transpose()?)
        }
        None => {
            let (version, marker) = match rest.split_once(';') {
                Some((version, marker)) => (version, Some(marker)),
                None => (rest, None),
            };
            (Source::Index(version::pinned(name, version.trim())?), marker)
        }
    };
    if hashes.len() > HASHES_MAX {
        return Err(format!("{name} has more than {HASHES_MAX} hashes"));
    }
    let marker = marker.map(marker::normalised).transpose()?;
    Ok(Requirement { name: name.to_owned(), extras, from, marker, hashes })
}

fn hash(word: &str) -> Result<String, String> {
    let Some(value) = word.strip_prefix("--hash=") else {
        return Err(format!(
            "{} is not allowed in a lock; only --hash=sha256:... may follow a requirement",
            quoted(word)
        ));
    };
    sha256(value.strip_prefix("sha256:").unwrap_or_default())
        .ok_or_else(|| format!("{} must be --hash=sha256: and 64 hex digits", quoted(word)))
}

fn sha256(digits: &str) -> Option<String> {
    let is_one = digits.len() == SHA256_DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_one.then(|| digits.to_ascii_lowercase())
}

/// Splits off the name of a project.
fn name_of(text: &str) -> Result<(&str, &str), String> {
    let end = text.find(|c: char| !is_of_name(c)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let is_whole = name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.ends_with(|c: char| c.is_ascii_alphanumeric())
        && name.len() <= NAME_BYTES_MAX
        // uv would read it as a path.
        && !rest.starts_with(['/', '\\', ':']);
    if is_whole {
        return Ok((name, rest));
    }
    Err(format!(
        "{} is not a requirement; write name==version, or name @ https://... with a --hash; a lock cannot name paths or repositories",
        quoted(text)
    ))
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

fn extras_of(text: &str) -> Result<(Vec<String>, &str), String> {
    let Some(inside) = text.trim_start().strip_prefix('[') else { return Ok((Vec::new(), text)) };
    let Some((inside, rest)) = inside.split_once(']') else {
        return Err(format!("{} has a [ without a closing ]", quoted(text)));
    };
    let extras = inside.split(',').map(str::trim).map(|extra| match name_of(extra) {
        Ok((name, "")) => Ok(name.to_owned()),
        _ => Err(format!("{} is not an extra", quoted(extra))),
    });
    let extras = extras.collect::<Result<Vec<_>, _>>()?;
    if extras.len() > EXTRAS_MAX {
        return Err(format!("a requirement may have at most {EXTRAS_MAX} extras"));
    }
    Ok((extras, rest))
}

/// A file by its URL. A hash in the URL's fragment becomes a hash of the requirement.
fn direct(url: &str, hashes: &mut Vec<String>, indexes: Indexes<'_>) -> Result<Source, String> {
    let (url, fragment) = url.split_once('#').map_or((url, None), |(url, fragment)| (url, Some(fragment)));
    if let Some(fragment) = fragment {
        let digits = fragment.strip_prefix("sha256=").and_then(sha256);
        let digits = digits.ok_or_else(|| format!("#{fragment} in a URL must be #sha256= and 64 hex digits"));
        let digits = digits.map_err(|why| why.chars().take(200).collect::<String>())?;
        if !hashes.contains(&digits) {
            hashes.push(digits);
        }
    }
    let url = checked_url(url)?;
    if hashes.is_empty() {
        return Err(format!("{} needs a --hash=sha256:...: the content behind a URL may change", quoted(url)));
    }
    check_listed(url, indexes, "require a version of an index")?;
    Ok(Source::Url(url.to_owned()))
}

/// Accepts `http(s)://host[:port]/path`, without credentials, variables, or anything that uv or a shell would expand.
fn checked_url(url: &str) -> Result<&str, String> {
    let refuse = |why: &str| Err(format!("{} {why}", quoted(url)));
    let Some(rest) = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://")) else {
        return refuse("must begin with https:// or http://; files and repositories cannot be installed from a lock");
    };
    if url.len() > URL_BYTES_MAX {
        return refuse("is too long");
    }
    if url.contains('@') {
        return refuse("must not contain @: the operator sets index credentials in UV_INDEX of the workers");
    }
    if url.contains('$') {
        return refuse("must not contain $: variables are not expanded");
    }
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    let is_path = |c: char| c.is_ascii_alphanumeric() || "/.-_~%+!,=&?:()".contains(c);
    if host.is_empty() || !host.chars().all(is_host) || !path.chars().all(is_path) {
        return refuse("is not a URL of letters, digits and common punctuation");
    }
    // URL parsers decode %2e before they resolve `..`.
    let is_dots = |segment: &str| matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..");
    if path.split('/').any(is_dots) {
        return refuse("must not contain .. in its path");
    }
    Ok(url)
}

/// The start of a text, quoted for a message.
fn quoted(text: &str) -> String {
    const SHOWN: usize = 80;
    if text.chars().count() <= SHOWN {
        return format!("{text:?}");
    }
    let start: String = text.chars().take(SHOWN).collect();
    format!("{start:?}...")
}

#[cfg(test)]
mod tests;
