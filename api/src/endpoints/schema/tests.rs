use std::time::Duration;

use super::*;

fn fits(schema: Value, input: Value) -> Result<(), Vec<Misfit>> {
    Schema::compile(&schema).unwrap().check(&input, 20)
}

fn refused(schema: Value) -> String {
    Schema::compile(&schema).err().expect("it is refused")
}

fn paths(outcome: Result<(), Vec<Misfit>>) -> Vec<String> {
    outcome.err().unwrap_or_default().into_iter().map(|misfit| misfit.path).collect()
}

/// The library compiles unevaluated keywords through every reference again.
#[test]
fn what_is_unevaluated_has_a_bound() {
    for keyword in ["unevaluatedProperties", "unevaluatedItems"] {
        for combined in ["allOf", "anyOf", "oneOf"] {
            let mut defs: Map<String, Value> = (0..40)
                .map(|n| {
                    let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
                    (format!("d{n}"), json!({combined: [next, next]}))
                })
                .collect();
            defs.insert("d40".to_owned(), json!({}));
            let schema = json!({"$ref": "#/$defs/d0", "$defs": defs, keyword: false});
            assert!(refused(schema).contains("determine what is evaluated"), "{combined} {keyword}");
        }
        // The case without references.
        let nested = (0..30).fold(json!({}), |inner, _| json!({"allOf": [inner], keyword: false}));
        assert!(refused(nested).contains("determine what is evaluated"), "{keyword}");
    }
    // Each of these leads to all others, so the number of paths is the number of their permutations.
    let all: Vec<Value> = (0..12).map(|n| json!({"$ref": format!("#/$defs/d{n}")})).collect();
    let defs: Map<String, Value> = (0..12).map(|n| (format!("d{n}"), json!({"anyOf": all}))).collect();
    let circles = json!({"anyOf": all, "$defs": defs, "unevaluatedProperties": false});
    assert!(refused(circles).contains("determine what is evaluated"));

    let tree = json!({
        "$defs": {"node": {"type": "object", "properties": {"value": {"type": "integer"}, "left": {"$ref": "#/$defs/leaf"}}}},
        "allOf": [{"$ref": "#/$defs/node"}], "properties": {"more": {"$ref": "#"}}, "unevaluatedProperties": false,
    });
    let mut tree = tree;
    tree["$defs"]["leaf"] = json!({"allOf": [{"$ref": "#/$defs/node"}], "unevaluatedProperties": false});
    assert!(fits(tree.clone(), json!({"value": 1, "left": {"value": 2}, "more": {"value": 3}})).is_ok());
    assert!(fits(tree, json!({"value": 1, "left": {"other": 2}})).is_err());
}

#[test]
fn a_schema_fetches_nothing_and_backtracks_never() {
    assert!(refused(json!({"$ref": "https://example.org/schema.json"})).contains("external schemas are not fetched"));
    assert!(refused(json!({"properties": {"a": {"$ref": "file:///etc/passwd"}}})).starts_with("/properties/a/$ref: "));
    assert!(refused(json!({"type": "strange"})).starts_with("/type: "));
    assert!(refused(json!("strange")).starts_with("\"strange\" is not of types"));
    assert!(refused(json!({"description": "x".repeat(TEXT_MAX)})).starts_with("has "));
    assert!(refused(json!({"$ref": "#/$defs/absent"})).contains("#/$defs/absent"));
    assert!(refused(json!({"$defs": {"a": {"$anchor": "x"}}, "$ref": "#/$defs/a"})).contains("$anchor"));
    let evil = json!({"type": "string", "pattern": "^(a+)+$"});
    assert!(fits(evil, json!(format!("{}!", "a".repeat(100_000)))).is_err());
}

