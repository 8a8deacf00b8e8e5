#!/usr/bin/env bash
# `make wheels`: builds the wheels of a release, for glibc GLIBC or newer on ARCHS and without compiled code for all other machines, and
# the npm package. Requires what deploy/portable.sh requires, ARCHS and OUT. A failure for one architecture ends the build: a release
# lacks none of its wheels.
set -euo pipefail
cd "$(dirname "$0")/../.."
# Delete the wheels of earlier builds, so that they are not published with this release.
rm -rf "$OUT/wheels"
mkdir -p "$OUT/wheels"
for arch in $ARCHS; do
    deploy/portable.sh "$arch" "target/portable-$arch"
    python3 deploy/worker/archive.py "target/portable-$arch" "$GLIBC"
    python3 sdk/python/tools/wheels.py publish --runner target/portable-"$arch"/wheels/*.whl --stoke "target/portable-$arch/stoke" \
        --level 9 --out "$OUT/wheels"
done
cp LICENSE sdk/js/
trap 'rm -f sdk/js/LICENSE' EXIT
(cd sdk/js && npm pack --silent --pack-destination "$OUT/wheels" >/dev/null)
ls -l "$OUT/wheels" >&2
