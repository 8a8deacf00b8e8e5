//! `stoke completions`, and the completions themselves.
//!
//! The script of a shell asks this program on each Tab, so that it never differs from the program.

use std::ffi::OsStr;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{Bash, CompleteEnv, EnvCompleter, Fish, Zsh};
use stokehold_client::models::EndpointList;

use crate::client::{Client, decode};
use crate::{Global, help, output};

/// Environment variable with which a shell asks for completions.
pub(crate) const COMPLETE: &str = "COMPLETE";

/// Timeout of the request for endpoint names: a person waits.
const TIMEOUT: Duration = Duration::from_millis(800);

/// Print a script that completes commands, options and endpoint names in a shell
#[derive(Args)]
#[command(after_help = "Examples:
  stoke completions bash >> ~/.bashrc
  stoke completions zsh > ~/.zfunc/_stoke     with fpath+=~/.zfunc before compinit in ~/.zshrc
  stoke completions fish > ~/.config/fish/completions/stoke.fish")]
pub(crate) struct CompletionsArgs {
    /// Shell
    shell: Shell,
}

#[derive(Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

pub(crate) fn run(args: &CompletionsArgs) -> Result<()> {
    output::unescaped(std::io::stdout(), &script(args.shell)?)
}

fn script(shell: Shell) -> Result<String> {
    let shell: &dyn EnvCompleter = match shell {
        Shell::Bash => &Bash,
        Shell::Zsh => &Zsh,
        Shell::Fish => &Fish,
    };
    let mut script = Vec::new();
    shell.write_registration(COMPLETE, "stoke", "stoke", "stoke", &mut script).context("cannot write the script")?;
    String::from_utf8(script).context("the script is not valid UTF-8")
}

/// Prints the completions and exits, if a shell asks for them.
pub(crate) fn complete() {
    // Building the commands takes longer than this look.
    if std::env::var_os(COMPLETE).is_some() {
        CompleteEnv::with_factory(help::command).var(COMPLETE).complete();
    }
}

/// Completes names of endpoints.
pub(crate) fn endpoints() -> ArgValueCompleter {
    ArgValueCompleter::new(candidates)
}

/// The endpoints whose name begins with `typed`. A shell shows no errors: without the API, there are none.
fn candidates(typed: &OsStr) -> Vec<CompletionCandidate> {
    let Some(typed) = typed.to_str() else { return Vec::new() };
    let names = names().unwrap_or_default();
    names.into_iter().filter(|name| name.starts_with(typed)).map(CompletionCandidate::new).collect()
}

/// Fetches the names of the endpoints of the saved or configured API.
fn names() -> Result<Vec<String>> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let global =
        Global { url: set("STOKE_URL"), token: set("STOKE_TOKEN"), profile: set("STOKE_PROFILE"), ..Global::default() };
    let client = Client::connect(&global)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let found = runtime.block_on(async { tokio::time::timeout(TIMEOUT, client.get("/v1/endpoints")).await })??;
    Ok(decode::<EndpointList>(&found)?.endpoints.into_iter().map(|endpoint| endpoint.name).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn every_shell_has_a_script_that_asks_this_program() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell).unwrap();
            assert!(script.contains(COMPLETE) && script.contains("stoke"), "{script}");
        }
    }

    #[test]
    fn a_word_is_completed_to_commands_and_options() {
        let complete = |line: &str| {
            let words: Vec<std::ffi::OsString> = line.split(' ').map(Into::into).collect();
            let last = words.len() - 1;
            let found = clap_complete::engine::complete(&mut help::command(), words, last, None).unwrap();
            found.iter().map(|found| found.get_value().to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(complete("stoke endp"), ["endpoint"]);
        assert_eq!(complete("stoke worker in"), ["install"]);
        assert!(complete("stoke submit --time").contains(&"--timeout".to_owned()));
    }
}
