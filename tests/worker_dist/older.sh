#!/usr/bin/env bash
# older.sh RELEASE FOLDER: unpacks an older Debian, once, with curl and a Python that uv can use: otherwise uv would download one from a host
# that not every builder can reach.
set -euo pipefail
release=$1 folder=$2
[ ! -e "$folder/etc/os-release" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
    echo "Debian is not unpacked: this needs root and debootstrap" >&2
    exit 0
fi
# Use the mirror that this machine is configured for, else debootstrap's default.
mirror=$(apt-get indextargets --format '$(SITE)' 2>/dev/null | grep -m 1 '/debian/*$' || true)
echo "unpacking Debian $release (a minute or two, once)" >&2
rm -rf "$folder.part"
mkdir -p "$(dirname "$folder")"
debootstrap --variant=minbase --include=ca-certificates,curl,python3-distutils "$release" "$folder.part" $mirror >"$folder.log" 2>&1 ||
    { tail -5 "$folder.log" >&2; exit 1; }
mv "$folder.part" "$folder"
