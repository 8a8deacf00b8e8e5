//! The option `--kind`.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use stokehold_package::Kind;

/// Parses the name of a kind.
pub(crate) fn parser() -> impl TypedValueParser<Value = Kind> {
    let values = Kind::ALL.map(|kind| PossibleValue::new(kind.as_str()).help(help(kind)));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Kind>())
}

fn help(kind: Kind) -> &'static str {
    match kind {
        Kind::Python => "A function or class with the `@endpoint` decorator",
        Kind::Cog => "A Cog predictor, named in cog.yaml",
        Kind::Runpod => "A script that calls runpod.serverless.start",
        Kind::Server => "A program that serves HTTP",
        Kind::Command => "A program that runs once per job",
    }
}
