"""Checks what a server and this machine lack for dbdp, and names the remedy for each fault; it changes nothing.

The state of a finding is `ok`; `fault`, if something does not work or is not safe; `advice`; or `unknown`, if the role
may not check it. A remedy is a shell command, or SQL that ends in a semicolon.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from dbdp import __version__
from dbdp.deployment import inventory
from dbdp.deployment.about import about
from dbdp.deployment.extension.installer import ROLES, remedy_of_connection
from dbdp.deployment.extension.source import ELSEWHERE, SOUND_OBJECTS, ExtensionSource
from dbdp.deployment.following.subscriber_checks import lending
from dbdp.packing.memory import pack_memory
from dbdp.sessions import support
from dbdp.sessions.client import ClientSession
from dbdp.sessions.connections import PATH, POOLED, URL_VARIABLE, connected, is_direct, libpq_url

OK, FAULT, ADVICE, UNKNOWN = "ok", "fault", "advice", "unknown"
_TIMEOUT = 10  # seconds for a connection
_MEMBERS = (("dbdp_predictor", "dbdp_analyst"), ("dbdp_analyst", "dbdp_data_owner"))
_RIGHTS = {
    "dbdp_data_owner": "register own tables, train and predict",
    "dbdp_analyst": "train and predict where it has been granted the right",
    "dbdp_predictor": "predict where it has been granted the right",
}
# Settings that may write the statements of a training to a log, among them plans with exact models: the values that do
# so, and one that does not.
_LOG_SETTINGS = {
    "log_min_messages": (re.compile("debug"), "warning"),
    "auto_explain.log_nested_statements": (re.compile("on"), "off"),
    "pg_stat_statements.track": (re.compile("all"), "top"),
}

_AVAILABLE = "select exists (select from pg_available_extension_versions where name = 'dbdp' and version = $1::text)"
_UPDATE = (
    "select exists (select from pg_extension_update_paths('dbdp') "
    "where source = $1::text and target = $2::text and path is not null)"
)
_PLACE = (
    "select quote_ident(n.nspname) from pg_namespace as n join pg_extension as e on e.extnamespace = n.oid "
    "where e.extname = 'dbdp'"
)
# No command moves an extension whose objects are in a schema of its own. Dependencies on pg_catalog are not recorded.
_TO_PG_CATALOG = (
    "set search_path = pg_catalog, pg_temp; with moved as (update pg_extension set extnamespace = "
    "'pg_catalog'::regnamespace where extname = 'dbdp' returning oid) delete from pg_depend using moved where "
    "objid = moved.oid and classid = 'pg_extension'::regclass and refclassid = 'pg_namespace'::regclass; "
    "reset search_path;"
)


@dataclass(frozen=True)
class Diagnosis:
    """The result of one check."""

    check: str
    state: str  # `ok`, `fault`, `advice` or `unknown`
    found: str  # what the check observed
    remedy: str | None = None  # a shell command or SQL; None if there is nothing to do


@dataclass(frozen=True)
class ExaminedServer:
    """A server that accepts a connection, and the role that connects."""

    connection: psycopg.Connection
    session: ClientSession
    role: str
    is_superuser: bool
    database: str

    @classmethod
    def of(cls, connection: psycopg.Connection) -> "ExaminedServer":
        """Return the server of a connection."""
        session = ClientSession(connection)
        sql = (
            "select quote_ident(session_user) as role, rolsuper as is_superuser, quote_ident(current_database()) "
            "as database from pg_catalog.pg_roles where rolname = session_user"
        )
        return cls(connection, session, **session.query(sql)[0])

    def value(self, sql: str, *parameters: Any) -> Any:
        """Return the only value of a query."""
        return next(iter(self.session.query(f"select ({sql}) as value", *parameters)[0].values()))

    @property
    def superuser_target(self) -> str:
        """The target as a quoted shell argument with a superuser and without a password."""
        parameters = self.connection.info.get_parameters()
        where = {name: parameters[name] for name in ("host", "port", "dbname", "user") if name in parameters}
        return shlex.quote(make_conninfo(**where | ({} if self.is_superuser else {"user": "postgres"})))

    @property
    def install(self) -> str:
        """The command that installs or updates the extension, on the server's machine."""
        return f"dbdp install --url {self.superuser_target}"


