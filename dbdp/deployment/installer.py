"""Copies the extension's files to a server's machine, and creates the extension in a database.

The server imports dbdp and the libraries that it needs from SHAREDIR/dbdp/<version>, a link to a folder named after a
hash of its content, so that a new session imports either all of the old code or all of the new.
"""

import compileall
import csv
import getpass
import hashlib
import os
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, LiteralString, NamedTuple

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from dbdp import __version__
from dbdp.deployment.dependents import used_by_others
from dbdp.sessions import support
from dbdp.sessions.connections import PATH, libpq_url, opened

PACKAGE = Path(__file__).parents[1]
LIBRARIES = {"numpy": ("numpy", "numpy.libs"), "python-flint": ("flint", "python_flint.libs")}  # and their folders
FOLDERS = ("schema", "functions", "policies")  # of sql/, in the order of the script
MADE_ONCE = ("schema/1-schema.sql", "schema/5-tables.sql")  # an update runs all other parts again
SOUND_OBJECTS = "schema/0-sound-objects.sql"  # reads only, and is what an update runs first
NOT_FOR_THE_SERVER = frozenset({"_sql", "_plpython", "__pycache__", "tests", "test"})
SCHEMAS = ("dbdp", "dbdp_internal")  # what users call, and what only that calls
ROLES = ("dbdp_owner", "dbdp_predictor", "dbdp_analyst", "dbdp_data_owner")
ODOMETER = re.compile(r"\S+ dbdp\.(?:allowance_)?(?:charge|leak)_\d+ ")  # in a list of dependent objects
BODY = re.compile(r"@plpython (\w+)\.(\w+)@")  # a module of dbdp.interfaces.sql, and its function
# A function that refuses, see sql/functions/0-refusals.sql: schema, name, parameters, result, settings, body.
REFUSING = re.compile(
    r"create or replace function (dbdp(?:_internal)?)\.(\w+)\(((?:(?!\$body\$).)*?)\)( returns [^\n]+)?\n"
    r"language plpython3u((?:(?!\$body\$).)*?)\nas \$body\$\n@refusing (\w+\.\w+)@\n\$body\$;\n",
    re.DOTALL,
)
PAIR = """create or replace function dbdp_internal.try_{name}{signature}
language plpython3u{settings}
as $body$
@plpython {body}@
$body$;
comment on function dbdp_internal.try_{name}({types}) is
'internal: the work of {schema}.{name}; a refusal is left to accepted';
create or replace function {schema}.{name}{signature}
language sql {is_called}
set search_path = pg_catalog, pg_temp
as $body$
select answer.* from dbdp_internal.try_{name}({numbers}) as answer where dbdp_internal.accepted()
$body$;
"""
PARAMETER = re.compile(r"(?:'[^']*'|[^',])+")  # no type in sql/ has a comma
# What is written once for several functions: names, rows of their values (a;b of c, d), and the script.
EACH = re.compile(r"@each ([\w, ]+):\s*((?:(?!do@).)*?)\s*do@\n((?:(?!@each ).)*?)@end@\n", re.DOTALL)
OPTIONS = re.compile(r"@options(?: without ([\w ]+))?@")  # the options of a training (`controller.options`)
PATH_ITEM = re.compile(r'"(?:[^"]|"")*"|[^,\s]+')

SETTING_OF_DATABASE = """
select substr(item, length('search_path=') + 1)
from pg_db_role_setting, unnest(setconfig) as item
where setrole = 0
  and setdatabase = (select oid from pg_database where datname = current_database())
  and item like 'search\\_path=%'
"""
SETTING_OF_SERVER = """
select coalesce(
    (select setting from pg_file_settings where name = 'search_path' and applied),
    (select boot_val from pg_settings where name = 'search_path'))
"""
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
# If an earlier version of the extension is in another schema, an update would look names up there.
PINNED = f"set local search_path = {PATH};\n\n"
PYTHON_OF_SERVER = """
create function pg_temp.dbdp_python_version() returns text language plpython3u as $$
import sys
return "%d.%d" % sys.version_info[:2]
$$
"""


