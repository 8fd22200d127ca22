"""Adds the schema dbdp to the search_path of a database, and removes it."""

import re

import psycopg
from psycopg import sql

from dbdp.deployment.extension.source import value

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


def append(connection: psycopg.Connection) -> None:
    """Append dbdp to the database's search_path."""
    path = current(connection)
    if "dbdp" not in path:
        _set_search_path(connection, [*path, "dbdp"])


def remove(connection: psycopg.Connection) -> None:
    """Remove dbdp from the database's search_path."""
    path = current(connection)
    if "dbdp" in path:
        _set_search_path(connection, [name for name in path if name != "dbdp"])


def current(connection: psycopg.Connection) -> list[str]:
    """Return the schemas of the database's search_path."""
    setting = value(connection, SETTING_OF_DATABASE)
    return _path_items(value(connection, SETTING_OF_SERVER) if setting is None else setting)


def _path_items(setting: str | None) -> list[str]:
    items = PATH_ITEM.findall(setting or "")
    names = [item[1:-1].replace('""', '"') if item.startswith('"') else item.lower() for item in items]
    return [name for name in names if name]


def _set_search_path(connection: psycopg.Connection, path: list[str]) -> None:
    """Set a database's search_path, or reset it if the server's own is the same."""
    database = sql.Identifier(connection.info.dbname)
    if path == _path_items(value(connection, SETTING_OF_SERVER)):
        statement = sql.SQL("alter database {} reset search_path").format(database)
    else:
        names = sql.SQL(", ").join(map(sql.Identifier, path)) if path else sql.Literal("")
        statement = sql.SQL("alter database {} set search_path = {}").format(database, names)
    connection.execute(statement)
