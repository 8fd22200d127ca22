"""One-time links, by which a browser gets a session: who may read the terminal of `dbdp web` needs no password."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from secrets import compare_digest
from tempfile import TemporaryDirectory
from threading import Lock, Thread
from webbrowser import open as open_browser

BITS = 256
_ONWARD = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={link}"><title>dbdp</title>'


def drawn() -> str:
    """Return a random secret of BITS bits, as text for an address, a form or a cookie."""
    return secrets.token_urlsafe(BITS // 8)


class Links:
    """The token of the one link that is valid; safe for several threads."""

    def __init__(self, announce: Callable[[str], None]) -> None:
        self._announce = announce
        self._lock = Lock()
        self._token = drawn()

    @property
    def token(self) -> str:
        """The token of the valid link."""
        return self._token

    def is_valid(self, token: str) -> bool:
        """Return whether a token is that of the valid link."""
        return compare_digest(token.encode(), self._token.encode())

    def use(self, token: str) -> bool:
        """Return whether a token is that of the valid link; if so, it is valid no longer, and the next is announced."""
        with self._lock:
            is_valid = self.is_valid(token)
            following = self._token = drawn() if is_valid else self._token
        if is_valid:
            self._announce(following)
        return is_valid


@contextmanager
def in_browser(link: str) -> Iterator[None]:
    """Open a link in the user's browser, and remove what that leaves on the disk when the block ends.

    Other accounts of the machine can read the command line of a browser. So it names a file that only this account can
    read, and the file leads to the link.
    """
    with TemporaryDirectory(prefix="dbdp-") as folder:  # of mode 0700
        file = Path(folder, "open.html")
        file.write_text(_ONWARD.format(link=escape(link)), encoding="utf-8")
        Thread(target=open_browser, args=[file.as_uri()], daemon=True).start()
        yield
