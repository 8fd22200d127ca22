"""Copies the extension's files to a server's machine, and creates the extension in a database.

The server imports dbdp and the libraries that it needs from dbdp/<version> in SHAREDIR, or in another `destination`. It
is a link to a folder named after a hash of its content, so that a new session imports either all of the old code or
all of the new.
"""

import getpass
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from dbdp import __version__
from dbdp.deployment.extension import packages, search_path
from dbdp.deployment.extension.dependents import replaced_calls, used_by_others
from dbdp.deployment.extension.destination import check_writable, destination
from dbdp.deployment.extension.script import render_extension
from dbdp.deployment.extension.source import ELSEWHERE, ExtensionSource, InstallError, value
from dbdp.sessions import support
from dbdp.sessions.connections import libpq_url, opened

SCHEMAS = ("dbdp", "dbdp_internal")  # what users call, and what only that calls
ROLES = ("dbdp_owner", "dbdp_predictor", "dbdp_analyst", "dbdp_data_owner")
ODOMETER = re.compile(r"\S+ dbdp\.(?:allowance_)?(?:charge|leak)_\d+ ")  # in a list of dependent objects

GRANTS_TO_OWNER = """
select format('revoke all on %s %s from dbdp_owner', granted.kind, granted.name)
from (
    select 'table' as kind, c.oid::regclass::text as name, c.relacl as acl, c.relowner as owner
    from pg_class as c
    where c.relkind in ('r', 'p')
    union all
    select 'schema', quote_ident(n.nspname), n.nspacl, n.nspowner
    from pg_namespace as n
) as granted
where granted.owner <> to_regrole('dbdp_owner')
  and exists (select from aclexplode(granted.acl) as a where a.grantee = to_regrole('dbdp_owner'))
"""
# Functions of this version that import from another folder: pg_upgrade takes them along from another server's SHAREDIR.
MOVED = """
select pg_catalog.pg_get_functiondef(p.oid) as definition, f.folder
from pg_catalog.pg_proc as p
join pg_catalog.pg_language as l on l.oid = p.prolang
cross join lateral pg_catalog.substring(p.prosrc, %s) as f (folder)
where p.pronamespace in (pg_catalog.to_regnamespace('dbdp'), pg_catalog.to_regnamespace('dbdp_internal'))
  and l.lanname = 'plpython3u'
  and f.folder <> %s
  and exists (
    select
    from pg_catalog.pg_depend as d
    join pg_catalog.pg_extension as e on e.oid = d.refobjid
    where d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass
      and d.objid = p.oid
      and d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass
      and e.extname = 'dbdp'
      and e.extversion = %s
  )
"""
FOLDER = rf"""["']([^"']+/dbdp/{re.escape(__version__)})["']"""  # in the body of a function
# The schema of another role that has a name of dbdp's.
TAKEN = """
select n.nspname
from pg_catalog.pg_namespace as n
left join pg_catalog.pg_depend as d on d.classid = 'pg_catalog.pg_namespace'::pg_catalog.regclass and d.objid = n.oid
  and d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass
where n.nspname in ('dbdp', 'dbdp_internal') and d.objid is null
order by n.nspname
limit 1
"""
COUNTS: dict[str, LiteralString] = {
    "datasets": "select count(*) from dbdp.dataset",
    "charges": "select count(*) from dbdp.ledger",
    "models": "select count(*) from dbdp.model",
}
USED = """
select exists (
    select from pg_shdepend
    where refclassid = 'pg_authid'::regclass and refobjid = r.oid and classid <> 'pg_auth_members'::regclass
) or exists (select from pg_auth_members where roleid = r.oid)
from pg_roles as r
where r.rolname = %s
"""
# The roles that `uninstall` will leave: other roles are members of them, directly or not, or a database needs one.
KEPT = """
select rolname
from pg_roles as r
where rolname = any(%(roles)s)
  and (
    exists (
      select
      from pg_shdepend
      where refclassid = 'pg_authid'::regclass and refobjid = r.oid and classid <> 'pg_auth_members'::regclass
        and dbid <> (select oid from pg_database where datname = current_database())
    )
    or exists (
      select
      from pg_roles as m
      where m.rolname <> all(%(roles)s) and not m.rolsuper and pg_has_role(m.oid, r.oid, 'member')
    )
  )
order by rolname
"""
PRESENT = "select rolname from pg_roles where rolname = any(%(roles)s) order by rolname"
PYTHON_OF_SERVER = """
create function pg_temp.dbdp_python_version() returns text language plpython3u as $$
import sys
return "%d.%d" % sys.version_info[:2]
$$
"""


