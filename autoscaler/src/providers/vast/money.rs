//! Credit and charges.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use stokehold_queue::now_ms;
use stokehold_units::UsdMicros;
use stokehold_vast::{field, path};

use super::api::{Api, Error, Object, request};
use super::error::ErrorResponse;
use super::pace::Endpoint;
use super::transport::Method;
use crate::provider::Charge;

/// Granularity of charges: a day, UTC, seconds.
const DAY_S: u64 = 86_400;

/// Maximum number of rows of a page at Vast.ai.
const ROWS_MAX: usize = 500;

/// Maximum number of pages: twenty thousand rentals.
const PAGES_MAX: usize = 40;

/// Credit of the account; may be negative.
pub(super) async fn credit(api: &Api) -> Result<UsdMicros, Error> {
    // This path has no trailing slash.
    let user = api.again(Endpoint::User, request(Method::Get, path::USER, None)).await?;
    let credit = user.get("credit").and_then(Value::as_f64).filter(|credit| credit.is_finite());
    Ok(credit
        .map(UsdMicros::from_usd)
        .ok_or_else(|| ErrorResponse::unreadable("the credit of the account is not a number"))?)
}

/// Charges since the start of that day, for rentals that are ours or that the bill has no label of.
pub(super) async fn charges(api: &Api, prefix: &str, since_s: u64) -> Result<Vec<Charge>, Error> {
    let day = json!({"gte": since_s - since_s % DAY_S, "lte": now_ms() / 1_000});
    let filters = json!({"day": day, "type": {"in": ["instance"]}}).to_string();
    let mut charges: BTreeMap<String, Charge> = BTreeMap::new();
    let (mut rows_read, mut token, mut tokens) = (0_usize, None::<String>, BTreeSet::new());
    for _ in 0..PAGES_MAX {
        let mut asked = request(Method::Get, path::CHARGES, None);
        asked.query.push((field::SELECT_FILTERS, filters.clone()));
        asked.query.push((field::LATEST_FIRST, "false".to_owned()));
        asked.query.push(("limit", ROWS_MAX.to_string()));
        asked.query.extend(token.take().map(|token| (field::AFTER_TOKEN, token)));
        let page = api.again(Endpoint::Charges, asked).await?;
        let rows = page.get("results").and_then(Value::as_array).ok_or_else(|| unsure("they are no list"))?;
        for row in rows {
            let charge = charge(row, prefix).ok_or_else(|| unsure("a row cannot be read"))?;
            let Some(charge) = charge else { continue };
            match charges.get_mut(&charge.rental) {
                Some(sum) => {
                    sum.gpu_usd += charge.gpu_usd;
                    sum.disk_usd += charge.disk_usd;
                    sum.traffic_usd += charge.traffic_usd;
                    sum.label = sum.label.take().or(charge.label);
                }
                None => drop(charges.insert(charge.rental.clone(), charge)),
            }
        }
        rows_read += rows.len();
        token =
            page.get(field::NEXT_TOKEN).and_then(Value::as_str).filter(|token| !token.is_empty()).map(str::to_owned);
        match &token {
            None if total(&page).is_some_and(|total| total > rows_read) => {
                return Err(unsure("some are missing").into());
            }
            None => return Ok(charges.into_values().collect()),
            Some(next) if !tokens.insert(next.clone()) => return Err(unsure("their pages go round").into()),
            Some(_) => {}
        }
    }
    Err(unsure("they have too many pages").into())
}

fn unsure(why: &str) -> ErrorResponse {
    ErrorResponse::unreadable(format!("the charges: {why}"))
}

fn total(page: &Object) -> Option<usize> {
    page.get("total").and_then(Value::as_u64).and_then(|total| usize::try_from(total).ok())
}

/// Parses a row; `Some(None)` for a rental of others, `None` if it cannot be read.
fn charge(row: &Value, prefix: &str) -> Option<Option<Charge>> {
    let Some(rental) = row.get("source").and_then(Value::as_str)?.strip_prefix("instance-") else { return Some(None) };
    let label = match row.get("metadata").and_then(|metadata| metadata.get("label")).and_then(Value::as_str) {
        None | Some("") => None,
        Some(label) => match label.strip_prefix(prefix) {
            Some(ours) => Some(ours.to_owned()),
            None => return Some(None),
        },
    };
    let amount = usd(row)?;
    let (mut disk_usd, mut traffic_usd) = (UsdMicros::ZERO, UsdMicros::ZERO);
    for item in row.get("items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default() {
        match item.get("type").and_then(Value::as_str) {
            Some("disk") => disk_usd += usd(item)?,
            Some(field::BWD | field::BWU) => traffic_usd += usd(item)?,
            _ => {}
        }
    }
    // Everything except disk and traffic counts as GPUs, regardless of its name, so that the sum is the paid amount.
    let gpu_usd = amount - disk_usd - traffic_usd;
    Some(Some(Charge { rental: rental.to_owned(), label, gpu_usd: gpu_usd.at_least_zero(), disk_usd, traffic_usd }))
}

