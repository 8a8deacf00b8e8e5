//! The table of old spellings.

/// An old command and its current spelling.
pub(super) struct OldCommand {
    pub(super) old: &'static str,
    /// The arguments with which this row applies. The first row that applies is used.
    pub(super) rest: Rest,
    pub(super) new: &'static str,
}

/// The arguments after an old command.
pub(super) enum Rest {
    /// Any.
    Any,
    /// Options only.
    NoWord,
    /// A first word that is no verb of this noun.
    NoVerbOf(&'static str),
    /// An option that this command does not have.
    OptionNotOf(&'static str),
}

/// An old option of commands and its current spelling.
pub(super) struct OldOption {
    /// Current paths of the commands.
    pub(super) commands: &'static [&'static str],
    pub(super) old: &'static str,
    /// The current option; for an option without effect, the reason.
    pub(super) new: &'static str,
    pub(super) value: Value,
}

/// How the value of an old option is written now.
#[derive(PartialEq)]
pub(super) enum Value {
    /// A number of this unit, now a duration.
    Number(&'static str),
    /// A number without a unit, as one of two ways; now seconds.
    PlainSeconds,
    /// One value of the old option, now this value of another one.
    Word(&'static str, &'static str),
    /// A name, now an argument without an option.
    Positional,
    /// A version, now a part of the name in the other option.
    Version,
    /// The option has no value and no effect.
    None,
}

impl Value {
    /// The value as it is written now; `None` if it is not an old one.
    pub(super) fn translated(&self, value: &str) -> Option<String> {
        match self {
            Self::Number(unit) => Some(format!("{value}{unit}")),
            Self::PlainSeconds => match value.parse::<f64>() {
                Ok(seconds) if seconds.is_finite() && seconds >= 0.0 => {
                    let millis = (seconds * 1e3).round();
                    Some(if millis % 1e3 == 0.0 { format!("{}s", millis / 1e3) } else { format!("{millis}ms") })
                }
                _ => None,
            },
            Self::Word(old, new) => (value == *old).then(|| (*new).to_owned()),
            Self::Positional => Some(value.to_owned()),
            Self::Version => Some(format!("@{value}")),
            Self::None => None,
        }
    }
}

use Rest::{Any, NoVerbOf, NoWord, OptionNotOf};
use Value::{Number, PlainSeconds, Positional, Version, Word};

const fn command(old: &'static str, rest: Rest, new: &'static str) -> OldCommand {
    OldCommand { old, rest, new }
}

/// Commands that have a new spelling.
pub(super) const COMMANDS: &[OldCommand] = &[
    command("dlq", NoWord, "job dead list"),
    command("dlq", Any, "job dead"),
    command("job quarantined put-back", Any, "job quarantined readmit"),
    command("job quarantined", NoWord, "job quarantined list"),
    command("endpoints", NoWord, "endpoint list"),
    command("endpoints", NoVerbOf("endpoint"), "endpoint get"),
    command("endpoints", Any, "endpoint"),
    command("endpoint", NoWord, "endpoint list"),
    command("endpoint", NoVerbOf("endpoint"), "endpoint get"),
    command("gate", Any, "endpoint gate"),
    command("feedback", NoVerbOf("feedback"), "feedback give"),
    command("workers", Any, "worker list"),
    command("worker", NoWord, "worker run"),
    command("costs", Any, "cost"),
    command("limits", OptionNotOf("limit get"), "limit set"),
    command("limits", Any, "limit get"),
    command("install", Any, "server install"),
    command("uninstall", Any, "server uninstall"),
];

const fn option(commands: &'static [&'static str], old: &'static str, new: &'static str, value: Value) -> OldOption {
    OldOption { commands, old, new, value }
}

const JOBS: &[&str] = &["submit", "job submit", "schedule create"];
const JOBS_AND_BATCHES: &[&str] = &["submit", "job submit", "schedule create", "batch submit"];

/// Options that have a new spelling.
pub(super) const OPTIONS: &[OldOption] = &[
    option(JOBS_AND_BATCHES, "--deadline-s", "--deadline", Number("s")),
    option(JOBS_AND_BATCHES, "--timeout-s", "--timeout", Number("s")),
    option(JOBS, "--queue-timeout-s", "--queue-timeout", Number("s")),
    option(JOBS, "--retention-s", "--retention", Number("s")),
    option(&["schedule create"], "--grace-s", "--grace", Number("s")),
    option(&["endpoint gate"], "--max-p95-ms", "--max-p95", Number("ms")),
    option(&["backup create"], "--pause-ms", "--pause", Number("ms")),
    option(&["bench load"], "--duration", "--duration", PlainSeconds),
    option(&["bench load"], "--patience", "--patience", PlainSeconds),
    option(&["simulate"], "--fold", "--fold", PlainSeconds),
    option(&["simulate"], "--skip", "--skip", PlainSeconds),
    option(&["batch submit", "endpoint gate"], "--version", "--endpoint", Version),
    option(&["endpoint gate"], "--endpoint", "NAME@VERSION", Positional),
    option(&["token create"], "--role", "--kind", Word("worker", "join")),
    option(&["autoscaler plan"], "--dry-run", "`stoke autoscaler plan` never changes anything", Value::None),
];

/// Commands with a name and versions in separate arguments, now `NAME@VERSION`.
pub(super) const POSITIONALS: &[(&str, &str)] =
    &[("endpoint traffic", "stoke endpoint traffic"), ("endpoint diff", "stoke endpoint diff")];
