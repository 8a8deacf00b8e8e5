#!/bin/sh
# Releases an endpoint: deploys a version that gets no job, runs a file of cases on it, and lets it have all new jobs if it is good
# enough. Else what was current keeps them, and this ends with an error. The first version of an endpoint is current from the start, and
# stays so where nothing has changed: then a failure moves nothing. Wants STOKE_URL and STOKE_TOKEN, as of
# `stoke token create --name ci --role deploy,submit,cancel`.
#
#   release.sh HANDLER CASES [option of `stoke gate` ...]
#   release.sh ./greet cases.jsonl --min-success 0.98 --max-p95-ms 900
set -eu
handler=$1 cases=$2
shift 2
deployed=$(stoke deploy "$handler" --traffic 0 --json)
member() { printf '%s' "$1" | python3 -c "import json, sys; print(json.load(sys.stdin)$2)"; }
name=$(member "$deployed" '["name"]')
version=$(member "$deployed" '["version"]')
traffic=$(stoke endpoints traffic "$name" --json)
[ "$(member "$traffic" '["versions"][0]["version"]')" = "$version" ] || set -- --roll-back "$@"
stoke gate --endpoint "$name" --version "$version" --batch "$cases" --promote "$@"
