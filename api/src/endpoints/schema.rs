//! JSON Schemas of tenants. A schema is a program that the API runs on every input of its endpoint, so what one may be is bounded, and so is the
//! work that one input makes.
//!
//! `jsonschema` has no bound of its own: definitions that name the next one twice, 40 times over, are 3 kB and take 2^40 steps. Before a schema is
//! compiled, each schema within it that leads on to others is put behind a keyword of ours, which counts a step whenever it is come to. Counting
//! to the end unwinds.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use jsonschema::{Keyword, PatternOptions, ValidationError, Validator};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};

/// A schema's text, bytes.
const TEXT_MAX: usize = 256 << 10;

/// Schemas within a schema, the target of each `$ref` once.
const SCHEMAS_MAX: usize = 4_000;

/// Patterns of a schema, and what one of them and all together take compiled, bytes.
const PATTERNS_MAX: usize = 200;
const PATTERN_BYTES: usize = 1 << 20;
const PATTERNS_BYTES: usize = 16 << 20;

/// Schemas that the library goes through when it compiles `unevaluatedItems` and `unevaluatedProperties`, all together. It follows each reference
/// anew wherever it comes to one, so that definitions that name the next one twice take it 2^n of them.
const UNEVALUATED_MAX: u64 = 20_000;

/// Steps that checking one input may take: some, some more for each byte, and never more than take half a second.
const STEPS: u64 = 100_000;
const STEPS_PER_BYTE: u64 = 30;
const STEPS_MAX: u64 = 10_000_000;

/// Steps in which all errors of an input are looked for; each takes some hundred bytes.
const STEPS_OF_ERRORS: u64 = 50_000;

/// Where the stack has less than this left, checking goes on on another one, which has so much, and ends when that has less than the last.
const STACK_MIN: usize = 1 << 20;
const STACK: usize = 32 << 20;
const STACK_LEFT: usize = 128 << 10;

/// Compiling nests as deep as references follow one another.
const COMPILE_STACK: usize = 256 << 20;

/// The keyword that counts.
const STEP: &str = "stokehold-step";

thread_local! {
    /// Steps that are left of the check that runs on this thread.
    static LEFT: Cell<u64> = const { Cell::new(0) };
}

/// A compiled schema.
pub(crate) struct Schema {
    validator: Validator,
    weight: u32,
}

/// Where an input does not fit, and why: a JSON pointer into it and a message that does not hold its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Misfit {
    pub(crate) path: String,
    pub(crate) message: String,
}

impl Schema {
    /// Compiles a schema. It fetches nothing, and its patterns run in linear time.
    ///
    /// # Errors
    /// When it is no schema, or more than may be: where and why.
    pub(crate) fn compile(schema: &Value) -> Result<Self, String> {
        let bytes = schema.to_string().len();
        if bytes > TEXT_MAX {
            return Err(format!("has {bytes} bytes, over the limit of {TEXT_MAX}"));
        }
        let told = |error: &ValidationError<'_>| placed(error.instance_path().as_str(), error);
        jsonschema::meta::options().validate(schema).map_err(|error| told(&error))?;
        let mut rewritten = Rewritten::of(schema);
        let counted = rewritten.whole()?;
        let share = PATTERN_BYTES.min(PATTERNS_BYTES / rewritten.patterns.max(1));
        let patterns = PatternOptions::regex().size_limit(share).dfa_size_limit(share);
        let options =
            jsonschema::options().offline().with_pattern_options(patterns).with_keyword(STEP, |_, cost, _| {
                let part = |n: usize| cost.get(n).and_then(Value::as_u64).unwrap_or(1);
                Ok(Box::new(Step { steps: part(0), walks: part(1), is_deep: part(2) > 0 }))
            });
        let compiled = stacker::grow(COMPILE_STACK, || options.build(&counted).map_err(|error| told(&error)));
        let weight = u32::try_from(rewritten.schemas + 20 * rewritten.patterns).unwrap_or(u32::MAX);
        Ok(Self { validator: compiled?, weight })
    }

    /// How much memory it takes beside others: about a kilobyte each.
    pub(crate) fn weight(&self) -> u32 {
        self.weight
    }

