#!/usr/bin/env bash
# aarch64.sh WHEEL FOLDER: installs the wheel for aarch64 in an emulated Debian, which it unpacks into FOLDER once, and runs the demo and
# the first example there. Requires root, debootstrap, and qemu-user-static with its entry in binfmt_misc. On a machine with aarch64,
# `make test-wheels` does the same.
set -euo pipefail
wheel=$1 folder=$2

if [ ! -e "$folder/etc/os-release" ]; then
    # Use the mirror that this machine is configured for, else debootstrap's default.
    mirror=$(apt-get indextargets --format '$(SITE)' 2>/dev/null | grep -m 1 '/debian/*$' || true)
    echo "unpacking Debian for aarch64 (some minutes, once)" >&2
    rm -rf "$folder.part"
    mkdir -p "$(dirname "$folder")"
    debootstrap --arch=arm64 --variant=minbase --include=ca-certificates,procps,python3-venv,redis-server bookworm "$folder.part" $mirror \
        >"$folder.log" 2>&1 || { tail -5 "$folder.log" >&2; exit 1; }
    mv "$folder.part" "$folder"
fi

# What this machine needs for its network and its package index.
cp -L /etc/resolv.conf "$folder/etc/"
[ ! -e /etc/pip.conf ] || cp -L /etc/pip.conf "$folder/etc/"
cp -L /etc/ssl/certs/ca-certificates.crt "$folder/etc/ssl/certs/"

home=$(mktemp -d "$folder/root/home.XXXXXX")
trap 'rm -rf "$home"; umount "$folder/proc"' EXIT
mount -t proc proc "$folder/proc"
cp "$wheel" "$home/"
cat >"$home/main.sh" <<'EOF'
set -euo pipefail
cd "$(dirname "$0")"
export HOME=$PWD
test "$(uname -m)" = aarch64
python3 -m venv .venv
. .venv/bin/activate
pip install --quiet --disable-pip-version-check ./*.whl
stoke --version
stoke demo --json >demo.json
python - <<'PYTHON'
import json

jobs = json.load(open("demo.json"))["jobs"]
assert len(jobs) == 12 and all(job["state"] == "succeeded" for job in jobs), jobs
print("the demo: 12 of 12 jobs succeeded")
PYTHON
stoke dev --listen 127.0.0.1:0 >dev.out 2>dev.err &
trap 'kill $!; wait' EXIT
until grep -q '^ready' dev.out; do kill -0 $! || { cat dev.err >&2; exit 1; }; sleep 1; done
stoke init hello
stoke deploy hello
stoke submit hello --input '{"name": "world"}' --wait
EOF
env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt chroot "$folder" bash "/root/$(basename "$home")/main.sh"
