#!/usr/bin/env bash
# bare.sh RELEASE FOLDER: unpacks a bare Debian that can boot, once, with systemd and sudo.
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
debootstrap --variant=minbase --include=ca-certificates,dbus,sudo,systemd,systemd-sysv "$release" "$folder.part" $mirror >"$folder.log" 2>&1 ||
    { tail -5 "$folder.log" >&2; exit 1; }
mv "$folder.part" "$folder"
