#!/usr/bin/env bash
# `make schema`: starts the stack as a user does, deploys an endpoint, and tests the API with schemathesis: requests that /openapi.json allows,
# requests that it forbids, and sequences of requests along its links.
set -euo pipefail
cd "$(dirname "$0")/../.."
examples=${EXAMPLES:-5}
stoke=${STOKE_BIN:-$PWD/target/debug/stoke}
tool=$PWD/.tools/schema/bin
data=$(mktemp -d)
export STOKE_CREDENTIALS=$data/credentials.json
"$stoke" dev --data "$data/stack" --listen 127.0.0.1:0 >"$data/log" 2>&1 &
pid=$!
stop() {
    kill "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
    rm -rf "$data"
}
trap stop EXIT
timeout 120 bash -c "until grep -qx ' *ready *' '$data/log'; do kill -0 $pid && sleep 0.1; done" \
    || { cat "$data/log" >&2; exit 1; }
field() { "$tool/python" -c "import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])" "$STOKE_CREDENTIALS" "$1"; }
url=$(field url)
"$stoke" deploy sdk/examples/echo >/dev/null

# schemathesis keeps a cache of failures in the working directory.
config=$PWD/tests/schema
cd "$data"
run() {
    PYTHONPATH=$config SCHEMATHESIS_HOOKS=hooks SCHEMA_TALLY=$data/tally STOKE_TOKEN=$(field token) \
        "$tool/schemathesis" --config-file "$config/schemathesis.toml" run "$url/openapi.json" ${SEED:+--seed "$SEED"} "$@"
}
run --phases coverage,fuzzing --max-examples "$examples"
run --phases stateful --mode positive --max-time "$((examples * 4))"
# A response may hide a crash: the log must have no error.
if grep -E 'panicked|"level":"ERROR"| ERROR ' "$data/log"; then
    echo "the stack logged errors" >&2
    exit 1
fi
echo "answers by operation:"
sort "$data/tally" | uniq -c | awk '$4 != 405 && $2 != "OPTIONS" {op = $2 " " $3; answers[op] = answers[op] " " $4 "x" $1} END {for (op in answers) print "  " op answers[op]}' | sort
# A run in which no request was accepted proves nothing.
for made in 'POST /v1/jobs 20' 'POST /v1/jobs/bulk 20' 'POST /v1/batches 20' 'POST /v1/schedules 20' 'POST /v1/files 20' 'GET /v1/jobs/{id} 200'; do
    grep -qF "$made" "$data/tally" || { echo "no response like: $made" >&2; exit 1; }
done
