//! Test that docs/reference/cli.md describes every command as it is.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fmt::Write as _;
use std::fs;

use clap::{Arg, Command};

use crate::{exit, help};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/cli.md");

const HEAD: &str = "# Command line

<!-- Written by `make bless` from the code. -->

`stoke` has one command per noun, with verbs: `stoke job get`, `stoke endpoint list`. Frequent
commands have a short form: `stoke submit`, `get`, `logs`, `cancel`, `retry`, `list`, `deploy`.

A version of an endpoint is written `NAME@VERSION`, e.g. `greet@3`. A duration is written with its
unit, e.g. `90s`, `10m` or `7d`. Spellings of the previous release still work; they print the
current spelling on standard error.
";

const ERRORS: &str = "
With `--json`, the last line of standard error is one JSON object if a command fails (shown on two
lines here):

```json
{\"error\": {\"code\": \"unauthorized\", \"message\": \"the token is not valid\",
  \"hint\": \"Save a token with ...\", \"status\": 401, \"exit_code\": 5}}
```

`code` is a stable word: the code of the API's problem, or one of `usage`, `unavailable`,
`timed_out`, `no_token`, `job_failed`, `batch_failed`, `gate_failed`, `in_use`,
`unexpected_response` and `failed`.
`hint` and `status` are null where there is none.
";

fn page() -> String {
    let mut command = help::command();
    command.build();
    let mut page = HEAD.to_owned();
    page.push_str("\n## Exit codes\n\n| code | meaning |\n|---|---|\n");
    for (code, meaning) in exit::CODES {
        let _ = writeln!(page, "| {code} | {meaning} |");
    }
    page.push_str(ERRORS);
    page.push_str("\n## Options of every command\n\n");
    arguments(&mut page, command.get_arguments().filter(|arg| arg.is_global_set()));
    for (group, names) in help::GROUPS {
        let _ = write!(page, "\n## {group}\n");
        for name in names.iter().filter(|name| !name.contains(' ')) {
            section(&mut page, &format!("stoke {name}"), command.find_subcommand(name).unwrap());
        }
    }
    page
}

fn section(page: &mut String, path: &str, command: &Command) {
    let _ = write!(page, "\n### {path}\n\n");
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    for part in about.split("\n\n") {
        paragraph(page, &sentence(part));
        page.push('\n');
    }
    let usage = command.clone().render_usage().to_string();
    let _ = write!(page, "```text\n{}\n```\n", usage.trim_start_matches("Usage: "));
    let verbs: Vec<&Command> =
        command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help").collect();
    let own: Vec<&Arg> = command.get_arguments().filter(|arg| is_own(arg)).collect();
    if !own.is_empty() {
        page.push('\n');
        arguments(page, own.into_iter());
    }
    if let Some(help) = command.get_after_help().map(ToString::to_string) {
        after(page, &help);
    }
    for verb in verbs {
        section(page, &format!("{path} {}", verb.get_name()), verb);
    }
}

/// Whether an argument is the command's own, and not one of every command.
fn is_own(arg: &Arg) -> bool {
    let everywhere = ["help", "version", "json", "no_color", "url", "token", "profile"];
    !arg.is_hide_set() && !everywhere.contains(&arg.get_id().as_str())
}

/// The examples as a block, and other text as paragraphs.
fn after(page: &mut String, help: &str) {
    for part in help.split("\n\n") {
        page.push('\n');
        match part.split_once(":\n") {
            Some((title, lines)) => {
                let lines: Vec<&str> = lines.lines().map(|line| line.strip_prefix("  ").unwrap_or(line)).collect();
                let _ = write!(page, "{title}:\n\n```text\n{}\n```\n", lines.join("\n"));
            }
            None => paragraph(page, part),
        }
    }
}

fn arguments<'a>(page: &mut String, arguments: impl Iterator<Item = &'a Arg>) {
    for arg in arguments {
        let mut name = String::new();
        let values = arg.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect::<Vec<_>>();
        let value = values.join(" ");
        match (arg.get_short(), arg.get_long()) {
            (Some(short), Some(long)) => name.push_str(&format!("-{short}, --{long}")),
            (_, Some(long)) => name.push_str(&format!("--{long}")),
            _ => name.push_str(&format!("<{value}>")),
        }
        if arg.get_long().is_some() && arg.get_action().takes_values() && !value.is_empty() {
            name.push_str(&format!(" <{value}>"));
        }
        let text = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
        let mut text = sentence(&text.replace('\n', " "));
        let possible: Vec<String> = arg
            .get_possible_values()
            .iter()
            .filter(|value| !value.is_hide_set())
            .map(|value| format!("`{}`", value.get_name()))
            .collect();
        if !possible.is_empty() && arg.get_action().takes_values() {
            let _ = write!(text, " One of {}.", possible.join(", "));
        }
        let defaults: Vec<String> =
            arg.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy())).collect();
        if !defaults.is_empty() && arg.get_action().takes_values() {
            let _ = write!(text, " Default: {}.", defaults.join(", "));
        }
        if let Some(variable) = arg.get_env() {
            let _ = write!(text, " Environment variable: `{}`.", variable.to_string_lossy());
        }
        item(page, &format!("`{name}`: {text}"));
    }
}

/// The text with a full stop.
fn sentence(text: &str) -> String {
    let text = text.trim().replace('<', "&lt;");
    if text.ends_with(['.', '?', '!', ':']) { text } else { format!("{text}.") }
}

fn paragraph(page: &mut String, text: &str) {
    fill(page, text, "", "");
}

fn item(page: &mut String, text: &str) {
    fill(page, text, "- ", "  ");
}

/// Longest line of the page, characters.
const COLUMNS: usize = 99;

/// Writes text in lines of at most [`COLUMNS`], without breaks inside code.
fn fill(page: &mut String, text: &str, first: &str, next: &str) {
    let (mut line, mut is_code) = (first.to_owned(), false);
    let mut atoms: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match atoms.last_mut().filter(|_| is_code) {
            Some(last) => last.push_str(&format!(" {word}")),
            None => atoms.push(word.to_owned()),
        }
        is_code ^= word.matches('`').count() % 2 == 1;
    }
    for word in atoms {
        let is_start = line == first || line == next;
        if !is_start && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            let _ = writeln!(page, "{line}");
            next.clone_into(&mut line);
            line.push_str(&word);
        } else {
            if !is_start {
                line.push(' ');
            }
            line.push_str(&word);
        }
    }
    let _ = writeln!(page, "{line}");
}

#[test]
fn commands_are_documented() {
    let expected = page();
    let long: Vec<&str> = expected.lines().filter(|line| line.chars().count() > COLUMNS).collect();
    assert_eq!(long, Vec::<&str>::new(), "shorten these lines of examples");
    if std::env::var_os("BLESS").is_some() {
        fs::write(PATH, expected).unwrap();
        return;
    }
    let written = fs::read_to_string(PATH).unwrap_or_default();
    assert!(written == expected, "docs/reference/cli.md is out of date: run `make bless`");
}
