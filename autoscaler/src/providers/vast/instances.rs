//! The list of rentals: every page of it, or an error. A response that may be incomplete is not a list.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use stokehold_units::UsdMicros;
use stokehold_vast::{Status, field, path, state};
use tokio::time::Instant;

use super::api::{Api, Error, request};
use super::error::{ErrorResponse, number};
use super::pace::Endpoint;
use super::transport::Method;
use crate::provider::{Rental, RentalState};

/// Cache TTL of a list, so that several calls within a round cost one.
const FRESH_FOR: Duration = Duration::from_secs(5);

/// Maximum number of rows of a page at Vast.ai.
const ROWS_MAX: usize = 25;

/// Maximum number of pages: a thousand rentals, at one page a second within the timeout of a call.
const PAGES_MAX: usize = 40;

/// Parts of status messages of containers that will never run.
const BROKEN: [&str; 9] = [
    "oci runtime create failed",
    "pull access denied",
    "repository does not exist",
    "manifest unknown",
    "manifest for",
    "unauthorized",
    "no such image",
    "error response from daemon",
    "failed to pull",
];

/// The last list.
#[derive(Debug, Default)]
pub(super) struct Listed {
    good: Option<Good>,
}

#[derive(Debug)]
struct Good {
    at: Instant,
    /// Number of changes requested before the list was.
    changes: u64,
    rentals: Vec<Rental>,
}

impl Listed {
    /// Returns the rentals. A list from before the last of the `changes` is read again.
    pub(super) async fn rentals(&mut self, api: &Api, prefix: &str, changes: u64) -> Result<Vec<Rental>, Error> {
        if let Some(good) = &self.good
            && good.at.elapsed() < FRESH_FOR
            && good.changes == changes
        {
            return Ok(good.rentals.clone());
        }
        let mut found = all(api, prefix).await?;
        let before = self.good.as_ref().map(|good| good.rentals.as_slice()).unwrap_or_default();
        if before.iter().any(|rental| !found.contains_key(&rental.id)) {
            // A list may lack a machine by mistake, and a missing machine is given up. A machine must therefore be
            // missing from two lists.
            let again = all(api, prefix).await?;
            found.extend(again);
        }
        let rentals: Vec<Rental> = found.into_values().collect();
        self.good = Some(Good { at: Instant::now(), changes, rentals: rentals.clone() });
        Ok(rentals)
    }
}

/// Reads all pages, sorted by ID.
async fn all(api: &Api, prefix: &str) -> Result<BTreeMap<String, Rental>, Error> {
    let (mut ids, mut ours) = (BTreeSet::new(), BTreeMap::new());
    let (mut token, mut tokens): (Option<String>, BTreeSet<String>) = (None, BTreeSet::new());
    for _ in 0..PAGES_MAX {
        let mut asked = request(Method::Get, path::LIST, None);
        asked.query.push((field::SELECT_FILTERS, "{}".to_owned()));
        asked.query.push((field::ORDER_BY, r#"[{"col":"id","dir":"asc"}]"#.to_owned()));
        asked.query.push(("limit", ROWS_MAX.to_string()));
        asked.query.extend(token.take().map(|token| (field::AFTER_TOKEN, token)));
        let page = api.again(Endpoint::List, asked).await?;
        let rows = page.get("instances").and_then(Value::as_array).ok_or_else(|| unsure("it is no list"))?;
        for row in rows {
            let (id, rental) = rental(row, prefix).ok_or_else(|| unsure("a row cannot be read"))?;
            ids.insert(id);
            ours.extend(rental.map(|rental| (rental.id.clone(), rental)));
        }
        let (found, total) = (count(&page, field::INSTANCES_FOUND)?, count(&page, field::TOTAL_INSTANCES)?);
        if found.is_none() && total.is_none() {
            return Err(unsure("it does not say how many there are").into());
        }
        if found.is_some_and(|found| found != rows.len() && Some(found) != total) {
            return Err(unsure("it says another number than it holds").into());
        }
        token = match page.get(field::NEXT_TOKEN) {
            None | Some(Value::Null) => None,
            Some(Value::String(next)) if !next.is_empty() => Some(next.clone()),
            Some(Value::String(_)) => None,
            Some(_) => return Err(unsure("it goes on in a way that cannot be read").into()),
        };
        match &token {
            None if total.is_some_and(|total| total != ids.len()) => {
                return Err(unsure("not all were listed, or more than there are").into());
            }
            None => return Ok(ours),
            Some(next) if !tokens.insert(next.clone()) => return Err(unsure("its pages go round").into()),
            Some(_) => {}
        }
    }
    Err(unsure("it has too many pages").into())
}

fn unsure(why: &str) -> ErrorResponse {
    ErrorResponse::unreadable(format!("the list of instances: {why}"))
}

/// Reads a number of rows. Any other type makes the list invalid.
fn count(page: &super::api::Object, member: &str) -> Result<Option<usize>, ErrorResponse> {
    match page.get(member) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
            count.map(Some).ok_or_else(|| unsure("a number in it is none"))
        }
    }
}

