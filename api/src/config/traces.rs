//! Export of traces: the collector and the sampling, set by OpenTelemetry's own variables with their standard meaning.

use std::fmt;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use url::Url;

use super::Error;
pub use crate::traces::sampler::Sampler;

/// Export of traces: the collector and the sampling.
#[derive(Debug, Clone, Default)]
pub struct Traces {
    /// The collector. Without one, nothing is exported.
    pub exporter: Option<Exporter>,
    /// The sampler of traces. Handlers and webhook receivers get its decision.
    pub sampler: Sampler,
}

/// A collector, and the protocol for it.
#[derive(Debug, Clone)]
pub struct Exporter {
    /// The whole URL, with `/v1/traces`.
    pub url: Url,
    /// Headers of each request.
    pub headers: Headers,
    /// Format of a request.
    pub protocol: Protocol,
    /// Timeout of one request.
    pub timeout: Duration,
    /// Service name in the spans' resource.
    pub service_name: String,
}

/// Formats of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// `http/protobuf`.
    Protobuf,
    /// `http/json`.
    Json,
}

impl Protocol {
    /// The content type of a request.
    pub(crate) fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Protobuf => "application/x-protobuf",
            Self::Json => "application/json",
        })
    }
}

/// Headers that may hold a collector's key.
#[derive(Clone, Default)]
pub struct Headers(HeaderMap);

impl Headers {
    /// The headers, for sending only. They must not be logged.
    pub(crate) fn expose(&self) -> &HeaderMap {
        &self.0
    }

    /// Parses `name=value,name=value`, percent-encoded.
    fn parse(text: &str) -> Option<Self> {
        let mut headers = HeaderMap::new();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=')?;
            let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
            let mut value = HeaderValue::from_str(&value).ok()?;
            value.set_sensitive(true);
            headers.insert(HeaderName::try_from(name.trim()).ok()?, value);
        }
        Some(Self(headers))
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The settings as the operator typed them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTraces {
    endpoint: String,
    headers: String,
    protocol: String,
    timeout_ms: u64,
    service_name: String,
    sampler: String,
    sampler_ratio: String,
}

impl RawTraces {
    pub(super) fn mean(self) -> Result<Traces, Error> {
        let wrong = |setting, why: String| Error::Setting { setting, why };
        let sampler = Sampler::parse(&self.sampler, &self.sampler_ratio)
            .map_err(|wanted| wrong("traces.sampler", format!("must be {wanted}")))?;
        if self.endpoint.is_empty() {
            return Ok(Traces { exporter: None, sampler });
        }
        let wanted = || {
            wrong(
                "traces.endpoint",
                "must be the http or https URL of a collector, e.g. http://localhost:4318".to_owned(),
            )
        };
        let mut url = Url::parse(&self.endpoint).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let has_place = url.as_mut().and_then(|url| {
            url.path_segments_mut().ok().map(|mut path| {
                path.pop_if_empty().extend(["v1", "traces"]);
            })
        });
        let url = has_place.and(url).ok_or_else(wanted)?;
        let protocol = match self.protocol.as_str() {
            "http/protobuf" => Protocol::Protobuf,
            "http/json" => Protocol::Json,
            "grpc" => {
                let why = "grpc is not supported; use http/protobuf, with the collector's port 4318 instead of 4317";
                return Err(wrong("traces.protocol", why.to_owned()));
            }
            _ => return Err(wrong("traces.protocol", "must be http/protobuf or http/json".to_owned())),
        };
        if !(100..=60_000).contains(&self.timeout_ms) {
            return Err(wrong("traces.timeout_ms", "must be 100 to 60000".to_owned()));
        }
        let headers = Headers::parse(&self.headers).ok_or_else(|| {
            wrong("traces.headers", "must be comma-separated name=value pairs, percent-encoded".to_owned())
        })?;
        let timeout = Duration::from_millis(self.timeout_ms);
        let exporter = Exporter { url, headers, protocol, timeout, service_name: self.service_name };
        Ok(Traces { exporter: Some(exporter), sampler })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(endpoint: &str) -> RawTraces {
        RawTraces {
            endpoint: endpoint.to_owned(),
            headers: "api-key=canary%2C1, x-team = ml".to_owned(),
            protocol: "http/protobuf".to_owned(),
            timeout_ms: 10_000,
            service_name: "stokehold".to_owned(),
            sampler: "parentbased_always_on".to_owned(),
            sampler_ratio: String::new(),
        }
    }

    #[test]
    fn a_collector_is_named_as_opentelemetry_names_it() {
        for (endpoint, url) in [
            ("http://localhost:4318", "http://localhost:4318/v1/traces"),
            ("https://otel.example.com/tenant/", "https://otel.example.com/tenant/v1/traces"),
        ] {
            let exporter = raw(endpoint).mean().unwrap().exporter.unwrap();
            assert_eq!(exporter.url.as_str(), url);
            assert_eq!(exporter.headers.expose()["api-key"], "canary,1");
            assert_eq!(exporter.headers.expose()["x-team"], "ml");
            assert!(!format!("{exporter:?}").contains("canary"));
        }
        assert!(raw("").mean().unwrap().exporter.is_none());
    }

    #[test]
    fn what_cannot_be_meant_says_what_to_change() {
        let said = |raw: RawTraces| raw.mean().unwrap_err().to_string();
        assert!(said(raw("localhost:4317")).contains("http://localhost:4318"));
        assert!(said(RawTraces { protocol: "grpc".to_owned(), ..raw("http://c") }).contains("4318"));
        assert!(said(RawTraces { timeout_ms: 0, ..raw("http://c") }).contains("100 to 60000"));
        assert!(said(RawTraces { headers: "key".to_owned(), ..raw("http://c") }).contains("name=value"));
        assert!(said(RawTraces { sampler: "some".to_owned(), ..raw("") }).contains("always_on"));
    }
}
