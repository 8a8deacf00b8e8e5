#!/bin/sh
# env.sh NAME [EMAIL]: the .env of deploy/compose.yaml, with secrets made now. NAME is what clients reach the machine by. Once: a second run
# would lose what the first one's secrets open, and is refused.
set -eu
umask 077
cd "$(dirname "$0")"
name=${1:?say by which name clients reach this machine: env.sh stokehold.example.com}
case $name in *[!a-z0-9.-]*) echo "env.sh: $name is no name of small letters, digits, dots and hyphens" >&2; exit 1 ;; esac
[ ! -e .env ] || { echo "env.sh: deploy/.env is there already; its secrets cannot be made again. Edit it, or move it away" >&2; exit 1; }
random() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }
cat >.env.new <<ENV
# Made by deploy/env.sh. Keep a copy elsewhere: without its keys no token is known and no secret can be opened.
STOKE_DOMAIN=$name
# How Caddy gets the certificate: a line of a Caddyfile's \`tls\`. Empty is Let's Encrypt; "tls internal" an authority of its own, for networks
# without the internet.
STOKE_TLS=
STOKE_EMAIL=${2:-admin@$name}
STOKE_VERSION=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' ../Cargo.toml)
STOKE_TOKEN_KEY=$(random)
STOKE_BACKUP_KEY=$(random)
STOKE_S3_ACCESS_KEY_ID=stoke$(random | cut -c1-16)
STOKE_S3_SECRET_ACCESS_KEY=$(random)
REDIS_PASSWORD=$(random)
GRAFANA_PASSWORD=$(random | cut -c1-24)
# What else runs: worker, autoscaler, or both as worker,autoscaler.
COMPOSE_PROFILES=
# For the worker of this machine: \`docker compose exec api stoke token create --kind join --name here\` makes one.
STOKE_JOIN_TOKEN=
# For machines rented by the autoscaler.
VAST_API_KEY=
# The containers' network, of which nothing else may be.
STOKE_SUBNET=172.30.77.0/24
ENV
mv .env.new .env
# Containers read these as users of their own, whatever the umask was when they were checked out.
chmod -R a+rX redis.conf autoscaler.toml containers prometheus/prometheus.yml prometheus/rules grafana
echo "deploy/.env is made" >&2
