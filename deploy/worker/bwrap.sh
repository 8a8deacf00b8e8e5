#!/usr/bin/env bash
# bwrap.sh OUT: builds a static bubblewrap that has no dependencies on its host. Distributions link bubblewrap with
# their libselinux and libcap, and GPU images do not contain it. The sources come from Debian and are verified by
# checksum. ZIG names the compiler.
set -euo pipefail
out=$1
# Path in the pool and SHA-256.
sources="
b/bubblewrap/bubblewrap_0.8.0.orig.tar.xz 957ad1149db9033db88e988b12bcebe349a445e1efc8a9b59ad2939a113d333a
libc/libcap2/libcap2_2.66.orig.tar.xz 15c40ededb3003d70a283fe587a36b7d19c8b3b554e33f86129c059a4bb466b2
"
if ! command -v apt-get >/dev/null || ! command -v xz >/dev/null; then
    echo "bwrap.sh requires apt-get and xz" >&2
    exit 1
fi
# The Debian mirror that this machine is configured to use.
mirror=$(apt-get indextargets --format '$(SITE)' 2>/dev/null | grep -m 1 '/debian/*$' || true)
[ -n "$mirror" ] || { echo "apt has no Debian mirror configured" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
while read -r path sum; do
    [ -n "$path" ] || continue
    python3 -c 'import sys, urllib.request as u; open(sys.argv[2], "wb").write(u.urlopen(sys.argv[1], timeout=60).read())' \
        "${mirror%/}/pool/main/$path" source.tar.xz
    echo "$sum  source.tar.xz" | sha256sum --quiet --check
    tar -xf source.tar.xz
done <<<"$sources"

cap=libcap-2.66/libcap
# Generates the names of the capabilities like libcap's Makefile.
awk '/^#define[ \t]+CAP_[A-Z_]+[ \t]+[0-9]+/ {print "{\"" tolower($2) "\"," $3 "},"}' $cap/include/uapi/linux/capability.h >$cap/cap_names.list.h
(cd $cap && cc -w -Iinclude/uapi -Iinclude _makenames.c -o _makenames && ./_makenames >cap_names.h)
echo '#define PACKAGE_STRING "bubblewrap 0.8.0"' >config.h
$ZIG cc -target "$(uname -m)-linux-musl" -static -Os -s -w -D_GNU_SOURCE -I. -I$cap -I$cap/include -I$cap/include/uapi \
    bubblewrap-0.8.0/{bubblewrap,bind-mount,network,utils}.c $cap/cap_{alloc,extint,flag,text,proc}.c -o bwrap
./bwrap --version >/dev/null
mkdir -p "$out"
cp bwrap "$out/bwrap"
cp bubblewrap-0.8.0/COPYING "$out/LICENSE-bubblewrap"
cp libcap-2.66/License "$out/LICENSE-libcap"
cp "$($ZIG env | sed -n 's/.*lib_dir.*"\(.*\)".*/\1/p')/libc/musl/COPYRIGHT" "$out/LICENSE-musl"
echo "$sources" | awk 'NF {sub(".*/", "", $1); print $1, $2}' >"$out/SOURCES-bubblewrap"