class InstallError(RuntimeError):
    """The extension cannot be installed here; the message says what to do about it."""


@dataclass(frozen=True)
class Source:
    """The folders from which the extension's script is rendered.

    Attributes
    ----------
    sql : Path
        The parts of the script, and the steps of an update.
    plpython : Path
        The bodies of the functions.
    """

    sql: Path
    plpython: Path

    @classmethod
    def installed(cls) -> "Source":
        """Return the folders of this installation: inside an installed wheel, else beside the package."""
        if (PACKAGE / "_sql").exists():
            return cls(PACKAGE / "_sql", PACKAGE / "_plpython")
        return cls(PACKAGE.parent / "sql", PACKAGE.parent / "plpython")

    def parts(self) -> dict[str, Path]:
        """Return the parts of the extension's script, by folder and name, in their order."""
        return {
            f"{folder}/{part.name}": part for folder in FOLDERS for part in sorted((self.sql / folder).glob("*.sql"))
        }


def install(url: str, source: Source | None = None) -> None:
    """Copy the extension's files to the server and create the extension, or update one of an earlier version."""
    source = source or Source.installed()
    with _connected(url) as connection:
        _check_supported(connection)
        share = _share(connection)
        _check_python(connection)
        python_directory, content, scripts = _files(share, source)
        if not _is_in_place(connection, _folder(python_directory, content), scripts):
            _check_writable(connection, share)
            _copy_packages(python_directory, content)
            for path, text in scripts.items():
                _write(path, text)
        create_extension(connection)
        _point_functions(connection, python_directory)
        _append_to_search_path(connection)


def changes(url: str, source: Source | None = None) -> list[str]:
    """Return what `install` would change, a sentence for each; nothing is changed."""
    with _connected(url) as connection:
        _check_supported(connection)
        share = _share(connection)
        _check_python(connection)
        return [
            *_changes_of_files(connection, share, source or Source.installed()),
            *_changes_of_extensions(connection),
            *_changes_of_functions(connection, share / "dbdp" / __version__),
            *_changes_of_search_path(connection),
        ]


def _changes_of_files(connection: psycopg.Connection, share: Path, source: Source) -> list[str]:
    python_directory, content, scripts = _files(share, source)
    folder = _folder(python_directory, content)
    if _is_in_place(connection, folder, scripts):
        return []
    count = len(_package_files()) + len(_library_files())
    return [
        f"folder {folder}: {count} files of dbdp and of {', '.join(LIBRARIES)}, which the server imports",
        f"link {python_directory}: to that folder",
        f"files in {share / 'extension'}: {', '.join(sorted(path.name for path in scripts))}",
    ]


def _files(share: Path, source: Source) -> tuple[Path, str, dict[Path, str]]:
    """Return the directory that the server imports, the fingerprint of its content, and the extension's files."""
    python_directory = share / "dbdp" / __version__
    texts = render_extension(python_directory, source)
    return python_directory, fingerprint(source), {share / "extension" / name: text for name, text in texts.items()}


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
    path = _search_path(connection)
    if "dbdp" in path:
        return []
    database = connection.info.dbname
    return [f"search_path of database {database}: {', '.join([*path, 'dbdp'])}, for new sessions"]


def remains(url: str) -> list[str]:
    """Return what `uninstall` leaves on the server, or has left there, with the command that would remove each."""
    with _connected(url) as connection:
        share, query = _share(connection), "select 1 from pg_extension where extname = 'plpython3u'"
        lines = [
            f"files {share / 'dbdp'} and {share / 'extension' / 'dbdp*'}: other databases may use them; else rm -r"
        ]
        if _value(connection, query):
            lines.append("extension plpython3u: others may use it; else `drop extension plpython3u`")
        is_there = _value(connection, "select 1 from pg_extension where extname = 'dbdp'")
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
        _remove_from_search_path(connection)
        for (revoke,) in connection.execute(GRANTS_TO_OWNER).fetchall():
            connection.execute(revoke.encode())
        for role in reversed(ROLES):  # members before what they are members of
            _drop_unused_role(connection, role)


