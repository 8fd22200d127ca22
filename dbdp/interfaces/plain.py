"""Escape control characters in text of others, such as names and cells, before it is shown.

Whatever the command line prints passes a `PlainStream`, whoever prints it. rich's escape sequences pass beside it, from
`dbdp.interfaces.terminal`, which escapes the texts between them.
"""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

_LINES = str.maketrans({character: None for character in "\n\t"})


def plain(text: str) -> str:
    """Return a text with unprintable characters, line ends among them, as escapes."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def plain_lines(text: str) -> str:
    """Return a text of several lines with unprintable characters as escapes, but for line feeds and tabs."""
    if text.translate(_LINES).isprintable():
        return text
    return "".join(each if each in "\n\t" else plain(each) for each in text)


def beginning(text: str, longest: int) -> str:
    """Return a text, or the beginning of a long one."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


class PlainStream(io.TextIOWrapper):
    """Writes text to a stream with its control characters escaped; it is no terminal, so that nobody adds colours.

    The stream stays open.
    """

    def __init__(self, stream: Any) -> None:
        encoding = "utf-8" if stream.encoding in ("ascii", "US-ASCII", "ANSI_X3.4-1968") else stream.encoding
        super().__init__(stream.buffer, encoding=encoding, errors="backslashreplace", write_through=True)
        self.rich_proxied_file = stream  # where a console of rich writes in place of here

    def write(self, text: str) -> int:
        """Write a text; return its length."""
        super().write(plain_lines(text))
        return len(text)

    def isatty(self) -> bool:
        """Return False."""
        return False


@contextmanager
def plain_output() -> Iterator[None]:
    """Let only plain text reach stdout and stderr within the block."""
    before = sys.stdout, sys.stderr
    own = _plain_stream(sys.stdout), _plain_stream(sys.stderr)
    sys.stdout, sys.stderr = own
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream, former in zip(own, before, strict=True):
            if stream is not former and isinstance(stream, PlainStream):
                stream.detach()  # else its end would close the stream below


def _plain_stream(stream: TextIO) -> TextIO:
    """Return a stream that writes plain text to another one, unless that does so, or is closed or without bytes."""
    if isinstance(stream, PlainStream) or getattr(stream, "buffer", None) is None or stream.closed:
        return stream
    stream.flush()
    return PlainStream(stream)
