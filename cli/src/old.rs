//! Spellings of earlier releases: each is translated to the current one before the arguments are parsed, with a hint.
//!
//! A spelling is kept for one release. To rename a command or an option, change it and add a row to [`table`].

mod table;
#[cfg(test)]
mod tests;

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command};

use table::{COMMANDS, OPTIONS, OldCommand, OldOption, POSITIONALS, Rest, Value};

/// A translated command line.
pub(crate) struct Typed {
    /// The arguments, the program's name first.
    pub(crate) words: Vec<OsString>,
    /// What is new, one text per old spelling.
    pub(crate) hints: Vec<String>,
}

/// Translates old spellings. Other arguments stay as they are, also wrong ones.
pub(crate) fn translate(command: &Command, words: Vec<OsString>) -> Typed {
    let mut typed = Typed { words, hints: Vec::new() };
    let is_help = typed.words.get(1).is_some_and(|word| word == "help");
    typed.command(command, if is_help { 2 } else { 1 });
    let path = typed.path(command);
    for row in OPTIONS.iter().filter(|row| row.commands.contains(&&*path)) {
        typed.option(row);
    }
    if let Some((_, name)) = POSITIONALS.iter().find(|(of, _)| *of == path) {
        typed.versions(command, &path, name);
    }
    typed
}

impl Typed {
    /// Replaces an old command by the current one. The command starts at or after `from`.
    fn command(&mut self, root: &Command, from: usize) {
        for row in COMMANDS {
            let Some(places) = self.places(root, from, row.old) else { continue };
            let Some(last) = places.last().copied() else { continue };
            if !self.applies(root, row, last) {
                continue;
            }
            let old = row.old;
            self.words.splice(last..=last, row.new.split(' ').map(OsString::from));
            for place in places.iter().rev().skip(1) {
                self.words.remove(*place);
            }
            self.hints.push(hint(&format!("stoke {old}"), &format!("stoke {}", row.new)));
            return;
        }
    }

    /// Where the words of a command are, with only options between them.
    fn places(&self, root: &Command, from: usize, path: &str) -> Option<Vec<usize>> {
        let (mut places, mut at) = (Vec::new(), from);
        for word in path.split(' ') {
            at = self.positional(&[root], at)?;
            if self.words[at] != *word {
                return None;
            }
            places.push(at);
            at += 1;
        }
        Some(places)
    }

    /// The index of the first positional argument at or after `at`, if there is one before `--`. `commands` have the
    /// options that may be before it.
    fn positional(&self, commands: &[&Command], mut at: usize) -> Option<usize> {
        while let Some(word) = self.words.get(at).and_then(|word| word.to_str()) {
            match word {
                "--" => return None,
                option if option.len() > 1 && option.starts_with('-') => {
                    at += if commands.iter().any(|command| takes_next(command, option)) { 2 } else { 1 };
                }
                _ => return Some(at),
            }
        }
        None
    }

    /// Whether the arguments after the old command are those of the row.
    fn applies(&self, root: &Command, row: &OldCommand, last: usize) -> bool {
        let rest = &self.words[last + 1..];
        let is_help = self.words.get(1).is_some_and(|word| word == "help")
            || rest.iter().any(|word| word == "--help" || word == "-h");
        let next = self.positional(&along(root, row.new), last + 1).and_then(|at| self.words[at].to_str());
        match row.rest {
            Rest::Any => true,
            Rest::NoWord => next.is_none() && !is_help,
            Rest::NoVerbOf(noun) => {
                let is_verb = |word: &str| {
                    word == "help" || find(root, noun).is_some_and(|noun| noun.find_subcommand(word).is_some())
                };
                !is_help && next.is_some_and(|word| !is_verb(word))
            }
            Rest::OptionNotOf(other) => {
                let known = |option: &str| {
                    [Some(root), find(root, other)].into_iter().flatten().any(|command| arg(command, option).is_some())
                };
                let options = rest.iter().filter_map(|word| word.to_str()).filter(|word| word.starts_with("--"));
                options.map(name_of).any(|option| option != "--help" && !known(option))
            }
        }
    }

    /// The path of the current command, e.g. `endpoint traffic`.
    fn path(&self, root: &Command) -> String {
        let (mut command, mut path, mut at) = (root, Vec::new(), 1);
        while let Some(place) = self.positional(&[root, command], at) {
            let Some(next) = self.words[place].to_str().and_then(|word| command.find_subcommand(word)) else { break };
            path.push(next.get_name());
            (command, at) = (next, place + 1);
        }
        path.join(" ")
    }

