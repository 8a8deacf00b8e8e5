#!/bin/sh
# Makes a rented machine a worker of Stokehold @RELEASE@, and ends it when its worker reaches nobody. It runs on every start of the container, so
# all of it may have been done before. Its environment says what to join, and with what:
#   STOKE_GATEWAY_URL STOKE_JOIN_TOKEN STOKE_WORKER_NAME, any other setting of `stoke worker`
#   CONTAINER_ID CONTAINER_API_KEY   the provider's: with these the machine destroys itself at STOKE_VAST_URL
#   STOKE_HOME                       below it lies everything. [/opt/stokehold; data in /var/lib/stokehold, caches in /var/cache/stokehold]
#   STOKE_WORKER_PROGRAM             a `stoke` that is here: nothing is fetched
# Lines of comment are left out of what a machine is given: 3,900 characters are what a provider takes for sure. No secret is written in here.
set -u

# Everything is in functions, called by the last line: of a script that was cut, nothing runs.
main() {
    umask 022
    home=${STOKE_HOME:-/opt/stokehold}
    # Not below /opt: handlers may read what lies there.
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
        "$stoke" worker </dev/null &
        worker=$!
        trap 'stop=1; kill -TERM "$worker" 2>/dev/null' TERM INT
        # A signal ends the wait, not the worker: that drains first.
        while wait "$worker"; code=$?; kill -0 "$worker" 2>/dev/null; do :; done
        [ "$code" != 0 ] || exit 0
        say "the worker ended with $code"
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

# 5 s to 5 min, a little different on each machine.
back_off() {
    sleep $((wait_s + $$ % wait_s)) &
    wait $!
    [ "$wait_s" -ge 160 ] || wait_s=$((wait_s * 2))
}

# The worker's archive, where it is not here yet. Named by what is in it, and moved there whole.
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
        say "its checksum is wrong: nothing of it is used"
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

# A worker that reaches the gateway writes another thing into `reached`, every minute. One that is there ends its machine by itself when it does
# not; this is for the time before there is one, and after it has died for good. It counts its looks: a clock may be set.
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
    # Whoever is still here after that is not destroyed.
    while :; do
        say "the gateway is not reached: this machine destroys itself"
        destroy || say "that failed"
        back_off
    done
}

# The key goes by standard input, a file for nobody else, or the environment: every process sees what arguments are.
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
