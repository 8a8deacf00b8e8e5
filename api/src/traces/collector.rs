//! Client of an OpenTelemetry collector: OTLP over HTTP.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use prost::Message;
use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use tokio::time::sleep;

use crate::config::traces::{Exporter, Protocol};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of attempts per batch in one round.
const TRIES: u32 = 3;

/// Pause before the second attempt; the next one is twice as long. Multiplied by a random factor from 0.5 to 1.
const PAUSE: Duration = Duration::from_millis(500);

/// Longest pause that a collector may request. For a longer one, the batch is sent in the next round.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(10);

/// Maximum number of bytes read of a response.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Reasons for which a batch has not arrived, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// The collector will never accept it.
    #[error("the collector refused the trace: HTTP {0}")]
    Refused(u16),
    /// The collector may accept it later. The batch may have arrived: the same spans with the same IDs are sent again
    /// then.
    #[error("the collector is unavailable: {0}")]
    Away(String),
}

/// The client of one collector.
pub(crate) struct Collector {
    http: reqwest::Client,
    exporter: Exporter,
    headers: HeaderMap,
}

/// Outcomes of one attempt.
enum Tried {
    Taken,
    Refused(u16),
    Away(String, Option<Duration>),
}

impl Collector {
    /// Creates the client of a collector.
    ///
    /// # Errors
    /// When the system's certificates cannot be read.
    pub(crate) fn new(exporter: Exporter) -> Result<Self, reqwest::Error> {
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(exporter.timeout)
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        let mut headers = exporter.headers.expose().clone();
        headers.insert(CONTENT_TYPE, exporter.protocol.content_type());
        Ok(Self { http, headers, exporter })
    }

    /// Sends a batch, and retries it if that may help.
    ///
    /// # Errors
    /// [`Error`], whose kind decides whether to retry later.
    pub(crate) async fn send(&self, batch: &ExportTraceServiceRequest) -> Result<(), Error> {
        let body = match self.exporter.protocol {
            Protocol::Protobuf => batch.encode_to_vec(),
            Protocol::Json => serde_json::to_vec(batch).map_err(|error| Error::Away(error.to_string()))?,
        };
        let mut pause = PAUSE;
        for tries in 1.. {
            match self.tried(body.clone()).await {
                Tried::Taken => return Ok(()),
                Tried::Refused(status) => return Err(Error::Refused(status)),
                Tried::Away(why, after) if tries >= TRIES || after.is_some_and(|after| after > RETRY_AFTER_MAX) => {
                    return Err(Error::Away(why));
                }
                Tried::Away(_, after) => {
                    sleep(after.unwrap_or_default().max(pause.mul_f64(rand::random_range(0.5..=1.0)))).await;
                    pause *= 2;
                }
            }
        }
        Ok(())
    }

    async fn tried(&self, body: Vec<u8>) -> Tried {
        let url = self.exporter.url.clone();
        match self.http.post(url).headers(self.headers.clone()).body(body).send().await {
            Ok(answer) if answer.status().is_success() => {
                self.heed(answer).await;
                Tried::Taken
            }
            Ok(answer) => {
                let status = answer.status();
                let after = answer.headers().get(RETRY_AFTER).and_then(|after| after.to_str().ok()?.parse().ok());
                // The statuses that OTLP defines as retryable.
                match status {
                    StatusCode::TOO_MANY_REQUESTS
                    | StatusCode::BAD_GATEWAY
                    | StatusCode::SERVICE_UNAVAILABLE
                    | StatusCode::GATEWAY_TIMEOUT => {
                        Tried::Away(format!("HTTP {}", status.as_u16()), after.map(Duration::from_secs))
                    }
                    _ => Tried::Refused(status.as_u16()),
                }
            }
            // Without the URL, which may contain a key.
            Err(error) => Tried::Away(error.without_url().to_string(), None),
        }
    }

    /// Logs rejected spans: a collector may accept a batch and report that it rejected some of the spans.
    async fn heed(&self, mut answer: Response) {
        let mut text = Vec::new();
        while let Ok(Some(chunk)) = answer.chunk().await {
            text.extend_from_slice(&chunk);
            if text.len() > ANSWER_BYTES_MAX {
                return;
            }
        }
        let said = match self.exporter.protocol {
            Protocol::Protobuf => ExportTraceServiceResponse::decode(text.as_slice()).ok(),
            Protocol::Json => serde_json::from_slice(&text).ok(),
        };
        if let Some(partial) = said.and_then(|said: ExportTraceServiceResponse| said.partial_success)
            && partial.rejected_spans > 0
        {
            tracing::warn!(
                spans = partial.rejected_spans,
                why = partial.error_message,
                "the collector rejected some spans"
            );
        }
    }
}
