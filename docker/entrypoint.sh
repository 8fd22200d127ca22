#!/usr/bin/env bash
# Makes the data directory at the first start, then becomes the server: PID 1 is postgres.
#
# A new data directory is made beside PGDATA and takes that name when all in it is finished and on the disk:
# what a start that was cut short leaves behind never looks like a database.
set -Eeuo pipefail
shopt -s nullglob

say() { printf 'dbdp: %s\n' "$*" >&2; }

fail() {
  say "$*"
  exit 1
}

from_file() { # a variable's name: its value may be in the file that NAME_FILE names
  local name=$1 file=${1}_FILE
  [ -n "${!file-}" ] || return 0
  [ -z "${!name-}" ] || fail "$name and $file are both set: keep one"
  [ -r "${!file}" ] || fail "$file is ${!file}, which uid $UID cannot read: mount it there, readable for uid $UID"
  export "$name=$(<"${!file}")"
}

check_variables() {
  for name in POSTGRES_PASSWORD POSTGRES_USER POSTGRES_DB POSTGRES_INITDB_ARGS; do from_file "$name"; done
  export POSTGRES_USER=${POSTGRES_USER:-postgres}
  export POSTGRES_DB=${POSTGRES_DB:-$POSTGRES_USER}
  [ -n "${POSTGRES_PASSWORD-}" ] || fail "the superuser needs a password:" \
    "set POSTGRES_PASSWORD_FILE to a file with it, or POSTGRES_PASSWORD to the password itself"
  [[ $POSTGRES_PASSWORD != *$'\n'* ]] || fail "the password has more than one line: give one line"
  [[ $POSTGRES_USER =~ ^[A-Za-z_][A-Za-z0-9_.-]*$ ]] ||
    fail "POSTGRES_USER is '$POSTGRES_USER': use letters, digits, '_', '.' and '-', a letter first"
  [[ ${POSTGRES_HOST_AUTH_METHOD-scram-sha-256} == scram-sha-256 ]] ||
    fail "POSTGRES_HOST_AUTH_METHOD is '$POSTGRES_HOST_AUTH_METHOD', but this image lets nobody in without a password" \
      "(scram-sha-256): leave the variable out"
}

check_place() {
  local place=${PGDATA%/*}
  [ ! -e "$place/PG_VERSION" ] ||
    fail "$place is a data directory itself: set PGDATA=$place to use it, or mount an empty volume"
  mkdir -p "$place" && [ -w "$place" ] || fail "uid $UID cannot write $place: give it the folder (chown $UID)"
  [ ! -e "$PGDATA" ] || rmdir "$PGDATA" 2>/dev/null ||
    fail "$PGDATA is no database, but is not empty or is a mount point:" \
      "empty it, or set PGDATA to a folder that is not there yet, within the volume"
}

make_cluster() { # the folder
  local arguments
  read -ra arguments <<<"${POSTGRES_INITDB_ARGS-}"
  initdb --pgdata="$1" --username="$POSTGRES_USER" --pwfile=<(printf '%s\n' "$POSTGRES_PASSWORD") \
    --auth=scram-sha-256 --data-checksums --no-instructions ${arguments[@]+"${arguments[@]}"}
  # Whoever is postgres in this container is its superuser; everybody else shows a password.
  sed -i "1i local all \"$POSTGRES_USER\" peer map=container" "$1/pg_hba.conf"
  echo 'host all all all scram-sha-256' >>"$1/pg_hba.conf"
  echo "container postgres \"$POSTGRES_USER\"" >>"$1/pg_ident.conf"
}

query() { psql --no-psqlrc --no-password --quiet --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$@"; }

make_database() {
  [ "$POSTGRES_DB" = postgres ] || createdb --no-password --username "$POSTGRES_USER" "$POSTGRES_DB"
  query "$POSTGRES_DB" --set database="$POSTGRES_DB" <<'SQL'
set client_min_messages = warning;
create extension dbdp schema pg_catalog cascade;
alter database :"database" set search_path = "$user", public, dbdp;
SQL
}

run_scripts() {
  local script
  for script in /docker-entrypoint-initdb.d/*; do
    say "running $script"
    case $script in
      *.sh) if [ -x "$script" ]; then "$script"; else . "$script"; fi ;;
      *.sql) query "$POSTGRES_DB" --file "$script" ;;
      *.sql.gz) gunzip --stdout "$script" | query "$POSTGRES_DB" ;;
      *) say "$script is neither *.sh nor *.sql nor *.sql.gz: left alone" ;;
    esac
  done
}

first_start() { # the server's arguments
  local finished=$PGDATA
  check_variables
  check_place
  say "making database $POSTGRES_DB of $POSTGRES_USER"
  export PGDATA=$finished.unfinished
  rm -rf "$PGDATA"
  make_cluster "$PGDATA"
  PGHOST=$(mktemp -d) # nobody outside sees this server, and no stale lock is in its way
  export PGHOST PGUSER=$POSTGRES_USER PGDATABASE=$POSTGRES_DB
  trap 'pg_ctl --silent --mode=immediate stop || true' EXIT
  trap 'exit 130' INT TERM
  env -u POSTGRES_PASSWORD pg_ctl --silent --wait start \
    -o "$(printf '%q ' "$@" -c listen_addresses= -c unix_socket_directories="$PGHOST")"
  make_database
  run_scripts
  pg_ctl --silent --mode=fast --wait stop
  trap - EXIT INT TERM
  rmdir "$PGHOST"
  sync "$PGDATA"
  mv --no-target-directory "$PGDATA" "$finished"
  sync "${finished%/*}"
  export PGDATA=$finished
  unset PGHOST PGUSER PGDATABASE
  say "database $POSTGRES_DB is ready, with the extension dbdp"
}

main() {
  [[ ${1-} != -* ]] || set -- postgres "$@"
  if [ "${1-}" = postgres ] && [[ " $* " != *" --help "* && " $* " != *" --version "* ]]; then
    [ -e "$PGDATA/PG_VERSION" ] || first_start "${@:2}"
    unset POSTGRES_PASSWORD
  fi
  exec "$@"
}

main "$@"
