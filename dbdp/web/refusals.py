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
    """A name and a password that the server did not take; never which of the two."""


def lost() -> Refusal:
    """Return the refusal where the database server does not answer."""
    return Refusal(
        503,
        "The database server does not answer",
        "The page runs, but the PostgreSQL server behind it is stopped, restarting or out of reach.",
        "Load the page again in a moment. The private server is started by “dbdp server start”; another one by its "
        "administrator. You stay signed in.",
    )
