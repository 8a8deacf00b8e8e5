//! Searching offers, listing and showing instances.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::faults::Fault;
use crate::market::Market;
use crate::offers::Quote;
use crate::search::{Field, Filter, Query, filters};
use crate::wire::{Answer, Request};

const PAGE: usize = 25;
/// What a list can be filtered and ordered by.
const STORED: [&str; 10] = [
    "id",
    "label",
    "actual_status",
    "intended_status",
    "cur_state",
    "gpu_name",
    "verification",
    "machine_id",
    "host_id",
    "start_date",
];

impl Market {
    pub(crate) fn search(&mut self, request: &Request, body: &Value, faults: &[Fault]) -> Answer {
        let asked = match (request.query("q"), body.get("q")) {
            (Some(text), _) => serde_json::from_str(text).unwrap_or(Value::Null),
            (None, Some(q)) => q.clone(),
            (None, None) => body.clone(),
        };
        let query = match Query::read(&asked, self.settings.search_cap, self.settings.applies_default_filters) {
            Ok(query) => query,
            Err(message) => return Answer::error(400, "invalid_args", &message),
        };
        let mut rows = match self.offers(&query) {
            Ok(rows) => rows,
            Err(message) => return Answer::error(400, "invalid_args", &message),
        };
        for fault in faults {
            if let Fault::Varying { keep } = fault {
                rows.retain(|_| self.chaos.chance(*keep));
            }
        }
        let rows = spoil(rows.into_iter().map(Value::Object).collect(), faults);
        let columns = body.get("select_cols").and_then(Value::as_array);
        let rows: Vec<Value> = rows.into_iter().map(|row| narrow(row, columns)).collect();
        Answer::json(200, &json!({ "offers": rows }))
    }