#[test]
fn schemas_mean_what_they_say() {
    let node = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "https://example.org/node",
        "definitions": {"name": {"type": "string", "minLength": 1}, "a/b": {"enum": [1, 2]}, "$ref": {"const": true}},
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"$ref": "#/definitions/name"},
            "again": {"$ref": "#/properties/name"},
            "child": {"$ref": "#"},
            "self": {"$ref": "https://example.org/node#/properties/child"},
            "n": {"$ref": "#/definitions/a~1b", "type": "string"},
            "t": {"$ref": "#/definitions/%24ref"},
            "pair": {"items": [{"type": "integer"}, {"type": "string"}], "additionalItems": false},
            "default": {"type": "integer"},
        },
        "dependencies": {"n": ["t"], "pair": {"required": ["n"]}},
        "additionalProperties": false,
    });
    let child = json!({"name": "b", "child": {"name": "c"}});
    assert_eq!(
        fits(node.clone(), json!({"name": "a", "child": child, "n": 1, "t": true, "pair": [1, "x"], "default": 1})),
        Ok(())
    );
    assert_eq!(
        paths(fits(node.clone(), json!({"name": "a", "child": {"name": "b", "child": {"name": 1}}}))),
        ["/child/child/name"]
    );
    assert_eq!(
        paths(fits(node.clone(), json!({"name": "a", "self": {"name": ""}, "again": ""}))),
        ["/again", "/self/name"]
    );
    for wrong in [
        json!({}),
        json!({"name": "a", "x": 1}),
        json!({"name": "a", "n": 3, "t": true}),
        json!({"name": "a", "n": 1}),
        json!({"name": "a", "n": 1, "t": true, "pair": [1, "x", 2]}),
        json!({"name": "a", "default": "x"}),
    ] {
        assert!(fits(node.clone(), wrong.clone()).is_err(), "{wrong}");
    }
    let unevaluated = json!({
        "allOf": [{"$ref": "#/$defs/base"}],
        "properties": {"b": true},
        "unevaluatedProperties": false,
        "$defs": {"base": {"properties": {"a": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}},
    });
    assert_eq!(fits(unevaluated.clone(), json!({"a": 1, "b": 2})), Ok(()));
    assert!(fits(unevaluated.clone(), json!({"c": 1})).is_err());
    assert!(fits(unevaluated, json!({"a": "x"})).is_err());
    assert_eq!(fits(json!(true), json!({"any": "thing"})), Ok(()));
    assert!(fits(json!(false), json!(1)).is_err());
    assert_eq!(fits(json!({}), json!([1])), Ok(()));
}

/// 40 definitions, each of which references the next one twice.
fn bomb(link: impl Fn(Value) -> Value, last: Value) -> Value {
    let name = |n: usize| json!({"$ref": format!("#/$defs/a{n}")});
    let mut defs: Map<String, Value> = (0..40).map(|n| (format!("a{n}"), link(name(n + 1)))).collect();
    defs.insert("a40".to_owned(), last);
    json!({"$ref": "#/$defs/a0", "$defs": defs})
}

#[test]
fn no_schema_makes_more_steps_than_an_input_may_take() {
    let nested = |depth: usize| (0..depth).fold(json!(1), |inner, _| json!([inner]));
    let twice = |keyword: &'static str| move |next: Value| json!({keyword: [next, next]});
    let mut bombs = Vec::new();
    for last in [json!(true), json!({}), json!({"type": "string"}), json!({"type": "integer"}), json!(false)] {
        for keyword in ["allOf", "anyOf", "oneOf"] {
            bombs.push((bomb(twice(keyword), last.clone()), json!(1)));
        }
        bombs.push((bomb(|next| json!({"not": next, "if": next, "then": next}), last.clone()), json!(1)));
        bombs.push((bomb(|next| json!({"items": next, "contains": next}), last.clone()), nested(45)));
        bombs.push((
            bomb(|next| json!({"properties": {"a": next}, "patternProperties": {"a": next, "^a": next}}), last.clone()),
            { (0..45).fold(json!(1), |inner, _| json!({"a": inner})) },
        ));
        bombs.push((bomb(|next| json!({"dependentSchemas": {"a": next, "b": next}}), last), json!({"a": 1, "b": 2})));
    }
    let both_ways =
        json!({"$ref": "#/x/y", "x": {"y": {"allOf": [{"items": {"$ref": "#/x/y"}}, {"items": {"$ref": "#/x/y"}}]}}});
    bombs.push((both_ways.clone(), nested(100)));
    let mut unhappy = both_ways;
    unhappy["x"]["y"]["allOf"][1]["not"] = json!({"type": "number"});
    bombs.push((unhappy, nested(100)));
    let one_in_many: Vec<Value> = (0..3_000).map(|n| json!({"type": "object", "required": [n.to_string()]})).collect();
    bombs.push((json!({"items": {"anyOf": one_in_many}}), json!(vec![1; 20_000])));
    let names: Vec<String> = (0..10_000).map(|n| n.to_string()).collect();
    bombs.push((json!({"items": {"enum": names}}), json!(vec![1; 20_000])));
    let unique: Vec<Value> = (0..2_000).map(|n| json!({"uniqueItems": true, "maxItems": 1_000_000 + n})).collect();
    bombs.push((json!({"allOf": unique}), json!((0..10_000).collect::<Vec<_>>())));
    bombs.push((json!({"items": {"type": "string"}}), json!(vec![1; 50_000])));

    let began = cpu();
    for (schema, input) in bombs {
        let schema = Schema::compile(&schema).unwrap();
        // Some fit and some do not. Only termination matters.
        let _ = schema.check(&input, 20);
    }
    let took = cpu() - began;
    assert!(took < Duration::from_secs(60), "{took:?}");
}

