#!/usr/bin/env bash
# `make test`: runs every suite, then prints the totals. The other suites also run if one fails.
set -uo pipefail
cd "$(dirname "$0")/.."
logs=$(mktemp -d)
# Most tests wait for processes and timers: those of a crate use half of a core, end-to-end tests less than a fifth.
cores=$(nproc)
given=${RUST_TEST_THREADS:-}
export RUST_TEST_THREADS=${given:-$((2 * cores))}
trap 'rm -rf "$logs"' EXIT
failed=0

declare -A took

suite() { # name, command...
    local name=$1 since=$SECONDS
    shift
    echo "== $name"
    if ! "$@" 2>&1 | tee "$logs/$name"; then
        echo "== $name: FAILED"
        failed=1
    fi
    took[$name]=$((SECONDS - since))
}

# Builds all test programs in one call, and lists them as "<package> <target> <folder> <program>". Cargo unifies the features of dependencies
# over the selected packages, and rebuilds most dependencies for another selection.
cargo test --locked --workspace --lib --bins --tests --features stokehold-cli/unified --no-run --message-format json-render-diagnostics >"$logs/messages" || failed=1
took[build]=$SECONDS
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

# The tests of these modules wait for up to two minutes. They start first, beside the others, which run in the order of their names.
long=(killed:: openai_kills:: phases:: renting::)

end_to_end() {
    local module skipped=() beside bad=0
    if [ -n "$given" ]; then
        programs stokehold-tests '@(it|powercut|monitoring)'
        return
    fi
    for module in "${long[@]}"; do skipped+=(--skip "$module"); done
    (
        programs stokehold-tests it "${long[@]}" || bad=1
        programs stokehold-tests monitoring || bad=1
        exit "$bad"
    ) &
    beside=$!
    programs stokehold-tests powercut || bad=1
    programs stokehold-tests it "${skipped[@]}" || bad=1
    wait "$beside" || bad=1
    return "$bad"
}

# Sums the numbers before a word in the lines that match a pattern.
count() { # log, line pattern, word
    grep -hE "$2" "$logs/$1" 2>/dev/null | grep -oE "[0-9]+ $3" | awk '{n += $1} END {print n + 0}'
}

suite rust rust
suite valkey valkey
suite python env -C sdk/python "$PWD/.tools/dev/bin/python" -m pytest -q -n $((2 * cores)) --dist worksteal
suite javascript npm --prefix sdk/js run --silent test
suite dashboard npm --prefix api/dashboard run --silent test
export RUST_TEST_THREADS=${given:-$((3 * cores))}
suite end-to-end end_to_end
# The quick part of `make hostile-tests`.
suite hostile programs stokehold-tests hostile
# The tests of the same suite that kill and restart processes. `make it TOPOLOGY=...` runs the whole suite.
STOKE_TEST_TOPOLOGY=cluster suite cluster programs stokehold-tests it crash:: pipelines::
STOKE_TEST_TOPOLOGY=failover suite failover programs stokehold-tests it crash::

# Prints a suite's line of the totals. A suite in which nothing passed has failed.
all_passed=0
all_failed=0
total() { # title, suite, passed, failed
    printf '  %-28s %5d passed, %d failed, %5d s\n' "$1" "$3" "$4" "${took[$2]}"
    all_passed=$((all_passed + $3))
    all_failed=$((all_failed + $4))
    [ "$3" -gt 0 ] || failed=1
}

total_rust() { # title, suite
    total "$1" "$2" "$(count "$2" '^test result' passed)" "$(count "$2" '^test result' failed)"
}

of_node() { # word
    grep -hE "^(#|ℹ) $1 " "$logs/javascript" | awk '{n += $3} END {print n + 0}'
}

echo
echo "totals (built in ${took[build]} s)"
total_rust "Rust" rust
total_rust "Queue on Valkey" valkey
total "Python SDK and runner" python "$(count python '[0-9]+ (passed|failed).* in ' passed)" "$(count python '[0-9]+ (passed|failed).* in ' failed)"
total "JavaScript SDK" javascript "$(of_node pass)" "$(of_node fail)"
total "dashboard, in Chromium" dashboard "$(count dashboard '^ +[0-9]+ passed' passed)" \
    "$(count dashboard '^ +[0-9]+ (failed|did not run|flaky|interrupted)' '(failed|did not run|flaky|interrupted)')"
total_rust "end to end" end-to-end
total_rust "attacks, the quick part" hostile
total_rust "end to end, on a cluster" cluster
total_rust "end to end, under Sentinels" failover
echo "$all_passed passed, $all_failed failed"

# Prints the failed tests again, each with the first lines of its error: the end of the output is what people and CI systems show first.
if [ "$failed" -ne 0 ]; then
    for log in rust valkey end-to-end hostile cluster failover; do
        grep -A 6 -E '^---- .* stdout ----$|^error: .* failed$' "$logs/$log" | head -60
    done
    grep -E '^(FAILED|ERROR) ' "$logs/python" | head -20
    # The first is of Node's TAP reporter, the second of its `spec` reporter.
    grep -A 8 -E '^ *not ok |failing tests:$' "$logs/javascript" | head -40
    grep -A 14 -E '^ +[0-9]+\) ' "$logs/dashboard" | head -60
fi
exit "$failed"
