//! Links between operations: the ID in one response is the parameter of the next call. They are for readers, and for
//! tests that follow them.

use utoipa::Modify;
use utoipa::openapi::link::LinkBuilder;
use utoipa::openapi::path::Operation;
use utoipa::openapi::{OpenApi, RefOr};

/// Links: a value in these operations' 2xx responses is a parameter of those operations.
type Leads = (&'static [&'static str], &'static str, &'static str, &'static [&'static str]);

const JOB: &[&str] = &["get_job", "cancel_job", "follow_job", "get_job_result", "retry_job", "give_feedback"];

const LEADS: &[Leads] = &[
    (&["submit_job", "retry_job"], "/id", "id", JOB),
    (&["submit_jobs"], "/ids/0", "id", JOB),
    (&["list_jobs"], "/jobs/0/id", "id", &["get_job"]),
    (
        &["create_batch", "retry_batch"],
        "/id",
        "id",
        &["get_batch", "cancel_batch", "get_batch_results", "get_batch_errors", "retry_batch"],
    ),
    (&["create_batch"], "/id", "batch", &["list_jobs"]),
    (&["create_schedule"], "/id", "id", &["get_schedule", "pause_schedule", "resume_schedule", "delete_schedule"]),
    (&["create_schedule"], "/id", "schedule", &["list_jobs"]),
    (&["create_file", "upload_file"], "/id", "id", &["get_file"]),
    (&["deploy_endpoint"], "/name", "name", &["get_endpoint", "list_endpoint_versions"]),
    (&["list_webhook_deliveries"], "/deliveries/0/id", "id", &["get_webhook_delivery", "replay_webhook_delivery"]),
];

pub(super) struct Links;

impl Modify for Links {
    fn modify(&self, api: &mut OpenApi) {
        for operation in api.paths.paths.values_mut().flat_map(|item| [&mut item.get, &mut item.post]).flatten() {
            let id = operation.operation_id.clone().unwrap_or_default();
            for (_, place, parameter, to) in LEADS.iter().filter(|(from, ..)| from.contains(&id.as_str())) {
                for target in *to {
                    lead(operation, place, parameter, target);
                }
            }
        }
    }
}

fn lead(operation: &mut Operation, place: &str, parameter: &str, target: &str) {
    for (status, response) in &mut operation.responses.responses {
        if let (true, RefOr::T(response)) = (status.starts_with('2'), response) {
            let link = LinkBuilder::new().operation_id(target).parameter(parameter, format!("$response.body#{place}"));
            response.links.insert(target.to_owned(), RefOr::T(link.build()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    #[test]
    fn every_link_starts_and_ends_at_an_operation() {
        let document: Value = serde_json::from_str(super::super::json()).unwrap();
        let operations =
            document["paths"].as_object().unwrap().values().flat_map(|item| item.as_object().unwrap().values());
        let ids: BTreeSet<&str> = operations.filter_map(|operation| operation["operationId"].as_str()).collect();
        for (from, _, _, to) in LEADS {
            assert!(from.iter().chain(*to).all(|id| ids.contains(id)), "{from:?} to {to:?}");
        }
        let links = &document["paths"]["/v1/jobs"]["post"]["responses"]["202"]["links"];
        assert_eq!(links["get_job"]["parameters"]["id"], "$response.body#/id");
    }
}