def install(url: str, source: ExtensionSource | None = None) -> None:
    """Copy the extension's files to the server and create the extension, or update one of an earlier version."""
    source = source or ExtensionSource.installed()
    with _connected(url) as connection:
        _check_supported(connection)
        share = destination(connection)
        _check_python(connection)
        python_directory, content, scripts = _files(share, source)
        if not _is_in_place(connection, packages.folder_of(python_directory, content), scripts):
            check_writable(connection, share)
            packages.copy_packages(python_directory, content)
            for path, text in scripts.items():
                packages.write(path, text)
        create_extension(connection)
        _point_functions(connection, python_directory)
        search_path.append(connection)


def changes(url: str, source: ExtensionSource | None = None) -> list[str]:
    """Return what `install` would change, a sentence for each; nothing is changed."""
    with _connected(url) as connection:
        _check_supported(connection)
        share = destination(connection)
        _check_python(connection)
        return [
            *_changes_of_files(connection, share, source or ExtensionSource.installed()),
            *_changes_of_extensions(connection),
            *replaced_calls(connection),
            *_changes_of_functions(connection, share / "dbdp" / __version__),
            *_changes_of_search_path(connection),
        ]


def _changes_of_files(connection: psycopg.Connection, share: Path, source: ExtensionSource) -> list[str]:
    python_directory, content, scripts = _files(share, source)
    folder = packages.folder_of(python_directory, content)
    if _is_in_place(connection, folder, scripts):
        return []
    count = len(packages.package_files()) + len(packages.library_files())
    return [
        f"folder {folder}: {count} files of dbdp and of {', '.join(packages.LIBRARIES)}, which the server imports",
        f"link {python_directory}: to that folder",
        f"files in {share / 'extension'}: {', '.join(sorted(path.name for path in scripts))}",
    ]


def _files(share: Path, source: ExtensionSource) -> tuple[Path, str, dict[Path, str]]:
    """Return the directory that the server imports, the fingerprint of its content, and the extension's files."""
    python_directory = share / "dbdp" / __version__
    texts = render_extension(python_directory, source)
    return (
        python_directory,
        packages.fingerprint(source),
        {share / "extension" / name: text for name, text in texts.items()},
    )


def _changes_of_extensions(connection: psycopg.Connection) -> list[str]:
    """Return the changes of extensions and roles."""
    query = "select extname, extversion from pg_extension where extname in ('dbdp', 'plpython3u')"
    present: dict[str, str] = dict(connection.execute(query).fetchall())
    lines = []
    if "plpython3u" not in present:
        lines.append("extension plpython3u: created; only superusers may write functions in this language")
    if present.get("dbdp") != __version__:
        before = f"updated from {present['dbdp']}" if "dbdp" in present else "created"
        lines.append(f"extension dbdp {__version__}: {before}, with the schemas {' and '.join(SCHEMAS)}")
    roles = {name for (name,) in connection.execute("select rolname from pg_roles").fetchall()}
    if missing := [role for role in ROLES if role not in roles]:
        lines.append(f"roles {', '.join(missing)}: created, without login")
    return lines


def _changes_of_functions(connection: psycopg.Connection, python_directory: Path) -> list[str]:
    moved = _moved_functions(connection, python_directory)
    folders = ", ".join(sorted({folder for _, folder in moved}))
    return [f"functions ({len(moved)}): import from {python_directory}, no longer from {folders}"] if moved else []


