//! Where log lines go. `STOKE_LOG` filters them, as `RUST_LOG` does elsewhere.

use std::fs::File;
use std::io::IsTerminal;
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;

const DEFAULT: &str = "info,aws_config=warn,aws_smithy_runtime=warn,s3s=warn";

/// To standard error; as JSON where that is asked for with `STOKE_LOG_FORMAT=json`.
pub(crate) fn to_stderr() {
    let lines = tracing_subscriber::fmt().with_env_filter(filter()).with_writer(std::io::stderr);
    if std::env::var("STOKE_LOG_FORMAT").is_ok_and(|format| format == "json") {
        lines.json().init();
    } else {
        lines.with_target(false).with_ansi(std::io::stderr().is_terminal()).init();
    }
}

/// To a file.
pub(crate) fn to_file(file: File) {
    tracing_subscriber::fmt().with_env_filter(filter()).with_ansi(false).with_writer(Mutex::new(file)).init();
}

fn filter() -> EnvFilter {
    EnvFilter::try_from_env("STOKE_LOG").unwrap_or_else(|_| EnvFilter::new(DEFAULT))
}
