//! The grouped command list of `stoke --help`, which clap cannot generate itself.

use std::fmt::Write as _;

use clap::{Command, CommandFactory};

use crate::Cli;

/// The groups of `stoke --help` with their subcommands.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Develop and deploy", &["demo", "dev", "init", "run", "deploy"]),
    ("Jobs", &["submit", "get", "logs", "cancel", "retry", "list", "dlq", "batch", "schedule", "webhook"]),
    ("Endpoints", &["endpoints", "secret", "weights", "feedback", "gate"]),
    ("Monitor and plan", &["top", "workers", "fleet", "costs", "dashboard", "doctor", "bench", "simulate"]),
    ("Administer", &["token", "tenant", "limits", "audit", "job", "backup", "install", "uninstall"]),
    ("Serve", &["api", "store", "worker", "autoscaler"]),
];
const NAME_WIDTH: usize = 10;

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
        for subcommand in names.iter().filter_map(|name| command.find_subcommand(name)) {
            let (name, about) = (subcommand.get_name(), subcommand.get_about().map(ToString::to_string));
            let alias = subcommand.get_visible_aliases().next().map(|alias| format!(" [alias: {alias}]"));
            let (about, alias) = (about.unwrap_or_default(), alias.unwrap_or_default());
            let _ = writeln!(text, "  {literal}{name:<NAME_WIDTH$}{literal:#}  {about}{alias}");
        }
    }
    let _ = write!(text, "\n{header}Options:{header:#}\n{{options}}\n\n");
    let _ = write!(text, "Run `stoke help COMMAND` for the options of a command.");
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_visible_command_is_in_one_group() {
        let names: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
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
        assert!(help.contains("\nJobs:\n  submit      Submit a job"), "{help}");
        assert!(help.contains("--json"), "{help}");
    }
}
