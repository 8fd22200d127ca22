#!/usr/bin/env bash
# Creates the data directory at the first start, then executes the server: PID 1 is postgres.
#
# A new data directory is created beside PGDATA and renamed when it is complete and on the disk, so that an
# interrupted first start never leaves an incomplete database.
set -Eeuo pipefail
shopt -s nullglob

say() { printf 'dbdp: %s\n' "$*" >&2; }

fail() {
  say "$*"
  exit 1
}

from_file() { # a variable's name: reads its value from the file that NAME_FILE names, if that is set
  local name=$1 file=${1}_FILE
  [ -n "${!file-}" ] || return 0
  [ -z "${!name-}" ] || fail "$name and $file are both set: unset one"
  [ ! -d "${!file}" ] || fail "$file is ${!file}, a directory: mount a file there" \
    "(docker makes a directory where the host has no such file)"
  [ -r "${!file}" ] || fail "$file is ${!file}, which uid $UID cannot read: mount it there, readable for uid $UID"
  export "$name=$(<"${!file}")"
}

check_variables() {
  for name in POSTGRES_PASSWORD POSTGRES_USER POSTGRES_DB POSTGRES_INITDB_ARGS; do from_file "$name"; done
  export POSTGRES_USER=${POSTGRES_USER:-postgres}
  export POSTGRES_DB=${POSTGRES_DB:-$POSTGRES_USER}
  [ -n "${POSTGRES_PASSWORD-}" ] || fail "the superuser needs a password:" \
    "set POSTGRES_PASSWORD_FILE to a file with it, or POSTGRES_PASSWORD to the password itself"
  [[ $POSTGRES_PASSWORD != *$'\n'* ]] || fail "the password has more than one line: use one line"
  [[ $POSTGRES_PASSWORD != *$'\r'* ]] || fail "the password has a carriage return: end the file's line with \\n alone"
  [[ $POSTGRES_USER =~ ^[A-Za-z_][A-Za-z0-9_.-]*$ ]] ||
    fail "POSTGRES_USER is '$POSTGRES_USER': use letters, digits, '_', '.' and '-', a letter first"
  [[ $POSTGRES_USER != dbdp_* ]] || fail "POSTGRES_USER is '$POSTGRES_USER', but roles dbdp_* are the extension's:" \
    "use another name"
  [ -z "${POSTGRES_INITDB_WALDIR-}" ] && [[ ! " ${POSTGRES_INITDB_ARGS-}" =~ [[:space:]](-X|--wald) ]] ||
    fail "POSTGRES_INITDB_WALDIR, --waldir and -X are not supported by this image, which creates a database in one step:" \
      "leave them out, and move pg_wal when the server is stopped"
  [[ ${POSTGRES_HOST_AUTH_METHOD-scram-sha-256} == scram-sha-256 ]] ||
    fail "POSTGRES_HOST_AUTH_METHOD is '$POSTGRES_HOST_AUTH_METHOD', but this image accepts no login without a password" \
      "(scram-sha-256): leave the variable out"
}

check_place() {
  local place
  place=$(dirname "$PGDATA")
  [ ! -e "$place/PG_VERSION" ] ||
    fail "$place is a data directory itself: set PGDATA=$place to use it, or mount an empty volume"
  [ ! -e "$PGDATA" ] || rmdir "$PGDATA" 2>/dev/null ||
    fail "$PGDATA is not a database, but is not empty or is a mount point:" \
      "empty it, or set PGDATA to a folder within the volume that does not exist yet"
  mkdir -p "$place" 2>/dev/null && [ -w "$place" ] ||
    fail "uid $UID cannot write $place, where it creates PGDATA:" \
      "set PGDATA to a folder within a volume, and give the volume to it (chown $UID)"
}

