#!/usr/bin/env bash
# `make images`: builds the three images with buildah, without a registry if BASE is a folder (an unpacked Debian).
# Requires ARCHIVE, BASE and OUT, where each image is written as an archive for `docker load`. Tests each image and
# prints its size.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
# Uses temporary storage, and chroot isolation because the builder may itself run in a container.
work=$(mktemp -d)
bud() { buildah --storage-driver vfs --root "$work/store" --runroot "$work/run" "$@"; }
# Remove the containers first: their mounts would keep the folder busy.
trap 'bud rm --all >/dev/null 2>&1 || true; rm -rf "$work"' EXIT

mkdir -p "$work/context" "$OUT"
tar -xzf "$ARCHIVE" -C "$work/context" --strip-components=1
# The worker archive, which the API and the autoscaler serve to new workers.
mkdir "$work/context/dist"
cp "$ARCHIVE" "$ARCHIVE.sha256" "$work/context/dist/"
python3 deploy/containers/sbom.py stokehold-cli >"$work/context/sbom.cdx.json"
base=$BASE
if [ -d "$BASE" ]; then
    echo "base image: $BASE" >&2
    container=$(bud from scratch)
    bud add -q "$container" "$BASE" / >/dev/null
    base=localhost/stokehold-base
    bud commit -q --rm "$container" "$base" >/dev/null
fi
for role in api autoscaler worker; do
    image=localhost/stokehold-$role:$version
    bud bud --isolation chroot --format docker --quiet --build-arg BASE="$base" --build-arg VERSION="$version" --build-arg REVISION="$revision" \
        --file "deploy/containers/$role.Containerfile" --tag "$image" "$work/context" >/dev/null
    container=$(bud from --pull-never "$image")
    output=$(bud run --isolation chroot "$container" -- sh -c 'id -u && stoke --version')
    [ "$output" = "10001
stoke $version" ] || { echo "the image of $role failed its test: $output" >&2; exit 1; }
    if [ "$role" != worker ]; then bud run --isolation chroot "$container" -- sh -c 'cd /usr/local/dist && sha256sum --quiet --check ./*.sha256'; fi
    bud inspect --type image --format '{{.Docker.Config.Healthcheck.Test}}' "$image" | grep -q stoke || { echo "the image of $role has no health check" >&2; exit 1; }
    bud rm "$container" >/dev/null
    rm -f "$OUT/stokehold-$role-$version.tar"
    bud push -q "$image" "docker-archive:$OUT/stokehold-$role-$version.tar:$image"
    echo "$role: $(du -m "$OUT/stokehold-$role-$version.tar" | cut -f1) MB, user 10001, stoke $version" >&2
done