    /// Replaces an old option of the current command.
    fn option(&mut self, row: &OldOption) {
        let end = self.words.iter().position(|word| word == "--").unwrap_or(self.words.len());
        let is_old = |word: &OsString| word.to_str().is_some_and(|word| name_of(word) == row.old);
        let Some(at) = self.words[..end].iter().position(is_old) else { return };
        let Some(word) = self.words[at].to_str().map(str::to_owned) else { return };
        if row.value == Value::None {
            self.words.remove(at);
            self.hints.push(hint_without(row.old, row.new));
            return;
        }
        let (inline, next) = (word.split_once('=').map(|(_, value)| value), self.words.get(at + 1));
        let Some(value) = inline.or(next.and_then(|next| next.to_str())).map(str::to_owned) else { return };
        let Some(new) = row.value.translated(&value) else { return };
        let length = if inline.is_some() { 1 } else { 2 };
        if row.value == Value::Positional {
            self.words.splice(at..at + length, [OsString::from(&new)]);
            self.hints.push(hint(&format!("{} {value}", row.old), &new));
            return;
        }
        if row.value == Value::Version {
            // The version becomes a part of the endpoint's name, which is an option with its value.
            let Some(name) = self.value_of(row.new) else { return };
            self.words[name].push(&new);
            self.words.drain(at..at + length);
            self.hints.push(hint(&format!("{} {value}", row.old), &format!("{} NAME{new}", row.new)));
            return;
        }
        self.words.splice(at..at + length, [OsString::from(row.new), OsString::from(&new)]);
        self.hints.push(hint(&format!("{} {value}", row.old), &format!("{} {new}", row.new)));
    }

    /// The index of the word that ends with the value of an option: the one after it, or the same.
    fn value_of(&self, option: &str) -> Option<usize> {
        let at = self.words.iter().position(|word| word.to_str().is_some_and(|word| name_of(word) == option))?;
        let inline = self.words[at].to_str()?.contains('=');
        Some(if inline { at } else { at + 1 }).filter(|at| *at < self.words.len())
    }

    /// Joins a name and the version after it, e.g. `greet 7` to `greet@7`. A second version gets the name too.
    fn versions(&mut self, root: &Command, path: &str, shown: &str) {
        let commands = along(root, path);
        let Some(mut at) = self.places(root, 1, path).and_then(|places| places.last().map(|last| last + 1)) else {
            return;
        };
        let mut positionals = Vec::new();
        while let Some(place) = self.positional(&commands, at) {
            positionals.push(place);
            at = place + 1;
        }
        let [name, versions @ ..] = &positionals[..] else { return };
        let is_number = |place: &usize| self.words[*place].to_str().is_some_and(|word| word.parse::<u32>().is_ok());
        if versions.is_empty() || !versions.iter().all(is_number) {
            return;
        }
        let text = |place: &usize| self.words[*place].to_string_lossy().into_owned();
        let (old, name) = (positionals.iter().map(text).collect::<Vec<_>>().join(" "), self.words[*name].clone());
        let named =
            |place: &usize| [name.as_os_str(), "@".as_ref(), self.words[*place].as_os_str()].into_iter().collect();
        let versions: Vec<(usize, OsString)> = versions.iter().map(|place| (*place, named(place))).collect();
        let new = versions.iter().map(|(_, name)| name.to_string_lossy()).collect::<Vec<_>>().join(" ");
        self.hints.push(hint(&format!("{shown} {old}"), &format!("{shown} {new}")));
        let name_at = positionals[0];
        for (place, version) in versions {
            self.words[place] = version;
        }
        // The first version is named where the bare name was.
        self.words.remove(name_at);
    }
}

/// The text about an old spelling.
fn hint(old: &str, new: &str) -> String {
    format!("hint: `{old}` is now `{new}`; the old spelling works until the next release")
}

fn hint_without(old: &str, why: &str) -> String {
    format!("hint: {old} has no effect: {why}; the option works until the next release")
}

/// The name of an option, without a value after `=`.
fn name_of(word: &str) -> &str {
    word.split_once('=').map_or(word, |(name, _)| name)
}

/// The commands of a path, the root first. Each may have global options, which the ones below it accept too.
fn along<'a>(root: &'a Command, path: &str) -> Vec<&'a Command> {
    let mut commands = vec![root];
    for name in path.split(' ') {
        let Some(next) = commands.last().and_then(|command| command.find_subcommand(name)) else { break };
        commands.push(next);
    }
    commands
}

/// Finds a command by its path.
fn find<'a>(root: &'a Command, path: &str) -> Option<&'a Command> {
    path.split(' ').try_fold(root, |command, word| command.find_subcommand(word))
}

/// Finds the argument of an option, e.g. `--input` or `-i`.
fn arg<'a>(command: &'a Command, option: &str) -> Option<&'a Arg> {
    let is_it = |arg: &&Arg| match option.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => option.strip_prefix('-').is_some_and(|short| short.chars().eq(arg.get_short())),
    };
    command.get_arguments().find(is_it)
}

/// Whether the value of an option is the next word.
fn takes_next(command: &Command, option: &str) -> bool {
    let takes =
        |arg: &Arg| matches!(arg.get_action(), ArgAction::Set | ArgAction::Append) && !arg.is_require_equals_set();
    !option.contains('=') && arg(command, option).is_some_and(takes)
}
