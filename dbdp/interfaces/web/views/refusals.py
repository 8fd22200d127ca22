"""What a request may be refused with, in words for a reader."""


class Refusal(Exception):
    """A request that is not answered: a page says why, and what to do.

    Attributes
    ----------
    status : of HTTP
    title, text, remedy : what happened, in how many words it takes, and what helps; plain text
    retry_after : seconds until it is worth another try, None where no time helps
    """

    def __init__(self, status: int, title: str, text: str, remedy: str = "", retry_after: int | None = None) -> None:
        super().__init__(title)
        self.status = status
        self.title = title
        self.text = text
        self.remedy = remedy
        self.retry_after = retry_after


class NotSignedIn(Exception):
    """A page that only who signed in may see; the text says why that is over, if it ever was."""


WRONG = (
    "The name or the password is wrong, or the server lets this role in without asking for a password, which the page "
    "does not take."
)


class Denied(Exception):
    """A name and a password that the server did not take; never which of the two.

    Attributes
    ----------
    is_certain : whether the server said so, in words that the page understands
    """

    def __init__(self, *, is_certain: bool = True) -> None:
        super().__init__()
        self.is_certain = is_certain


class Crowded(Refusal):
    """No connection is free now, for this role, its database or anybody."""

    def __init__(self) -> None:
        super().__init__(
            503,
            "No connection is free",
            "The server takes no further connection now: as many as it allows for this role, the database or everybody "
            "are open.",
            "Load the page again in a moment, or close another program of this role. You stay signed in. An "
            "administrator can raise the limit: alter role … connection limit, or max_connections.",
            retry_after=5,
        )


def closed() -> Refusal:
    """Return the refusal where the server takes no connection of a role, whatever its password."""
    return Refusal(
        503,
        "The server takes no connection",
        "It answers, but it lets this role into the database no longer, or not now.",
        "An administrator can tell why from the server's log, and let it in: grant connect on database … to this role.",
    )


def missing(text: str, remedy: str) -> Refusal:
    """Return the refusal where there is no such thing, or the role may not see it."""
    return Refusal(404, "Not found", text, remedy)


def missing_dataset(name: str) -> Refusal:
    """Return the refusal where the role sees no dataset of a name."""
    return missing(
        f"There is no dataset “{name}”, or this role may not see it.",
        "The list of datasets has those that it may see.",
    )


def lost() -> Refusal:
    """Return the refusal where the database server does not answer."""
    return Refusal(
        503,
        "The database server does not answer",
        "The page runs, but the PostgreSQL server behind it is stopped, restarting or out of reach.",
        "Load the page again in a moment. The private server is started by “dbdp server start”; another one by its "
        "administrator. You stay signed in.",
    )