/// CPU time of this thread, which excludes that of other threads.
fn cpu() -> Duration {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
    Duration::new(now.tv_sec() as u64, now.tv_nsec() as u32)
}

#[test]
fn references_and_inputs_nest_as_deep_as_they_may() {
    let link = |n: usize| (format!("a{n}"), json!({"$ref": format!("#/$defs/a{}", n + 1)}));
    let mut defs: Map<String, Value> = (0..SCHEMAS_MAX - 10).map(link).collect();
    defs.insert(format!("a{}", SCHEMAS_MAX - 10), json!({"type": "integer"}));
    let chain = Schema::compile(&json!({"$ref": "#/$defs/a0", "$defs": defs})).unwrap();
    let _ = chain.check(&json!(1), 20);

    let tree = json!({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#"}}]});
    let deep = (0..120).fold(json!(1), |inner, _| json!([inner, 2]));
    assert_eq!(fits(tree.clone(), deep), Ok(()));
    let wrong = (0..120).fold(json!("x"), |inner, _| json!([inner, 2]));
    assert!(fits(tree, wrong).is_err());
}

#[test]
fn what_is_too_much_is_refused_when_it_is_deployed() {
    let many: Vec<Value> = (0..=SCHEMAS_MAX).map(|_| json!({})).collect();
    assert!(refused(json!({"anyOf": many})).contains("more than 4000 schemas"));
    let patterns: Map<String, Value> = (0..=PATTERNS_MAX).map(|n| (format!("p{n}"), json!({"pattern": "a"}))).collect();
    assert!(refused(json!({"properties": patterns})).contains("more than 200 patterns"));
    let large: Map<String, Value> =
        (0..100).map(|n| (format!("p{n}"), json!({"pattern": format!(r"[\w\W]{{300}}x{n}$")}))).collect();
    assert!(Schema::compile(&json!({"properties": large})).is_err(), "their share of what patterns may take");
    assert!(refused(json!({"description": "x".repeat(TEXT_MAX)})).contains("bytes"));
}

#[test]
fn large_inputs_of_usual_schemas_are_within_their_steps() {
    let message = json!({"type": "object", "required": ["role", "content"], "properties": {
        "role": {"enum": ["system", "user", "assistant"]},
        "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"oneOf": [
            {"type": "object", "properties": {"type": {"const": "text"}, "text": {"type": "string"}}, "required": ["type", "text"]},
            {"type": "object", "properties": {"type": {"const": "image"}, "url": {"type": "string", "pattern": "^https?://"}}, "required": ["type", "url"]},
        ]}}]},
    }});
    let schema = json!({"type": "object", "properties": {"messages": {"type": "array", "items": message}}, "required": ["messages"]});
    let part = json!({"type": "text", "text": "hello there"});
    let messages = vec![json!({"role": "user", "content": [part, part]}); 8_000];
    assert_eq!(fits(schema, json!({"messages": messages})), Ok(()));
    let numbers = json!({"type": "array", "items": {"type": "array", "items": {"type": "number"}}});
    assert_eq!(fits(numbers, json!(vec![vec![0.5; 1_000]; 250])), Ok(()));
}
