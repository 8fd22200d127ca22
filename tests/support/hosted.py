"""A second cluster as a hosted PostgreSQL: no PL/Python, no dbdp, and a role that is no superuser."""

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import conninfo
from servers import in_memory

from dbdp.deployment.cluster import Cluster

ROLE = "hosted_admin"
SETTINGS = "wal_level = logical\nfsync = off\nmax_replication_slots = 10\nmax_wal_senders = 10\n"


@dataclass(frozen=True)
class Hosted:
    """A hosted server: the URL of its administrator, who is no superuser, and that of its provider."""

    cluster: Cluster
    password: str

    def url(self, database: str = "app", **more: str) -> str:
        """The URL that a customer has, with a password."""
        return conninfo.make_conninfo(self.provider, dbname=database, user=ROLE, password=self.password, **more)

    @property
    def provider(self) -> str:
        """The URL of a superuser, which a customer does not have."""
        return self.cluster._url("postgres")

    def execute(self, *statements: str, provider: bool = False) -> None:
        """Run statements as the customer, or as the provider, in the customer's database."""
        url = conninfo.make_conninfo(self.provider, dbname="app") if provider else self.url()
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def value(self, query: str) -> object:
        """The only value of a query of the customer."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            return connection.execute(query.encode()).fetchone()[0]


@contextmanager
def hosted_server(settings: str = SETTINGS) -> Iterator[Hosted]:
    """Yield a server without PL/Python and dbdp."""
    root = Path(tempfile.mkdtemp(prefix="dbdp-test-", dir=in_memory()))
    root.chmod(0o755)
    cluster = Cluster(root / "hosted")
    try:
        with cluster._locked():
            cluster.files.prepare()
            with (cluster.files.data / "postgresql.conf").open("a") as file:
                file.write(settings)
            cluster._bring_up()
        for file in (cluster.files.private().share / "extension").glob("plpython3u*"):
            file.unlink()  # links of this cluster's own prefix: the provider does not offer the language
        hosted = Hosted(cluster, f"pw%25{secrets.token_hex(8)}")
        with psycopg.connect(hosted.provider, autocommit=True) as provider:
            provider.execute(f"create role {ROLE} login createrole createdb replication password '{hosted.password}'")
            provider.execute(f"create database app owner {ROLE}")
        yield hosted
    finally:
        cluster.remove()
        shutil.rmtree(root, ignore_errors=True)
