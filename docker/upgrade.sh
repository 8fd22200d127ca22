#!/usr/bin/env bash
# Upgrades the cluster in /var/lib/postgresql/former/pgdata, of a stopped container, to a new one in PGDATA, which does
# not exist yet. The former one stays as it is; settings and the rules of logins are copied.
set -Eeuo pipefail
former=${FORMER_PGDATA:-/var/lib/postgresql/former/pgdata}

[ -e "$former/PG_VERSION" ] || { echo "dbdp: $former is not a database: mount the former volume there" >&2; exit 1; }
[ ! -e "$PGDATA" ] || { echo "dbdp: $PGDATA exists: mount an empty volume there" >&2; exit 1; }
read -ra arguments <<<"${POSTGRES_INITDB_ARGS-}"
unfinished=$PGDATA.unfinished
rm -rf "$unfinished"
initdb --pgdata="$unfinished" --username="${POSTGRES_USER:-postgres}" --data-checksums --no-instructions ${arguments[@]+"${arguments[@]}"}
cd "$(mktemp -d)"
pg_upgrade --username="${POSTGRES_USER:-postgres}" --old-bindir=/former/bin --new-bindir=/usr/lib/postgresql/bin \
  --old-datadir="$former" --new-datadir="$unfinished"
cp "$former"/{pg_hba.conf,pg_ident.conf,postgresql.auto.conf} "$unfinished"
sync "$unfinished"
mv --no-target-directory "$unfinished" "$PGDATA"
