//! Short text forms of JSON Schemas, and example inputs.

use std::cell::Cell;

use serde_json::{Map, Value, json};

/// Maximum number of references that are followed in one document. A schema may refer to itself.
const REFERENCES_MAX: u32 = 100;

/// The members of an input with types and defaults, e.g. `text: string, times: integer = 1`.
pub(crate) fn summary(schema: &Value) -> String {
    let document = Document::new(schema);
    let root = document.root();
    root.members().unwrap_or_else(|| root.type_of())
}

/// The type of a result, in short. An object is shown with its members, e.g. `{count: integer}`.
pub(crate) fn result(schema: &Value) -> String {
    Document::new(schema).root().whole()
}

/// Example arguments of `stoke submit` that match the schema.
pub(crate) fn example(schema: &Value) -> String {
    let document = Document::new(schema);
    let mut input = Map::new();
    let mut files = String::new();
    for (name, member) in document.root().required() {
        if member.may_be_file() {
            files.push_str(&format!(" --file {name}=PATH"));
        } else {
            input.insert(name.to_owned(), member.sample());
        }
    }
    if input.is_empty() && !files.is_empty() {
        return files.trim_start().to_owned();
    }
    format!("--input '{}'{files}", Value::from(input).to_string().replace('\'', r"'\''"))
}

/// Advice on the options that pass the files which the schema wants and the input does not have.
pub(crate) fn file_advice(schema: &Value, input: &Value) -> Option<String> {
    let document = Document::new(schema);
    let root = document.root();
    let is_missing = |(name, member): &(&str, Node<'_>)| {
        // A path in the JSON is a text: only `--file` turns it into a file.
        let given = &input[*name];
        let is_required = root.requires(name);
        member.is_file() && (given.is_string() || (given.is_null() && is_required))
            || member.may_be_file() && given.is_null() && is_required
    };
    let options: Vec<String> =
        root.properties().filter(is_missing).map(|(name, _)| format!("`--file {name}=PATH`")).collect();
    (!options.is_empty()).then(|| format!("Pass a file with {}.", options.join(" ")))
}

/// A document with the schemas that it defines.
struct Document<'a> {
    schema: &'a Value,
    /// Number of references that may still be followed.
    left: Cell<u32>,
}

impl<'a> Document<'a> {
    fn new(schema: &'a Value) -> Self {
        Self { schema, left: Cell::new(REFERENCES_MAX) }
    }

    fn root(&self) -> Node<'_> {
        Node { document: self, schema: self.schema, followed: Vec::new() }.resolved()
    }
}

/// A schema in a document.
struct Node<'a> {
    document: &'a Document<'a>,
    schema: &'a Value,
    /// The references on the way here.
    followed: Vec<&'a str>,
}

impl<'a> Node<'a> {
    /// A part of this schema.
    fn part(&self, schema: &'a Value) -> Self {
        Self { document: self.document, schema, followed: self.followed.clone() }.resolved()
    }

    /// Follows local references. One that leads back, or nowhere, stays.
    fn resolved(mut self) -> Self {
        while let Some(reference) = self.reference() {
            let target = reference.strip_prefix('#').and_then(|pointer| self.document.schema.pointer(pointer));
            let left = self.document.left.get();
            let Some(target) = target.filter(|_| left > 0 && !self.followed.contains(&reference)) else { break };
            self.document.left.set(left - 1);
            self.followed.push(reference);
            self.schema = target;
        }
        self
    }

