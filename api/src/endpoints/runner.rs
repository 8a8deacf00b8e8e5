//! The kinds of endpoint in a deploy.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stokehold_queue::endpoint::{Runner, Server};
use utoipa::ToSchema;

use crate::error::Problem;

pub(super) const SECRETS_MAX: usize = 32;
const ENV_MAX: usize = 64;
const ENV_BYTES_MAX: usize = 4_096;
const ENTRY_MAX: usize = 200;
/// Variables that a worker sets for every runner.
const RESERVED: [&str; 8] = [
    "PATH",
    "HOME",
    "TMPDIR",
    "PYTHONHOME",
    "PYTHONUNBUFFERED",
    "PYTHONDONTWRITEBYTECODE",
    "CUDA_DEVICE_ORDER",
    "CUDA_VISIBLE_DEVICES",
];
const WORDS_MAX: usize = 200;
const WORD_BYTES_MAX: usize = 4_096;
const PATH_BYTES_MAX: usize = 1_000;
const METRIC_MAX: usize = 200;

/// What a worker starts for an endpoint.
#[derive(Default, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = Runner)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum RunnerView {
    /// A function or class decorated with `@endpoint`.
    #[default]
    Python,
    /// A Cog predictor; `entry` is `file.py:Class` or `file.py`.
    Cog,
    /// A script that ends in `runpod.serverless.start`; `entry` is `file.py`.
    Runpod,
    /// A program that serves HTTP on 127.0.0.1. A job is a request to it. It has no `entry`.
    Server {
        /// The program and its arguments; `{port}` is replaced by the port to listen on, which is also in `PORT`.
        command: Vec<String>,
        /// The path that answers 2xx once the server is ready. Default `/health`.
        #[serde(default = "health")]
        ready_path: String,
        /// The path that inputs are posted to. Without it, an input is `{"path": …, "body": …, "method": …}`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
        /// The port of a server whose port is fixed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<u16>,
        /// The metric in the server's `GET /metrics` that shows that it has no room for another job, and its limit,
        /// e.g. `vllm:num_requests_waiting > 0` (`>` or `>=`). While it holds, the server is sent fewer jobs at once,
        /// down to 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        busy: Option<String>,
    },
    /// A program that runs once per job with the input on standard input. It has no `entry`.
    Command {
        /// The program and its arguments.
        command: Vec<String>,
    },
}

fn health() -> String {
    "/health".to_owned()
}

impl RunnerView {
    pub(super) fn is_python(&self) -> bool {
        matches!(self, Self::Python)
    }
}

/// Checks a runner, and that `entry` is one for its kind.
pub(super) fn check(runner: &Runner, entry: &str) -> Result<(), Problem> {
    let (file, object) = entry.split_once(':').map_or((entry, None), |(file, object)| (file, Some(object)));
    let is_inside = entry.len() <= ENTRY_MAX && !file.starts_with('/') && file.split('/').all(|part| part != "..");
    let is_file = is_inside && file.ends_with(".py");
    let wrong = |message: &str| Err(Problem::field("/entry", message));
    match runner {
        Runner::Python if !is_file || object.is_none_or(str::is_empty) => {
            wrong("must be file.py:object, where the file is in the package")
        }
        Runner::Cog if !is_file || object == Some("") => {
            wrong("must be file.py:Class or file.py, where the file is in the package")
        }
        Runner::Runpod if !is_file || object.is_some() => wrong("must be file.py, where the file is in the package"),
        Runner::Server(_) | Runner::Command { .. } if !entry.is_empty() => {
            wrong("must be empty: a server or a command is started by its command")
        }
        Runner::Python | Runner::Cog | Runner::Runpod => Ok(()),
        Runner::Server(Server { command, ready_path, path, port, busy }) => {
            check_command(command)?;
            check_path("/runner/ready_path", ready_path)?;
            path.iter().try_for_each(|path| check_path("/runner/path", path))?;
            if *port == Some(0) {
                return Err(Problem::field("/runner/port", "must be 1 to 65535"));
            }
            busy.iter().try_for_each(|busy| check_busy(busy))
        }
        Runner::Command { command } => check_command(command),
    }
}

/// Checks a metric and its limit, e.g. `vllm:num_requests_waiting > 0`.
fn check_busy(busy: &str) -> Result<(), Problem> {
    let is_name = |metric: &str| {
        let is_sign = |sign: u8| sign.is_ascii_alphanumeric() || matches!(sign, b'_' | b':');
        metric.len() <= METRIC_MAX && metric.bytes().all(is_sign) && !metric.starts_with(|c: char| c.is_ascii_digit())
    };
    let parts: Vec<&str> = busy.split_whitespace().collect();
    match parts.as_slice() {
        [metric, ">" | ">=", limit] if is_name(metric) && limit.parse().is_ok_and(f64::is_finite) => Ok(()),
        _ => Err(Problem::field(
            "/runner/busy",
            "must be a metric of the server, > or >=, and a number, separated by spaces, e.g. vllm:num_requests_waiting > 0",
        )),
    }
}