def contents(url: str) -> dict[str, Any] | None:
    """Return what would be dropped with the extension of a database; None if it does not have the extension."""
    with _connected(url) as connection:
        if not _value(connection, "select 1 from pg_extension where extname = 'dbdp'"):
            return None
        numbers = {name: _value(connection, count) for name, count in COUNTS.items()}
        return numbers | {"others": _dependents(connection)}


def render_extension(python_directory: Path, source: Source | None = None) -> dict[str, str]:
    """Return the control file and the scripts of the extension: one that creates it, one from each earlier version."""
    source = source or Source.installed()
    control = (source.sql / "dbdp.control").read_text()
    parts = {name: _with_bodies(part, source) for name, part in source.parts().items()}
    files = {"dbdp.control": control, f"dbdp--{__version__}.sql": "\n".join(parts.values())}
    again = [script for name, script in parts.items() if name not in (SOUND_OBJECTS, *MADE_ONCE)]
    for version, migrations in _migrations(source).items():
        files[f"dbdp--{version}--{__version__}.sql"] = "\n".join(migrations + again)
    for name in files.keys() - {"dbdp.control"}:
        files[name] = f"{PINNED}{files[name]}"
    values = {"@python_directory@": str(python_directory), "@version@": __version__}
    for mark, value in values.items():
        files = {name: content.replace(mark, value) for name, content in files.items()}
    return files


def fingerprint(source: Source | None = None) -> str:
    """Return a short hash of everything that an installation copies to the server."""
    source = source or Source.installed()
    digest = hashlib.sha256(repr(sys.version_info[:2]).encode())
    digest.update("".join(f"{item.path} {item.hash}\n" for item in _library_files()).encode())
    parts = [*source.sql.rglob("*.*"), *source.plpython.glob("*.py")]
    for path in [*_package_files(), *sorted(parts)]:
        if path.is_file():
            digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _migrations(source: Source) -> dict[str, list[str]]:
    """Return, for each earlier version, what comes before an update, and the hand-written steps from it, in order.

    A step, sql/upgrade/<from>--<to>.sql, changes what the parts in MADE_ONCE created, and drops the functions whose
    arguments or results changed; the other parts are run again after the last step.
    """
    steps = {path.stem.partition("--")[0]: path.read_text() for path in (source.sql / "upgrade").glob("*--*.sql")}
    versions = sorted(steps, key=lambda version: [int(number) for number in version.split(".")])
    first = [source.sql / "upgrade" / "before.sql", source.sql / SOUND_OBJECTS] if steps else []
    return {
        version: [*(part.read_text() for part in first), *(steps[later] for later in versions[place:])]
        for place, version in enumerate(versions)
    }


def _with_bodies(part: Path, source: Source) -> str:
    from dbdp.controller.options import sql_parameters
    from dbdp.registry import registration

    body = (source.plpython / "body.py").read_text().replace("@version@", __version__)
    script = part.read_text().replace("@registration@", registration.sql_parameters())
    script = OPTIONS.sub(lambda mark: sql_parameters(without=tuple((mark[1] or "").split())), script)
    while EACH.search(script):
        script = EACH.sub(_repeated, script)  # the innermost first

    def calling(mark: re.Match[str]) -> str:
        return body.replace("@module@", mark[1]).replace("@function@", mark[2])

    return BODY.sub(calling, REFUSING.sub(_pair, script))


