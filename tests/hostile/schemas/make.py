"""Prints hostile JSON Schemas with inputs for them, as JSON: `[{name, schema, inputs}]`, each schema and input as JSON text.

The arguments are the depth of the nesting, and the number of equal parts."""

import json
import sys
from typing import Any

DEPTH = int(sys.argv[1])
WIDTH = int(sys.argv[2])


def doubled(name: str, hold: Any, inputs: list[Any], **others: Any) -> dict[str, Any]:
    """Definitions that each refer to the next one twice: two to the power of the depth."""
    defs = {f"d{n}": hold({"$ref": f"#/$defs/d{n + 1}"}) for n in range(DEPTH)}
    defs[f"d{DEPTH}"] = {"type": ["object", "array", "string", "number", "null", "boolean"]}
    return {"name": f"doubled {name}", "schema": {"$ref": "#/$defs/d0", "$defs": defs, **others}, "inputs": inputs}


def nested(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = [value, value] if depth < 16 else [value]
    return value


def keyed(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = {"a": value, "b": value} if depth < 16 else {"a": value}
    return value


OBJECT, ARRAY = {"a": 1, "b": {"a": 2}}, [1, [2, [3]]]
IMPOSSIBLE = {"type": "integer", "minimum": 2, "maximum": 1}
made = [
    doubled("allOf", lambda next: {"allOf": [next, next]}, [OBJECT, ARRAY, 1]),
    doubled("anyOf", lambda next: {"anyOf": [{"allOf": [next, IMPOSSIBLE]}, next]}, [OBJECT, 1]),
    doubled("oneOf", lambda next: {"oneOf": [next, {"not": next}]}, [OBJECT, 1]),
    doubled("not", lambda next: {"not": {"not": {"allOf": [next, next]}}}, [OBJECT]),
    doubled("if", lambda next: {"if": next, "then": next, "else": next}, [OBJECT, 1]),
    doubled("if with then that fails", lambda next: {"if": next, "then": IMPOSSIBLE, "else": next}, [OBJECT, 1]),
    doubled("items", lambda next: {"items": {"allOf": [next, next]}}, [nested(1, 12), nested(1, 60)]),
    doubled("prefixItems", lambda next: {"prefixItems": [next, next], "items": next}, [nested(1, 12), nested(1, 60)]),
    doubled("contains", lambda next: {"contains": next, "minContains": 1, "maxContains": 2}, [nested(1, 12)]),
    doubled("properties", lambda next: {"properties": {"a": next, "b": next}, "additionalProperties": next}, [keyed(1, 12), keyed(1, 60)]),
    doubled("patternProperties", lambda next: {"patternProperties": {"^a": next, "a$": next, ".": next}}, [keyed(1, 12), keyed(1, 60)]),
    doubled("propertyNames", lambda next: {"propertyNames": {"allOf": [next, next]}}, [OBJECT]),
    doubled("dependentSchemas", lambda next: {"dependentSchemas": {"a": next, "b": next}}, [OBJECT]),
    doubled("dependencies", lambda next: {"dependencies": {"a": next, "b": next}}, [OBJECT]),
    doubled("unevaluatedProperties", lambda next: {"anyOf": [next, next], "unevaluatedProperties": next}, [keyed(1, 10), OBJECT]),
    doubled("unevaluatedItems", lambda next: {"anyOf": [next, next], "unevaluatedItems": next}, [nested(1, 10), ARRAY]),
    doubled("unevaluated of every kind", lambda next: {"allOf": [next, next], "if": next, "unevaluatedItems": next, "unevaluatedProperties": next}, [OBJECT, ARRAY]),
    doubled("contentSchema", lambda next: {"contentMediaType": "application/json", "contentSchema": {"allOf": [next, next]}}, ["[1]"]),
    doubled("definitions of draft 4", lambda next: {"allOf": [next, next]}, [OBJECT], **{"$schema": "http://json-schema.org/draft-04/schema#"}),
    doubled("definitions of draft 7", lambda next: {"allOf": [next, next], "items": [next, next]}, [OBJECT], **{"$schema": "http://json-schema.org/draft-07/schema#"}),
    doubled("of draft 2019", lambda next: {"allOf": [next, next]}, [OBJECT], **{"$schema": "https://json-schema.org/draft/2019-09/schema"}),
]


def add(name: str, schema: Any, *inputs: Any) -> None:
    made.append({"name": name, "schema": schema, "inputs": list(inputs or [OBJECT])})


# The same with other names for the same place.
for name, pointer in {"percent": "#/%24defs/d{}", "percent twice": "#/%2524defs/d{}", "upper": "#/$DEFS/d{}", "absolute": "http://own.example/s#/$defs/d{}"}.items():
    defs = {f"d{n}": {"allOf": [{"$ref": pointer.format(n + 1)}] * 2} for n in range(DEPTH)} | {f"d{DEPTH}": {}}
    add(f"doubled by {name} pointers", {"$id": "http://own.example/s", "$ref": pointer.format(0), "$defs": defs})
properties = {f"p{n}": {"allOf": [{"$ref": f"#/properties/p{n + 1}"}] * 2} for n in range(DEPTH)} | {f"p{DEPTH}": {}}
add("doubled through properties", {"properties": properties}, {"p0": 1})
unknown = {f"d{n}": {"allOf": [{"$ref": f"#/x-mine/d{n + 1}"}] * 2} for n in range(DEPTH)} | {f"d{DEPTH}": {}}
add("doubled below a keyword that is none", {"$ref": "#/x-mine/d0", "x-mine": unknown})
in_const = {f"d{n}": {"allOf": [{"$ref": f"#/const/d{n + 1}"}] * 2} for n in range(DEPTH)} | {f"d{DEPTH}": {}}
add("doubled below const", {"anyOf": [{"$ref": "#/const/d0"}], "const": in_const}, in_const)
in_enum = [{"allOf": [{"$ref": f"#/enum/{n + 1}"}] * 2} for n in range(DEPTH)] + [{}]
add("doubled below enum", {"anyOf": [{"$ref": "#/enum/0"}, {}], "enum": in_enum}, {})
in_default = {f"d{n}": {"allOf": [{"$ref": f"#/default/d{n + 1}"}] * 2} for n in range(DEPTH)} | {f"d{DEPTH}": {}}
add("doubled below default", {"$ref": "#/default/d0", "default": in_default})

# References that differ from their appearance.
anchors = {f"d{n}": {"$anchor": f"a{n}", "allOf": [{"$ref": f"#a{n + 1}"}] * 2} for n in range(DEPTH)} | {f"d{DEPTH}": {"$anchor": f"a{DEPTH}"}}
add("anchors", {"$ref": "#a0", "$defs": anchors})
dynamic = {f"d{n}": {"$dynamicAnchor": f"a{n}", "allOf": [{"$dynamicRef": f"#a{n + 1}"}] * 2} for n in range(DEPTH)} | {f"d{DEPTH}": {"$dynamicAnchor": f"a{DEPTH}"}}
add("$dynamicRef", {"$dynamicRef": "#a0", "$defs": dynamic})
add("$dynamicRef to itself", {"$dynamicAnchor": "n", "anyOf": [{"$dynamicRef": "#n"}, {"$dynamicRef": "#n"}]})
recursive = {"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveAnchor": True}
add("$recursiveRef", recursive | {"anyOf": [{"$recursiveRef": "#"}] * 2})
add("$recursiveRef below items", recursive | {"items": {"allOf": [{"$recursiveRef": "#"}] * 2}}, nested(1, 12), nested(1, 60))
add("$ref to itself", {"$ref": "#"})
add("$ref in a circle", {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}})
add("$ref in a circle through allOf", {"allOf": [{"$ref": "#"}, {"$ref": "#"}]})
add("$ref below items to the root", {"items": {"allOf": [{"$ref": "#"}] * 2}, "additionalProperties": {"allOf": [{"$ref": "#"}] * 2}}, nested(1, 12), keyed(1, 14), nested(1, 100))
add("ids within ids", {"$id": "http://a.example/", "$ref": "b", "$defs": {"b": {"$id": "b", "allOf": [{"$ref": "/"}] * 2}}})
add("an $id that changes what # means", {"$defs": {"a": {"$id": "http://b.example/", "$ref": "#/$defs/c", "$defs": {"c": {"$ref": "#"}}}}, "$ref": "#/$defs/a"})
for where in ("http://127.0.0.1:9/s", "https://json-schema.org/draft/2020-12/schema", "file:///etc/passwd", "//169.254.169.254/latest", "urn:uuid:1", "data:application/json,{}", "../../etc/passwd", "s", ""):
    add(f"a remote $ref {where}", {"$ref": where})
    add(f"a $schema {where}", {"$schema": where, "type": "object"})
add("a $vocabulary", {"$vocabulary": {"http://127.0.0.1:9/v": True}, "type": "object"})
add("the counter's own keyword", {"stokehold-step": [0, 0, 0], "allOf": [{"stokehold-step": [2**60]}]})
add("a meta schema as schema", {"$ref": "https://json-schema.org/draft/2020-12/meta/core"})

# Size.
add("2,000 patterns of one kind", {"patternProperties": {rf"[\w\W]{{300}}x{n}$": {} for n in range(WIDTH)}}, {"a" * 400: 1})
add("2,000 patterns in allOf", {"allOf": [{"pattern": rf"[\w\W]{{300}}x{n}$"} for n in range(WIDTH)]}, "a" * 400)
add("patterns under propertyNames", {"propertyNames": {"anyOf": [{"pattern": rf"[\w\W]{{300}}x{n}$"} for n in range(WIDTH)]}}, OBJECT)
for pattern in (r"(a+)+$", r"(a|a)*$", r"(a|aa)+$", r"^(([a-z])+.)+[A-Z]([a-z])+$", r"(?=(a+)+b)", r"(.*)*\1", r"((a{100}){100}){100}", r"\p{L}{1000}\p{N}{1000}", r"(x{1000}){1000}", "(" * 300 + ")" * 300, r"(?i)\w{500}" * 4, "[" + "a-z" * 3000 + "]"):
    add(f"pattern {pattern[:30]}", {"type": "object", "properties": {"t": {"pattern": pattern}}}, {"t": "a" * 30_000 + "!"})
    add(f"as a property {pattern[:30]}", {"patternProperties": {pattern: {"type": "integer"}}}, {"a" * 20_000 + "!": 1})
for n in (20, 400, 3_000, 20_000):
    deep: Any = {}
    for _ in range(min(n, 900)):
        deep = {"allOf": [deep]}
    add(f"allOf {n} deep", deep)
    add(f"allOf {n} wide", {"allOf": [{"type": "object"}] * n})
    add(f"oneOf {n} wide", {"oneOf": [{"const": m} for m in range(n)]}, 1, n)
    add(f"enum of {n}", {"enum": [f"{m}" * 8 for m in range(n)]}, "x")
    add(f"required {n}", {"required": [f"{m}" for m in range(n)]}, {})
    add(f"{n} properties", {"properties": {f"p{m}": {"type": "integer"} for m in range(n)}}, {f"p{m}": "x" for m in range(min(n, 5_000))})
    add(f"uniqueItems of {n}", {"uniqueItems": True}, [{"a": m} for m in range(n)], [[m] for m in range(n)], [float(m) for m in range(n)])
    add(f"an array of {n} against anyOf", {"items": {"anyOf": [{"const": m} for m in range(100)]}}, list(range(n)))
    add(f"an array {min(n, 120)} deep", {"items": {"$ref": "#"}}, nested(1, min(n, 120)))
add("unique items in unique items", {"uniqueItems": True, "items": {"uniqueItems": True, "items": {"uniqueItems": True}}}, [[[a, b, c] for a in range(20) for b in range(20)] for c in range(20)])
add("contains in contains", {"contains": {"contains": {"contains": {"contains": {"const": 9}}}}}, nested(1, 14))
add("multipleOf a tiny number", {"multipleOf": 1e-300}, 1e300, 0.1)
add("minLength over all", {"minLength": 2**63, "maxLength": 2**64 - 1, "minItems": 2**53}, "x")
add("numbers that are large", {"minimum": 1e308, "exclusiveMaximum": -1e308}, 1)
for word in ("email", "idn-email", "uri", "iri", "uri-template", "json-pointer", "regex", "hostname", "idn-hostname", "ipv6", "duration", "date-time"):
    add(f"format {word}", {"type": "object", "properties": {"t": {"format": word}}}, {"t": "a." * 20_000}, {"t": "((a+)+)+" * 2_000})
# Values that are not schemas.
for value in (None, 1, "x", [], [{}], True, False, {"type": "nothing"}, {"properties": 1}, {"$ref": 1}, {"$ref": "#/nowhere"}, {"$defs": [1]}, {"items": "x"}, {"allOf": {}}, {"$schema": 1}, {"$id": "#x"}, {"pattern": "("}, {"\u0000": {}}, {"properties": {"\ud800": {}}}):
    add(f"no schema {str(value)[:30]!r}", value)
sys.setrecursionlimit(100_000)
text = [{"name": one["name"], "schema": json.dumps(one["schema"]), "inputs": [json.dumps(value) for value in one["inputs"]]} for one in made]
print(json.dumps(text))