    /// Checks an input; the first `most` places where it does not fit.
    pub(crate) fn check(&self, input: &Value, most: usize) -> Result<(), Vec<Misfit>> {
        let steps = STEPS.saturating_add(STEPS_PER_BYTE.saturating_mul(size(input))).min(STEPS_MAX);
        match within(steps, || self.validator.is_valid(input)) {
            Some(true) => return Ok(()),
            Some(false) => {}
            None => {
                let message = format!(
                    "takes more than {steps} steps to validate against the endpoint's input schema; send a smaller \
                        input, or simplify the schema (nested anyOf, oneOf, allOf and $ref)"
                );
                return Err(vec![Misfit { path: String::new(), message }]);
            }
        }
        let told = |error: &ValidationError<'_>| Misfit {
            path: error.instance_path().to_string(),
            // Masked: the value is the caller's own and may be large or secret.
            message: error.masked().to_string(),
        };
        let all = || self.validator.iter_errors(input).take(most).map(|error| told(&error)).collect::<Vec<_>>();
        let first = || self.validator.validate(input).err().iter().map(told).collect::<Vec<_>>();
        let misfits = within(STEPS_OF_ERRORS, all).or_else(|| within(steps, first));
        Err(misfits.filter(|misfits| !misfits.is_empty()).unwrap_or_else(|| {
            vec![Misfit { path: String::new(), message: "does not match the endpoint's input schema".to_owned() }]
        }))
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&placed(&self.path, &self.message))
    }
}

/// A message with the JSON pointer to its place; the root has none to name.
fn placed(pointer: &str, message: impl fmt::Display) -> String {
    if pointer.is_empty() { message.to_string() } else { format!("{pointer}: {message}") }
}

/// Unwinds a check that has taken all of its steps.
struct Exhausted;

/// What `look` gives, or `None` when it takes more steps than these or more stack than there is.
fn within<T>(steps: u64, look: impl FnOnce() -> T) -> Option<T> {
    LEFT.set(steps);
    match stacker::maybe_grow(STACK_MIN, STACK, || catch_unwind(AssertUnwindSafe(look))) {
        Ok(seen) => Some(seen),
        Err(reason) if reason.is::<Exhausted>() => None,
        Err(panic) => resume_unwind(panic),
    }
}

/// The keyword: fits everything, and counts.
struct Step {
    steps: u64,
    /// How often the schema goes through what an array or object has.
    walks: u64,
    /// Whether it goes through everything below that, too.
    is_deep: bool,
}

impl Step {
    fn count(&self, instance: &Value) {
        let length = if self.is_deep {
            size(instance)
        } else {
            match instance {
                Value::Array(items) => items.len() as u64,
                Value::Object(members) => members.len() as u64,
                Value::String(text) => text.len() as u64 / 32,
                _ => 0,
            }
        };
        let left = LEFT.get().checked_sub(self.steps + self.walks * length / 4);
        let has_stack = stacker::remaining_stack().is_none_or(|bytes| bytes >= STACK_LEFT);
        match left.filter(|_| has_stack) {
            Some(left) => LEFT.set(left),
            None => resume_unwind(Box::new(Exhausted)),
        }
    }
}

impl<'i> Keyword<'i> for Step {
    fn validate(&self, instance: &'i Value) -> Result<(), ValidationError<'i>> {
        self.count(instance);
        Ok(())
    }

    fn is_valid(&self, instance: &'i Value) -> bool {
        self.count(instance);
        true
    }
}

/// About how many bytes a value has as JSON.
fn size(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.len() as u64 + 2,
        Value::Array(items) => 2 + items.iter().map(|item| 1 + size(item)).sum::<u64>(),
        Value::Object(members) => {
            2 + members.iter().map(|(name, value)| name.len() as u64 + 4 + size(value)).sum::<u64>()
        }
        _ => 4,
    }
}

/// Where a keyword has schemas.
enum Holds {
    One,
    List,
    OneOrList,
    Named,
}

/// The keywords that lead on to schemas, of all drafts.
fn holds(keyword: &str) -> Option<Holds> {
    Some(match keyword {
        "additionalItems"
        | "additionalProperties"
        | "contains"
        | "contentSchema"
        | "else"
        | "if"
        | "not"
        | "propertyNames"
        | "then"
        | "unevaluatedItems"
        | "unevaluatedProperties" => Holds::One,
        "allOf" | "anyOf" | "oneOf" | "prefixItems" => Holds::List,
        "items" => Holds::OneOrList,
        "dependencies" | "dependentSchemas" | "patternProperties" | "properties" => Holds::Named,
        _ => return None,
    })
}

/// A schema as it is compiled: every schema in it that leads on counts a step before anything else, and what is referred to has a number among
/// `$defs`, since putting one schema around another changes what a pointer leads to.
struct Rewritten<'a> {
    root: &'a Value,
    /// By JSON pointer: its number.
    targets: BTreeMap<String, usize>,
    todo: Vec<String>,
    schemas: usize,
    patterns: usize,
    /// What is left of [`UNEVALUATED_MAX`].
    unevaluated: u64,
}

impl<'a> Rewritten<'a> {
    fn of(root: &'a Value) -> Self {
        let (targets, todo) = (BTreeMap::new(), Vec::new());
        Self { root, targets, todo, schemas: 0, patterns: 0, unevaluated: UNEVALUATED_MAX }
    }

