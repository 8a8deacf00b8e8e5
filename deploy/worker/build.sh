#!/usr/bin/env bash
# `make worker-dist`: builds one archive with everything that a worker needs, for glibc GLIBC or newer. Requires what
# deploy/portable.sh requires, UV and OUT.
set -euo pipefail
cd "$(dirname "$0")/../.."
arch=$(uname -m)
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
name=stokehold-worker-$version-$arch-linux
stage=$OUT/stage/$name

deploy/portable.sh "$arch" "target/portable-$arch"
rm -rf "$OUT/stage"
mkdir -p "$stage/bin" "$stage/wheels" "$stage/licenses"
cp "target/portable-$arch"/wheels/*.whl "$stage/wheels/"
cp "target/portable-$arch/stoke" "$UV" "$stage/bin/"
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
    bin/stoke worker run        run in the foreground; reads STOKE_GATEWAY_URL and STOKE_JOIN_TOKEN

bin/uv takes precedence over a uv on PATH; bin/bwrap, if present, is used if PATH has none. See licenses/ for their licences and bubblewrap's sources.
README
# Keep only one release in the folder: consumers use whatever archive they find there.
rm -f "$OUT"/stokehold-worker-*-"$arch"-linux.tar.gz*
python3 deploy/worker/archive.py "$stage" "$OUT/$name.tar.gz" "$GLIBC"
rm -rf "$OUT/stage"
