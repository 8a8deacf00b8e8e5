//! The options of an endpoint. Each is declared once, for the request of a deploy and for the view of a version.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Not;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stokehold_queue::endpoint::{EndpointSpec, EndpointVersion, OpenAiApi, Runner, StepConfig, Weight};
use stokehold_queue::job::{Priority, RetryPolicy};
use stokehold_queue::requirements::Requirements;
use utoipa::ToSchema;

use super::openai_names::OpenAiApiWord;
use super::requirements::RequirementsRequest;
use super::runner::RunnerView;
use super::steps::{self, RetryRequest, StepRequest};
use super::weights::WeightView;
use crate::error::Problem;
use crate::jobs::words::PriorityWord;
use crate::time_format::rfc3339;

/// The form in which the API receives an option.
trait Given<Stored> {
    /// Checks the value and converts it. `at` is its JSON pointer.
    fn stored(self, at: &str) -> Result<Stored, Problem>;
}

/// The form in which the API returns an option.
trait Shown<Stored> {
    fn shown(stored: Stored) -> Self;
}

/// Most options are stored in the form in which they are sent.
impl<T> Given<T> for T {
    fn stored(self, _: &str) -> Result<T, Problem> {
        Ok(self)
    }
}

impl<T> Shown<T> for T {
    fn shown(stored: T) -> Self {
        stored
    }
}

impl Given<Runner> for RunnerView {
    fn stored(self, _: &str) -> Result<Runner, Problem> {
        Ok(self.into())
    }
}

impl Shown<Runner> for RunnerView {
    fn shown(stored: Runner) -> Self {
        stored.into()
    }
}

impl Given<Requirements> for RequirementsRequest {
    fn stored(self, _: &str) -> Result<Requirements, Problem> {
        self.checked()
    }
}

impl Given<Vec<Weight>> for Vec<WeightView> {
    fn stored(self, _: &str) -> Result<Vec<Weight>, Problem> {
        Ok(self.into_iter().map(Weight::from).collect())
    }
}

impl Shown<Vec<Weight>> for Vec<WeightView> {
    fn shown(stored: Vec<Weight>) -> Self {
        stored.into_iter().map(WeightView::from).collect()
    }
}

impl Given<Option<RetryPolicy>> for Option<RetryRequest> {
    fn stored(self, at: &str) -> Result<Option<RetryPolicy>, Problem> {
        self.map(|retry| retry.checked(at)).transpose()
    }
}

impl Shown<Option<RetryPolicy>> for Option<RetryRequest> {
    fn shown(stored: Option<RetryPolicy>) -> Self {
        stored.map(RetryRequest::from)
    }
}

impl Given<Vec<StepConfig>> for Vec<StepRequest> {
    fn stored(self, at: &str) -> Result<Vec<StepConfig>, Problem> {
        steps::checked(self, at)
    }
}

impl Shown<Vec<StepConfig>> for Vec<StepRequest> {
    fn shown(stored: Vec<StepConfig>) -> Self {
        stored.into_iter().map(StepRequest::from).collect()
    }
}

impl Shown<f64> for Option<f64> {
    fn shown(stored: f64) -> Self {
        Some(stored)
    }
}

/// A number, or `None` if the option has no default.
trait Bounded {
    type Number: PartialOrd + Display;

    fn number(self) -> Option<Self::Number>;
}

macro_rules! bounded {
    ($($number:ty)*) => {
        $(impl Bounded for $number {
            type Number = Self;

            fn number(self) -> Option<Self> {
                Some(self)
            }
        })*
    };
}

bounded!(u32 u64 f64);

impl<B: Bounded> Bounded for Option<B> {
    type Number = B::Number;

    fn number(self) -> Option<B::Number> {
        self.and_then(B::number)
    }
}

fn within<B: Bounded>(name: &str, value: B, least: B::Number, most: B::Number) -> Result<(), Problem> {
    match value.number() {
        Some(number) if !(&least..=&most).contains(&&number) => {
            Err(Problem::field(format!("/{name}"), format!("must be {least} to {most}")))
        }
        _ => Ok(()),
    }
}