/// ID of a row, and the rental if the row is ours. `None` if the row cannot be read, because it may be ours.
fn rental(row: &Value, prefix: &str) -> Option<(u64, Option<Rental>)> {
    let id = number(row.get("id"))?;
    let label = match row.get("label") {
        None | Some(Value::Null) => None,
        Some(Value::String(label)) => Some(label),
        Some(_) => return None,
    };
    let rental = label.and_then(|label| label.trim().strip_prefix(prefix)).map(|label| Rental {
        id: id.to_string(),
        label: label.to_owned(),
        state: state(row),
        usd_per_hour: usd_per_hour(row),
    });
    Some((id, rental))
}

/// Price per hour of a running row with its disk.
pub(super) fn usd_per_hour(row: &Value) -> Option<UsdMicros> {
    let number = |member: &str| row.get(member).and_then(Value::as_f64);
    number(field::DPH_TOTAL)
        .or_else(|| number(field::DPH_BASE))
        .filter(|usd| usd.is_finite() && *usd >= 0.0)
        .map(UsdMicros::from_usd)
}

/// State of a row. It does not show whether we stopped the machine; callers have that information.
fn state(row: &Value) -> RentalState {
    let word = |member: &str| row.get(member).and_then(Value::as_str).unwrap_or_default().trim().to_lowercase();
    let (intended, actual, contract) =
        (word(field::INTENDED_STATUS), word(field::ACTUAL_STATUS), word(field::CUR_STATE));
    let is_broken = || {
        let message = word(field::STATUS_MSG);
        BROKEN.iter().any(|words| message.contains(words))
    };
    match Status::of(&actual) {
        // The host is offline; the wanted state does not matter.
        Some(Status::Unknown | Status::Offline) => RentalState::Lost,
        // The host may report the change with a delay.
        Some(Status::Running) if intended == state::STOPPED && contract == state::STOPPED => RentalState::Stopped,
        Some(Status::Running) => RentalState::Running,
        _ if intended == state::STOPPED => RentalState::Stopped,
        // The machine occupies its GPUs at full price without use.
        Some(Status::Frozen) => RentalState::Broken,
        // The machine is about to resume, or waits for its GPUs.
        Some(Status::Stopped | Status::Exited) if contract == state::STOPPED => RentalState::Starting,
        Some(Status::Stopped | Status::Exited) => RentalState::Broken,
        _ if is_broken() => RentalState::Broken,
        // The machine has not started yet, or the word is unknown. The deadline of the boot applies.
        _ => RentalState::Starting,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::sync::Arc;

    use proptest::prelude::*;
    use serde_json::json as value;

    use super::super::error::ErrorKind;
    use super::super::scripted::{Scripted, Sent, json, lost, said, unsent};
    use super::super::transport::Transport;
    use super::*;
    use crate::secret::Secret;

    const PREFIX: &str = "stoke-a:";

    fn row(id: u64, label: &str) -> Value {
        value!({"id": id, "label": label, "actual_status": "running", "intended_status": "running", "dph_total": 0.25})
    }

    fn page(rows: &[Value], total: usize, next: Option<&str>) -> Sent {
        let found = rows.len();
        let page = value!({"success": true, "instances_found": found, "total_instances": total, "label_counts": {},
            "next_token": next, "instances": rows});
        json(200, page.to_string())
    }

    async fn listed(answers: Vec<Sent>) -> (Result<Vec<String>, Error>, Arc<Scripted>) {
        let script = Scripted::new(answers);
        let api = Api::new(Arc::clone(&script) as Arc<dyn Transport>, Secret::default());
        let rentals = Listed::default().rentals(&api, PREFIX, 0).await;
        (rentals.map(|rentals| rentals.into_iter().map(|rental| rental.label).collect()), script)
    }

    #[tokio::test(start_paused = true)]
    async fn all_pages_are_read_and_only_what_carries_our_name_is_ours() {
        let first: Vec<Value> = (0..25).map(|id| row(id, &format!("{PREFIX}m-{id}"))).collect();
        let second = [row(25, "stoke-ab:m-1"), row(26, ""), row(27, "m-27"), row(28, &format!("{PREFIX}m-28"))];
        let (labels, script) = listed(vec![page(&first, 29, Some("t1")), page(&second, 29, None)]).await;
        let labels = labels.unwrap();
        assert_eq!(labels.len(), 26, "{labels:?}");
        assert!(labels.contains(&"m-28".to_owned()) && !labels.contains(&"m-27".to_owned()));
        let asked = script.asked();
        assert!(!asked[0].query.iter().any(|(name, _)| *name == "after_token"));
        assert_eq!(asked[1].query.last().unwrap(), &("after_token", "t1".to_owned()));
        let unlabelled = value!({"id": 1, "label": null});
        assert_eq!(listed(vec![page(&[unlabelled], 1, None)]).await.0.unwrap(), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_empty_list_that_says_so_is_a_list() {
        assert_eq!(listed(vec![page(&[], 0, None)]).await.0.unwrap(), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn whatever_is_not_surely_all_of_it_is_no_list() {
        let good = || row(1, "stoke-a:m-1");
        let text = |text: &str| vec![json(200, text)];
        let table = [
            ("nothing at all", text("")),
            ("a page of HTML", vec![said(200, "<html></html>")]),
            ("null", text("null")),
            ("an array", text("[]")),
            ("no list", text(r#"{"success":true,"total_instances":0}"#)),
            ("null for a list", text(r#"{"success":true,"instances":null,"total_instances":0}"#)),
            ("a singular", text(r#"{"instances":{"id":1},"total_instances":1}"#)),
            ("no numbers", text(r#"{"success":true,"instances":[]}"#)),
            ("a number that is none", text(r#"{"instances":[],"total_instances":"none"}"#)),
            ("success false", text(r#"{"success":false,"instances":[],"total_instances":0}"#)),
            ("fewer rows than it says", vec![page(&[good()], 2, None)]),
            ("more rows than it says", vec![page(&[good(), row(2, "x")], 1, None)]),
            ("an empty list of three", vec![page(&[], 3, None)]),
            ("found", text(r#"{"instances":[],"instances_found":3,"total_instances":0}"#)),
            ("a row without id", vec![page(&[value!({"label": "stoke-a:m-1"})], 1, None)]),
            ("a label that is none", vec![page(&[value!({"id": 1, "label": 7})], 1, None)]),
            ("a row twice", vec![page(&[good(), good()], 2, None)]),
            ("pages that go round", vec![page(&[good()], 3, Some("t")), page(&[row(2, "x")], 3, Some("t"))]),
            ("a strange token", text(r#"{"instances":[],"total_instances":0,"next_token":7}"#)),
            ("a second page that fails", vec![page(&[good()], 2, Some("t")), json(400, r#"{"error":"x"}"#)]),
            ("a second page that is lost", vec![page(&[good()], 2, Some("t")), lost(), unsent(), lost()]),
            ("404", vec![json(404, r#"{"msg":"Invalid user key"}"#)]),
            ("401", vec![json(401, "")]),
            ("429", vec![said(429, "too frequent"), said(429, ""), said(429, "")]),
            ("503", vec![said(503, ""), said(503, ""), said(503, "")]),
            ("silence", vec![]),
        ];
        for (what, answers) in table {
            let (labels, _) = listed(answers).await;
            assert!(labels.is_err(), "{what}: {labels:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_is_asked_for_once_in_five_seconds_unless_something_was_changed() {
        let (a, b) = (row(1, "stoke-a:m-1"), row(2, "stoke-a:m-2"));
        let script = Scripted::new([
            page(std::slice::from_ref(&a), 1, None),
            page(&[a.clone(), b.clone()], 2, None),
            page(&[a, b], 2, None),
        ]);
        let api = Api::new(Arc::clone(&script) as Arc<dyn Transport>, Secret::default());
        let mut listed = Listed::default();
        for _ in 0..3 {
            assert_eq!(listed.rentals(&api, PREFIX, 0).await.unwrap().len(), 1);
        }
        assert_eq!(script.count(), 1);
        assert_eq!(listed.rentals(&api, PREFIX, 1).await.unwrap().len(), 2);
        tokio::time::advance(FRESH_FOR).await;
        listed.rentals(&api, PREFIX, 1).await.unwrap();
        assert_eq!(script.count(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_missing_from_one_list_is_still_there_and_who_is_from_two_is_not() {
        let (a, b) = (row(1, "stoke-a:m-1"), row(2, "stoke-a:m-2"));
        let both = || page(&[a.clone(), b.clone()], 2, None);
        let one = || page(std::slice::from_ref(&a), 1, None);
        let script = Scripted::new([both(), one(), both(), one(), one()]);
        let api = Api::new(Arc::clone(&script) as Arc<dyn Transport>, Secret::default());
        let mut listed = Listed::default();
        for (expected, requests) in [(2, 1), (2, 3), (1, 5)] {
            assert_eq!(listed.rentals(&api, PREFIX, 0).await.unwrap().len(), expected);
            assert_eq!(script.count(), requests);
            tokio::time::advance(FRESH_FOR).await;
        }
    }

    #[test]
    fn states_are_what_follows_from_what_is_wanted_and_what_is() {
        use RentalState as S;
        let table = [
            ("running", None, "running", "", S::Starting),
            ("running", Some("created"), "running", "", S::Starting),
            ("running", Some("loading"), "running", "Pulling", S::Starting),
            ("running", Some("rebooting"), "running", "", S::Starting),
            ("running", Some("hibernating"), "running", "", S::Starting),
            ("running", Some("running"), "running", "success, running x/args", S::Running),
            ("running", Some("created"), "running", "Error: OCI runtime create failed: x", S::Broken),
            ("running", Some("loading"), "running", "pull access denied for x", S::Broken),
            ("running", Some("exited"), "running", "success, running x/args", S::Broken),
            ("running", Some("frozen"), "running", "", S::Broken),
            ("running", Some("offline"), "running", "", S::Lost),
            ("running", Some("unknown"), "running", "", S::Lost),
            ("stopped", Some("offline"), "stopped", "", S::Lost),
            // Stopped by us, or outbid: rows of both kinds had all of these values.
            ("stopped", Some("stopped"), "stopped", "", S::Stopped),
            ("stopped", Some("exited"), "stopped", "success, running x/args", S::Stopped),
            ("stopped", Some("loading"), "stopped", "", S::Stopped),
            ("stopped", None, "stopped", "", S::Stopped),
            ("stopped", Some("running"), "stopped", "", S::Stopped),
            ("stopped", Some("running"), "running", "", S::Running),
            // The start was requested again; another customer may have the GPUs.
            ("running", Some("exited"), "stopped", "", S::Starting),
            ("running", Some("stopped"), "stopped", "", S::Starting),
        ];
        for (intended, actual, contract, said, expected) in table {
            let row = value!({"intended_status": intended, "actual_status": actual, "cur_state": contract, "status_msg": said});
            assert_eq!(state(&row), expected, "{row}");
        }
        assert_eq!(state(&value!({"actual_status": 7})), S::Starting);
    }

    #[test]
    fn a_list_that_cannot_be_read_is_known_as_such() {
        assert_eq!(Error::from(unsure("x")).kind(), Some(ErrorKind::Unreadable));
    }

    proptest! {
        #[test]
        fn no_row_is_too_strange(
            member in prop::sample::select(vec!["id", "label", "actual_status", "intended_status", "status_msg", "dph_total"]),
            value in prop_oneof![any::<f64>().prop_map(|n| value!(n)), ".{0,20}".prop_map(|t| value!(t)), Just(value!([1]))],
        ) {
            let mut row = row(1, "stoke-a:m-1");
            row[member] = value;
            drop(rental(&row, PREFIX));
        }
    }
}
