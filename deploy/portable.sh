#!/usr/bin/env bash
# Builds stoke and the runner's wheel of an architecture (x86_64, aarch64) for glibc GLIBC or newer, in one call of cargo:
# `portable.sh ARCH FOLDER` puts both into FOLDER. Requires ZIG_BIN (the folder of cargo-zigbuild and zig), WHEEL_METADATA and GLIBC.
set -euo pipefail
unset CARGO_TARGET_DIR
cd "$(dirname "$0")/.."
arch=$1 out=$2
target=$arch-unknown-linux-gnu

if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
    command -v rustup >/dev/null || { echo "this Rust cannot build for $target: install its standard library, or rustup, which does" >&2; exit 1; }
    rustup --quiet target add "$target"
fi

export PATH=$ZIG_BIN:$PATH CARGO_ZIGBUILD_PYTHON_PATH=$ZIG_BIN/python ZIG="$ZIG_BIN/python -m ziglang"
# Panic messages contain file names; remove this machine's paths from them.
export RUSTFLAGS="--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo --remap-path-prefix=$PWD=/stokehold"

echo "building stoke and the runner's wheel for $arch, glibc $GLIBC" >&2
cargo zigbuild -q --locked --profile portable -p stokehold-cli -p stokehold-runner-wire --target "$target.$GLIBC"
mkdir -p "$out"
cp "target/$target/portable/stoke" "$out/"
python3 sdk/python/tools/wheels.py runner --library "target/$target/portable/lib_wire.so" --metadata "$WHEEL_METADATA" \
    --platform "manylinux_${GLIBC/./_}_$arch" --level 9 --out "$out/wheels"