def _repeated(section: re.Match[str]) -> str:
    """Return a section once for each row of values, with `@NAME@` replaced by the value."""
    names = section[1].split(", ")
    scripts = []
    for row in section[2].split(";"):
        script = section[3]
        for name, value in zip(names, row.strip().split(", "), strict=True):
            script = script.replace(f"@{name}@", value)
        scripts.append(script)
    return "\n".join(scripts)


def _pair(function: re.Match[str]) -> str:
    """Return the pair of a function that refuses: dbdp_internal.try_NAME in PL/Python, and the one that calls it."""
    schema, name, written, result, settings, body = function.groups()
    defaulted = [_with_default(each) for each in PARAMETER.findall(written)]
    passed = [each for each in defaulted if not each.strip().startswith("out ")]
    parameters = ",".join(defaulted)
    types = ", ".join(each.split()[1] for each in passed)
    numbers = ", ".join(f"${number}" for number, _ in enumerate(passed, start=1))
    is_called = " ".join(re.findall(r"\b(?:stable|parallel safe)\b", settings))
    return PAIR.format(
        schema=schema,
        name=name,
        signature=f"({parameters}){result or ''}",
        settings=settings,
        body=body,
        types=types,
        is_called=is_called,
        numbers=numbers,
    )


def _with_default(parameter: str) -> str:
    """Return a parameter with the default null, which the function refuses by name, unless it has one or is a result.

    PostgreSQL would say of a call without it that there is no such function; and that there are two, if the model had a
    default as a number and as a name.
    """
    written = parameter.strip()
    if " default " in parameter or written in ("", "model text") or written.startswith("out "):
        return parameter
    return parameter.rstrip() + " default null" + parameter[len(parameter.rstrip()) :]


def remedy_of_connection(error: str) -> str:
    """Return the remedy for a refused connection, or a server that does not answer."""
    if "Peer authentication failed" in error:
        return (
            "this machine's account needs a role with its name: `sudo -u postgres createuser --superuser "
            f"{getpass.getuser()}`, and a URL without a user, postgresql:///database; or use a password over TCP"
        )
    return "start the server, or correct host, port, database, user or password of the URL"


@contextmanager
def _connected(url: str) -> Iterator[psycopg.Connection]:
    """Connect as a superuser; no message quotes the URL, since it may hold a password."""
    try:
        connected = opened(libpq_url(url))
    except ValueError as error:
        raise InstallError(str(error)) from None
    except psycopg.OperationalError as error:
        refusal = str(error).strip().partition("\n")[0]  # libpq adds a question of its own
        raise InstallError(f"{refusal}; {remedy_of_connection(str(error))}") from None
    with connected as connection:
        if not _value(connection, "select rolsuper from pg_roles where rolname = current_user"):
            user = connection.info.user
            raise InstallError(f"{user} is not a superuser, and only a superuser may do this: connect as postgres")
        yield connection


def _value(connection: psycopg.Connection, query: LiteralString) -> str | None:
    row = connection.execute(query).fetchone()
    return row[0] if row else None


def _share(connection: psycopg.Connection) -> Path:
    """Return the server's SHAREDIR."""
    return Path(_value(connection, "select setting from pg_config where name = 'SHAREDIR'") or "")


def _check_supported(connection: psycopg.Connection) -> None:
    """Raise InstallError unless dbdp was tested on such a server and database, and this is the primary."""
    with connection.cursor(row_factory=dict_row) as cursor:
        ((facts,), (transaction,)) = (
            cursor.execute(query.encode()).fetchall() for query in (support.SERVER, support.TRANSACTION)
        )
    try:
        support.check_server(facts)
        support.check_writable(transaction)
    except ValueError as error:
        raise InstallError(str(error)) from None


def _is_in_place(connection: psycopg.Connection, folder: Path, scripts: dict[Path, str]) -> bool:
    """Return whether the server has exactly these files already, as in an image or for a second database."""
    python_directory = folder.with_name(__version__)
    if python_directory.resolve() != folder.resolve() or not folder.is_dir():
        return False
    read = "select pg_read_binary_file(%s, 0, 100000000, true)"
    return all(connection.execute(read, [str(path)]).fetchone() == (text.encode(),) for path, text in scripts.items())


