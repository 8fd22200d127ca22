"""Escape control characters in user text, such as names and cells, before it is shown."""


def plain(text: str) -> str:
    """Return a text with unprintable characters, line ends among them, as escapes."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
