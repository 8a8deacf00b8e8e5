#!/bin/sh
# Releases an endpoint: deploys a new version without traffic, runs a file of test cases on it, and moves all traffic to
# it if it passes. Otherwise, the current version keeps the traffic and the script fails. The first version of an
# endpoint, and an unchanged version, is already current: then a failure moves no traffic. Requires STOKE_URL and
# STOKE_TOKEN, e.g. from `stoke token create --name ci --role deploy,submit,cancel`.
#
#   release.sh HANDLER CASES [option of `stoke endpoint gate` ...]
#   release.sh ./greet cases.jsonl --min-success 0.98 --max-p95 900ms
set -eu
handler=$1 cases=$2
shift 2
deployed=$(stoke deploy "$handler" --traffic 0 --json)
member() { printf '%s' "$1" | python3 -c "import json, sys; print(json.load(sys.stdin)$2)"; }
name=$(member "$deployed" '["name"]')
version=$(member "$deployed" '["version"]')
traffic=$(stoke endpoint traffic "$name" --json)
[ "$(member "$traffic" '["versions"][0]["version"]')" = "$version" ] || set -- --roll-back "$@"
stoke endpoint gate "$name@$version" --batch "$cases" --promote "$@"
