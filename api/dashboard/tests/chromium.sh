#!/usr/bin/env bash
# Puts a Chromium at $1/bin/chromium: the one on PATH, else Debian's packages, unpacked below $1 without root, with a font for the
# screenshots. Fails where neither can be had.
set -euo pipefail
tools=$1 root=$1/chromium

for known in chromium chromium-browser google-chrome-stable google-chrome; do
    if found=$(command -v "$known"); then
        mkdir -p "$tools/bin" && ln -sf "$found" "$tools/bin/chromium"
        exit
    fi
done

fail() {
    echo "no Chromium for the dashboard's tests: $1. Install chromium, so that it is on PATH, and run this again." >&2
    exit 1
}
command -v apt-get >/dev/null && command -v dpkg >/dev/null || fail "none is on PATH, and this is no Debian to take one from"

echo "unpacking Debian's chromium into .tools (100 MB, once)" >&2
lacking=$(apt-get --simulate install --no-install-recommends chromium fonts-inter 2>/dev/null | awk '/^Inst /{print $2}')
[ -n "$lacking" ] || fail "apt-get knows of none; run \`apt-get update\` as root"
rm -rf "$root" && mkdir -p "$root/packages"
# shellcheck disable=SC2086 # one word each
(cd "$root/packages" && apt-get -o APT::Sandbox::User="$(id -un)" download -qq $lacking >/dev/null) || fail "its packages cannot be fetched; run \`apt-get update\` as root"
for package in "$root"/packages/*.deb; do dpkg -x "$package" "$root"; done
rm -rf "$root/packages"

libraries=$root/usr/lib/$(uname -m)-linux-gnu
cat >"$root/fonts.conf" <<CONF
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig>
  <dir>/usr/share/fonts</dir><dir>$root/usr/share/fonts</dir><cachedir>$root/fonts.cache</cachedir>
  <alias binding="same"><family>system-ui</family><prefer><family>Inter</family></prefer></alias>
  <alias binding="same"><family>sans-serif</family><prefer><family>Inter</family></prefer></alias>
  <alias binding="same"><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>
CONF
cat >"$root/start" <<START
#!/bin/sh
export LD_LIBRARY_PATH="$libraries:$libraries/pulseaudio" FONTCONFIG_FILE="$root/fonts.conf"
exec "$root/usr/lib/chromium/chromium" "\$@"
START
chmod +x "$root/start"
"$root/start" --version >/dev/null || fail "what was unpacked does not start"
mkdir -p "$tools/bin" && ln -sf "$root/start" "$tools/bin/chromium"