    /// The reference in place of a schema, also as the only part of `allOf`.
    fn reference(&self) -> Option<&'a str> {
        let only = self.schema["allOf"].as_array().filter(|parts| parts.len() == 1).map(|parts| &parts[0]);
        self.schema.get("$ref").or_else(|| only?.get("$ref"))?.as_str()
    }

    fn properties(&self) -> impl Iterator<Item = (&'a str, Self)> {
        let members = self.schema["properties"].as_object().into_iter().flatten();
        members.map(|(name, member)| (name.as_str(), self.part(member)))
    }

    /// The required members.
    fn required(&self) -> impl Iterator<Item = (&'a str, Self)> {
        let names = self.schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        names.map(|name| (name, self.part(&self.schema["properties"][name])))
    }

    fn requires(&self, name: &str) -> bool {
        self.schema["required"].as_array().is_some_and(|required| required.iter().any(|each| each == name))
    }

    /// The members with types and defaults, the required ones first, each group in schema order; `None` if there are
    /// none.
    fn members(&self) -> Option<String> {
        let text = |(name, member): (&str, Self)| {
            // The default is beside the reference.
            let default = match &self.schema["properties"][name].get("default") {
                _ if self.requires(name) => String::new(),
                Some(default) => format!(" = {default}"),
                None => "?".to_owned(),
            };
            format!("{name}: {}{default}", member.type_of())
        };
        let (first, then): (Vec<_>, Vec<_>) = self.properties().partition(|(name, _)| self.requires(name));
        let members: Vec<String> = first.into_iter().chain(then).map(text).collect();
        (!members.is_empty()).then(|| members.join(", "))
    }

    /// The type with the members of objects, also of those in a list.
    fn whole(&self) -> String {
        if let Some(members) = self.members() {
            return format!("{{{members}}}");
        }
        match self.items() {
            Some(items) => format!("list of {}", items.whole()),
            None => self.type_of(),
        }
    }

    /// The type, in short.
    fn type_of(&self) -> String {
        if let Some(reference) = self.reference() {
            return reference.rsplit('/').next().unwrap_or(reference).to_owned();
        }
        if self.is_file() {
            return "file".to_owned();
        }
        if let Some(value) = self.schema.get("const") {
            return value.to_string();
        }
        if let Some(values) = self.schema["enum"].as_array() {
            return values.iter().map(Value::to_string).collect::<Vec<_>>().join(" | ");
        }
        if let Some(choices) = self.choices() {
            return choices.map(|choice| choice.type_of()).collect::<Vec<_>>().join(" | ");
        }
        if let Some(items) = self.items() {
            return format!("list of {}", items.type_of());
        }
        match &self.schema["type"] {
            Value::String(kind) => kind.clone(),
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" | "),
            _ => "anything".to_owned(),
        }
    }

    /// A value that matches the schema. A schema that contains itself has none, and gets null.
    fn sample(&self) -> Value {
        let schema = self.schema;
        let given = [&schema["default"], &schema["const"], &schema["enum"][0], &schema["examples"][0]];
        if let Some(given) = given.into_iter().find(|given| !given.is_null()) {
            return given.clone();
        }
        if let Some(first) = self.choices().and_then(|mut choices| choices.next()) {
            return first.sample();
        }
        match schema["type"].as_str() {
            Some("string") => json!("hello"),
            Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or(json!(1)),
            Some("boolean") => json!(true),
            Some("array") => self.items().map(|items| items.sample()).into_iter().collect(),
            Some("object") => {
                self.required().map(|(name, member)| (name.to_owned(), member.sample())).collect::<Map<_, _>>().into()
            }
            _ => Value::Null,
        }
    }

    /// The schema of the items of a list.
    fn items(&self) -> Option<Self> {
        let items = &self.schema["items"];
        (self.schema["type"] == "array" && items.is_object()).then(|| self.part(items))
    }

    fn choices(&self) -> Option<impl Iterator<Item = Self>> {
        let choices = self.schema["anyOf"].as_array().or(self.schema["oneOf"].as_array())?;
        Some(choices.iter().map(|choice| self.part(choice)))
    }

    fn is_file(&self) -> bool {
        self.schema["format"] == "stokehold-file"
    }

    /// Whether the schema is that of a file, or of a file among others.
    fn may_be_file(&self) -> bool {
        self.is_file() || self.choices().is_some_and(|mut choices| choices.any(|choice| choice.is_file()))
    }
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

    #[test]
    fn references_are_followed() {
        let schema = json!({"type": "object", "required": ["box"],
        "properties": {
            "box": {"$ref": "#/$defs/Box"},
            "colour": {"allOf": [{"$ref": "#/$defs/Colour"}], "default": "red"},
            "boxes": {"type": "array", "items": {"$ref": "#/$defs/Box"}},
            "lost": {"$ref": "#/$defs/Lost"},
            "far": {"$ref": "https://example.com/far"},
        },
        "$defs": {
            "Box": {"type": "object", "required": ["left"], "properties": {"left": {"type": "integer"}}},
            "Colour": {"enum": ["red", "blue"]},
        }});
        let expected = r#"box: object, boxes: list of object?, colour: "red" | "blue" = "red", far: far?, lost: Lost?"#;
        let mut members: Vec<String> = summary(&schema).split(", ").map(str::to_owned).collect();
        members.sort();
        let mut wanted: Vec<&str> = expected.split(", ").collect();
        wanted.sort_unstable();
        assert_eq!(members, wanted);
        assert_eq!(example(&schema), r#"--input '{"box":{"left":1}}'"#);
    }

    #[test]
    fn a_result_shows_its_members() {
        let typed_dict = json!({"$ref": "#/$defs/Count", "$defs": {
            "Count": {"type": "object", "required": ["count"], "properties": {"count": {"type": "integer"}}}}});
        assert_eq!(result(&typed_dict), "{count: integer}");
        let list = json!({"type": "array", "items": {"$ref": "#/$defs/Count"}, "$defs": typed_dict["$defs"]});
        assert_eq!(result(&list), "list of {count: integer}");
        assert_eq!(result(&json!({"type": "string"})), "string");
        assert_eq!(result(&json!({})), "anything");
    }

    #[test]
    fn a_schema_that_contains_itself_has_an_end() {
        let tree = json!({"$ref": "#/$defs/Tree", "$defs": {"Tree": {"type": "object", "required": ["next"],
            "properties": {"next": {"$ref": "#/$defs/Tree"}, "all": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}}}}});
        let shown = summary(&tree);
        assert!(shown.contains("next: Tree") && shown.contains("all: list of Tree?"), "{shown}");
        assert_eq!(example(&tree), r#"--input '{"next":null}'"#);
        assert_eq!(summary(&json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}})), "a");
        // Each of these names the next twice, so that the whole text would have 2^40 parts.
        let mut defs: Map<String, Value> = (0..40)
            .map(|n| {
                let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
                (format!("d{n}"), json!({"anyOf": [next, next]}))
            })
            .collect();
        defs.insert("d40".to_owned(), json!({"type": "string"}));
        let wide = json!({"$ref": "#/$defs/d0", "$defs": defs});
        assert!(summary(&wide).len() < 10_000 && example(&wide).starts_with("--input"));
    }

    #[test]
    fn a_missing_file_names_its_option() {
        let advice = |input: Value| file_advice(&schema(), &input);
        let all = "Pass a file with `--file photo=PATH` `--file talk=PATH`.";
        let sorted = |text: Option<String>| {
            let mut words: Vec<String> =
                text.unwrap().split(' ').map(|word| word.trim_end_matches('.').to_owned()).collect();
            words.sort();
            words
        };
        assert_eq!(sorted(advice(json!({"texts": []}))), sorted(Some(all.to_owned())));
        let file = json!({"$file": "file_1"});
        assert_eq!(
            advice(json!({"texts": [], "photo": "a.png", "talk": "https://x.test/a.mp3"})).unwrap(),
            "Pass a file with `--file photo=PATH`."
        );
        assert_eq!(advice(json!({"photo": file, "talk": file})), None);
    }
}
