//! Log output. `STOKE_LOG` filters lines with the syntax of `RUST_LOG`.

use std::fmt;
use std::fs::File;
use std::io::IsTerminal;
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};
use tracing_subscriber::fmt::{FormatFields, SubscriberBuilder};

const DEFAULT: &str = "info,aws_config=warn,aws_smithy_runtime=warn,s3s=warn";

/// Logs to standard error; as JSON if `STOKE_LOG_FORMAT=json`.
pub(crate) fn to_stderr() {
    if std::env::var("STOKE_LOG_FORMAT").is_ok_and(|format| format == "json") {
        let lines = tracing_subscriber::fmt().with_env_filter(filter()).with_writer(std::io::stderr);
        lines.json().init();
    } else {
        let lines = lines().with_env_filter(filter()).with_writer(std::io::stderr);
        lines.with_target(false).with_ansi(std::io::stderr().is_terminal()).init();
    }
}

/// Logs to a file.
pub(crate) fn to_file(file: File) {
    lines().with_env_filter(filter()).with_ansi(false).with_writer(Mutex::new(file)).init();
}

fn filter() -> EnvFilter {
    EnvFilter::try_from_env("STOKE_LOG").unwrap_or_else(|_| EnvFilter::new(DEFAULT))
}

fn lines() -> SubscriberBuilder<OneLine> {
    tracing_subscriber::fmt().fmt_fields(OneLine)
}

/// Formats each event as one line. Handlers, hosts and clients control parts of it, and must not be able to forge lines
/// or to send commands to a terminal.
struct OneLine;

impl<'writer> FormatFields<'writer> for OneLine {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut text = String::new();
        DefaultFields::new().format_fields(Writer::new(&mut text), fields)?;
        for c in text.chars() {
            if is_shown(c) { writer.write_char(c)? } else { write!(writer, "{}", c.escape_default())? }
        }
        Ok(())
    }
}

/// Returns whether a character is printed unescaped: not control characters, Unicode line ends or direction controls.
fn is_shown(c: char) -> bool {
    !c.is_control() && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().map_err(|_| std::io::Error::other("poisoned"))?.extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Logs untrusted text in a message, in fields and in a span. Returns the output.
    fn written(foreign: &str) -> String {
        let written = Written::default();
        let into = written.clone();
        let subscriber = lines().with_ansi(false).with_writer(move || into.clone()).finish();
        tracing::subscriber::with_default(subscriber, || {
            let span = tracing::info_span!("job", name = %foreign);
            span.in_scope(|| tracing::info!(shown = %foreign, quoted = ?foreign, plain = foreign, "it said {foreign}"));
        });
        let bytes = written.0.lock().map(|bytes| bytes.clone()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    #[test]
    fn what_others_say_is_one_line_and_no_command() {
        for foreign in
            ["a\n2026-01-01T00:00:00Z  WARN forged", "a\r\nb", "\x1b]52;c;aGk=\x07", "\u{9b}2J", "\u{2028}x\u{202e}"]
        {
            let text = written(foreign);
            let line = text.strip_suffix('\n').unwrap_or_default();
            assert!(line.chars().all(is_shown), "{text:?}");
            assert!(line.matches("WARN forged").count() == foreign.matches("WARN forged").count() * 5, "{text:?}");
        }
        assert!(written("Grüße, 図").contains("it said Grüße, 図"));
    }
}
