"""Text of users, such as names and cells, made plain: nothing in it moves a cursor, or hides."""


def plain(text: str) -> str:
    """Return a text in which characters that cannot be printed, line ends among them, are written as escapes."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
