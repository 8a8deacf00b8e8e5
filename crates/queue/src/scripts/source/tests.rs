//! Tests that includes are complete, acyclic and needed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::*;

const LUA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/lua");

/// The words of a text: names, numbers and signs. Strings become `''`; comments are dropped.
fn words(text: &str) -> Vec<&str> {
    let (mut words, mut rest) = (Vec::new(), text);
    while let Some(first) = rest.chars().next() {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = match first {
            '-' | '#' if rest.starts_with("--") || rest.starts_with("#!") => rest.find('\n').unwrap_or(rest.len()),
            '\'' | '"' => {
                let mut escaped = false;
                let is_end = |c: char| {
                    let ends = c == first && !escaped;
                    escaped = c == '\\' && !escaped;
                    ends
                };
                2 + rest[1..].find(is_end).expect("a string ends")
            }
            _ if is_name(first) => rest.find(|c| !is_name(c)).unwrap_or(rest.len()),
            _ => ["...", "..", "=="]
                .iter()
                .find(|sign| rest.starts_with(**sign))
                .map_or(first.len_utf8(), |sign| sign.len()),
        };
        let (word, after) = rest.split_at(length);
        match first {
            '\'' | '"' => words.push("''"),
            _ if word.trim().is_empty() || word.starts_with("--") || word.starts_with("#!") => {}
            _ => words.push(word),
        }
        rest = after;
    }
    words
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// The names in `a, b, ...`, up to the first word that is neither a name nor a comma.
fn list<'a>(words: &[&'a str]) -> BTreeSet<&'a str> {
    let is_part =
        |word: &&&str| is_name(word) && !["in", "local", "function", "if", "for"].contains(*word) || **word == ",";
    words.iter().take_while(is_part).filter(|word| is_name(word)).copied().collect()
}

/// The names that a text uses but declares nowhere, neither as variable nor as parameter.
fn uses(text: &str) -> BTreeSet<&str> {
    let words = words(text);
    let (mut used, mut declared, mut braces) = (BTreeSet::new(), BTreeSet::new(), 0);
    for (n, word) in words.iter().enumerate() {
        let before = n.checked_sub(1).map_or("", |n| words[n]);
        let after = words.get(n + 1).copied().unwrap_or_default();
        match *word {
            "{" => braces += 1,
            "}" => braces -= 1,
            "local" if after == "function" => {
                declared.insert(words[n + 2]);
            }
            "local" => declared.extend(variables(&words[n + 1..])),
            "for" => declared.extend(list(&words[n + 1..])),
            "function" => {
                let open = n + words[n..].iter().position(|word| *word == "(").expect("parameters");
                declared.extend(list(&words[open + 1..]));
            }
            // A name that is not a field, a method or a key of a table.
            _ if is_name(word) && before != "." && before != ":" && !(braces > 0 && after == "=") => {
                used.insert(*word);
            }
            _ => {}
        }
    }
    &used - &declared
}

/// The names of `local a, b = ...`. Without a comma in between, a name belongs to the next statement.
fn variables<'a>(words: &[&'a str]) -> BTreeSet<&'a str> {
    let commas = words.iter().skip(1).step_by(2).take_while(|word| **word == ",").count();
    words.iter().step_by(2).take(commas + 1).copied().collect()
}

/// The names that a file of the library exports: those that it declares outside of functions.
fn offers(text: &str) -> BTreeSet<&str> {
    let declarations = text.lines().filter_map(|line| line.strip_prefix("local ").map(words));
    declarations
        .flat_map(|words| if words[0] == "function" { BTreeSet::from([words[1]]) } else { variables(&words) })
        .collect()
}

/// The text of every script and of every file of the library, by name.
fn all() -> BTreeMap<String, String> {
    let scripts = std::fs::read_dir(LUA).expect("lua/ is there").map(|entry| entry.expect("readable").path());
    let scripts = scripts.filter(|path| path.is_file()).map(|path| {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        (name, std::fs::read_to_string(path).expect("readable"))
    });
    scripts.chain(LIBRARY.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))).collect()
}

