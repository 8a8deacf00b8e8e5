//! Search requests: filters, order, limit.

use std::cmp::Ordering;

use serde_json::{Map, Value};
use stokehold_vast::field;

/// A comparison.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Filter {
    pub(crate) field: String,
    pub(crate) operator: Operator,
    pub(crate) operand: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Equal,
    NotEqual,
    Above,
    AtLeast,
    Below,
    AtMost,
    In,
    NotIn,
}

/// A parsed search.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Query {
    pub(crate) filters: Vec<Filter>,
    /// Columns, and whether each is sorted ascending.
    pub(crate) order: Vec<(String, bool)>,
    pub(crate) is_bid: bool,
    pub(crate) limit: usize,
    pub(crate) disk_gb: f64,
}

/// Value of a column.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Field<'a> {
    Number(f64),
    Text(&'a str),
    Flag(bool),
    Null,
}

impl<'a> Field<'a> {
    pub(crate) fn of(value: &'a Value) -> Self {
        match value {
            Value::Bool(flag) => Field::Flag(*flag),
            Value::String(text) => Field::Text(text),
            Value::Number(number) => number.as_f64().map_or(Field::Null, Field::Number),
            Value::Null | Value::Array(_) | Value::Object(_) => Field::Null,
        }
    }

    /// Compares two values. Null sorts last.
    pub(crate) fn compare(self, other: Self) -> Ordering {
        match (self, other) {
            (Field::Number(one), Field::Number(two)) => one.total_cmp(&two),
            (Field::Text(one), Field::Text(two)) => one.cmp(two),
            (Field::Flag(one), Field::Flag(two)) => one.cmp(&two),
            (Field::Null, Field::Null) => Ordering::Equal,
            (Field::Null, _) => Ordering::Greater,
            (_, Field::Null) => Ordering::Less,
            _ => Ordering::Equal,
        }
    }

    /// Compares with the operand of a request, which may have numbers and booleans as text. `None`: not comparable.
    fn against(self, operand: &Value) -> Option<Ordering> {
        match (self, operand) {
            (Field::Number(one), Value::Number(two)) => one.partial_cmp(&two.as_f64()?),
            (Field::Number(one), Value::String(two)) => one.partial_cmp(&two.trim().parse().ok()?),
            (Field::Number(one), Value::Bool(two)) => one.partial_cmp(&f64::from(u8::from(*two))),
            (Field::Text(one), Value::String(two)) => Some(one.cmp(two.as_str())),
            (Field::Flag(one), operand) => Some(one.cmp(&truth(operand)?)),
            (Field::Null, Value::Null) => Some(Ordering::Equal),
            _ => None,
        }
    }
}

fn truth(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        Value::Null => Some(false),
        Value::Number(number) => Some(number.as_f64()? != 0.0),
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" => Some(true),
            "false" | "0" | "no" => Some(false),
            _ => None,
        },
        Value::Array(_) | Value::Object(_) => None,
    }
}

impl Filter {
    /// Whether a value passes.
    pub(crate) fn takes(&self, field: Field<'_>) -> bool {
        let is = |wanted: &[Ordering]| field.against(&self.operand).is_some_and(|found| wanted.contains(&found));
        let is_any = || match &self.operand {
            Value::Array(operands) => operands.iter().any(|one| field.against(one) == Some(Ordering::Equal)),
            one => field.against(one) == Some(Ordering::Equal),
        };
        match self.operator {
            Operator::Equal => is(&[Ordering::Equal]),
            Operator::NotEqual => !is(&[Ordering::Equal]),
            Operator::Above => is(&[Ordering::Greater]),
            Operator::AtLeast => is(&[Ordering::Greater, Ordering::Equal]),
            Operator::Below => is(&[Ordering::Less]),
            Operator::AtMost => is(&[Ordering::Less, Ordering::Equal]),
            Operator::In => is_any(),
            Operator::NotIn => !is_any(),
        }
    }
}

fn operator(word: &str) -> Option<Operator> {
    Some(match word {
        "eq" => Operator::Equal,
        "neq" => Operator::NotEqual,
        "gt" => Operator::Above,
        "gte" => Operator::AtLeast,
        "lt" => Operator::Below,
        "lte" => Operator::AtMost,
        "in" => Operator::In,
        field::NOTIN | "nin" => Operator::NotIn,
        _ => return None,
    })
}