impl From<RunnerView> for Runner {
    fn from(runner: RunnerView) -> Self {
        match runner {
            RunnerView::Python => Self::Python,
            RunnerView::Cog => Self::Cog,
            RunnerView::Runpod => Self::Runpod,
            RunnerView::Server { command, ready_path, path, port, busy } => {
                Self::Server(Server { command, ready_path, path, port, busy })
            }
            RunnerView::Command { command } => Self::Command { command },
        }
    }
}

impl From<Runner> for RunnerView {
    fn from(runner: Runner) -> Self {
        match runner {
            Runner::Python => Self::Python,
            Runner::Cog => Self::Cog,
            Runner::Runpod => Self::Runpod,
            Runner::Server(Server { command, ready_path, path, port, busy }) => {
                Self::Server { command, ready_path, path, port, busy }
            }
            Runner::Command { command } => Self::Command { command },
        }
    }
}

/// Checks the environment variables of an endpoint's runners, in addition to those of every runner.
pub(super) fn check_env(env: &BTreeMap<String, String>) -> Result<(), Problem> {
    if env.len() > ENV_MAX {
        return Err(Problem::field("/env", format!("must be at most {ENV_MAX} variables")));
    }
    for (name, value) in env {
        let at = format!("/env/{name}");
        check_variable(name, &at)?;
        if value.len() > ENV_BYTES_MAX || value.contains('\0') {
            return Err(Problem::field(at, "must be at most 4,096 bytes, without a zero byte"));
        }
    }
    Ok(())
}

/// Checks the secrets that an endpoint names.
pub(super) fn check_secrets(names: &[String], env: &BTreeMap<String, String>) -> Result<(), Problem> {
    if names.len() > SECRETS_MAX {
        return Err(Problem::field("/secrets", format!("must be at most {SECRETS_MAX}")));
    }
    for (n, name) in names.iter().enumerate() {
        let at = format!("/secrets/{n}");
        check_variable(name, &at)?;
        if env.contains_key(name) {
            return Err(Problem::field(at, "is also in env; set it in one of the two"));
        }
        if names[..n].contains(name) {
            return Err(Problem::field(at, "is listed twice"));
        }
    }
    Ok(())
}

/// Checks the name of an endpoint's environment variable. `at` is its JSON pointer.
pub(crate) fn check_variable(name: &str, at: &str) -> Result<(), Problem> {
    if !is_variable(name) {
        return Err(Problem::field(at, "must consist of A-Z, a-z, 0-9 and _, and must not start with a digit"));
    }
    if name.starts_with("STOKE_") || RESERVED.contains(&name) {
        return Err(Problem::field(at, "is reserved for the worker"));
    }
    Ok(())
}

fn is_variable(name: &str) -> bool {
    name.len() <= 128
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn check_command(command: &[String]) -> Result<(), Problem> {
    let wrong = |message: String| Err(Problem::field("/runner/command", message));
    if command.is_empty() || command[0].is_empty() || command.len() > WORDS_MAX {
        return wrong(format!("must be a program and its arguments, at most {WORDS_MAX} words"));
    }
    if command.iter().any(|word| word.len() > WORD_BYTES_MAX || word.contains('\0')) {
        return wrong(format!("must be words of at most {WORD_BYTES_MAX} bytes, without a zero byte"));
    }
    Ok(())
}

fn check_path(field: &str, path: &str) -> Result<(), Problem> {
    let is_sound =
        path.starts_with('/') && path.len() <= PATH_BYTES_MAX && path.bytes().all(|byte| byte > b' ' && byte < 0x7f);
    if is_sound {
        Ok(())
    } else {
        Err(Problem::field(field, "must be a path such as /v1/models, in ASCII without spaces"))
    }
}

#[cfg(test)]
mod tests {
    use super::check_busy;

    #[test]
    fn a_metric_and_its_limit_are_told_from_other_texts() {
        for busy in ["vllm:num_requests_waiting > 0", "sglang:num_queue_reqs >= 2.5", "_x  >\t-1e3"] {
            assert!(check_busy(busy).is_ok(), "{busy}");
        }
        for wrong in
            ["", "waiting", "waiting>0", "waiting < 3", "waiting > many", "waiting > inf", "1st > 0", "a b > 1"]
        {
            assert!(check_busy(wrong).is_err(), "{wrong}");
        }
    }
}