fn usd(row: &Value) -> Option<UsdMicros> {
    let amount = row.get("amount")?;
    amount.as_f64().or_else(|| amount.as_str()?.parse().ok()).filter(|usd| usd.is_finite()).map(UsdMicros::from_usd)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::sync::Arc;

    use super::super::scripted::{Scripted, Sent, json as answer};
    use super::super::transport::Transport;
    use super::*;
    use crate::secret::Secret;

    fn api(answers: Vec<Sent>) -> Api {
        Api::new(Scripted::new(answers) as Arc<dyn Transport>, Secret::default())
    }

    #[tokio::test(start_paused = true)]
    async fn credit_is_what_can_be_spent_and_not_the_balance() {
        let of = async |body: &str| credit(&api(vec![answer(200, body)])).await;
        assert_eq!(of(r#"{"credit": 12.5, "balance": 3.0}"#).await.unwrap(), UsdMicros::from_usd(12.5));
        assert_eq!(of(r#"{"credit": -0.2}"#).await.unwrap(), UsdMicros::from_usd(-0.2));
        for body in ["", "{}", r#"{"balance": 3.0}"#, r#"{"credit": null}"#] {
            assert!(of(body).await.is_err(), "{body}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn charges_are_summed_by_rental_and_kind_and_none_is_lost() {
        let row = |id: u64, label: Option<&str>, amount: f64, items: &[(&str, f64)]| {
            let items: Vec<Value> = items.iter().map(|(kind, usd)| json!({"type": kind, "amount": usd})).collect();
            json!({"source": format!("instance-{id}"), "amount": amount, "metadata": {"label": label}, "items": items})
        };
        let ours = Some("stoke-a:m-1");
        let page = |rows: &[Value], next: Option<&str>| {
            answer(200, json!({"success": true, "results": rows, "total": 5, "next_token": next}).to_string())
        };
        let first = [
            row(1, ours, 1.0, &[("gpu", 0.7), ("disk", 0.1), ("bwd", 0.15), ("bwu", 0.05)]),
            row(2, Some("mine"), 9.0, &[]),
            row(3, None, 0.5, &[("gpu", 0.2), ("disk", 0.1)]),
        ];
        let second = [row(1, ours, 0.5, &[("gpu", 0.5)]), json!({"source": "volume-4", "amount": 1.0})];
        let of = async |answers| charges(&api(answers), "stoke-a:", 1_000_000_000).await;
        let charges = of(vec![page(&first, Some("t")), page(&second, None)]).await.unwrap();
        assert_eq!(charges.len(), 2, "{charges:?}");
        let Charge { rental, label, gpu_usd, disk_usd, traffic_usd } = &charges[0];
        assert_eq!((rental.as_str(), label.as_deref()), ("1", Some("m-1")));
        assert_eq!([*gpu_usd, *disk_usd, *traffic_usd].map(UsdMicros::micros), [1_200_000, 100_000, 200_000]);
        assert_eq!(charges[1].gpu_usd, UsdMicros::from_usd(0.4), "what is called nothing is for the cards");
        assert!(of(vec![page(&first, None)]).await.is_err(), "two are missing");
        assert!(of(vec![answer(200, r#"{"results":[{"source":"instance-1"}],"total":1}"#)]).await.is_err());
        assert!(of(vec![answer(200, r#"{"success":true}"#)]).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn whole_days_are_asked_for() {
        let script = Scripted::new([answer(200, r#"{"results":[],"total":0,"next_token":null}"#)]);
        let api = Api::new(Arc::clone(&script) as Arc<dyn Transport>, Secret::default());
        assert_eq!(charges(&api, "stoke-a:", 1_000_000_123).await.unwrap(), []);
        assert!(script.asked()[0].query[0].1.contains(r#""gte":999993600"#), "{:?}", script.asked());
    }
}