/// Parses the filters of an object with a key per field. Members that are not objects of operators are skipped.
///
/// # Errors
/// An unknown operator, by name.
pub(crate) fn filters(object: &Map<String, Value>) -> Result<Vec<Filter>, String> {
    let mut filters = Vec::new();
    for (field, operators) in object {
        let Value::Object(operators) = operators else { continue };
        for (word, operand) in operators {
            let operator = operator(word).ok_or_else(|| format!("Invalid operator: {word} for {field}"))?;
            filters.push(Filter { field: field.clone(), operator, operand: operand.clone() });
        }
    }
    Ok(filters)
}

impl Query {
    /// Parses a search.
    ///
    /// # Errors
    /// The part that cannot be parsed.
    pub(crate) fn read(body: &Value, cap: usize, has_defaults: bool) -> Result<Self, String> {
        let Value::Object(body) = body else { return Err("the search is no object".into()) };
        let mut filters = filters(body)?;
        if has_defaults {
            for (field, value) in [("verified", true), (field::RENTABLE, true), ("rented", false)] {
                if !body.contains_key(field) {
                    filters.push(Filter { field: field.into(), operator: Operator::Equal, operand: value.into() });
                }
            }
        }
        let is_bid = match body.get("type").and_then(Value::as_str).unwrap_or("on-demand") {
            "bid" | "interruptible" => true,
            "on-demand" | "ondemand" | "on_demand" | "ask" | "reserved" => false,
            other => return Err(format!("Invalid type: {other}")),
        };
        let order = match body.get("order") {
            None | Some(Value::Null) => vec![("score".to_owned(), false)],
            Some(Value::Array(order)) => order.iter().map(ordering).collect::<Option<_>>().ok_or("Invalid order")?,
            Some(_) => return Err("Invalid order".into()),
        };
        let limit = number(body.get("limit")).filter(|limit| *limit >= 1.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at least one, and capped")]
        let limit = limit.map_or(cap, |limit| (limit as usize).min(cap));
        let disk_gb = number(body.get(field::ALLOCATED_STORAGE)).unwrap_or(8.0);
        Ok(Self { filters, order, is_bid, limit, disk_gb })
    }
}

fn ordering(pair: &Value) -> Option<(String, bool)> {
    let pair = pair.as_array()?;
    Some((pair.first()?.as_str()?.to_owned(), pair.get(1).and_then(Value::as_str).unwrap_or("asc") != "desc"))
}

/// A number, which may be written as text.
pub(crate) fn number(value: Option<&Value>) -> Option<f64> {
    match value? {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::json;

    fn takes(filter: &Value, field: Field<'_>) -> bool {
        let Value::Object(object) = json!({ "f": filter }) else { unreachable!() };
        filters(&object).unwrap().iter().all(|filter| filter.takes(field))
    }

    #[test]
    fn what_is_written_as_text_is_compared_as_what_it_means() {
        assert!(takes(&json!({"eq": "1"}), Field::Number(1.0)));
        assert!(takes(&json!({"gte": "0.98", "lt": 1}), Field::Number(0.98)));
        assert!(!takes(&json!({"gt": "0.98"}), Field::Number(0.98)));
        assert!(takes(&json!({"eq": "true"}), Field::Flag(true)));
        assert!(takes(&json!({"eq": false}), Field::Flag(false)));
        assert!(takes(&json!({"in": ["RTX 4090", "RTX 5090"]}), Field::Text("RTX 5090")));
        assert!(takes(&json!({"notin": ["RTX 4090"], "neq": "A10"}), Field::Text("RTX 5090")));
        assert!(!takes(&json!({"notin": [7, 8]}), Field::Number(8.0)));
        assert!(takes(&json!({"in": [null, "x"]}), Field::Null));
        assert!(!takes(&json!({"lte": 3}), Field::Null), "nothing is not less than something");
    }

    #[test]
    fn every_spelling_of_a_type_is_taken_and_the_limit_is_capped() {
        let read = |body: Value| Query::read(&body, 64, false);
        for word in ["on-demand", "ondemand", "on_demand", "ask", "reserved"] {
            assert!(!read(json!({ "type": word })).unwrap().is_bid);
        }
        assert!(read(json!({"type": "bid"})).unwrap().is_bid && read(json!({"type": "interruptible"})).unwrap().is_bid);
        assert_eq!(read(json!({"limit": "3000"})).unwrap().limit, 64);
        assert_eq!(read(json!({"limit": 3})).unwrap().limit, 3);
        assert_eq!(read(json!({})).unwrap().order, [("score".to_owned(), false)]);
        assert!(read(json!({"type": "free"})).is_err());
        assert!(read(json!({"num_gpus": {"is": 1}})).is_err());
        assert_eq!(Query::read(&json!({}), 64, true).unwrap().filters.len(), 3);
    }
}
