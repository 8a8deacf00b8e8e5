#!/usr/bin/env bash
# `make fuzz`: builds the targets and runs each for FUZZ_SECONDS, FUZZ_JOBS in parallel; stops at the first finding. Continues from the
# corpus of earlier runs in target/fuzz/corpus.
set -euo pipefail
unset CARGO_TARGET_DIR
cd "$(dirname "$0")"
targets=${FUZZ_TARGETS:-cursors frames job_json lines tokens url_policy webhook_secrets}

run_target() {
    local target=$1 corpus=../target/fuzz/corpus/$1 log=../target/fuzz/$1.log reached
    mkdir -p "$corpus" found
    # The product has limits, so an input that takes ten seconds or half a gigabyte is a finding.
    if ! "$built/$target" -max_total_time="${FUZZ_SECONDS:-600}" -timeout=10 -rss_limit_mb=512 -malloc_limit_mb=256 -max_len=8192 \
        -dict="dictionaries/$target.dict" -artifact_prefix="found/$target-" -print_final_stats=1 "$corpus" "seeds/$target" >"$log" 2>&1; then
        tail -n 40 "$log"
        echo "$target: the input is in fuzz/found; once it is understood, keep it in fuzz/seeds/$target" >&2
        return 255
    fi
    # Without counters, libFuzzer only generates random inputs. It prints a warning, which is easy to miss.
    reached=$(grep -oE 'cov: [0-9]+' "$log" | tail -n 1 | grep -oE '[0-9]+')
    [ "${reached:-0}" -gt 100 ] || { echo "$target: coverage is not counted, see $log" >&2; return 255; }
    awk -v target="$target" '/stat::number_of_executed_units/ {runs = $2} /stat::average_exec_per_sec/ {rate = $2} / cov: / {split($0, part, "cov: "); split(part[2], cov, " "); split($0, f, "ft: "); split(f[2], ft, " "); if (!first) first = cov[1]; last = cov[1]; feat = ft[1]}
        END {printf "%-16s %11d inputs, %6d/s, edges %d -> %d, features %d\n", target, runs, rate, first, last, feat}' "$log"
}

cargo build --locked --bins
export built=../target/fuzz/$(rustc -vV | sed -n 's/^host: //p')/debug
export -f run_target
# 255 ends xargs at once.
tr -s ' ' '\n' <<<"$targets" | xargs -P "${FUZZ_JOBS:-$(nproc)}" -I{} bash -euo pipefail -c 'run_target {}'