def _check_writable(connection: psycopg.Connection, share: Path) -> None:
    if not (share / "extension").is_dir():
        raise _elsewhere(connection, share)
    for folder in (share, share / "extension"):
        _check_folder(connection, folder)


def _check_folder(connection: psycopg.Connection, folder: Path) -> None:
    """Check that the server reads a file written here: both machines may have a folder of the same name."""
    probe = folder / f".dbdp-{secrets.token_hex(8)}"
    try:
        _write(probe, probe.name)
        query = "select pg_read_file(%s, 0, 100, true)"
        content = connection.execute(query, [str(probe)]).fetchone()
    except OSError as error:
        raise InstallError(
            f"{folder} cannot be written ({error.strerror}): run `dbdp install` as root or as the folder's owner"
        ) from None
    finally:
        probe.unlink(missing_ok=True)
    if content != (probe.name,):
        raise _elsewhere(connection, folder)


def _elsewhere(connection: psycopg.Connection, folder: Path) -> InstallError:
    return InstallError(
        f"{folder} of the server at {connection.info.host or 'localhost'} is not on this machine: "
        "run `dbdp install` on the server's machine"
    )


def _check_python(connection: psycopg.Connection) -> None:
    """Raise InstallError unless the server has this minor version of Python, for which the modules are compiled."""
    if not _value(connection, "select 1 from pg_available_extensions where name = 'plpython3u'"):
        major = connection.info.server_version // 10000
        raise InstallError(
            f"PostgreSQL {major} has no PL/Python: run `apt-get install postgresql-plpython3-{major}` as root"
        )
    with connection.transaction(force_rollback=True):
        connection.execute("create extension if not exists plpython3u")
        connection.execute(PYTHON_OF_SERVER)
        theirs = _value(connection, "select pg_temp.dbdp_python_version()")
    ours = "{}.{}".format(*sys.version_info[:2])
    if theirs != ours:
        raise InstallError(
            f"PL/Python of the server is Python {theirs}, but dbdp is installed in Python {ours}: "
            f"run `dbdp install` from a virtual environment of the server machine's python{theirs}"
        )


def _package_files() -> list[Path]:
    files: list[Path] = []
    for folder, folders, names in os.walk(PACKAGE):
        folders[:] = [each for each in folders if each not in NOT_FOR_THE_SERVER]
        files += [Path(folder, name) for name in names if name.endswith((".py", ".so"))]
    return sorted(files)


class LibraryFile(NamedTuple):
    """A file of a library: where it is, its path from there in the server's folder, and its recorded hash."""

    place: str
    path: str
    hash: str


def _library_files() -> list[LibraryFile]:
    """Return the modules of every library and the shared objects in its wheel, without its tests."""
    return [item for name, folders in LIBRARIES.items() for item in _files_of(name, folders)]


def _files_of(name: str, folders: tuple[str, ...]) -> list[LibraryFile]:
    """Return the files in these folders that the wheel's RECORD lists."""
    try:
        library = distribution(name)
        record = library.read_text("RECORD")
    except PackageNotFoundError:
        record = None
    if not record:
        raise InstallError(f"{name} in {sys.prefix} lists no files: run `pip install --force-reinstall {name}`")
    rows = [(path, recorded) for path, recorded, _ in csv.reader(record.splitlines()) if _is_needed(path, folders)]
    root = str(library.locate_file(""))
    return [LibraryFile(os.path.join(root, path), path, recorded) for path, recorded in rows]


def _is_needed(path: str, folders: tuple[str, ...]) -> bool:
    parts = path.split("/")
    is_code = path.endswith((".py", ".so")) or ".so." in parts[-1]
    return is_code and parts[0] in folders and not NOT_FOR_THE_SERVER & set(parts)


