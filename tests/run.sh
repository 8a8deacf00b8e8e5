#!/usr/bin/env bash
# `make test`: runs every suite, then prints the totals. The other suites also run if one fails.
set -uo pipefail
cd "$(dirname "$0")/.."
logs=$(mktemp -d)
# Most tests of a crate wait for processes and timers, so two run at once per core. Each end-to-end test keeps a core
# busy, and some of them kill workers at given times, so one runs at once per core.
cores=$(nproc)
threads=${RUST_TEST_THREADS:-$((2 * cores))}
whole=${RUST_TEST_THREADS:-$cores}
export RUST_TEST_THREADS=$threads
trap 'rm -rf "$logs"' EXIT
failed=0

suite() { # name, command...
    local name=$1
    shift
    echo "== $name"
    if ! "$@" 2>&1 | tee "$logs/$name"; then
        echo "== $name: FAILED"
        failed=1
    fi
}

# Builds all test programs in one call, and lists them as "<package> <target> <folder> <program>". Cargo unifies the features of dependencies
# over the selected packages, and rebuilds most dependencies for another selection.
cargo test --locked --workspace --lib --bins --tests --features stokehold-cli/unified --no-run --message-format json-render-diagnostics >"$logs/messages" || failed=1
python3 - "$logs/messages" >"$logs/programs" <<'EOF'
import json, os, re, sys
for line in open(sys.argv[1]):
    message = json.loads(line)
    if message.get("executable") and message["profile"]["test"]:
        folder = os.path.dirname(message["manifest_path"])
        package = re.search(r'^name = "(.*)"', open(message["manifest_path"]).read(), re.M).group(1)
        print(package, message["target"]["name"], folder, message["executable"])
EOF

# Runs the programs of the packages and targets that match, with these arguments. The other programs also run if one fails.
programs() { # package, target, argument...
    local packages=$1 targets=$2 package target folder program bad=0
    shift 2
    while read -r -u 3 package target folder program; do
        # Unquoted: they are patterns.
        # shellcheck disable=SC2053
        [[ $package == $packages && $target == $targets ]] || continue
        echo "     Running $package $target"
        (cd "$folder" && CARGO_MANIFEST_DIR=$folder "$program" "$@") || { echo "error: $package $target failed"; bad=1; }
    done 3<"$logs/programs"
    return "$bad"
}

rust() {
    local bad=0
    programs '!(stokehold-tests)' '*' || bad=1
    cargo test --locked --workspace --doc --features stokehold-cli/unified --no-fail-fast || bad=1
    return "$bad"
}

valkey() {
    local bad=0
    export STOKE_TEST_REDIS=$STOKE_TEST_VALKEY
    programs stokehold-queue it || bad=1
    programs '*' drill || bad=1
    return "$bad"
}

# Sums the numbers before a word in the lines that match a pattern.
count() { # log, line pattern, word
    grep -hE "$2" "$logs/$1" 2>/dev/null | grep -oE "[0-9]+ $3" | awk '{n += $1} END {print n + 0}'
}

suite rust rust
suite valkey valkey
suite python env -C sdk/python "$PWD/.tools/dev/bin/python" -m pytest -q -n $((2 * cores))
suite javascript npm --prefix sdk/js run --silent test
suite dashboard npm --prefix api/dashboard run --silent test
export RUST_TEST_THREADS=$whole
suite end-to-end programs stokehold-tests '@(it|powercut|monitoring)'
# The quick part of `make hostile-tests`.
suite hostile programs stokehold-tests hostile
# The tests of the same suite that kill and restart processes. `make it TOPOLOGY=...` runs the whole suite.
STOKE_TEST_TOPOLOGY=cluster suite cluster programs stokehold-tests it crash:: pipelines::
STOKE_TEST_TOPOLOGY=failover suite failover programs stokehold-tests it crash::

rust_passed=$(count rust '^test result' passed)
rust_failed=$(count rust '^test result' failed)
valkey_passed=$(count valkey '^test result' passed)
valkey_failed=$(count valkey '^test result' failed)
e2e_passed=$(count end-to-end '^test result' passed)
e2e_failed=$(count end-to-end '^test result' failed)
hostile_passed=$(count hostile '^test result' passed)
hostile_failed=$(count hostile '^test result' failed)
cluster_passed=$(count cluster '^test result' passed)
cluster_failed=$(count cluster '^test result' failed)
failover_passed=$(count failover '^test result' passed)
failover_failed=$(count failover '^test result' failed)
python_passed=$(count python '[0-9]+ (passed|failed).* in ' passed)
python_failed=$(count python '[0-9]+ (passed|failed).* in ' failed)
js_passed=$(grep -hE '^(#|ℹ) pass ' "$logs/javascript" | awk '{n += $3} END {print n + 0}')
js_failed=$(grep -hE '^(#|ℹ) fail ' "$logs/javascript" | awk '{n += $3} END {print n + 0}')

browser_passed=$(count dashboard '^ +[0-9]+ passed' passed)
browser_failed=$(count dashboard '^ +[0-9]+ (failed|did not run|flaky|interrupted)' '(failed|did not run|flaky|interrupted)')

echo
echo "totals"
printf '  %-28s %5d passed, %d failed\n' \
    "Rust" "$rust_passed" "$rust_failed" \
    "Queue on Valkey" "$valkey_passed" "$valkey_failed" \
    "Python SDK and runner" "$python_passed" "$python_failed" \
    "JavaScript SDK" "$js_passed" "$js_failed" \
    "dashboard, in Chromium" "$browser_passed" "$browser_failed" \
    "end to end" "$e2e_passed" "$e2e_failed" \
    "attacks, the quick part" "$hostile_passed" "$hostile_failed" \
    "end to end, on a cluster" "$cluster_passed" "$cluster_failed" \
    "end to end, under Sentinels" "$failover_passed" "$failover_failed"
echo "$((rust_passed + valkey_passed + python_passed + js_passed + browser_passed + e2e_passed + hostile_passed + cluster_passed + failover_passed)) passed, $((rust_failed + valkey_failed + python_failed + js_failed + browser_failed + e2e_failed + hostile_failed + cluster_failed + failover_failed)) failed"
for passed in "$rust_passed" "$valkey_passed" "$python_passed" "$js_passed" "$browser_passed" "$e2e_passed" "$hostile_passed" "$cluster_passed" "$failover_passed"; do
    [ "$passed" -gt 0 ] || failed=1
done
exit "$failed"
