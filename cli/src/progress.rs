//! Progress bars and spinners on standard error. They are not drawn if it is not a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

const TICK: Duration = Duration::from_millis(100);

/// A spinner for work of unknown length.
pub(crate) fn spinner(message: impl Into<String>) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(message.into());
    bar.set_style(style("{spinner:.cyan} {msg} {elapsed:.dim}"));
    bar.enable_steady_tick(TICK);
    bar
}

/// A progress bar for a transfer of known size.
pub(crate) fn transfer(message: impl Into<String>, bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(bytes).with_message(message.into());
    bar.set_style(style(
        "{msg} {bar:30.cyan/dim} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta:.dim}",
    ));
    bar
}

/// A spinner for a transfer of unknown size.
pub(crate) fn bytes(message: impl Into<String>) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(message.into());
    bar.set_style(style("{spinner:.cyan} {msg} {binary_bytes} {binary_bytes_per_sec} {elapsed:.dim}"));
    bar.enable_steady_tick(TICK);
    bar
}

/// A progress bar for the lines of a batch.
pub(crate) fn batch() -> ProgressBar {
    let bar = ProgressBar::new(0);
    bar.set_style(style("{spinner:.cyan} {prefix} {bar:30.cyan/dim} {human_pos}/{human_len} {msg} {elapsed:.dim}"));
    bar.enable_steady_tick(TICK);
    bar
}

/// A progress bar for a job, in thousandths.
pub(crate) fn job() -> ProgressBar {
    let bar = ProgressBar::new(1_000);
    bar.set_style(running());
    bar.enable_steady_tick(TICK);
    bar
}

/// The style of a job that runs.
pub(crate) fn running() -> ProgressStyle {
    style("{spinner:.cyan} {prefix} {bar:30.cyan/dim} {percent:>3} % {elapsed:.dim} {msg}")
}

/// The style of a job that waits: its progress is unknown.
pub(crate) fn waiting() -> ProgressStyle {
    style("{spinner:.cyan} {prefix} {elapsed:.dim} {msg}")
}

fn style(template: &str) -> ProgressStyle {
    // The templates above are valid.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━━╌")
}
