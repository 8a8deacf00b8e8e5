//! JSON Schemas of tenants. A schema is a program that the API runs on every input of its endpoint. Therefore both the
//! size of a schema and the work for one input are limited.
//!
//! `jsonschema` has no limit of its own: definitions that each reference the next one twice, 40 levels deep, take 3 kB
//! and 2^40 steps. Before a schema is compiled, each subschema that leads to others is placed behind a custom keyword,
//! which counts a step at each visit. When the steps are used up, the keyword unwinds.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use jsonschema::{Keyword, PatternOptions, ValidationError, Validator};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};

/// Maximum length of a schema's text, bytes.
const TEXT_MAX: usize = 256 << 10;

/// Maximum number of subschemas in a schema. The target of each `$ref` counts once.
const SCHEMAS_MAX: usize = 4_000;

/// Maximum number of patterns in a schema, and the maximum compiled size of one pattern and of all together, bytes.
const PATTERNS_MAX: usize = 200;
const PATTERN_BYTES: usize = 1 << 20;
const PATTERNS_BYTES: usize = 16 << 20;

/// Maximum number of schemas that the library visits to compile `unevaluatedItems` and `unevaluatedProperties`, all
/// together. The library follows each reference again at each place, so n definitions that each reference the next one
/// twice take 2^n visits.
const UNEVALUATED_MAX: u64 = 20_000;

/// Steps for checking one input: a base, an addition for each byte, and a maximum that takes half a second.
const STEPS: u64 = 100_000;
const STEPS_PER_BYTE: u64 = 30;
const STEPS_MAX: u64 = 10_000_000;

/// Steps for collecting all errors of an input. Each takes some hundred bytes.
const STEPS_OF_ERRORS: u64 = 50_000;

/// Stack limits, bytes. When less than `STACK_MIN` is left, checking continues on a new stack of `STACK`; the check
/// fails when less than `STACK_LEFT` is left of that one.
const STACK_MIN: usize = 1 << 20;
const STACK: usize = 32 << 20;
const STACK_LEFT: usize = 128 << 10;

/// Stack size for compiling, bytes. Compiling nests as deep as references follow one another.
const COMPILE_STACK: usize = 256 << 20;

/// The custom keyword that counts steps.
const STEP: &str = "stokehold-step";

thread_local! {
    /// Steps left for the check that runs on this thread.
    static LEFT: Cell<u64> = const { Cell::new(0) };
}

/// A compiled schema.
pub(crate) struct Schema {
    validator: Validator,
    weight: u32,
}

/// A place where an input does not fit, and the reason: a JSON pointer into the input, and a message that does not
/// contain its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Misfit {
    pub(crate) path: String,
    pub(crate) message: String,
}

impl Schema {
    /// Compiles a schema. Compiling fetches nothing, and the patterns run in linear time.
    ///
    /// # Errors
    /// The place and the reason, when the value is not a valid schema or exceeds a limit.
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

    /// Weight of the schema in a cache, about one unit per kilobyte of memory.
    pub(crate) fn weight(&self) -> u32 {
        self.weight
    }

    /// Checks an input. Returns the first `most` places where it does not fit.
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

/// Prefixes a message with the JSON pointer to its place. The root has no pointer to name.
fn placed(pointer: &str, message: impl fmt::Display) -> String {
    if pointer.is_empty() { message.to_string() } else { format!("{pointer}: {message}") }
}

/// Payload that unwinds a check which has used all of its steps.
struct Exhausted;

/// Runs `look` and returns its result, or `None` when it takes more than `steps` steps or more stack than there is.
fn within<T>(steps: u64, look: impl FnOnce() -> T) -> Option<T> {
    LEFT.set(steps);
    match stacker::maybe_grow(STACK_MIN, STACK, || catch_unwind(AssertUnwindSafe(look))) {
        Ok(seen) => Some(seen),
        Err(reason) if reason.is::<Exhausted>() => None,
        Err(panic) => resume_unwind(panic),
    }
}

/// The custom keyword: accepts every value, and counts a step.
struct Step {
    steps: u64,
    /// Steps per item or member of an array or object.
    walks: u64,
    /// Set when the schema also visits everything below the items or members.
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

/// Approximate length of a value as JSON, bytes.
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

/// Kinds of places in which a keyword contains schemas.
enum Holds {
    One,
    List,
    OneOrList,
    Named,
}

/// Keywords that lead to schemas, of all drafts.
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

/// A schema as it is compiled. Every subschema that leads to others counts a step before anything else. Each referenced
/// subschema gets a number among `$defs`, because wrapping one schema in another changes the target of a pointer.
struct Rewritten<'a> {
    root: &'a Value,
    /// Numbers of referenced subschemas, by JSON pointer.
    targets: BTreeMap<String, usize>,
    todo: Vec<String>,
    schemas: usize,
    patterns: usize,
    /// Remainder of [`UNEVALUATED_MAX`].
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
        // `$ref` alone: drafts before 2019 ignore the keywords beside it.
        whole.insert("allOf".to_owned(), json!([{"$ref": format!("#/$defs/{root}")}]));
        Ok(Value::Object(whole))
    }

    /// Number of the target of a pointer.
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
                        // The library marks an input by every schema that it has compiled for it.
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
        // A small schema that leads to no others is counted with its parent.
        if !leads_on && !is_deep && steps < 4 {
            return Ok(Value::Object(rewritten));
        }
        Ok(json!({"allOf": [{STEP: [steps, walks, u8::from(is_deep)]}, rewritten]}))
    }

    /// Number of schemas that the library visits for the unevaluated parts of this one.
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

    /// Visits the schemas that apply to the same value. References are followed, except those that lead back. Returns
    /// `None` when there are more than `left`.
    fn unfold(&self, schema: &Value, within: &mut BTreeSet<String>, left: &mut u64) -> Option<()> {
        let Value::Object(members) = schema else { return Some(()) };
        *left = left.checked_sub(1)?;
        for (keyword, value) in members {
            match keyword.as_str() {
                "$ref" => {
                    // A reference without a target is refused when it is rewritten.
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

    /// The same for a whole schema, which may contain unevaluated keywords itself. References from it are compiled
    /// once.
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
                    // An entry of `dependencies` may be a list of names, which is not a schema.
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

    /// JSON pointer of a reference into this schema, as it is written.
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

/// Schemas that a keyword contains.
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