    fn whole(&mut self) -> Result<Value, String> {
        let Value::Object(members) = self.root else { return Ok(self.root.clone()) };
        let mut whole = Map::new();
        if let Some(draft) = members.get("$schema") {
            whole.insert("$schema".to_owned(), draft.clone());
        }
        let root = self.target("");
        let mut defs = Map::new();
        while let Some(pointer) = self.todo.pop() {
            let number = self.target(&pointer);
            let found = self
                .root
                .pointer(&pointer)
                .ok_or_else(|| format!("refers to \"#{pointer}\", which the schema does not contain"))?;
            defs.insert(number, self.schema(&pointer, found)?);
        }
        whole.insert("$defs".to_owned(), Value::Object(defs));
        // `$ref` alone: drafts before 2019 ignore what is beside one.
        whole.insert("allOf".to_owned(), json!([{"$ref": format!("#/$defs/{root}")}]));
        Ok(Value::Object(whole))
    }

    /// The number of what a pointer leads to.
    fn target(&mut self, pointer: &str) -> String {
        if let Some(number) = self.targets.get(pointer) {
            return number.to_string();
        }
        let number = self.targets.len();
        self.targets.insert(pointer.to_owned(), number);
        self.todo.push(pointer.to_owned());
        number.to_string()
    }

    fn schema(&mut self, at: &str, schema: &Value) -> Result<Value, String> {
        let Value::Object(members) = schema else { return Ok(schema.clone()) };
        self.schemas += 1;
        if self.schemas > SCHEMAS_MAX {
            return Err(placed(at, format_args!("contains more than {SCHEMAS_MAX} schemas")));
        }
        let (mut rewritten, mut steps, mut walks, mut is_deep, mut leads_on) = (Map::new(), 1, 1, false, false);
        for (keyword, value) in members {
            let at = format!("{at}/{}", keyword.replace('~', "~0").replace('/', "~1"));
            let value = match keyword.as_str() {
                STEP | "$schema" | "$defs" | "definitions" | "$comment" | "default" | "deprecated" | "description"
                | "examples" | "title" => continue,
                // The root's own name; no reference needs it.
                "$id" | "id" if at.len() == keyword.len() + 1 => continue,
                "$id" | "$anchor" | "$dynamicAnchor" | "$dynamicRef" | "$recursiveAnchor" | "$recursiveRef" => {
                    return Err(format!("{at}: is not supported; refer to schemas with \"$ref\": \"#/...\""));
                }
                "$ref" => {
                    leads_on = true;
                    self.reference(&at, value)?
                }
                _ => match holds(keyword) {
                    Some(holds) => {
                        leads_on = true;
                        let (listed, named) =
                            (value.as_array().map_or(0, Vec::len) as u64, value.as_object().map_or(0, Map::len) as u64);
                        walks += if keyword == "patternProperties" { named } else { 0 };
                        // An input is marked by all that the library has compiled for it.
                        steps += if keyword.starts_with("unevaluated") { self.unevaluated_of(&at, schema)? } else { 0 };
                        steps += listed + if matches!(holds, Holds::Named) { named / 8 } else { 0 };
                        self.held(&at, &holds, value, keyword)?
                    }
                    None => {
                        let length = value.as_array().map_or(0, |_| size(value));
                        steps += length / 64;
                        is_deep |= keyword == "uniqueItems";
                        self.patterns += usize::from(keyword == "pattern");
                        value.clone()
                    }
                },
            };
            rewritten.insert(keyword.clone(), value);
        }
        if self.patterns > PATTERNS_MAX {
            return Err(placed(at, format_args!("contains more than {PATTERNS_MAX} patterns")));
        }
        // What leads nowhere and is small is counted with what leads to it.
        if !leads_on && !is_deep && steps < 4 {
            return Ok(Value::Object(rewritten));
        }
        Ok(json!({"allOf": [{STEP: [steps, walks, u8::from(is_deep)]}, rewritten]}))
    }

    /// How many schemas the library goes through for what this one leaves unevaluated.
    fn unevaluated_of(&mut self, at: &str, schema: &Value) -> Result<u64, String> {
        let mut left = self.unevaluated;
        self.unfold(schema, &mut BTreeSet::new(), &mut left).ok_or_else(|| {
            format!(
                "{at}: more than {UNEVALUATED_MAX} schemas determine what is evaluated, counting each \"$ref\" \
                    everywhere it is used; name the properties or items instead, or refer to fewer schemas"
            )
        })?;
        let gone = self.unevaluated - left;
        self.unevaluated = left;
        Ok(gone)
    }