fn at_most<B: Bounded>(name: &str, value: B, most: B::Number) -> Result<(), Problem> {
    match value.number() {
        Some(number) if number > most => Err(Problem::field(format!("/{name}"), format!("must be at most {most}"))),
        _ => Ok(()),
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_one(number: &u32) -> bool {
    *number == 1
}

fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}

/// Declares the request of a deploy, the view of a version, and the conversions to and from [`EndpointSpec`].
///
/// Each option is `name: type in the request [= default] [, from least to most | , at most most] => type in the view;`,
/// with the attributes of the request before the name and those of the view before its type. Default and bounds are in
/// the schema as well.
macro_rules! options {
    ($(
        $(#[$given_attribute:meta])*
        $name:ident: $given:ty $(= $default:tt)? $(, from $least:tt to $most:tt)? $(, at most $top:tt)?
            => $(#[$shown_attribute:meta])* $shown:ty;
    )*) => {
        /// An endpoint version, as `stoke deploy` sends it.
        #[derive(Deserialize, ToSchema)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct DeployRequest {
            /// The endpoint's name: 1 to 63 of a-z, 0-9 and -, not starting with -.
            #[schema(pattern = "^[a-z0-9][a-z0-9-]{0,62}$")]
            pub(super) name: String,
            /// The share of new jobs for this version, 0 to 100 percent; the current version gets the rest. Default
            /// 100: this version becomes the current one. The first version always gets all jobs.
            #[schema(maximum = 100, default = 100)]
            pub(super) traffic_percent: Option<u32>,
            $(
                $(#[$given_attribute])*
                $(#[schema(default = $default)])?
                $(#[schema(minimum = $least, maximum = $most)])?
                $(#[schema(maximum = $top)])?
                pub(super) $name: $given,
            )*
        }

        /// A version of an endpoint. Versions never change.
        #[derive(Serialize, ToSchema)]
        #[schema(as = EndpointVersion)]
        pub(crate) struct VersionView {
            name: String,
            /// 1, 2, 3, ...
            version: u32,
            /// When it was deployed, RFC 3339.
            created_at: String,
            $($(#[$shown_attribute])* $name: $shown,)*
        }

        impl DeployRequest {
            /// Converts the request to the specification of the version, if each option is within its bounds.
            pub(super) fn stored(self) -> Result<EndpointSpec, Problem> {
                let spec = EndpointSpec {
                    $($name: Given::stored(
                        self.$name $(.unwrap_or($default as _))?,
                        concat!("/", stringify!($name)),
                    )?,)*
                };
                $(
                    $(within(stringify!($name), spec.$name, $least as _, $most as _)?;)?
                    $(at_most(stringify!($name), spec.$name, $top)?;)?
                )*
                Ok(spec)
            }
        }

        impl From<EndpointVersion> for VersionView {
            fn from(EndpointVersion { name, version, created_ms, spec }: EndpointVersion) -> Self {
                let is_batched = spec.max_batch_size > 1;
                let mut view = Self {
                    name,
                    version,
                    created_at: rfc3339(created_ms),
                    $($name: Shown::shown(spec.$name),)*
                };
                if !is_batched {
                    view.max_wait_ms = None;
                }
                view
            }
        }
    };
}

options! {
    /// The uploaded package, see `POST /v1/packages`.
    package_sha256: String => String;
    /// The package's size.
    package_size_bytes: u64 => u64;
    /// What the worker starts. Default `{"kind": "python"}`.
    #[serde(default)]
    runner: RunnerView => #[serde(skip_serializing_if = "RunnerView::is_python")] RunnerView;
    /// `file.py:object` inside the package; each runner kind other than `python` describes its own format.
    #[serde(default)]
    entry: String => String;
    /// The locked requirements, one per line: `name==version`, or `name @ https://...` with a hash, each optionally
    /// with a marker and `--hash=sha256:...`, and `--index-url` lines. Indexes and URLs must be below those that the
    /// operator allows. Up to 512 KiB. No other `requirements.txt` syntax is allowed.
    #[serde(default)]
    requirements_lock: String => String;
    /// The Python version, e.g. `3.11`; empty means the worker's own.
    #[serde(default)]
    python: String => String;
    /// Whether runners have network access. Default false: only loopback, on workers that can enforce it.
    #[schema(default = false)]
    #[serde(default)]
    network: bool => bool;
    /// Environment variables of the runners: up to 64, each at most 4 KiB.
    #[serde(default)]
    env: BTreeMap<String, String>
        => #[serde(skip_serializing_if = "BTreeMap::is_empty")] BTreeMap<String, String>;
    /// Names of secrets that runners receive as environment variables: up to 32. They must exist.
    #[schema(max_items = 32)]
    #[serde(default)]
    secrets: Vec<String> => #[serde(skip_serializing_if = "Vec::is_empty")] Vec<String>;
    /// Files that runners find in the folder `STOKE_WEIGHTS`: up to 1,000.
    #[schema(max_items = 1_000)]
    #[serde(default)]
    weights: Vec<WeightView> => #[serde(skip_serializing_if = "Vec::is_empty")] Vec<WeightView>;
    /// Whether weights may contain pickles, which run code when they are loaded. They are scanned, and loaded without
    /// network on workers with a sandbox. Default false.
    #[schema(default = false)]
    #[serde(default)]
    allow_pickle: bool => #[serde(skip_serializing_if = "Not::not")] bool;
    /// The JSON Schema of the input. It must not refer to other documents.
    #[schema(value_type = serde_json::Value)]
    input_schema: Value => #[schema(value_type = serde_json::Value)] Value;
    /// The JSON Schema of the result.
    #[serde(default)]
    #[schema(value_type = serde_json::Value)]
    output_schema: Value => #[schema(value_type = serde_json::Value)] Value;
    /// The VRAM needed on one GPU, GiB, 0 to 384; 0 runs on the CPU.
    #[schema(minimum = 0, maximum = 384, default = 0)]
    #[serde(default)]
    vram_gib: f64 => f64;
    /// The share of the memory that the model takes on any GPU, more than 0 and at most 1, for engines that fill the
    /// memory they are given; `vram_gib` is then the minimum. The memory of such an endpoint is never learned. Default:
    /// the model takes what it needs.
    #[schema(exclusive_minimum = 0, maximum = 1)]
    vram_fraction: Option<f64> => #[serde(skip_serializing_if = "Option::is_none")] Option<f64>;
    /// Other requirements for workers.
    #[serde(default)]
    demands: RequirementsRequest
        => #[serde(skip_serializing_if = "Requirements::ask_nothing")] #[schema(value_type = RequirementsRequest)] Requirements;
    /// Jobs that one runner runs concurrently; more than 1 only for async handlers. Default 1.
    max_concurrency: Option<u32> = 1, from 1 to 1_000 => u32;
    /// Jobs that one call of the handler takes, 1 to 256; more than 1 only for handlers written for batches. Default 1.
    max_batch_size: Option<u32> = 1, from 1 to 256
        => #[serde(skip_serializing_if = "is_one")] #[schema(value_type = Option<u32>)] u32;
    /// How long the first job of a call waits for others, 0 to 10,000 milliseconds. Default 0.
    max_wait_ms: Option<f64> = 0, from 0 to 10_000
        => #[serde(skip_serializing_if = "Option::is_none")] Option<f64>;
    /// How long the model stays loaded after its last job although others need the memory, 0 to 86,400 seconds. Default
    /// 0.
    #[schema(default = 0)]
    #[serde(default)]
    keep_warm_s: u64, at most 86_400
        => #[serde(skip_serializing_if = "is_zero")] #[schema(value_type = Option<u64>)] u64;
    /// How many workers keep the model loaded without jobs, 0 to 1,000. Default 0.
    #[schema(default = 0)]
    #[serde(default)]
    min_warm: u32, at most 1_000
        => #[serde(skip_serializing_if = "is_zero")] #[schema(value_type = Option<u32>)] u32;
    /// The priority of jobs that set none. Default `standard`.
    #[schema(value_type = Option<PriorityWord>)]
    priority: Option<Priority>
        => #[serde(skip_serializing_if = "Option::is_none")] #[schema(value_type = Option<PriorityWord>)]
        Option<Priority>;
    /// The longest run of jobs that set none, seconds. Default 600.
    timeout_s: Option<u64> = 600, from 1 to 604_800 => u64;
    /// How long after the submit jobs that set none may take to start, seconds; then they expire. Default 604,800 (7
    /// days).
    queue_timeout_s: Option<u64>, from 1 to 2_592_000
        => #[serde(skip_serializing_if = "Option::is_none")] Option<u64>;
    /// The number of attempts of jobs that set none. Default 3.
    max_attempts: Option<u32> = 3, from 1 to 100 => u32;
    /// When and after which errors jobs are retried.
    retry: Option<RetryRequest> => #[serde(skip_serializing_if = "Option::is_none")] Option<RetryRequest>;
    /// Up to 8 inputs that a worker runs once before the first job; the GPU memory they use replaces `vram_gib` on that
    /// worker.
    #[serde(default)]
    #[schema(value_type = Vec<serde_json::Value>, max_items = 8)]
    warmup: Vec<Value>
        => #[serde(skip_serializing_if = "Vec::is_empty")] #[schema(value_type = Vec<serde_json::Value>)] Vec<Value>;
    /// Up to 8 endpoints that must allow an input before it runs.
    #[schema(max_items = 8)]
    #[serde(default)]
    before: Vec<StepRequest> => #[serde(skip_serializing_if = "Vec::is_empty")] Vec<StepRequest>;
    /// Up to 8 endpoints that must allow an output before it is returned.
    #[schema(max_items = 8)]
    #[serde(default)]
    after: Vec<StepRequest> => #[serde(skip_serializing_if = "Vec::is_empty")] Vec<StepRequest>;
    /// What the endpoint answers below `/openai/v1`: `chat`, `embeddings`, `images` or `none`. Default: a server answers
    /// the call that its `path` names, or every call if it has no `path`; other kinds answer none.
    #[schema(value_type = Option<OpenAiApiWord>)]
    openai: Option<OpenAiApi>
        => #[serde(skip_serializing_if = "Option::is_none")] #[schema(value_type = Option<OpenAiApiWord>)]
        Option<OpenAiApi>;
    /// Other names of the endpoint below `/openai/v1`: up to 16, each of up to 200 characters without `@`.
    #[schema(max_items = 16)]
    #[serde(default)]
    openai_models: Vec<String> => #[serde(skip_serializing_if = "Vec::is_empty")] Vec<String>;
    /// What the endpoint's own server calls its model, e.g. `Qwen/Qwen3-8B`: it replaces `model` in calls below
    /// `/openai/v1`. Default: the name in the call, without its version.
    openai_served_model: Option<String> => #[serde(skip_serializing_if = "Option::is_none")] Option<String>;
}
