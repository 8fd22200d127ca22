"""The managed services of PostgreSQL: how each is recognised, and where it has the settings of logical replication."""

from dataclasses import dataclass
from typing import LiteralString

import psycopg


@dataclass(frozen=True)
class HostingService:
    """A service, and the remedies that it has for a source that cannot be followed yet."""

    name: str
    logical: str  # how to switch on logical replication
    replicating: str = "alter role {role} with replication"  # how a role gets the right to replicate


ANY = HostingService(
    "a PostgreSQL server", "set wal_level = logical, by `alter system` or in the service's console, and restart it"
)
# By a role that only this service's servers have. The settings are those of its documentation.
_BY_ROLE = {
    "rds_superuser": HostingService(
        "Amazon RDS or Aurora",
        "set rds.logical_replication = 1 in its parameter group, and reboot it",
        "grant rds_replication to {role}",
    ),
    "cloudsqlsuperuser": HostingService(
        "Cloud SQL", "set the flag cloudsql.logical_decoding = on, which restarts the instance"
    ),
    "alloydbsuperuser": HostingService("AlloyDB", "set the flag alloydb.logical_decoding = on"),
    "azure_pg_admin": HostingService(
        "Azure Database for PostgreSQL", "set the server parameter wal_level = logical, and restart it"
    ),
    "supabase_admin": HostingService("Supabase", "set wal_level = logical, its default, and restart it"),
    "neon_superuser": HostingService(
        "Neon",
        "enable logical replication in the project's settings",
        "connect as a role that was created in Neon's console, which may replicate",
    ),
}
_PRESENT: LiteralString = "select array_agg(rolname::text) from pg_roles where rolname = any(%s)"


def service_of(connection: psycopg.Connection) -> HostingService:
    """Return the service of a server; ANY if it is not recognised."""
    (found,) = connection.execute(_PRESENT, [list(_BY_ROLE)]).fetchone() or (None,)
    present = found or []
    return next((service for role, service in _BY_ROLE.items() if role in present), ANY)
