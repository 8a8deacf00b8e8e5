#!/usr/bin/env bash
# `make worker-dist`: builds one archive with everything that a worker needs, for glibc GLIBC or newer. Requires ZIG_BIN
# (the folder of cargo-zigbuild and maturin), UV, GLIBC and OUT.
set -euo pipefail
unset CARGO_TARGET_DIR
cd "$(dirname "$0")/../.."
arch=$(uname -m)
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
name=stokehold-worker-$version-$arch-linux
stage=$OUT/stage/$name
target=$arch-unknown-linux-gnu

export PATH=$ZIG_BIN:$PATH CARGO_ZIGBUILD_PYTHON_PATH=$ZIG_BIN/python ZIG="$ZIG_BIN/python -m ziglang"
# Panic messages contain file names; remove this machine's paths from them.
export RUSTFLAGS="--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo --remap-path-prefix=$PWD=/stokehold"

echo "building stoke for glibc $GLIBC" >&2
cargo zigbuild -q --locked --profile portable -p stokehold-cli --target "$target.$GLIBC"
rm -rf "$OUT/stage"
mkdir -p "$stage/bin" "$stage/wheels" "$stage/licenses"
echo "building the runner's wheel for glibc $GLIBC" >&2
maturin build -q --profile portable --locked --zig --target "$target" --compatibility "manylinux_${GLIBC/./_}" -m sdk/python/rust/Cargo.toml --out "$stage/wheels"

cp "target/$target/portable/stoke" "$UV" "$stage/bin/"
cp LICENSE "$stage/"
find "$(dirname "$UV")/.." -path '*/uv-*.dist-info/licenses/LICENSE-*' -exec sh -c 'cp "$1" "$2/$(basename "$1" | sed s/LICENSE/LICENSE-uv/)"' _ {} "$stage/licenses" \;

if [ ! -e "$OUT/bwrap/bwrap" ] && ! deploy/worker/bwrap.sh "$PWD/$OUT/bwrap"; then
    echo "warning: the archive has no bubblewrap; workers support sandbox L2 only if the host has bubblewrap" >&2
fi
if [ -e "$OUT/bwrap/bwrap" ]; then
    cp "$OUT/bwrap/bwrap" "$stage/bin/"
    cp "$OUT"/bwrap/*-* "$stage/licenses/"
fi
cat >"$stage/README" <<README
Stokehold worker $version for $arch, Linux with glibc $GLIBC or newer.

    bin/stoke worker check      check whether this machine can run jobs
    sudo -E bin/stoke worker install --gateway URL    install a systemd service; reads the join token from STOKE_JOIN_TOKEN
    bin/stoke worker            run in the foreground; reads STOKE_GATEWAY_URL and STOKE_JOIN_TOKEN

bin/uv takes precedence over a uv on PATH; bin/bwrap, if present, is used if PATH has none. See licenses/ for their licences and bubblewrap's sources.
README
# Keep only one release in the folder: consumers use whatever archive they find there.
rm -f "$OUT"/stokehold-worker-*-"$arch"-linux.tar.gz*
python3 deploy/worker/archive.py "$stage" "$OUT/$name.tar.gz" "$GLIBC"
rm -rf "$OUT/stage"
