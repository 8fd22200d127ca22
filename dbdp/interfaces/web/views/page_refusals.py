"""Refusals of requests, as text for the user."""


class Refusal(Exception):
    """A request that is refused; a page shows in plain text what happened (title and text), and a remedy.

    retry_after is the number of seconds until another try may succeed; None if waiting does not help.
    """

    def __init__(self, status: int, title: str, text: str, remedy: str = "", retry_after: int | None = None) -> None:
        super().__init__(title)
        self.status = status
        self.title = title
        self.text = text
        self.remedy = remedy
        self.retry_after = retry_after


class NoSession(Exception):
    """A request without a session; the text says why the session ended, if there was one."""


class Crowded(Refusal):
    """The server has reached its limit of connections for the role, the database or in total."""

    def __init__(self) -> None:
        super().__init__(
            503,
            "No connection is free",
            "The server has reached its limit of connections for this role, this database or in total.",
            "Load the page again in a moment, or close another program of this role. An "
            "administrator can raise the limit: alter role … connection limit, or max_connections.",
            retry_after=5,
        )


def closed() -> Refusal:
    """Return the refusal for a role that the server does not let in."""
    return Refusal(
        503,
        "The server rejects the connection",
        "It answers, but does not let in the role that dbdp web was started with, or not now.",
        "If its password was changed, start dbdp web again. An administrator finds the reason in the server's log, and "
        "can run: grant connect on database … to this role.",
    )


def missing(text: str, remedy: str) -> Refusal:
    """Return the refusal for an object that does not exist, or that the role may not see."""
    return Refusal(404, "Not found", text, remedy)


def missing_dataset(name: str) -> Refusal:
    """Return the refusal for a dataset that does not exist, or that the role may not see."""
    return missing(
        f"There is no dataset “{name}”, or this role may not see it.",
        "See the list of datasets.",
    )


def missing_model(number: int) -> Refusal:
    """Return the refusal for a model that does not exist, or that the role may not see."""
    return missing(f"There is no model {number}, or this role may not see it.", "See the list of models.")


def missing_statistic(number: int) -> Refusal:
    """Return the refusal for a statistic that does not exist, or that the role may not see."""
    return missing(f"There is no statistic {number}, or this role may not see it.", "See the list of statistics.")


def lost() -> Refusal:
    """Return the refusal for a database server that does not answer."""
    return Refusal(
        503,
        "The database server does not answer",
        "The page runs, but the PostgreSQL server behind it is stopped, restarting or out of reach.",
        "Load the page again in a moment. Start the private server by “dbdp server start”; another server is started "
        "by its administrator.",
    )
