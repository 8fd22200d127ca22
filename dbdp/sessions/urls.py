"""URLs of servers, parsed as libpq parses them. No message quotes one, since it may hold a password."""

import psycopg
from psycopg.conninfo import conninfo_to_dict

URL_VARIABLE = "DBDP_URL"
_NO_URL = (
    "the target is not a libpq URL: write postgresql://user@host:port/database; in a password write %40 for @, %2F for "
    "/ and %25 for %"
)


def libpq_url(target: str) -> str:
    """Return a target as a URL that libpq accepts.

    Raises
    ------
    ValueError
        If libpq cannot parse it, or would read a part of a password as a host, a port or a database. The message does
        not quote the URL, since it may hold a password.
    """
    url = target.replace("postgresql+psycopg://", "postgresql://", 1)
    try:
        parts = conninfo_to_dict(url.replace("%40", "_"))  # an @ that is left was not escaped
    except psycopg.ProgrammingError:
        raise ValueError(_NO_URL) from None
    host, port, name = (str(parts.get(part) or "") for part in ("host", "port", "dbname"))
    if "://" in url and ("@" in host + name or not set(port) <= set("0123456789,")):
        raise ValueError(_NO_URL)
    return url
