//! Descriptions of responses that many routes share.

use std::collections::BTreeMap;

use utoipa::IntoResponses;
use utoipa::openapi::response::{Response, ResponseBuilder};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponsesBuilder};

/// The problems that every route with a token may return besides its own.
pub(crate) struct Problems;

impl IntoResponses for Problems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let described = |text: &str| -> RefOr<Response> {
            let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
            RefOr::T(ResponseBuilder::new().description(text).content("application/problem+json", content).build())
        };
        [
            ("400", "The request is not valid; `code` and `errors` give the reason."),
            ("401", "`unauthorized`: the token is missing or not valid."),
            ("403", "`forbidden`: the token lacks a scope. `tenant_disabled`: an operator has disabled its tenant."),
            ("404", "`not_found`, `unknown_endpoint` or `unknown_version`."),
            ("429", "`queue_full` or `rate_limited`: see `Retry-After`. `quota_exceeded`: the tenant is at a limit, which `detail` names."),
            ("500", "`internal`: a defect in Stokehold."),
            ("503", "`unavailable`: the outcome is unknown; repeating with the same idempotency key is safe."),
        ]
        .into_iter()
        .fold(ResponsesBuilder::new(), |responses, (status, text)| responses.response(status, described(text)))
        .build()
        .into()
    }
}
