#!/usr/bin/env bash
# bare.sh RELEASE FOLDER: unpacks a bare Debian that can boot, once: systemd, and a user's sudo.
set -euo pipefail
release=$1 folder=$2
[ ! -e "$folder/etc/os-release" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
    echo "no root or no debootstrap here: nothing is unpacked" >&2
    exit 0
fi
# The mirror that this machine uses already; debootstrap's own otherwise.
mirror=$(apt-get indextargets --format '$(SITE)' 2>/dev/null | grep -m 1 '/debian/*$' || true)
echo "unpacking Debian $release (a minute or two, once)" >&2
rm -rf "$folder.part"
mkdir -p "$(dirname "$folder")"
debootstrap --variant=minbase --include=ca-certificates,dbus,sudo,systemd,systemd-sysv "$release" "$folder.part" $mirror >"$folder.log" 2>&1 ||
    { tail -5 "$folder.log" >&2; exit 1; }
mv "$folder.part" "$folder"
