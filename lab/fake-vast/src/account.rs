//! The account: credit, charges and the log of calls.

use serde_json::{Value, json};
use stokehold_vast::field;

use crate::kinds::KINDS;
use crate::market::Market;
use crate::money::Account;
use crate::search::number;
use crate::wire::{Answer, Request};

const MAX_PAGE: usize = 500;
const PAGE: usize = 20;
const DAY_S: u64 = 86_400;

impl Market {
    pub(crate) fn user(&mut self) -> Answer {
        let credit = self.balance.credit_usd();
        Answer::json(
            200,
            &json!({
                "id": 42, "username": "fake", "email": "fake@example.com", "fullname": "Fake", "credit": credit,
                "balance": 0.0, "total_spend": -self.balance.spent().usd(), "balance_threshold": 0.0,
                "balance_threshold_enabled": false, "has_billing": self.settings.has_payment_card, "has_payout": false,
                "host_agreement_accepted": false, "host_only": false, "ssh_key": "", "api_key_id": 1,
                "email_verified": true, "tfa_enabled": false, "billing_creditonly": 0, "can_pay": true, "rights": {},
            }),
        )
    }

    /// Charges of each contract on the requested days.
    pub(crate) fn charges(&mut self, request: &Request) -> Answer {
        self.settle();
        let asked: Value =
            request.query(field::SELECT_FILTERS).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let Some(days) = asked["day"].as_object() else {
            return Answer::error(400, "invalid_args", "select_filters needs day");
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds")]
        let second = |name: &str, other: u64| number(days.get(name)).map_or(other, |at| at.max(0.0) as u64);
        let (from_s, to_s) = (second("gte", 0), second("lte", u64::MAX));
        let is_wanted = asked["type"]["in"].as_array().is_none_or(|kinds| kinds.iter().any(|kind| kind == "instance"));
        let live = self.instances.values().map(|one| (one.id, &one.order.label, &one.account));
        let past = self.past.iter().map(|(id, one)| (*id, &one.label, &one.account));
        let mut rows: Vec<(u64, Value)> = live
            .chain(past)
            .filter(|_| is_wanted)
            .filter_map(|(id, label, account)| Some((id, charge(id, label.as_deref(), account, from_s, to_s)?)))
            .collect();
        rows.sort_by_key(|(id, _)| *id);
        if request.query(field::LATEST_FIRST).is_some_and(|text| text.eq_ignore_ascii_case("true")) {
            rows.reverse();
        }
        let limit = request.query("limit").and_then(|text| text.parse().ok()).unwrap_or(PAGE).clamp(1, MAX_PAGE);
        let from = match request.query(field::AFTER_TOKEN).map(|token| usize::from_str_radix(token, 16)) {
            None => 0,
            Some(Ok(from)) => from,
            Some(Err(_)) => return Answer::error(400, "invalid_token", "after_token is not known"),
        };
        let total = rows.len();
        let page: Vec<Value> = rows.into_iter().skip(from).take(limit).map(|(_, row)| row).collect();
        let next = (from + page.len() < total).then(|| format!("{:x}", from + page.len()));
        let count = page.len();
        Answer::json(
            200,
            &json!({"success": true, "count": count, "total": total, (field::NEXT_TOKEN): next, "results": page}),
        )
    }

    pub(crate) fn gpu_names() -> Answer {
        let mut names: Vec<&str> = KINDS.iter().map(|kind| kind.gpu_name).collect();
        names.sort_unstable();
        Answer::json(200, &json!({ (field::GPU_NAMES): names }))
    }

    pub(crate) fn audit(&mut self) -> Answer {
        let changes = self.log.calls().filter(|call| call.method != "GET");
        let row = |call: &crate::log::Call| {
            json!({
                "ip_address": "127.0.0.1", "api_key_id": 1, "created_at": call.at_s, "api_route": call.path,
                "args": {"method": call.method, "body": call.body}, "status": call.status,
            })
        };
        Answer::json(200, &json!(changes.map(row).collect::<Vec<_>>()))
    }
}

/// Row of one contract; `None` if nothing was charged on these days.
fn charge(id: u64, label: Option<&str>, account: &Account, from_s: u64, to_s: u64) -> Option<Value> {
    if from_s > to_s {
        return None;
    }
    let items = account.between(from_s, to_s);
    let first = *account.days.range(from_s..=to_s).next()?.0;
    let last = *account.days.range(from_s..=to_s).next_back()?.0;
    let gpu_ms: u64 = account.gpu_ms.range(from_s..=to_s).map(|(_, ms)| ms).sum();
    let hours = crate::time::seconds(gpu_ms) / 3600.0;
    let item = |kind: &str, usd: f64, description: &str| {
        json!({
            "start": first, "end": last, "type": kind, "source": null, "description": description, "amount": usd,
            "metadata": {}, "items": [],
        })
    };
    let mean = if hours > 0.0 { items.gpu.usd() / hours } else { 0.0 };
    let rows = [
        item("gpu", items.gpu.usd(), &format!("{hours:.3} hours at ${mean:.3}/hour")),
        item("disk", items.disk.usd(), "storage"),
        item(field::BWD, items.bwd.usd(), "bytes received"),
        item(field::BWU, items.bwu.usd(), "bytes sent"),
    ];
    let days = (last - first) / DAY_S + 1;
    Some(json!({
        "start": first, "end": last, "type": "instance", "source": format!("instance-{id}"),
        "description": format!("Instance {id} Charges - {days} days"), "amount": items.total().usd(),
        "metadata": {"label": label, "template_id": null}, "items": rows,
    }))
}