def _folder(python_directory: Path, content: str) -> Path:
    return python_directory.with_name(f"{__version__}-{content}")


def _copy_packages(python_directory: Path, content: str) -> None:
    """Copy the packages to a folder with this content, and link python_directory to it in one step."""
    target = _folder(python_directory, content)
    if python_directory.resolve() == target.resolve() and target.is_dir():
        return
    target.parent.mkdir(exist_ok=True)
    target.parent.chmod(0o755)
    with _staged(target) as stage:
        for path in _package_files():
            _copy(path, stage / "dbdp" / path.relative_to(PACKAGE))
        for item in _library_files():
            _copy(Path(item.place), stage / item.path)
        compileall.compile_dir(stage, quiet=2, stripdir=stage, prependdir=python_directory)
    _link(python_directory, target.name)
    for old in target.parent.glob(f"{__version__}-*"):
        if old != target:
            shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _staged(target: Path) -> Iterator[Path]:
    """Yield a fresh folder that replaces target once the block has filled it."""
    stage = Path(tempfile.mkdtemp(prefix=".new-", dir=target.parent))
    try:
        yield stage
        for path in [stage, *stage.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)  # for the server's account, whatever the umask
        shutil.rmtree(target, ignore_errors=True)
        stage.rename(target)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _copy(origin: Path, destination: Path) -> None:
    destination.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(origin, destination)


def _write(path: Path, content: str) -> None:
    temporary = path.with_name(f".new-{secrets.token_hex(8)}")
    try:
        temporary.write_text(content)
        temporary.chmod(0o644)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _link(path: Path, target: str) -> None:
    temporary = path.with_name(f".link-{secrets.token_hex(8)}")
    temporary.symlink_to(target)
    os.replace(temporary, path)


def create_extension(connection: psycopg.Connection) -> None:
    """Create the extension in a database, from files that are in place, or update it to this version."""
    with _own_schemas(connection):
        connection.execute("create extension if not exists dbdp schema pg_catalog cascade")
        present = _value(connection, "select extversion from pg_extension where extname = 'dbdp'")
        if present == __version__:
            return
        try:
            connection.execute(sql.SQL("alter extension dbdp update to {}").format(__version__))
        except psycopg.errors.DependentObjectsStillExist as error:
            raise InstallError(used_by_others(connection, error.diag.message_detail or str(error))) from None
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
        taken = _value(connection, TAKEN)
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


def _append_to_search_path(connection: psycopg.Connection) -> None:
    path = _search_path(connection)
    if "dbdp" not in path:
        _set_search_path(connection, [*path, "dbdp"])


def _remove_from_search_path(connection: psycopg.Connection) -> None:
    path = _search_path(connection)
    if "dbdp" in path:
        _set_search_path(connection, [name for name in path if name != "dbdp"])


def _search_path(connection: psycopg.Connection) -> list[str]:
    setting = _value(connection, SETTING_OF_DATABASE)
    return _path_items(_value(connection, SETTING_OF_SERVER) if setting is None else setting)


def _path_items(setting: str | None) -> list[str]:
    items = PATH_ITEM.findall(setting or "")
    names = [item[1:-1].replace('""', '"') if item.startswith('"') else item.lower() for item in items]
    return [name for name in names if name]


def _set_search_path(connection: psycopg.Connection, path: list[str]) -> None:
    """Set a database's search_path, or reset it if the server's own is the same."""
    database = sql.Identifier(connection.info.dbname)
    if path == _path_items(_value(connection, SETTING_OF_SERVER)):
        statement = sql.SQL("alter database {} reset search_path").format(database)
    else:
        names = sql.SQL(", ").join(map(sql.Identifier, path)) if path else sql.Literal("")
        statement = sql.SQL("alter database {} set search_path = {}").format(database, names)
    connection.execute(statement)


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