make_cluster() { # the folder
  local arguments
  read -ra arguments <<<"${POSTGRES_INITDB_ARGS-}"
  initdb --pgdata="$1" --username="$POSTGRES_USER" --pwfile=<(printf '%s\n' "$POSTGRES_PASSWORD") \
    --auth=scram-sha-256 --data-checksums --no-instructions ${arguments[@]+"${arguments[@]}"}
  # The account postgres of this container is the superuser; all other roles need a password.
  sed -i "1i local all \"$POSTGRES_USER\" peer map=container" "$1/pg_hba.conf"
  echo 'host all all all scram-sha-256' >>"$1/pg_hba.conf"
  echo "container postgres \"$POSTGRES_USER\"" >>"$1/pg_ident.conf"
}

query() { psql --no-psqlrc --no-password --quiet --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$@"; }

make_database() {
  [ "$POSTGRES_DB" = postgres ] || createdb --no-password --username "$POSTGRES_USER" "$POSTGRES_DB"
  query "$POSTGRES_DB" --set database="$POSTGRES_DB" <<'SQL'
set client_min_messages = warning;
set search_path = pg_catalog, pg_temp; -- names mean the server's own
create extension dbdp schema pg_catalog cascade;
alter database :"database" set search_path = "$user", public, dbdp;
SQL
}

run_script() {
  case $1 in
    *.sh) if [ -x "$1" ]; then "$1"; else read_script "$1"; fi ;;
    *.sql) query "$POSTGRES_DB" --file "$1" ;;
    *.sql.gz) gunzip --stdout "$1" | query "$POSTGRES_DB" ;;
    *) say "$1 is neither *.sh nor *.sql nor *.sql.gz: ignored" ;;
  esac
}

read_script() { # as in the official image, a variable may be unset there
  set +u
  . "$1"
  set -u
}

run_scripts() {
  for running in /docker-entrypoint-initdb.d/*; do
    say "running $running"
    run_script "$running"
  done
  running=
}

end_short() {
  [ -z "${running-}" ] || say "$running failed, or ended this shell: correct it; the next start begins again"
  pg_ctl --silent --mode=immediate stop || true
}

first_start() { # the server's arguments
  local finished=$PGDATA
  check_variables
  check_place
  say "creating database $POSTGRES_DB of $POSTGRES_USER"
  export PGDATA=$finished.unfinished
  rm -rf "$PGDATA"
  make_cluster "$PGDATA"
  PGHOST=$(mktemp -d) # only this container can reach this server, and no stale lock blocks it
  export PGHOST PGUSER=$POSTGRES_USER PGDATABASE=$POSTGRES_DB
  running=
  trap end_short EXIT
  trap 'running=; exit 130' INT TERM
  env -u POSTGRES_PASSWORD pg_ctl --silent --wait start \
    -o "$(printf '%q ' "$@" -c listen_addresses= -c unix_socket_directories="$PGHOST")"
  make_database
  run_scripts
  pg_ctl --silent --mode=fast --wait stop
  trap - EXIT INT TERM
  rmdir "$PGHOST"
  sync "$PGDATA"
  mv --no-target-directory "$PGDATA" "$finished"
  sync "$(dirname "$finished")"
  export PGDATA=$finished
  unset PGHOST PGUSER PGDATABASE
  say "database $POSTGRES_DB is ready, with the extension dbdp"
}

serves() { # whether these arguments start a server, rather than print its version or help
  local word
  [ "${1-}" = postgres ] || return 1
  for word; do
    case $word in -'?' | --help | -V | --version | --describe-config) return 1 ;; esac
  done
}

main() {
  [[ ${1-} != -* ]] || set -- postgres "$@"
  if serves "$@"; then
    [ "$UID" = "$(id -u postgres)" ] ||
      fail "this is uid $UID, but the server runs as uid $(id -u postgres) alone:" \
        "leave --user out, and give the volume to that uid"
    PGDATA=$(realpath --canonicalize-missing --no-symlinks "$PGDATA")
    export PGDATA
    [ -e "$PGDATA/PG_VERSION" ] || first_start "${@:2}"
    unset POSTGRES_PASSWORD
  fi
  exec "$@"
}

main "$@"
