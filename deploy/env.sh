#!/bin/sh
# env.sh NAME [EMAIL]: creates the .env of deploy/compose.yaml with new secrets. NAME is the domain name by which
# clients reach the machine. Refuses to run twice, because data that is encrypted with the first secrets would be
# lost.
set -eu
umask 077
cd "$(dirname "$0")"
name=${1:?give the domain name of this machine, e.g. env.sh stokehold.example.com}
case $name in *[!a-z0-9.-]*) echo "env.sh: invalid name $name: use lower-case letters, digits, dots and hyphens" >&2; exit 1 ;; esac
[ ! -e .env ] || { echo "env.sh: deploy/.env already exists and its secrets cannot be recreated; edit it or move it away" >&2; exit 1; }
random() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }
cat >.env.new <<ENV
# Created by deploy/env.sh. Keep a copy elsewhere: without these keys, all tokens are invalid and all secrets are lost.
STOKE_DOMAIN=$name
# How Caddy gets the certificate: a \`tls\` line of a Caddyfile. Empty uses Let's Encrypt; "tls internal" uses a private
# authority, for networks without internet access.
STOKE_TLS=
STOKE_EMAIL=${2:-admin@$name}
STOKE_VERSION=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' ../Cargo.toml)
STOKE_TOKEN_KEY=$(random)
STOKE_BACKUP_KEY=$(random)
STOKE_S3_ACCESS_KEY_ID=stoke$(random | cut -c1-16)
STOKE_S3_SECRET_ACCESS_KEY=$(random)
REDIS_PASSWORD=$(random)
GRAFANA_PASSWORD=$(random | cut -c1-24)
# Additional services: worker, autoscaler or worker,autoscaler.
COMPOSE_PROFILES=
# Join token of this machine's worker; create one with \`docker compose exec api stoke token create --kind join --name
# here\`.
STOKE_JOIN_TOKEN=
# API key for instances that the autoscaler rents.
VAST_API_KEY=
# Subnet of the containers; must not overlap with any other network.
STOKE_SUBNET=172.30.77.0/24
ENV
mv .env.new .env
# Containers read these files as other users, so make them readable regardless of the umask of the checkout.
chmod -R a+rX redis.conf autoscaler.toml containers prometheus/prometheus.yml prometheus/rules grafana
echo "created deploy/.env" >&2