fn files_below(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("readable") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            files_below(&path, names);
        } else {
            let name = path.strip_prefix(LUA).expect("below lua/").with_extension("");
            names.insert(name.to_string_lossy().into_owned());
        }
    }
}

#[test]
fn the_library_is_the_folder() {
    let mut files = BTreeSet::new();
    files_below(&Path::new(LUA).join("lib"), &mut files);
    assert_eq!(LIBRARY.iter().map(|(name, _)| (*name).to_owned()).collect::<BTreeSet<_>>(), files);
    for (name, text) in LIBRARY {
        assert!(text.starts_with("-- "), "{name} begins with what it is for");
    }
}

#[test]
fn every_include_exists_once_and_leads_to_no_cycle() {
    fn follow(name: &str, text: &str, path: &mut Vec<String>) {
        assert!(!path.iter().any(|other| other == name), "{name} includes itself: {path:?}");
        path.push(name.to_owned());
        let mut seen = BTreeSet::new();
        for include in includes(text) {
            assert!(seen.insert(include), "{name} includes {include} twice");
            let (_, text) = find(include).unwrap_or_else(|| panic!("{name}: there is no {include}"));
            follow(include, text, path);
        }
        path.pop();
    }
    for (name, text) in all() {
        let directives = text.lines().filter(|line| line.contains("@include"));
        assert!(directives.clone().all(|line| line.starts_with("--- @include \"")), "{name}");
        assert_eq!(text.matches("@include").count(), directives.count(), "{name}");
        follow(&name, &text, &mut Vec::new());
    }
}

#[test]
fn every_file_includes_what_it_uses_and_nothing_else() {
    let mut owners = BTreeMap::new();
    for (file, text) in LIBRARY {
        for name in offers(text) {
            assert_eq!(owners.insert(name, *file), None, "{name} has two owners, one of them {file}");
        }
    }
    for (file, text) in all() {
        let used = uses(&text);
        let used = used.iter().filter_map(|name| owners.get(name)).copied().filter(|owner| *owner != file);
        let with_reason = text.lines().filter(|line| line.starts_with("--- @include") && !line.ends_with('"'));
        let with_reason: BTreeSet<&str> = with_reason.flat_map(includes).collect();
        let needed: BTreeSet<&str> = used.chain(with_reason).collect();
        assert_eq!(includes(&text).collect::<BTreeSet<_>>(), needed, "{file}");
    }
}

#[test]
fn gates_that_a_script_frees_are_looked_at() {
    for (name, text) in all().iter().filter(|(name, _)| !name.starts_with("lib/")) {
        let files: BTreeSet<&str> = included(text).iter().map(|(file, _)| *file).collect();
        assert!(!files.contains("lib/freed") || files.contains("lib/resume"), "{name}");
    }
}

#[test]
fn names_are_separated_from_fields_strings_and_comments() {
    let text = "#!lua allow=x
local a, b = c, {d = e, [f] = 'g -- h'} -- i
for j, k in pairs(l) do m.n(o:p(\"q\" .. r)) end
local function s(t, u) return t == v end
local w
x = w";
    let names = ["c", "e", "f", "pairs", "l", "m", "o", "r", "v", "x"];
    let keywords = ["in", "do", "end", "return"];
    let found: BTreeSet<&str> = uses(text).into_iter().filter(|word| !keywords.contains(word)).collect();
    assert_eq!(found, BTreeSet::from(names));
}

#[test]
fn a_file_stands_behind_those_that_it_includes_and_once() {
    let files: Vec<&str> =
        included("--- @include \"lib/text\", \"lib/counts\"\n--- @include \"lib/keys\" for a reason")
            .iter()
            .map(|(name, _)| *name)
            .collect();
    assert_eq!(files, ["lib/text", "lib/keys", "lib/attempt", "lib/counts"]);
    assert_eq!(build("#!lua\nreturn 1\n"), "#!lua\nreturn 1\n");
    assert!(!build("#!lua\n--- @include \"lib/keys\"\nreturn ROOT\n").contains("flush"));
    assert!(build("#!lua\n--- @include \"lib/counts\"\nreturn 1\n").contains(RUN_MAIN));
}
