//! Dependencies of a job: `depends_on`, and references to other jobs' results in an input.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stokehold_queue::JobId;
use stokehold_queue::job::{Dependency, DependencyOn};
use stokehold_queue::pipeline::{REFERENCE, references};
use utoipa::ToSchema;

use crate::error::FieldError;
use crate::jobs::words::DependencyOnWord;

const DEPENDENCIES_MAX: usize = 100;

/// A job to wait for: its id, or `#<n>` for the n-th job of the same bulk call, counted from 0.
#[derive(Clone, Deserialize, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum DependencyRequest {
    /// The job must succeed.
    Id(String),
    /// A job and the end to wait for.
    Full {
        /// As above.
        job: String,
        /// `success` or `completion`.
        #[serde(default)]
        #[schema(value_type = DependencyOnWord)]
        on: DependencyOn,
    },
}

/// Returns whether an input refers to results that do not exist yet.
pub(crate) fn refers(input: &Value) -> bool {
    !references(input).is_empty()
}

/// Reads the jobs on which a job depends. Resolves references in `input` to IDs, and adds their jobs to the
/// dependencies.
pub(crate) fn read(
    asked: Vec<DependencyRequest>,
    input: &mut Value,
    before: &[JobId],
    at: &str,
) -> Result<Vec<Dependency>, FieldError> {
    let mut found: Vec<Dependency> = Vec::new();
    for (n, asked) in asked.into_iter().enumerate() {
        let (text, on) = match asked {
            DependencyRequest::Id(text) => (text, DependencyOn::Success),
            DependencyRequest::Full { job, on } => (job, on),
        };
        let job = named(&text, before, &format!("{at}/depends_on/{n}"))?;
        match found.iter_mut().find(|known| known.job == job) {
            Some(known) if known.on != on => {
                return Err(FieldError::new(format!("{at}/depends_on/{n}"), "names a job twice with different `on`"));
            }
            Some(_) => {}
            None => found.push(Dependency { job, on }),
        }
    }
    name_references(input, before, &format!("{at}/input"))?;
    for id in references(input) {
        if let Ok(job) = id.parse::<JobId>()
            && !found.iter().any(|known| known.job == job)
        {
            found.push(Dependency { job, on: DependencyOn::Success });
        }
    }
    if found.len() > DEPENDENCIES_MAX {
        let message =
            format!("a job may wait for at most {DEPENDENCIES_MAX} others, but this one names {}", found.len());
        return Err(FieldError::new(format!("{at}/depends_on"), message));
    }
    Ok(found)
}

fn named(text: &str, before: &[JobId], at: &str) -> Result<JobId, FieldError> {
    if let Some(number) = text.strip_prefix('#') {
        return number.parse().ok().and_then(|n: usize| before.get(n)).copied().ok_or_else(|| {
            let message = "must name a job that comes earlier in the same bulk call; \"#0\" is the first";
            FieldError::new(at, message)
        });
    }
    text.parse().map_err(|error| FieldError::new(at, format!("{error}, or \"#<n>\" in a bulk call")))
}

fn name_references(value: &mut Value, before: &[JobId], at: &str) -> Result<(), FieldError> {
    match value {
        Value::Object(members) => {
            let Some(reference) = members.get_mut(REFERENCE) else {
                return members
                    .iter_mut()
                    .try_for_each(|(name, value)| name_references(value, before, &format!("{at}/{name}")));
            };
            let Value::String(text) = reference else {
                return Err(FieldError::new(format!("{at}/{REFERENCE}"), "must be a job's id"));
            };
            *text = named(text, before, &format!("{at}/{REFERENCE}"))?.to_string();
            let pointer = members.get("pointer");
            let sound = pointer.is_none_or(|it| it.as_str().is_some_and(|it| it.is_empty() || it.starts_with('/')));
            if !sound || members.len() > 1 + usize::from(pointer.is_some()) {
                let message = "a reference is {\"$job\": id} or {\"$job\": id, \"pointer\": \"/a/b\"}, where pointer is a JSON pointer";
                return Err(FieldError::new(at, message));
            }
            Ok(())
        }
        Value::Array(items) => {
            items.iter_mut().enumerate().try_for_each(|(n, value)| name_references(value, before, &format!("{at}/{n}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ids() -> Vec<JobId> {
        vec![JobId::new(0), JobId::new(0)]
    }

    #[test]
    fn numbers_become_ids_and_references_are_waited_for() {
        let before = ids();
        let mut input = json!({"a": {"$job": "#1", "pointer": "/x"}, "b": [{"$job": "#0"}]});
        let asked = vec![DependencyRequest::Full { job: "#0".into(), on: DependencyOn::Completion }];
        let found = read(asked, &mut input, &before, "").unwrap();
        assert_eq!(input["a"]["$job"], before[1].to_string());
        assert_eq!(
            found,
            [
                Dependency { job: before[0], on: DependencyOn::Completion },
                Dependency { job: before[1], on: DependencyOn::Success }
            ]
        );
    }

    #[test]
    fn mistakes_are_named_where_they_are() {
        let wrong = |asked: Vec<DependencyRequest>, mut input: Value| {
            format!("{:?}", read(asked, &mut input, &ids(), "/jobs/2").err().unwrap())
        };
        assert!(wrong(vec![DependencyRequest::Id("#2".into())], json!(1)).contains("/jobs/2/depends_on/0"));
        assert!(wrong(vec![DependencyRequest::Id("x".into())], json!(1)).contains("32 lower-case hex digits"));
        assert!(wrong(vec![], json!({"a": {"$job": 7}})).contains("/jobs/2/input/a/$job"));
        assert!(wrong(vec![], json!({"a": {"$job": "#0", "path": "x"}})).contains("JSON pointer"));
    }
}