    /// Goes through the schemas that apply to the same value, each reference followed but for those that lead back; `None` when there are
    /// more than `left`.
    fn unfold(&self, schema: &Value, within: &mut BTreeSet<String>, left: &mut u64) -> Option<()> {
        let Value::Object(members) = schema else { return Some(()) };
        *left = left.checked_sub(1)?;
        for (keyword, value) in members {
            match keyword.as_str() {
                "$ref" => {
                    // One that leads nowhere is refused where it is rewritten.
                    let pointer = self.pointer_of(value).filter(|pointer| !within.contains(pointer));
                    let target = pointer.as_ref().and_then(|pointer| self.root.pointer(pointer));
                    if let (Some(pointer), Some(target)) = (pointer, target) {
                        within.insert(pointer.clone());
                        stacker::maybe_grow(STACK_MIN, STACK, || self.unfold(target, within, left))?;
                        within.remove(&pointer);
                    }
                }
                "allOf" | "anyOf" | "oneOf" | "if" | "then" | "else" | "dependentSchemas" => {
                    for schema in parts(value, keyword) {
                        self.compile_cost(schema, within, left)?;
                        self.unfold(schema, within, left)?;
                    }
                }
                _ => {
                    for schema in parts(value, keyword) {
                        self.compile_cost(schema, within, left)?;
                    }
                }
            }
        }
        Some(())
    }

    /// The same for a schema as such, which may leave something unevaluated in turn. References from it are compiled once.
    fn compile_cost(&self, schema: &Value, within: &mut BTreeSet<String>, left: &mut u64) -> Option<()> {
        let Value::Object(members) = schema else { return Some(()) };
        *left = left.checked_sub(1)?;
        for (keyword, value) in members {
            if keyword.starts_with("unevaluated") {
                self.unfold(schema, within, left)?;
                continue;
            }
            for schema in parts(value, keyword) {
                self.compile_cost(schema, within, left)?;
            }
        }
        Some(())
    }

    fn held(&mut self, at: &str, holds: &Holds, value: &Value, keyword: &str) -> Result<Value, String> {
        Ok(match (holds, value) {
            (Holds::List | Holds::OneOrList, Value::Array(schemas)) => {
                let each = schemas.iter().enumerate().map(|(n, schema)| self.schema(&format!("{at}/{n}"), schema));
                Value::Array(each.collect::<Result<_, _>>()?)
            }
            (Holds::Named, Value::Object(schemas)) => {
                if keyword == "patternProperties" {
                    self.patterns += schemas.len();
                }
                let mut rewritten = Map::new();
                for (name, schema) in schemas {
                    let at = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
                    // Of `dependencies`: names, not a schema.
                    let schema = if schema.is_array() { schema.clone() } else { self.schema(&at, schema)? };
                    rewritten.insert(name.clone(), schema);
                }
                Value::Object(rewritten)
            }
            _ => self.schema(at, value)?,
        })
    }

    fn reference(&mut self, at: &str, value: &Value) -> Result<Value, String> {
        let reference = value.as_str().ok_or_else(|| format!("{at}: must be text"))?;
        let Some(pointer) = self.fragment_of(reference) else {
            return Err(format!(
                "{at}: refers to {reference:?}: external schemas are not fetched; refer to schemas in this one, e.g. \"#/$defs/Name\""
            ));
        };
        let pointer =
            percent_decode_str(pointer).decode_utf8().map_err(|_| format!("{at}: is not UTF-8"))?.into_owned();
        Ok(format!("#/$defs/{}", self.target(&pointer)).into())
    }

    /// The JSON pointer of a reference into this schema, as it is written.
    fn fragment_of<'r>(&self, reference: &'r str) -> Option<&'r str> {
        let own = ["$id", "id"]
            .into_iter()
            .filter_map(|name| self.root.get(name)?.as_str())
            .find_map(|id| reference.strip_prefix(id));
        own.unwrap_or(reference).strip_prefix('#').filter(|pointer| pointer.is_empty() || pointer.starts_with('/'))
    }

    fn pointer_of(&self, reference: &Value) -> Option<String> {
        let pointer = self.fragment_of(reference.as_str()?)?;
        Some(percent_decode_str(pointer).decode_utf8().ok()?.into_owned())
    }
}

/// The schemas that a keyword has.
fn parts<'v>(value: &'v Value, keyword: &str) -> Vec<&'v Value> {
    match (holds(keyword), value) {
        (Some(Holds::List | Holds::OneOrList), Value::Array(schemas)) => schemas.iter().collect(),
        (Some(Holds::Named), Value::Object(schemas)) => schemas.values().collect(),
        (Some(_), schema) => vec![schema],
        (None, _) => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
