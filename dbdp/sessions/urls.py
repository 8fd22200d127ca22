"""URLs of servers: read as libpq reads them, and quoted in no message, since they may hold a password."""

import psycopg
from psycopg.conninfo import conninfo_to_dict

URL_VARIABLE = "DBDP_URL"
_NO_URL = (
    "the target is no libpq URL: write postgresql://user@host:port/database; in a password %40 is @, %2F is / and "
    "%25 is %"
)


def libpq_url(target: str) -> str:
    """Return the URL as libpq takes it; every message about it keeps it out, since it may hold a password.

    Raises
    ------
    ValueError
        If libpq cannot read it, or would take a part of a password for a host, a port or a database.
    """
    url = target.replace("postgresql+psycopg://", "postgresql://", 1)
    try:
        read = conninfo_to_dict(url.replace("%40", "_"))  # what is @ now is none that was meant
    except psycopg.ProgrammingError:
        raise ValueError(_NO_URL) from None
    host, port, name = (str(read.get(part) or "") for part in ("host", "port", "dbname"))
    if "://" in url and ("@" in host + name or not set(port) <= set("0123456789,")):
        raise ValueError(_NO_URL)
    return url
