//! Short text forms of JSON Schemas, and example inputs.

use serde_json::{Map, Value, json};

/// The members of an input with types and defaults, e.g. `text: string, times: integer = 1`.
pub(crate) fn summary(schema: &Value) -> String {
    let Some(members) = schema["properties"].as_object().filter(|members| !members.is_empty()) else {
        return type_of(schema);
    };
    let required =
        |name: &str| schema["required"].as_array().is_some_and(|required| required.iter().any(|each| each == name));
    let member = |(name, member): (&String, &Value)| {
        let default = if required(name) {
            String::new()
        } else {
            member.get("default").map_or("?".to_owned(), |default| format!(" = {default}"))
        };
        format!("{name}: {}{default}", type_of(member))
    };
    // Required members first, each group in schema order.
    let (first, then): (Vec<_>, Vec<_>) = members.iter().partition(|(name, _)| required(name));
    first.into_iter().chain(then).map(member).collect::<Vec<_>>().join(", ")
}

/// The type of a schema, in short.
pub(crate) fn type_of(schema: &Value) -> String {
    if is_file(schema) {
        return "file".to_owned();
    }
    if let Some(values) = schema["enum"].as_array() {
        return values.iter().map(Value::to_string).collect::<Vec<_>>().join(" | ");
    }
    if let Some(choices) = choices(schema) {
        return choices.iter().map(type_of).collect::<Vec<_>>().join(" | ");
    }
    match &schema["type"] {
        Value::String(kind) if kind == "array" && schema["items"].is_object() => {
            format!("list of {}", type_of(&schema["items"]))
        }
        Value::String(kind) => kind.clone(),
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" | "),
        _ => "anything".to_owned(),
    }
}

/// Example arguments of `stoke submit` that match the schema.
pub(crate) fn example(schema: &Value) -> String {
    let mut input = Map::new();
    let mut files = String::new();
    let names = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for name in names {
        let member = &schema["properties"][name];
        if is_file(member) || choices(member).is_some_and(|choices| choices.iter().any(is_file)) {
            files.push_str(&format!(" --file {name}=PATH"));
        } else {
            input.insert(name.to_owned(), sample(member));
        }
    }
    if input.is_empty() && !files.is_empty() {
        return files.trim_start().to_owned();
    }
    format!("--input '{}'{files}", Value::from(input).to_string().replace('\'', r"'\''"))
}

fn sample(schema: &Value) -> Value {
    let given = [&schema["default"], &schema["enum"][0], &schema["examples"][0]];
    if let Some(given) = given.into_iter().find(|given| !given.is_null()) {
        return given.clone();
    }
    if let Some(first) = schema["anyOf"].get(0).or(schema["oneOf"].get(0)) {
        return sample(first);
    }
    match schema["type"].as_str() {
        Some("string") => json!("hello"),
        Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or(json!(1)),
        Some("boolean") => json!(true),
        Some("array") if schema["items"].is_object() => json!([sample(&schema["items"])]),
        Some("array") => json!([]),
        Some("object") => {
            let names = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            names.map(|name| (name.to_owned(), sample(&schema["properties"][name]))).collect::<Map<_, _>>().into()
        }
        _ => Value::Null,
    }
}

fn choices(schema: &Value) -> Option<&Vec<Value>> {
    schema["anyOf"].as_array().or(schema["oneOf"].as_array())
}

fn is_file(schema: &Value) -> bool {
    schema["format"] == "stokehold-file"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Value {
        json!({"type": "object", "required": ["texts", "photo", "talk"], "properties": {
            "talk": {"anyOf": [{"type": "object", "format": "stokehold-file"}, {"type": "string", "format": "uri"}]},
            "texts": {"type": "array", "items": {"type": "string"}},
            "photo": {"type": "object", "format": "stokehold-file"},
            "size": {"type": "integer", "default": 2},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        }})
    }

    #[test]
    fn a_summary_names_every_member_and_what_is_left_out() {
        let said = summary(&schema());
        for part in
            ["texts: list of string", "photo: file", "talk: file | string", "size: integer = 2", "note: string | null?"]
        {
            assert!(said.contains(part), "{said}");
        }
    }

    #[test]
    fn an_example_gives_what_is_required() {
        assert_eq!(example(&schema()), r#"--input '{"texts":["hello"]}' --file photo=PATH --file talk=PATH"#);
        assert_eq!(example(&json!({"type": "object"})), "--input '{}'");
    }
}