def examine(target: str | None) -> list[Diagnosis]:
    """Check this machine, a server and its database."""
    here = _runtime("this Python", about())
    url = target or os.environ.get(URL_VARIABLE) or _private_server()
    if url is None:
        return [here, Diagnosis("server", FAULT, "the private server does not run", "dbdp server start")]
    try:
        url = libpq_url(url)
    except ValueError as error:
        what, _, remedy = str(error).partition(": ")
        return [here, Diagnosis("server", FAULT, what, remedy)]
    try:
        with connected(url, connect_timeout=_TIMEOUT) as connection:
            return [here, *_of_server(ExaminedServer.of(connection))]
    except psycopg.OperationalError as error:
        return [here, Diagnosis("server", FAULT, str(error).strip(), remedy_of_connection(str(error)))]


def _private_server() -> str | None:
    from dbdp.deployment.cluster import Cluster

    cluster = Cluster.default()
    return cluster.url if cluster.status()["running"] else None


def _of_server(server: ExaminedServer) -> Iterator[Diagnosis]:
    yield from _versions(server)
    extension = _extension(server)
    yield extension
    checks = (_rights, _settings) if extension.state == OK else (_settings,)
    if extension.state == OK:
        yield from _place(server)
        yield _python(server)
        yield from _without_role(server)
        missing = [*_roles(server)]
        yield from missing or [Diagnosis("roles", OK, ", ".join(ROLES))]
        if not missing:
            yield from _objects(server)
        yield from _subscriptions(server)
    if not server.value("select to_regrole('dbdp_owner') is null"):
        for check in checks:
            yield from check(server)


# --- the machine, the server, the extension -------------------------------------------------------------


def _runtime(check: str, ran: dict[str, Any]) -> Diagnosis:
    return Diagnosis(check, OK, ", ".join(f"{name} {version}" for name, version in ran.items()))


def _versions(server: ExaminedServer) -> Iterator[Diagnosis]:
    facts = server.session.query(support.SERVER)[0]
    faults, major = support.faults_of_server(facts), facts["version"] // 10000
    if "server" not in faults:
        yield Diagnosis("server", OK, f"PostgreSQL {major}")
    for check, fault in faults.items():
        yield Diagnosis(check, FAULT, *fault)
    if not is_direct(server.connection):
        remedy = "connect to the server itself for dbdp install, and for trainings from Python with shards"
        yield Diagnosis("connection", ADVICE, POOLED, remedy)
    if server.value("select pg_is_in_recovery()"):
        observation = "a standby: models can be used, nothing can be charged or trained"
        yield Diagnosis("primary", ADVICE, observation, "connect to the primary for training")
    yield _language(server, major)
    yield _files(server)


def _language(server: ExaminedServer, major: int) -> Diagnosis:
    """Check that the database has PL/Python, or that this role may create it."""
    if server.value("select exists (select from pg_extension where extname = 'plpython3u')"):
        return Diagnosis("PL/Python", OK, "created")
    if not server.value("select exists (select from pg_available_extensions where name = 'plpython3u')"):
        hosted = "" if server.is_superuser else f"; on a hosted server {ELSEWHERE}"
        remedy = f"apt-get install postgresql-plpython3-{major}{hosted}"
        return Diagnosis("PL/Python", FAULT, "the server's package plpython3u is not installed", remedy)
    if server.is_superuser:
        return Diagnosis("PL/Python", OK, "available")
    observation = f"available, but {server.role} may not create it: only a superuser may"
    return Diagnosis("PL/Python", FAULT, observation, f"connect as a superuser; if the service has none, {ELSEWHERE}")


