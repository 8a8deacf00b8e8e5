//! The grouped command list of `stoke --help`, which clap cannot generate itself.

use std::fmt::Write as _;

use clap::{Command, CommandFactory};

use crate::Cli;

/// The groups of `stoke --help` with their commands. A command with a space is a verb that belongs to another group.
pub(crate) const GROUPS: [(&str, &[&str]); 6] = [
    ("Start", &["demo", "init", "dev", "run", "deploy", "serve", "login", "logout", "doctor", "completions"]),
    (
        "Jobs",
        &[
            "submit", "get", "logs", "cancel", "retry", "list", "job", "batch", "schedule", "webhook", "feedback",
            "file",
        ],
    ),
    ("Endpoints", &["endpoint", "secret", "weights", "requirements"]),
    ("Fleet", &["top", "worker", "fleet", "cost"]),
    ("Operate", &["server", "token", "tenant", "limit", "audit", "backup", "dashboard", "bench", "simulate"]),
    ("Serve", &["api", "store", "worker run", "autoscaler"]),
];
const NAME_WIDTH: usize = 12;

/// The `stoke` command with grouped help.
pub(crate) fn command() -> Command {
    let command = Cli::command();
    let template = template(&command);
    command.help_template(template)
}

fn template(command: &Command) -> String {
    let styles = command.get_styles();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (group, names) in GROUPS {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n{header}{group}:{header:#}\n");
        for name in names {
            let found = name.split(' ').try_fold(command, |command, word| command.find_subcommand(word));
            let about = found.and_then(Command::get_about).map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {literal}{name:<NAME_WIDTH$}{literal:#}  {about}");
        }
    }
    let _ = write!(text, "\n{header}Options:{header:#}\n{{options}}\n\n");
    let _ = write!(text, "Run `stoke help COMMAND` for the options of a command.");
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_visible_command_is_in_one_group() {
        let names = GROUPS.iter().flat_map(|(_, names)| *names).copied();
        let names: Vec<&str> = names.filter(|name| !name.contains(' ')).collect();
        let grouped: BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(grouped.len(), names.len(), "a command is in two groups");
        let command = Cli::command();
        let visible: BTreeSet<&str> =
            command.get_subcommands().filter(|one| !one.is_hide_set()).map(Command::get_name).collect();
        assert_eq!(grouped, visible);
    }

    #[test]
    fn the_help_fits_a_terminal() {
        let help = command().render_help().to_string();
        let commands = help.lines().take_while(|line| *line != "Options:");
        for line in commands {
            assert!(line.chars().count() <= 100, "{line}");
        }
        assert!(help.contains("\nJobs:\n  submit        Submit a job"), "{help}");
        assert!(help.contains("  worker run    Run a worker"), "{help}");
        assert!(help.contains("--json"), "{help}");
    }

    /// Calls `with` for each visible command with its path.
    fn each(command: &Command, path: &str, with: &mut impl FnMut(&str, &Command)) {
        for command in command.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help") {
            let path = format!("{path} {}", command.get_name());
            with(&path, command);
            each(command, &path, with);
        }
    }

    /// Splits a line of a shell into words: up to a pipe, a redirection or an explanation.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None::<char>);
        for letter in line.chars() {
            match (letter, quote) {
                ('\'' | '"', None) => (quote, word) = (Some(letter), Some(word.unwrap_or_default())),
                (letter, Some(open)) if letter == open => quote = None,
                (' ', None) => words.extend(word.take()),
                (letter, _) => word.get_or_insert_default().push(letter),
            }
        }
        words.extend(word);
        let end = words.iter().position(|word| matches!(&**word, "|" | ">" | ">>"));
        words.truncate(end.unwrap_or(words.len()));
        words
    }

    #[test]
    fn every_command_has_examples_that_parse() {
        let root = Cli::command();
        let (mut without, mut broken) = (Vec::new(), Vec::new());
        each(&root, "stoke", &mut |path, command| {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples = help.split_once("Examples:\n").map_or("", |(_, examples)| examples);
            let examples: Vec<&str> = examples.lines().take_while(|line| line.starts_with("  ")).collect();
            // The short form of a verb is the same command.
            let short = path.replacen("stoke job ", "stoke ", 1).replacen("endpoint deploy", "deploy", 1);
            let is_own = |line: &&&str| line.contains(path) || line.contains(&short) || command.has_subcommands();
            if examples.iter().filter(is_own).count() == 0 {
                without.push(path.to_owned());
            }
            for line in examples {
                // An explanation is set apart by spaces.
                let line = line.trim().split("   ").next().unwrap_or_default();
                let line = line.split("  with ").next().unwrap_or_default();
                let Some(start) = line.find("stoke ") else {
                    broken.push(format!("{path}: {line}: is no command"));
                    continue;
                };
                let start = line.rfind("| stoke ").map_or(start, |pipe| pipe + 2);
                if let Err(error) = command_of(&words(&line[start..])) {
                    broken.push(format!("{path}: {line}: {error}"));
                }
            }
        });
        assert_eq!(without, Vec::<String>::new(), "commands without an example of their own");
        assert_eq!(broken, Vec::<String>::new());
    }

    /// Parses the words with the current spelling only.
    fn command_of(words: &[String]) -> Result<(), String> {
        match command().try_get_matches_from(words) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn every_command_has_a_description() {
        each(&Cli::command(), "stoke", &mut |path, command| {
            assert!(command.get_about().is_some(), "{path}");
            for arg in command.get_arguments() {
                assert!(arg.get_help().is_some(), "{path} {}", arg.get_id());
            }
        });
    }
}
