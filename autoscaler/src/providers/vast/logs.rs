//! What a machine has printed. Vast.ai has it put somewhere else, and says where.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::api::{Api, Trouble, request};
use super::error::Problem;
use super::pace::Endpoint;
use super::transport::Method;

/// It is looked for so often, so far apart: nine seconds in all.
const LOOKS: u32 = 30;
const BETWEEN: Duration = Duration::from_millis(300);

/// A look takes no longer.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// So much of its end is kept, bytes.
const KEPT: usize = 64 << 10;

/// The last lines of a machine.
pub(super) async fn logs(api: &Api, id: u64, lines: u32, base_url: &str) -> Result<String, Trouble> {
    let path = format!("/api/v0/instances/request_logs/{id}/");
    let asked = request(Method::Put, path, Some(json!({"tail": lines.to_string()})));
    let answer = api.again(Endpoint::Logs, asked).await?;
    let url = answer.get("result_url").and_then(Value::as_str);
    // Whatever it names is fetched from here: not by a file's path, and not in the clear, unless Vast.ai itself is.
    let url = url.filter(|url| url.starts_with("https://") || url.starts_with(&format!("{base_url}/")));
    let url = url.ok_or_else(|| Problem::unreadable("it does not say where its logs are"))?;
    for _ in 0..LOOKS {
        match api.fetch(url.to_owned(), LOOK_MAX).await {
            Ok(found) if found.status == 200 => {
                let from = found.body.len().saturating_sub(KEPT);
                return Ok(String::from_utf8_lossy(&found.body[from..]).into_owned());
            }
            // It is not there yet.
            _ => sleep(BETWEEN).await,
        }
    }
    Err(Problem::unreadable("its logs did not come in time").into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::sync::Arc;

    use super::super::scripted::{Scripted, json as answer, said};
    use super::super::transport::Transport;
    use super::*;
    use crate::secret::Secret;

    #[tokio::test(start_paused = true)]
    async fn logs_are_fetched_from_where_they_are_said_to_be_when_they_are_there() {
        let there = || answer(200, r#"{"success":true,"result_url":"https://logs.example/7"}"#);
        let script = Scripted::new([there(), said(404, ""), said(403, ""), said(200, "hello")]);
        let api = Api::new(Arc::clone(&script) as Arc<dyn Transport>, Secret::default());
        assert_eq!(logs(&api, 7, 100, "https://console.vast.ai").await.unwrap(), "hello");
        assert_eq!(script.lines()[0], "PUT /api/v0/instances/request_logs/7/");
        assert_eq!(script.lines()[1..], ["GET https://logs.example/7"; 3]);
        let never = std::iter::once(there()).chain((0..99).map(|_| said(404, "")));
        let script = Scripted::new(never);
        let api = Api::new(Arc::clone(&script) as Arc<dyn Transport>, Secret::default());
        logs(&api, 7, 100, "").await.unwrap_err();
        assert_eq!(script.count(), 31);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_fetched_from_in_here() {
        for url in ["http://169.254.169.254/", "file:///etc/passwd", "http://127.0.0.1:6379/"] {
            let script = Scripted::new([answer(200, format!(r#"{{"result_url":"{url}"}}"#))]);
            let api = Api::new(Arc::clone(&script) as Arc<dyn Transport>, Secret::default());
            logs(&api, 7, 1, "https://console.vast.ai").await.unwrap_err();
            assert_eq!(script.count(), 1, "{url}");
        }
    }
}