def _changes_of_search_path(connection: psycopg.Connection) -> list[str]:
    path = search_path.current(connection)
    if "dbdp" in path:
        return []
    database = connection.info.dbname
    return [f"search_path of database {database}: {', '.join([*path, 'dbdp'])}, for new sessions"]


def remains(url: str) -> list[str]:
    """Return what `uninstall` leaves on the server, or has left there, with the command that would remove each."""
    with _connected(url) as connection:
        share, query = destination(connection), "select 1 from pg_extension where extname = 'plpython3u'"
        lines = [
            f"files {share / 'dbdp'} and {share / 'extension' / 'dbdp*'}: other databases may use them; else rm -r"
        ]
        if value(connection, query):
            lines.append("extension plpython3u: others may use it; else `drop extension plpython3u`")
        is_there = value(connection, "select 1 from pg_extension where extname = 'dbdp'")
        kept = connection.execute(KEPT if is_there else PRESENT, {"roles": list(ROLES)})
        if roles := [role for (role,) in kept.fetchall()]:
            lines.append(f"roles {', '.join(roles)}: they have members, or objects of another database depend on them")
        return lines


def uninstall(url: str) -> None:
    """Drop the extension from a database, with all that `contents` counts and lists; the files stay.

    Other changes of `install` to the database, and unused roles, are removed even if the extension was dropped before.
    """
    with _connected(url) as connection:
        connection.execute("drop extension if exists dbdp cascade")
        search_path.remove(connection)
        for (revoke,) in connection.execute(GRANTS_TO_OWNER).fetchall():
            connection.execute(revoke.encode())
        for role in reversed(ROLES):  # members before what they are members of
            _drop_unused_role(connection, role)


def contents(url: str) -> dict[str, Any] | None:
    """Return what would be dropped with the extension of a database; None if it does not have the extension."""
    with _connected(url) as connection:
        if not value(connection, "select 1 from pg_extension where extname = 'dbdp'"):
            return None
        numbers = {name: value(connection, count) for name, count in COUNTS.items()}
        return numbers | {"others": _dependents(connection)}


def remedy_of_connection(error: str) -> str:
    """Return the remedy for a refused connection, or a server that does not answer."""
    if "Peer authentication failed" in error:
        return (
            "this machine's account needs a role with its name: `sudo -u postgres createuser --superuser "
            f"{getpass.getuser()}`, and a URL without a user, postgresql:///database; or use a password over TCP"
        )
    return "start the server, or correct host, port, database, user or password of the URL"


def reached(url: str, **options: Any) -> psycopg.Connection:
    """Connect; a ValueError has the remedy, and does not quote the URL, since it may hold a password."""
    try:
        return opened(libpq_url(url), **options)
    except psycopg.OperationalError as error:
        refusal = str(error).strip().partition("\n")[0]  # libpq adds a question of its own
        raise ValueError(f"{refusal}; {remedy_of_connection(str(error))}") from None


@contextmanager
def _connected(url: str) -> Iterator[psycopg.Connection]:
    """Connect as a superuser; no message quotes the URL, since it may hold a password."""
    try:
        connected = reached(url)
    except ValueError as error:
        raise InstallError(str(error)) from None
    with connected as connection:
        if not value(connection, "select rolsuper from pg_roles where rolname = current_user"):
            user = connection.info.user
            raise InstallError(
                f"{user} is not a superuser, and only a superuser may do this: connect as one, such as postgres; if "
                f"the service has none, {ELSEWHERE}"
            )
        yield connection


def check_supported(connection: psycopg.Connection) -> None:
    """Raise ValueError unless dbdp was tested on such a server and database, and this is the primary."""
    with connection.cursor(row_factory=dict_row) as cursor:
        ((facts,), (transaction,)) = (
            cursor.execute(query.encode()).fetchall() for query in (support.SERVER, support.TRANSACTION)
        )
    support.check_server(facts)
    support.check_writable(transaction)


def _check_supported(connection: psycopg.Connection) -> None:
    try:
        check_supported(connection)
    except ValueError as error:
        raise InstallError(str(error)) from None


