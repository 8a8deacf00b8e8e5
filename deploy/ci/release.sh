#!/bin/sh
# Releases an endpoint: deploys a version that gets no job, runs a file of cases on it, and lets it have all new jobs if it is good
# enough. Else the version before keeps them, and this ends with an error. Wants STOKE_URL and STOKE_TOKEN, a token with the role `deploy`.
#
#   release.sh HANDLER CASES [option of `stoke gate` ...]
#   release.sh ./greet cases.jsonl --min-success 0.98 --max-p95-ms 900
set -eu
handler=$1 cases=$2
shift 2
deployed=$(stoke deploy "$handler" --traffic 0 --json)
member() { printf '%s' "$deployed" | python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }
stoke gate --endpoint "$(member name)" --version "$(member version)" --batch "$cases" --promote --roll-back "$@"