def _files(server: ExaminedServer) -> Diagnosis:
    sql = "select array_agg(version order by version) from pg_available_extension_versions where name = 'dbdp'"
    versions = server.value(sql) or []
    if __version__ in versions:
        return Diagnosis("extension files", OK, f"version {__version__}")
    observation = f"of version {', '.join(versions)}, not {__version__}" if versions else "none on the server's disk"
    return Diagnosis("extension files", FAULT, observation, server.install)


def _extension(server: ExaminedServer) -> Diagnosis:
    version = server.value("select extversion from pg_extension where extname = 'dbdp'")
    if version == __version__:
        return Diagnosis("extension", OK, f"version {version}")
    is_available = server.value(_AVAILABLE, __version__)
    if version is None:
        remedy = "create extension dbdp schema pg_catalog cascade;" if is_available else server.install
        return Diagnosis("extension", FAULT, "not in this database", remedy)
    can_update = is_available and server.value(_UPDATE, version, __version__)
    remedy = "alter extension dbdp update;" if can_update else server.install
    if _numbers(version) > _numbers(__version__):
        remedy = f"pip install .  # in the source of version {version}"
    return Diagnosis("extension", FAULT, f"version {version} in the database, {__version__} here", remedy)


def _place(server: ExaminedServer) -> Iterator[Diagnosis]:
    """Yield a fault unless the extension is in pg_catalog: another schema's owner can drop it with the extension."""
    place = server.value(_PLACE)
    if place != "pg_catalog":
        observation = f"it is in schema {place}, whose owner can drop it with the extension, all ledgers and all models"
        yield Diagnosis("schema of the extension", FAULT, observation, _TO_PG_CATALOG)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def _python(server: ExaminedServer) -> Diagnosis:
    """Check that the server can import what a training imports."""
    try:
        ran = server.value("select dbdp.about()")
    except psycopg.errors.InsufficientPrivilege:
        return Diagnosis("server's Python", UNKNOWN, f"{server.role} may not call dbdp.about", "connect as a superuser")
    except psycopg.Error as error:
        text = error.diag.message_primary or str(error)
        return Diagnosis("server's Python", FAULT, text, server.install)
    return _runtime("server's Python", ran)


# --- roles, rights, settings ----------------------------------------------------------------------------


def _roles(server: ExaminedServer) -> Iterator[Diagnosis]:
    absent = [role for role in ROLES if server.value("select to_regrole($1) is null", role)]
    if absent:
        yield Diagnosis("roles", FAULT, f"missing: {', '.join(absent)}", _with_parts(server))
        return
    for role, member in _MEMBERS:
        if not server.value("select pg_has_role($1::name, $2::name, 'usage')", member, role):
            yield Diagnosis("roles", FAULT, f"{member} is not a member of {role}", f"grant {role} to {member};")
    try:
        server.session.query((ExtensionSource.installed().sql / _CHECK_OF_ROLES).read_text())
    except psycopg.errors.ObjectNotInPrerequisiteState as error:
        yield Diagnosis("roles", FAULT, error.diag.message_primary or str(error), error.diag.message_hint)


def _objects(server: ExaminedServer) -> Iterator[Diagnosis]:
    """Compare the rights on the extension's objects, and what stands on its tables, with the lists of this version."""
    findings = [finding for check in (_code_of_others, _rights_of_others, _writers) for finding in check(server)]
    yield from findings or [Diagnosis("objects", OK, "those of this version, with the rights that it grants")]


