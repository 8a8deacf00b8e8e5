//! Searches for offers, and lists and views of instances.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use stokehold_vast::field;

use crate::faults::Fault;
use crate::machines::Block;
use crate::market::Market;
use crate::offers::Quote;
use crate::rows::{Listed, narrow};
use crate::search::{Field, Filter, Query, filters};
use crate::wire::{Answer, Request};

const PAGE: usize = 25;
/// Columns by which a list can be filtered and sorted.
const STORED: [&str; 10] = [
    "id",
    "label",
    field::ACTUAL_STATUS,
    field::INTENDED_STATUS,
    field::CUR_STATE,
    field::GPU_NAME,
    "verification",
    field::MACHINE_ID,
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
        let mut found = match self.offers(&query) {
            Ok(found) => found,
            Err(message) => return Answer::error(400, "invalid_args", &message),
        };
        let mut chaos = self.chaos.clone();
        for fault in faults {
            if let Fault::Varying { keep } = fault {
                found.retain(|_| chaos.chance(*keep));
            }
        }
        let columns = body.get("select_cols").and_then(Value::as_array);
        let columns = columns.filter(|columns| !columns.iter().any(|name| name == "*"));
        let text = |(block, quote): (&Block, Quote)| match columns {
            None => quote.text(block),
            Some(_) => narrow(quote.row(block).into(), columns).to_string(),
        };
        let rows: Vec<String> = spoil(found, faults).into_iter().map(text).collect();
        let body = format!("{{\"offers\":[{}]}}", rows.join(","));
        self.chaos = chaos;
        Answer::typed(200, "application/json", body.into_bytes())
    }

    /// Offers that match, sorted, up to the limit.
    fn offers(&self, query: &Query) -> Result<Vec<(&Block, Quote)>, String> {
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
        let key = |block: &'_ Block, quote: &Quote, name: &str| match quote.field(name) {
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
        Ok(found)
    }

    pub(crate) fn list(&mut self, request: &Request, faults: &[Fault]) -> Answer {
        let read = |name: &str| request.query(name).map(|text| serde_json::from_str::<Value>(text).unwrap_or_default());
        let limit = request.query("limit").map_or(Ok(25), str::parse::<i64>);
        let Ok(limit) = limit else { return Answer::error(400, "invalid_args", "limit is no number") };
        let limit = if limit <= 0 { 5 } else { usize::try_from(limit).unwrap_or(PAGE).min(PAGE) };
        let filters = match read(field::SELECT_FILTERS).as_ref().map(instance_filters).transpose() {
            Ok(filters) => filters.unwrap_or_default(),
            Err(message) => return Answer::error(400, "invalid_args", &message),
        };
        let order = match read(field::ORDER_BY).as_ref().map(instance_order).transpose() {
            Ok(order) => order.unwrap_or_default(),
            Err(message) => return Answer::error(400, "invalid_args", &message),
        };
        let all = self.listed_instances();
        let total = all.len();
        let mut labels: BTreeMap<String, u64> = BTreeMap::new();
        for one in &all {
            let label = match self.column(one, "label") {
                Field::Text(label) => label,
                Field::Number(_) | Field::Flag(_) | Field::Null => "",
            };
            *labels.entry(label.to_owned()).or_default() += 1;
        }
        let passes = |one: &Listed<'_>| filters.iter().all(|filter| filter.takes(self.column(one, &filter.field)));
        let mut rows: Vec<Listed<'_>> = all.into_iter().filter(passes).collect();
        rows.sort_by(|one, two| {
            let by = |(name, is_rising): &(String, bool)| {
                let order = self.column(one, name).compare(self.column(two, name));
                if *is_rising { order } else { order.reverse() }
            };
            order.iter().map(by).find(|order| order.is_ne()).unwrap_or_else(|| one.id().cmp(&two.id()))
        });
        let found = rows.len();
        let from = match request.query(field::AFTER_TOKEN).map(|token| after(token, &rows)) {
            None => 0,
            Some(Some(from)) => from.min(found),
            Some(None) => return Answer::error(400, "invalid_token", "after_token is not known"),
        };
        let to = (from + limit).min(found);
        let page = rows[from..to].to_vec();
        let next = page.last().filter(|_| to < found).map(|last| format!("{to:x}-{:x}", last.id()));
        let columns = read("select_cols");
        let columns = columns.as_ref().and_then(Value::as_array);
        let head = json!({
            "success": true, (field::INSTANCES_FOUND): found, (field::TOTAL_INSTANCES): total, "label_counts": labels,
            (field::NEXT_TOKEN): next,
        });
        self.listing(&head, spoil(page, faults), columns)
    }

    /// An object with a list of instances.
    fn listing(&self, head: &Value, rows: Vec<Listed<'_>>, columns: Option<&Vec<Value>>) -> Answer {
        let rows: Vec<String> = rows.iter().map(|one| self.listed_text(one, columns)).collect();
        let head = head.to_string();
        let open = head.strip_suffix('}').unwrap_or("{");
        let comma = if open.len() > 1 { "," } else { "" };
        let body = [open, comma, "\"instances\":[", &rows.join(","), "]}"].concat();
        Answer::typed(200, "application/json", body.into_bytes())
    }

    pub(crate) fn list_old(&mut self, faults: &[Fault]) -> Answer {
        self.listing(&json!({}), spoil(self.listed_instances(), faults), None)
    }

    pub(crate) fn show(&mut self, id: u64) -> Answer {
        let ghost = self.ghosts.get(&id).filter(|(until_ms, _)| *until_ms > self.now_ms).map(|(_, row)| row.clone());
        let row = self.instances.get(&id).map(|one| self.instance_row(one).into()).or(ghost);
        Answer::json(200, &json!({ "instances": row }))
    }

    pub(crate) fn filter_values(&mut self) -> Answer {
        let names = [field::ACTUAL_STATUS, "verification", field::GPU_NAME];
        let rows = self.listed_instances();
        let word = |one, name: &str| match self.column(one, name) {
            Field::Text(word) => Some(word.to_owned()),
            Field::Number(_) | Field::Flag(_) | Field::Null => None,
        };
        let values: BTreeSet<Vec<Option<String>>> =
            rows.iter().map(|one| names.iter().map(|name| word(one, name)).collect()).collect();
        let object =
            |values: &Vec<Option<String>>| json!({names[0]: values[0], names[1]: values[1], names[2]: values[2]});
        Answer::json(200, &json!({ "filters": values.iter().map(object).collect::<Vec<_>>() }))
    }
}

