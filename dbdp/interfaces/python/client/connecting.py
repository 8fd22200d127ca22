"""Connect to a server with dbdp, by a URL, an engine or a connection; without one to the private server."""

import os
from typing import Any

import psycopg

from dbdp.interfaces.python.client.database import Database
from dbdp.sessions.connections import URL_VARIABLE, connected, libpq_url


def connect(target: Any = None) -> Database:
    """Connect to a server that has dbdp.

    Parameters
    ----------
    target : str, sqlalchemy.URL, sqlalchemy.Engine, sqlalchemy.Connection or psycopg.Connection, optional
        A libpq or SQLAlchemy URL, an engine or a connection. The default is the URL in the environment variable
        DBDP_URL, else the private cluster of this virtual environment, which is created and started if needed.
        With a URL or an engine each statement is committed. With a connection the caller commits, and the
        connection's isolation level stays.

    Returns
    -------
    Database
        The connection. It is a context manager that closes it if this function opened it.

    Raises
    ------
    ValueError
        If the target is of another type, or the server does not have the extension dbdp in the version of this package.
    psycopg.OperationalError
        If the server cannot be reached.
    """
    target = target or default_url()
    if isinstance(target, psycopg.Connection):
        return Database(target)
    if hasattr(target, "raw_connection"):  # a SQLAlchemy engine
        return Database(_detached_connection(target), owned=True)
    if hasattr(target, "get_bind"):
        raise ValueError("the target is a SQLAlchemy Session; pass its connection, session.connection()")
    if hasattr(target, "connection") and hasattr(target, "dialect"):  # a SQLAlchemy connection
        if not target.in_transaction():
            target.exec_driver_sql("select")  # begins the transaction that its commit() will end
        return Database(_driver_connection(target.connection), lender=target)
    return Database(connected(libpq_url(_text_of(target))), owned=True)


def _text_of(target: Any) -> str:
    """Return a URL as text, with its password."""
    if hasattr(target, "render_as_string"):  # a SQLAlchemy URL
        target = target.render_as_string(hide_password=False)
    if not isinstance(target, str):
        raise ValueError(f"the target is a {type(target).__name__}; pass a URL, an engine or a connection")
    return target


def default_url() -> str:
    """Return the default URL: that of DBDP_URL, else that of the private cluster, which is started."""
    return os.environ.get(URL_VARIABLE) or embedded()


def embedded() -> str:
    """Start the private server of this virtual environment if needed, and return its URL."""
    from dbdp.deployment.cluster import Cluster

    cluster = Cluster.default()
    cluster.start()
    return cluster.url


def _detached_connection(engine: Any) -> psycopg.Connection:
    """Return a connection of an engine, detached from its pool, so that nobody else gets it."""
    pooled = engine.raw_connection()
    connection = _driver_connection(pooled)
    pooled.detach()
    connection.rollback()
    connection.autocommit = True
    return connection


def _driver_connection(pooled: Any) -> psycopg.Connection:
    connection = pooled.driver_connection
    if not isinstance(connection, psycopg.Connection):
        raise ValueError(
            f"the SQLAlchemy driver is {type(connection).__module__}; create the engine with postgresql+psycopg://"
        )
    return connection
