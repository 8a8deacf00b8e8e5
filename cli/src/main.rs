//! The `stoke` command, with one module per subcommand.

mod api;
mod audit;
mod autoscaler;
mod backup;
mod batch;
mod bench;
mod cancel;
#[cfg(test)]
mod catalogue;
mod client;
mod commands;
mod completions;
mod confine;
mod cost;
mod credentials;
mod dashboard;
mod dead;
mod deletion;
mod demo;
mod deploy;
mod describe;
mod dev;
mod doctor;
#[cfg(test)]
mod documented;
mod duration;
mod endpoint;
mod exit;
mod failure;
mod feedback;
mod file;
mod filter;
mod find_redis;
mod findings;
mod fleet;
mod get;
mod guard;
mod help;
mod init;
mod install;
mod job;
mod kind;
mod limit;
mod list;
mod logging;
mod login;
mod logs;
mod money;
mod old;
mod output;
mod paths;
mod probe;
mod progress;
mod quarantined;
mod redrive;
#[cfg(test)]
mod reference;
mod requirements;
mod result;
mod run;
mod schedule;
mod schema;
mod secret;
mod serve;
mod services;
mod signals;
mod simulate;
mod store;
#[cfg(test)]
mod stub;
mod submit;
mod tenant;
mod token;
mod tokens;
mod top;
mod upload;
mod wait;
mod waiting;
mod webhook;
mod weights;
mod worker;

use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, FromArgMatches, Parser};

use commands::Command;

/// Serverless GPU jobs on hardware you own and hardware you rent by the minute.
///
/// Start with `stoke demo`, or with `stoke dev` in one terminal and `stoke deploy` in another.
#[derive(Parser)]
#[command(name = "stoke", version, max_term_width = 120, arg_required_else_help = true)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Options of every subcommand.
#[derive(Args, Clone, Default)]
struct Global {
    /// Print JSON: results on standard output, an error as the last line of standard error
    #[arg(long, global = true)]
    json: bool,
    /// Print without colours (same as NO_COLOR=1)
    #[arg(long, global = true)]
    no_color: bool,
    /// URL of the API [default: the one of the profile, else http://127.0.0.1:7070]
    #[arg(long, global = true, env = "STOKE_URL", help_heading = "Connection")]
    url: Option<String>,
    /// API token [default: the one of the profile, if it is for this URL]
    #[arg(long, global = true, env = "STOKE_TOKEN", hide_env_values = true, help_heading = "Connection")]
    token: Option<String>,
    /// Profile saved by `stoke login` [default: the one that `stoke dev` saved]
    #[arg(long, global = true, value_name = "NAME", env = "STOKE_PROFILE", help_heading = "Connection")]
    profile: Option<String>,
}

impl Global {
    /// Drops empty variables of the environment, which count as unset, and a URL and a token of the environment where a
    /// profile is named on the command line.
    fn settle(&mut self, matches: &ArgMatches) {
        let is_from = |id: &str, source| matches.value_source(id) == Some(source);
        for (id, value) in [("url", &mut self.url), ("token", &mut self.token), ("profile", &mut self.profile)] {
            value.take_if(|value| value.is_empty() && is_from(id, ValueSource::EnvVariable));
        }
        if !is_from("profile", ValueSource::CommandLine) {
            return;
        }
        self.url.take_if(|_| is_from("url", ValueSource::EnvVariable));
        self.token.take_if(|_| is_from("token", ValueSource::EnvVariable));
    }
}

fn main() -> ExitCode {
    completions::complete();
    let command = help::command();
    let typed = old::translate(&command, std::env::args_os().collect());
    let json = exit::is_json(&typed.words);
    for hint in &typed.hints {
        output::note(output::dim(hint));
    }
    let parsed = command.try_get_matches_from(typed.words);
    let parsed = parsed.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (Cli { mut global, command }, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return exit::usage(&error, json),
    };
    global.settle(&matches);
    if global.no_color {
        anstream::ColorChoice::Never.write_global();
    }
    let done = match command {
        // These commands replace the process with another program and need no runtime.
        Command::Guard(args) => guard::run(&args),
        Command::Confine(args) => confine::run(&args),
        command => match command.runtime() {
            Ok(runtime) => runtime.block_on(command.run(&global)),
            Err(error) => Err(error.into()),
        },
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::failure(&error, global.json),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