def _subscriptions(server: ExaminedServer) -> Iterator[Diagnosis]:
    """Yield a fault for each table that a subscription writes as a superuser, so that its owner's triggers run so."""
    for row in server.session.query(lending(server.connection.info.server_version // 10000)):
        observation = f"{row['name']} is written as {row['superuser']}, and so are triggers of its owner {row['owner']}"
        yield Diagnosis("subscriptions", FAULT, observation, f"alter table {row['name']} owner to {row['superuser']};")


def _code_of_others(server: ExaminedServer) -> Iterator[Diagnosis]:
    try:
        server.session.query((ExtensionSource.installed().sql / SOUND_OBJECTS).read_text())
    except psycopg.errors.ObjectNotInPrerequisiteState as error:
        yield Diagnosis("objects", FAULT, error.diag.message_primary or str(error), error.diag.message_hint)


def _rights_of_others(server: ExaminedServer) -> Iterator[Diagnosis]:
    def query(sql: str) -> list[tuple[str, ...]]:
        return [tuple(row.values()) for row in server.session.query(sql)]

    try:
        foreign, missing = inventory.foreign(query), inventory.missing(query)
    except psycopg.errors.InsufficientPrivilege:
        yield Diagnosis("objects", UNKNOWN, f"{server.role} may not see their rights", "connect as a superuser")
        return
    if foreign:
        yield Diagnosis("objects", FAULT, f"not of dbdp: {'; '.join(foreign)}", " ".join(foreign.values()))
    if missing:
        yield Diagnosis("objects", FAULT, f"missing: {'; '.join(missing)}", _with_parts(server))


_WRITERS = (
    "select string_agg(quote_ident(r.rolname), ', ' order by r.rolname) from pg_roles as r "
    "where not r.rolsuper and r.rolname <> 'pg_write_all_data' and pg_has_role(r.oid, 'pg_write_all_data', 'usage')"
)


def _writers(server: ExaminedServer) -> Iterator[Diagnosis]:
    """Yield advice about roles that PostgreSQL lets write everything: no right on an odometer is listed for them."""
    if roles := server.value(_WRITERS):
        observation = (
            f"{roles} may turn odometers, and so stop trainings, or refund charges without a row in the ledger"
        )
        yield Diagnosis("pg_write_all_data", ADVICE, observation, f"revoke pg_write_all_data from {roles};")


def _with_parts(server: ExaminedServer) -> str:
    """Return the command that makes roles, policies and rights again."""
    parts = " ".join(f"-f {shlex.quote(str(ExtensionSource.installed().sql / part))}" for part in _PARTS_OF_ROLES)
    pin = shlex.quote(f"set search_path = {PATH}")
    return f"psql {server.superuser_target} --set ON_ERROR_STOP=1 --single-transaction --command {pin} {parts}"


_PARTS_OF_ROLES = ("schema/2-roles.sql", "policies/1-rows.sql", "policies/2-privileges.sql")  # can be run again
_CHECK_OF_ROLES = "schema/3-sound-roles.sql"  # which reads only


def _rights(server: ExaminedServer) -> Iterator[Diagnosis]:
    yield _own_rights(server)
    sql = (
        "select array_agg(quote_ident(r)) from unnest(array['dbdp_owner', session_user]) as r "
        "where (r = 'dbdp_owner' or pg_has_role(r, 'dbdp_data_owner', 'usage')) "
        "and not has_database_privilege(r, current_database(), 'temporary')"
    )
    for role in server.value(sql) or []:
        observation = f"{role} may not create temporary tables, which a training needs"
        remedy = f"grant temporary on database {server.database} to {role};"
        yield Diagnosis("temporary tables", FAULT, observation, remedy)


def _own_rights(server: ExaminedServer) -> Diagnosis:
    if server.is_superuser:
        return Diagnosis("role", OK, f"{server.role}, a superuser, may do everything")
    for role, may in _RIGHTS.items():
        if server.value("select pg_has_role(session_user, $1::name, 'usage')", role):
            return Diagnosis("role", OK, f"{server.role}, a member of {role}, may {may}")
    observation = f"{server.role} is not a member of {', '.join(_RIGHTS)}"
    return Diagnosis("role", FAULT, observation, f"grant dbdp_analyst to {server.role};")


_WITHOUT_ROLE = """
select array_agg(distinct format('%s (%s)', dbdp_internal.role_name(g.identity, g.known), g.identity))
from (
    select d.registered_by_id, d.registered_by from dbdp.dataset as d where d.dropped_at is null
    union select a.role_id, a.role from dbdp.allowance as a where a.revoked_at is null
    union select p.role_id, p.role from dbdp.prediction_grant as p
    union select n.role_id, n.role from dbdp.name_grant as n
) as g (identity, known)
join dbdp.identities as i on i.identity = g.identity
where i.role is null and i.is_unconfirmed = $1::bool
"""


def _without_role(server: ExaminedServer) -> Iterator[Diagnosis]:
    """Yield advice about rights of roles that do not exist here; they are in nobody's hands."""
    if not server.is_superuser:
        return
    if waiting := server.value(_WITHOUT_ROLE, True):
        observation = f"roles of a restored dump, which have no rights until they are confirmed: {', '.join(waiting)}"
        yield Diagnosis("roles of a dump", ADVICE, observation, "dbdp confirm-roles")
    if gone := server.value(_WITHOUT_ROLE, False):
        observation = f"rights of roles that do not exist any more: {', '.join(gone)}"
        remedy = (
            "revoke their grants as dbdp.allowances shows them; for a successor: create role … nologin; select "
            "dbdp.confirm_role('the identity in parentheses', 'that role'); grant that role to the successor;"
        )
        yield Diagnosis("dropped roles", ADVICE, observation, remedy)


def _settings(server: ExaminedServer) -> Iterator[Diagnosis]:
    checks: tuple[Callable[[ExaminedServer], Diagnosis | None], ...] = (_memory, _transactions, _fsync, _standbys)
    findings = [finding for check in checks if (finding := check(server))]
    findings += _logs(server)
    yield from findings or [Diagnosis("settings", OK, "fsync, standbys, dbdp.pack_memory and logs")]


def _memory(server: ExaminedServer) -> Diagnosis | None:
    try:
        pack_memory(server.session)
    except ValueError as error:
        remedy = f"alter database {server.database} set dbdp.pack_memory = '256MB';"
        return Diagnosis("dbdp.pack_memory", FAULT, str(error), remedy)
    return None


def _transactions(server: ExaminedServer) -> Diagnosis | None:
    """Check that a training in a transaction that nobody described is not refused."""
    for parameter, refused, value in support.REFUSED_DEFAULTS:
        if server.value("select current_setting($1)", parameter) == refused:
            remedy = f"alter database {server.database} set {parameter} = '{value}';"
            return Diagnosis(parameter, FAULT, f"{refused}: each training is refused", remedy)
    return None


def _fsync(server: ExaminedServer) -> Diagnosis | None:
    if server.value("select current_setting('fsync')") == "on":
        return None
    observation = "off: a crash can undo a charge after its release was read"
    return Diagnosis("fsync", FAULT, observation, _set_system("fsync", "on"))


def _standbys(server: ExaminedServer) -> Diagnosis | None:
    names = server.value("select current_setting('synchronous_standby_names')").strip()
    may = server.value("select pg_has_role('dbdp_owner', 'pg_read_all_stats', 'usage')")
    if names and not may:
        observation = "dbdp_owner may not see how far the synchronous standbys have replicated: training is refused"
        return Diagnosis("standbys", FAULT, observation, "grant pg_read_all_stats to dbdp_owner;")
    if not names and (standbys := server.value("select count(*) from pg_stat_replication")):
        observation = f"{standbys} connected, none synchronous: a failover can undo the last charges"
        return Diagnosis("standbys", ADVICE, observation, _set_system("synchronous_standby_names", "*"))
    return None


def _logs(server: ExaminedServer) -> Iterator[Diagnosis]:
    for parameter, (unsafe, quiet) in _LOG_SETTINGS.items():
        value = server.value("select current_setting($1, true)", parameter) or ""
        if unsafe.match(value):
            observation = f"{value}: a log may contain plans with exact models, and is then as secret as the tables"
            yield Diagnosis(parameter, ADVICE, observation, _set_system(parameter, quiet))


def _set_system(parameter: str, value: str) -> str:
    return f"alter system set {parameter} = '{value}'; select pg_catalog.pg_reload_conf();"
