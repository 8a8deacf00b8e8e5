#!/bin/sh
# Installs a worker of Stokehold @RELEASE@ on this machine: downloads the worker archive, verifies it and starts it.
#
#   curl -fsSL GATEWAY/v1/worker/install.sh | STOKE_JOIN_TOKEN=jt_... sh
#
# Requires sh, tar, gzip, sha256sum, and curl or wget. The token is read only from the environment, as are all settings of
# `stoke worker run`. Settings of this script:
#   STOKE_START   service: run it under systemd; foreground: become the worker; no: only unpack.
#                 [service as root under systemd, otherwise foreground]
#   STOKE_PREFIX  where to unpack. [/opt/stokehold as root, otherwise ~/.local/share/stokehold]
#   STOKE_FORCE   1: continue if `stoke worker check` fails.
set -eu

# The last line calls this function, so that a truncated download runs nothing.
main() {
    # A service of another user reads the unpacked files.
    umask 022
    gateway=${STOKE_GATEWAY_URL:-'@GATEWAY@'}
    need tar
    need gzip
    need sha256sum
    check_glibc
    case $(uname -m) in
    @ARCHIVES@
    *) die "the gateway has no worker archive for $(uname -m), only for: @ARCHES@" ;;
    esac

    is_root=
    [ "$(id -u)" != 0 ] || is_root=1
    if [ "$is_root" ]; then
        prefix=${STOKE_PREFIX:-/opt/stokehold}
    else
        prefix=${STOKE_PREFIX:-${HOME:?is not set: set STOKE_PREFIX}/.local/share/stokehold}
    fi
    start=${STOKE_START:-}
    if [ -z "$start" ]; then
        start=foreground
        [ -z "$is_root" ] || [ ! -d /run/systemd/system ] || start=service
    fi
    case $start in
    service) [ "${STOKE_JOIN_TOKEN:-}" ] || [ -e /etc/stokehold/worker.env ] || die "$no_token" ;;
    foreground) [ "${STOKE_JOIN_TOKEN:-}" ] || die "$no_token" ;;
    no) ;;
    *) die "STOKE_START must be service, foreground or no, not $start" ;;
    esac

    mkdir -p "$prefix"
    # Named by its checksum: the same archive is not downloaded again, and another one never changes a running worker.
    release=$prefix/releases/$(echo "$sum" | cut -c 1-16)
    work=$(mktemp -d "$prefix/.new.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    trap 'exit 1' HUP INT TERM
    if [ ! -d "$release" ]; then
        say "fetching $archive"
        fetch "$gateway/v1/worker/archives/$archive" "$work/archive"
        echo "$sum  $work/archive" | sha256sum -c - >/dev/null 2>&1 ||
            die "the checksum of the archive does not match the one that the gateway announced; nothing was unpacked. Try again"
        mkdir -p "$work/unpacked" "$prefix/releases"
        tar -xzf "$work/archive" -C "$work/unpacked" --no-same-owner
        mv "$work/unpacked/${archive%.tar.gz}" "$release"
    fi
    ln -s "$release" "$work/current"
    mv -fT "$work/current" "$prefix/current"
    rm -rf "$work"
    trap - EXIT
    stoke=$prefix/current/bin/stoke
    say "installed $stoke"
    [ "$start" != no ] || return 0

    export STOKE_GATEWAY_URL="$gateway"
    if [ "$start" = service ]; then
        set -- worker install --program "$stoke"
        [ "${STOKE_FORCE:-}" != 1 ] || set -- "$@" --force
        exec "$stoke" "$@" </dev/null
    fi
    # Not below /opt: handlers can read files there.
    if [ "$is_root" ]; then
        export STOKE_DATA_DIR="${STOKE_DATA_DIR:-/var/lib/stokehold}" STOKE_CACHE_DIR="${STOKE_CACHE_DIR:-/var/cache/stokehold}"
    else
        export STOKE_DATA_DIR="${STOKE_DATA_DIR:-$prefix/data}"
    fi
    "$stoke" worker check </dev/null || [ "${STOKE_FORCE:-}" = 1 ] ||
        die "this machine does not meet the requirements above; STOKE_FORCE=1 starts the worker anyway"
    exec "$stoke" worker run </dev/null
}

no_token="STOKE_JOIN_TOKEN is not set; set it to a join token, which \`stoke token create --kind join\` creates"

say() {
    echo "stokehold: $*" >&2
}

die() {
    say "$*"
    exit 1
}

need() {
    command -v "$1" >/dev/null 2>&1 || die "$1 is not installed on this machine; install it and try again"
}

check_glibc() {
    version=$(getconf GNU_LIBC_VERSION 2>/dev/null | cut -d ' ' -f 2) || version=
    [ "$version" ] || version=$(ldd --version 2>/dev/null | sed -n '1s/.* \([0-9][0-9.]*\)$/\1/p') || version=
    case $version in
    [0-9]*.[0-9]*) ;;
    *) die "this system has no glibc (Alpine has musl); use a distribution or image with glibc 2.28 or newer" ;;
    esac
    major=${version%%.*}
    minor=${version#*.}
    minor=${minor%%.*}
    [ "$major" -gt 2 ] || { [ "$major" -eq 2 ] && [ "$minor" -ge 28 ]; } ||
        die "this system's glibc is $version, but the worker requires 2.28 or newer: Debian 10, Ubuntu 20.04, RHEL 8 or newer"
}

# Bounded: 10 s to connect, 30 s without a kilobyte a second, three tries.
fetch() {
    if command -v curl >/dev/null 2>&1; then
        curl -fsSL --connect-timeout 10 --speed-limit 1024 --speed-time 30 --max-time 1800 --retry 3 -o "$2" "$1" </dev/null ||
            die "cannot fetch $1"
    elif command -v wget >/dev/null 2>&1; then
        wget -q -T 30 -t 3 -O "$2" "$1" </dev/null || die "cannot fetch $1"
    else
        die "neither curl nor wget is installed; install one and try again"
    fi
}

main "$@"