def _is_in_place(connection: psycopg.Connection, folder: Path, scripts: dict[Path, str]) -> bool:
    """Return whether the server has exactly these files already, as in an image or for a second database."""
    python_directory = folder.with_name(__version__)
    if python_directory.resolve() != folder.resolve() or not folder.is_dir():
        return False
    read = "select pg_read_binary_file(%s, 0, 100000000, true)"
    return all(connection.execute(read, [str(path)]).fetchone() == (text.encode(),) for path, text in scripts.items())


def _check_python(connection: psycopg.Connection) -> None:
    """Raise InstallError unless the server has this minor version of Python, for which the modules are compiled."""
    if not value(connection, "select 1 from pg_available_extensions where name = 'plpython3u'"):
        major = connection.info.server_version // 10000
        raise InstallError(
            f"PostgreSQL {major} has no PL/Python: run `apt-get install postgresql-plpython3-{major}` as root"
        )
    with connection.transaction(force_rollback=True):
        connection.execute("create extension if not exists plpython3u")
        connection.execute(PYTHON_OF_SERVER)
        theirs = value(connection, "select pg_temp.dbdp_python_version()")
    ours = "{}.{}".format(*sys.version_info[:2])
    if theirs != ours:
        raise InstallError(
            f"PL/Python of the server is Python {theirs}, but dbdp is installed in Python {ours}: "
            f"run `dbdp install` from a virtual environment of the server machine's python{theirs}"
        )


def create_extension(connection: psycopg.Connection) -> None:
    """Create the extension in a database, from files that are in place, or update it to this version."""
    with _own_schemas(connection):
        connection.execute("create extension if not exists dbdp schema pg_catalog cascade")
        present = value(connection, "select extversion from pg_extension where extname = 'dbdp'")
        if present == __version__:
            return
        try:
            connection.execute(sql.SQL("alter extension dbdp update to {}").format(__version__))
        except psycopg.errors.DependentObjectsStillExist as error:
            reason, detail = error.diag.message_primary or "", error.diag.message_detail or str(error)
            raise InstallError(used_by_others(connection, reason, detail)) from None
        except psycopg.errors.InvalidParameterValue:
            raise InstallError(
                f"the database has dbdp {present}, which cannot be updated to {__version__}: install dbdp {present} on "
                "this machine, or run `drop extension dbdp`, which deletes all ledgers and models, and install again"
            ) from None


@contextmanager
def _own_schemas(connection: psycopg.Connection) -> Iterator[None]:
    """Name the remedy if the script refuses a schema that another role made under a name of dbdp's."""
    try:
        yield
    except psycopg.errors.DuplicateSchema:
        taken = value(connection, TAKEN)
        raise InstallError(
            f"the database has a schema {taken} that is not the extension's: "
            f"run `alter schema {taken} rename to …`, or drop it, and install again"
        ) from None


def _moved_functions(connection: psycopg.Connection, python_directory: Path) -> list[tuple[str, str]]:
    """Return definition and folder of each function of this version that imports from another folder than this."""
    return connection.execute(MOVED, [FOLDER, str(python_directory), __version__]).fetchall()


def _point_functions(connection: psycopg.Connection, python_directory: Path) -> None:
    """Have all functions import from this server's folder; their owners and privileges stay."""
    with connection.transaction():
        for definition, folder in _moved_functions(connection, python_directory):
            connection.execute(definition.replace(folder, str(python_directory)).encode())


def _dependents(connection: psycopg.Connection) -> list[str]:
    """Return the server's list of objects that depend on the extension and prevent a plain `drop extension`.

    Odometers do in a restored database, where they are no members of the extension; they are not listed.
    """
    try:
        with connection.transaction(force_rollback=True):
            connection.execute("drop extension dbdp")
    except psycopg.errors.DependentObjectsStillExist as error:
        listed = (error.diag.message_detail or "").splitlines()
        return [line for line in listed if not ODOMETER.match(line)]
    return []


def _drop_unused_role(connection: psycopg.Connection, role: str) -> None:
    """Drop a role unless it has members, or objects of any database still depend on it."""
    if connection.execute(USED, [role]).fetchone() == (False,):
        connection.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))
