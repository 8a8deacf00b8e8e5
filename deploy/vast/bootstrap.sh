#!/bin/sh
# Turns a rented instance into a worker of Stokehold @RELEASE@, and destroys the instance if the worker loses the
# gateway. The script runs on every start of the container, so each step may already have been done. Environment:
#   STOKE_GATEWAY_URL STOKE_JOIN_TOKEN STOKE_WORKER_NAME, and any other setting of `stoke worker run`
#   CONTAINER_ID CONTAINER_API_KEY   set by the provider; used to destroy the instance through STOKE_VAST_URL
#   STOKE_HOME                       root of all files [/opt/stokehold; data in /var/lib/stokehold, caches in
#                                    /var/cache/stokehold]
#   STOKE_WORKER_PROGRAM             an installed `stoke`; skips the download
# Comment lines are removed before the script is sent: providers accept at least 3,900 characters. The script contains
# no secrets.
set -u

# All code is in functions that the last line calls, so that a truncated script runs nothing.
main() {
    umask 022
    home=${STOKE_HOME:-/opt/stokehold}
    # Not below /opt, because handlers can read the files there.
    export STOKE_DATA_DIR="${STOKE_DATA_DIR:-${STOKE_HOME:-/var/lib/stokehold}/data}"
    export STOKE_CACHE_DIR="${STOKE_CACHE_DIR:-${STOKE_HOME:-/var/cache/stokehold}/cache}"
    limit=${STOKE_DEAD_MAN_MS:-1200000}
    if [ "${CONTAINER_ID:-}" ] && [ "${CONTAINER_API_KEY:-}" ] && [ "$limit" -gt 0 ]; then
        watch &
    fi
    wait_s=5
    stoke=${STOKE_WORKER_PROGRAM:-}
    if [ -z "$stoke" ]; then
        until unpack; do
            back_off
        done
        wait_s=5
    fi
    stop=''
    while [ -z "$stop" ]; do
        began=$(date +%s)
        "$stoke" worker run </dev/null &
        worker=$!
        trap 'stop=1; kill -TERM "$worker" 2>/dev/null' TERM INT
        # A signal ends the wait, not the worker, which drains first.
        while wait "$worker"; code=$?; kill -0 "$worker" 2>/dev/null; do :; done
        [ "$code" != 0 ] || exit 0
        say "the worker exited with $code"
        [ $(($(date +%s) - began)) -lt 600 ] || wait_s=5
        back_off
    done
}

say() {
    echo "stokehold: $*" >&2
}

has() {
    command -v "$1" >/dev/null 2>&1
}

# Waits 5 s to 5 min, slightly different on each instance.
back_off() {
    sleep $((wait_s + $$ % wait_s)) &
    wait $!
    [ "$wait_s" -ge 160 ] || wait_s=$((wait_s * 2))
}

# Downloads and unpacks the worker archive if it is missing. Its folder is named by its hash and created atomically.
unpack() {
    case $(uname -m) in
    @ARCHIVES@
    *) say "there is no worker for $(uname -m)" && return 1 ;;
    esac
    release=$home/releases/$(echo "$sum" | cut -c 1-16)
    stoke=$release/bin/stoke
    [ ! -x "$stoke" ] || return 0
    rm -rf "$home/new"
    mkdir -p "$home/new" "$home/releases" || return 1
    say "fetching $archive"
    fetch "$STOKE_GATEWAY_URL/v1/worker/archives/$archive" "$home/new/archive" || return 1
    if ! echo "$sum  $home/new/archive" | sha256sum -c - >/dev/null 2>&1; then
        say "checksum mismatch; the archive is discarded"
        return 1
    fi
    tar -xzf "$home/new/archive" -C "$home/new" --no-same-owner &&
        mv "$home/new/${archive%.tar.gz}" "$release" && rm -rf "$home/new"
}

fetch() {
    if has curl; then
        curl -fsSL --connect-timeout 10 --speed-limit 1024 --speed-time 30 -m 1800 -o "$2" "$1"
    elif has wget; then
        wget -q -T 30 -t 1 -O "$2" "$1"
    else
        python3 -c 'import socket,sys,urllib.request as u
socket.setdefaulttimeout(30)
u.urlretrieve(*sys.argv[1:])' "$1" "$2"
    fi
}

# A worker that reaches the gateway changes the file `reached` every minute. A running worker destroys its instance by
# itself; this loop covers the time before the worker starts and after it has failed for good. It counts rounds because
# the clock may be set.
watch() {
    before='' looks=0
    while [ $((looks * 60000)) -lt "$limit" ]; do
        sleep 60
        now=$(cat "$STOKE_DATA_DIR/reached" 2>/dev/null)
        looks=$((looks + 1))
        [ "$now" = "$before" ] || looks=0
        before=$now
    done
    wait_s=5
    # The instance still exists as long as this loop runs.
    while :; do
        say "cannot reach the gateway; destroying this instance"
        destroy || say "that failed"
        back_off
    done
}

# Passes the key by standard input, a private file or the environment, because all processes can see arguments.
destroy() {
    url=${STOKE_VAST_URL:-https://console.vast.ai}/api/v0/instances/$CONTAINER_ID/
    type='Content-Type: application/json'
    auth="Authorization: Bearer $CONTAINER_API_KEY"
    has curl && echo "header = \"$auth\"" | curl -fsS -m 30 -K - -X DELETE -H "$type" -d '{}' -o /dev/null "$url" && return
    conf=$STOKE_DATA_DIR/wgetrc
    has wget && mkdir -p "$STOKE_DATA_DIR" && (umask 077 && echo "header = $auth" >"$conf") &&
        wget --config="$conf" -q -T 30 -t 1 -O /dev/null --method=DELETE --header="$type" --body-data='{}' "$url" && return
    has python3 && python3 -c 'import os,sys,urllib.request as u
k="Bearer "+os.environ["CONTAINER_API_KEY"]
u.urlopen(u.Request(sys.argv[1],b"{}",{"Authorization":k,"Content-Type":"application/json"},method="DELETE"),timeout=30)' "$url"
}

main