    /// The offers that pass, in order, as many as may be.
    fn offers(&self, query: &Query) -> Result<Vec<Map<String, Value>>, String> {
        let mut found = Vec::new();
        for (machine, block) in self.asks.values().copied() {
            let machine = &self.machines[machine];
            let block = &machine.blocks[block];
            let quote = Quote::of(machine, block, query.is_bid, query.disk_gb, self.now_ms);
            let mut passes = true;
            for filter in &query.filters {
                if !passes_filter(filter, &block.row, &quote, block.ask)? {
                    passes = false;
                    break;
                }
            }
            if passes {
                found.push((block, quote));
            }
        }
        let key = |block: &'_ crate::machines::Block, quote: &Quote, name: &str| match quote.field(name) {
            Some(number) => number,
            None => block.row.get(name).and_then(Value::as_f64).unwrap_or(f64::MAX),
        };
        found.sort_by(|(one, one_quote), (two, two_quote)| {
            let by = |(name, is_rising): &(String, bool)| {
                let order = match (one.row.get(name), two.row.get(name)) {
                    (Some(Value::String(one)), Some(Value::String(two))) => one.cmp(two),
                    _ => key(one, one_quote, name).total_cmp(&key(two, two_quote, name)),
                };
                if *is_rising { order } else { order.reverse() }
            };
            let orders = query.order.iter().map(by).find(|order| order.is_ne());
            orders.unwrap_or_else(|| one.ask.cmp(&two.ask))
        });
        found.truncate(query.limit);
        Ok(found.iter().map(|(block, quote)| quote.write(block)).collect())
    }

    pub(crate) fn list(&mut self, request: &Request, faults: &[Fault]) -> Answer {
        let read = |name: &str| request.query(name).map(|text| serde_json::from_str::<Value>(text).unwrap_or_default());
        let limit = request.query("limit").map_or(Ok(25), str::parse::<i64>);
        let Ok(limit) = limit else { return Answer::error(400, "invalid_args", "limit is no number") };
        let limit = if limit <= 0 { 5 } else { usize::try_from(limit).unwrap_or(PAGE).min(PAGE) };
        let filters = match read("select_filters").as_ref().map(instance_filters).transpose() {
            Ok(filters) => filters.unwrap_or_default(),
            Err(message) => return Answer::error(400, "invalid_args", &message),
        };
        let order = match read("order_by").as_ref().map(instance_order).transpose() {
            Ok(order) => order.unwrap_or_default(),
            Err(message) => return Answer::error(400, "invalid_args", &message),
        };
        let all = self.listed_rows();
        let total = all.len();
        let mut labels: BTreeMap<String, u64> = BTreeMap::new();
        for row in &all {
            *labels.entry(row["label"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
        let mut rows: Vec<Value> = all
            .into_iter()
            .filter(|row| filters.iter().all(|filter| filter.takes(Field::of(&row[filter.field.as_str()]))))
            .collect();
        rows.sort_by(|one, two| {
            let by = |(name, is_rising): &(String, bool)| {
                let order = Field::of(&one[name.as_str()]).compare(Field::of(&two[name.as_str()]));
                if *is_rising { order } else { order.reverse() }
            };
            let id = |row: &Value| row["id"].as_u64();
            order.iter().map(by).find(|order| order.is_ne()).unwrap_or_else(|| id(one).cmp(&id(two)))
        });
        let found = rows.len();
        let from = match request.query("after_token").map(|token| after(token, &rows)) {
            None => 0,
            Some(Some(from)) => from,
            Some(None) => return Answer::error(400, "invalid_token", "after_token is not known"),
        };
        let page: Vec<Value> = rows.drain(from.min(found)..(from + limit).min(found)).collect();
        let next = (from + limit < found)
            .then(|| page.last().map(|row| format!("{:x}-{:x}", from + limit, row["id"].as_u64().unwrap_or(0))));
        let columns = read("select_cols");
        let columns = columns.as_ref().and_then(Value::as_array);
        let page: Vec<Value> = spoil(page, faults).into_iter().map(|row| narrow(row, columns)).collect();
        Answer::json(
            200,
            &json!({
                "success": true, "instances_found": found, "total_instances": total, "label_counts": labels,
                "next_token": next.flatten(), "instances": page,
            }),
        )
    }

    pub(crate) fn list_old(&mut self, faults: &[Fault]) -> Answer {
        Answer::json(200, &json!({ "instances": spoil(self.listed_rows(), faults) }))
    }

    pub(crate) fn show(&mut self, id: u64) -> Answer {
        let ghost = self.ghosts.get(&id).filter(|(until_ms, _)| *until_ms > self.now_ms).map(|(_, row)| row.clone());
        let row = self.instances.get(&id).map(|one| self.instance_row(one).into()).or(ghost);
        Answer::json(200, &json!({ "instances": row }))
    }

    pub(crate) fn filter_values(&mut self) -> Answer {
        let names = ["actual_status", "verification", "gpu_name"];
        let rows = self.listed_rows();
        let values: BTreeSet<Vec<Option<&str>>> =
            rows.iter().map(|row| names.iter().map(|name| row[*name].as_str()).collect()).collect();
        let object =
            |values: &Vec<Option<&str>>| json!({names[0]: values[0], names[1]: values[1], names[2]: values[2]});
        Answer::json(200, &json!({ "filters": values.iter().map(object).collect::<Vec<_>>() }))
    }
}

/// Whether an offer passes one comparison.
fn passes_filter(filter: &Filter, row: &Map<String, Value>, quote: &Quote, ask: Option<u64>) -> Result<bool, String> {
    let field = match filter.field.as_str() {
        // Seen to match nothing: the other name is the one that works.
        "id" => return Ok(false),
        #[expect(clippy::cast_precision_loss, reason = "numbers of contracts are small")]
        "ask_contract_id" => ask.map_or(Field::Null, |ask| Field::Number(ask as f64)),
        "verified" => Field::Flag(row.get("verification").and_then(Value::as_str) == Some("verified")),
        "datacenter" => Field::Flag(row.get("hosting_type").and_then(Value::as_u64) == Some(1)),
        "external" => Field::Flag(false),
        "geolocation" => {
            let place = row.get("geolocation").and_then(Value::as_str).unwrap_or_default();
            let is_whole = |operand: &Value| operand.as_str().is_some_and(|text| text.contains(','));
            let whole = match &filter.operand {
                Value::Array(all) => all.iter().any(is_whole),
                one => is_whole(one),
            };
            Field::Text(if whole { place } else { place.rsplit(", ").next().unwrap_or_default() })
        }
        name => match quote.field(name) {
            Some(number) => Field::Number(number),
            None => Field::of(row.get(name).ok_or_else(|| format!("Invalid column: {name}"))?),
        },
    };
    Ok(filter.takes(field))
}

fn instance_filters(asked: &Value) -> Result<Vec<Filter>, String> {
    let filters = filters(asked.as_object().ok_or("select_filters is no object")?)?;
    match filters.iter().find(|filter| !STORED.contains(&filter.field.as_str())) {
        Some(filter) => Err(format!("Invalid column: {}", filter.field)),
        None => Ok(filters),
    }
}

fn instance_order(asked: &Value) -> Result<Vec<(String, bool)>, String> {
    let columns = asked.as_array().ok_or("order_by is no list")?;
    let read = |column: &Value| {
        let name = column["col"].as_str().filter(|name| STORED.contains(name));
        Ok((name.ok_or("Invalid column in order_by")?.to_owned(), column["dir"].as_str() != Some("desc")))
    };
    columns.iter().map(read).collect()
}

/// Where the next page begins: behind the row that a token names, or where that was if it is gone.
fn after(token: &str, rows: &[Value]) -> Option<usize> {
    let (offset, id) = token.split_once('-')?;
    let offset = usize::from_str_radix(offset, 16).ok()?;
    let id = u64::from_str_radix(id, 16).ok()?;
    let at = rows.iter().position(|row| row["id"].as_u64() == Some(id));
    let passed = || rows.iter().take_while(|row| row["id"].as_u64().is_some_and(|one| one < id)).count();
    Some(at.map_or_else(|| passed().min(offset), |at| at + 1))
}

fn narrow(row: Value, columns: Option<&Vec<Value>>) -> Value {
    match (row, columns) {
        (Value::Object(row), Some(columns)) if !columns.iter().any(|name| name == "*") => {
            let is_asked = |name: &str| columns.iter().any(|column| column == name);
            row.into_iter().filter(|(name, _)| is_asked(name)).collect::<Map<_, _>>().into()
        }
        (row, _) => row,
    }
}

/// A list that does not say everything.
fn spoil(mut rows: Vec<Value>, faults: &[Fault]) -> Vec<Value> {
    for fault in faults {
        match fault {
            Fault::EmptyList => rows.clear(),
            Fault::PartialList => {
                let mut keeps = false;
                rows.retain(|_| {
                    keeps = !keeps;
                    keeps
                });
            }
            _ => {}
        }
    }
    rows
}
