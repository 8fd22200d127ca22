"""The server that is measured."""

import os

import psycopg

from dbdp.deployment.cluster import Cluster


def connect() -> psycopg.Connection:
    """Return a fresh session as superuser at DBDP_URL, or on the embedded server."""
    return psycopg.connect(url(), autocommit=True)


def url() -> str:
    """Return DBDP_URL, or the URL of the embedded server."""
    return os.environ.get("DBDP_URL") or embedded_url()


def embedded_url() -> str:
    """The private server of this user, started if need be."""
    cluster = Cluster.default()
    cluster.start()
    return cluster.url


def describe(connection: psycopg.Connection) -> dict[str, str]:
    """Return the version and the settings that timings depend on."""
    query = """
        select name, current_setting(name)
        from unnest(array[
            'server_version', 'shared_buffers', 'work_mem', 'max_wal_size', 'wal_level', 'fsync', 'jit'
        ]) as setting(name)
    """
    return dict(connection.execute(query).fetchall())
