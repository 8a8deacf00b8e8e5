//! A part of a trace, independent of the export format.

use stokehold_queue::JobId;
use stokehold_queue::job::SpanId;

/// Components that create spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    Job,
    Sdk,
    Api,
    Queue,
    Worker,
    Runner,
    Webhook,
}

impl Scope {
    /// All scopes, in the order in which a job passes them.
    pub(crate) const ALL: [Self; 7] =
        [Self::Job, Self::Sdk, Self::Api, Self::Queue, Self::Worker, Self::Runner, Self::Webhook];

    /// Name of the scope.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Job => "stokehold.job",
            Self::Sdk => "stokehold.sdk",
            Self::Api => "stokehold.api",
            Self::Queue => "stokehold.queue",
            Self::Worker => "stokehold.worker",
            Self::Runner => "stokehold.runner",
            Self::Webhook => "stokehold.webhook",
        }
    }
}

/// OpenTelemetry's span kinds that a job uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    #[default]
    Internal,
    Server,
    Client,
    Consumer,
}

/// Value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Number(u64),
    Flag(bool),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

/// An attribute: name and value.
pub(crate) type Attribute = (&'static str, Value);

/// Error of a span, without the message, which may contain a job's input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SpanError {
    /// Stable code of the error.
    pub(crate) code: &'static str,
    /// Class of the exception, if there was one.
    pub(crate) class: String,
}

/// A part of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) id: SpanId,
    /// Parent of the span. The first span has the caller's as its parent, if there is one.
    pub(crate) parent: Option<SpanId>,
    pub(crate) scope: Scope,
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Start, Unix milliseconds.
    pub(crate) start_ms: u64,
    /// End, Unix milliseconds, not before the start; for a part that still runs, the time of the request.
    pub(crate) end_ms: u64,
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) failure: Option<SpanError>,
}

impl Span {
    /// Creates a span of a job; `part` identifies it among the job's spans.
    pub(crate) fn new(
        job: JobId,
        part: &str,
        scope: Scope,
        name: &'static str,
        (start_ms, end_ms): (u64, u64),
    ) -> Self {
        Self {
            id: SpanId::of(job, part),
            parent: None,
            scope,
            name,
            kind: Kind::default(),
            start_ms,
            end_ms: end_ms.max(start_ms),
            attributes: Vec::new(),
            failure: None,
        }
    }

    /// Makes the span a part of another one, and limits it to that one's time.
    pub(crate) fn inside(mut self, parent: &Self) -> Self {
        self.parent = Some(parent.id);
        self.start_ms = self.start_ms.clamp(parent.start_ms, parent.end_ms);
        self.end_ms = self.end_ms.clamp(self.start_ms, parent.end_ms);
        self
    }

    pub(crate) fn kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.attributes.push((name, value.into()));
        self
    }

    /// Adds an optional attribute; see [`Span::with`].
    pub(crate) fn maybe(self, name: &'static str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }
}