/// Whether an offer passes one filter.
fn passes_filter(filter: &Filter, row: &Map<String, Value>, quote: &Quote, ask: Option<u64>) -> Result<bool, String> {
    let field = match filter.field.as_str() {
        // Seen to match nothing: the other name is the one that works.
        "id" => return Ok(false),
        #[expect(clippy::cast_precision_loss, reason = "numbers of contracts are small")]
        field::ASK_CONTRACT_ID => ask.map_or(Field::Null, |ask| Field::Number(ask as f64)),
        "verified" => Field::Flag(row.get("verification").and_then(Value::as_str) == Some("verified")),
        "datacenter" => Field::Flag(row.get(field::HOSTING_TYPE).and_then(Value::as_u64) == Some(1)),
        "external" => Field::Flag(false),
        field::GEOLOCATION => {
            let place = row.get(field::GEOLOCATION).and_then(Value::as_str).unwrap_or_default();
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

/// Index of the first row of the next page: after the row that the token names, or at its former position.
fn after(token: &str, rows: &[Listed<'_>]) -> Option<usize> {
    let (offset, id) = token.split_once('-')?;
    let offset = usize::from_str_radix(offset, 16).ok()?;
    let id = u64::from_str_radix(id, 16).ok()?;
    let passed = || rows.iter().take_while(|row| row.id() < id).count();
    Some(rows.iter().position(|row| row.id() == id).map_or_else(|| passed().min(offset), |at| at + 1))
}

/// Removes rows of a list according to the faults.
fn spoil<T>(mut rows: Vec<T>, faults: &[Fault]) -> Vec<T> {
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
