"""Trainings and scores that run in the background, one at a time, while the page shows that they run."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock, Thread
from typing import Any

import psycopg

from dbdp.interfaces.python.client.database import Database
from dbdp.interfaces.web.accounts.connections import Server
from dbdp.interfaces.web.views.refusals import Refusal

MOST_JOBS = 50
_LAST_SECONDS = 5.0  # for a job that is stopped with the page


@dataclass
class Job:
    """A training or a score.

    Attributes
    ----------
    number : str
        The number of the form that began it.
    title : str
        What it does.
    began : float
        When it began, in seconds of `time.monotonic`.
    result : any
        What it returned; None while it runs, and if it failed.
    refusal : Refusal or None
        Why it failed.
    is_done : bool
        Whether it has ended.
    """

    number: str
    title: str
    began: float = field(default_factory=time.monotonic)
    result: Any = None
    refusal: Refusal | None = None
    is_done: bool = False
    _database: Database | None = None
    _thread: Thread | None = None

    @property
    def seconds(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.began

    def run(self, server: Server, work: Callable[[Database], Any]) -> None:
        """Do the work on a connection of its own, without a limit of time."""
        try:
            with server.acting(writing=True, seconds=0) as database:
                self._database = database
                self.result = work(database)
        except Refusal as refusal:
            self.result, self.refusal = None, refusal
        except Exception as error:
            self.result, self.refusal = None, Refusal(500, "Something went wrong", type(error).__name__)
            raise
        finally:
            self._database, self.is_done = None, True

    def start(self, server: Server, work: Callable[[Database], Any]) -> None:
        """Run in a thread of its own."""
        self._thread = Thread(target=self.run, args=[server, work], daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Cancel the statement that runs; a charge stands."""
        if database := self._database:
            with suppress(psycopg.Error):
                database.connection.cancel()

    def wait(self, seconds: float) -> None:
        """Wait until it has ended, or for some seconds."""
        if self._thread:
            self._thread.join(seconds)


class Jobs:
    """The jobs of one page; safe for several threads."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._lock = Lock()
        self._jobs: dict[str, Job] = {}

    def start(self, number: str, title: str, work: Callable[[Database], Any]) -> Job:
        """Start a job and return it; a form that is sent again returns the job that it began."""
        with self._lock:
            if job := self._jobs.get(number):
                return job
            if running := self.running():
                raise Refusal(409, "Something else runs", f"{running.title} has not ended.", "Wait, or stop it first.")
            while len(self._jobs) >= MOST_JOBS:
                del self._jobs[next(iter(self._jobs))]
            self._jobs[number] = job = Job(number, title)
        job.start(self._server, work)
        return job

    def find(self, number: str) -> Job | None:
        """Return the job of a number; None if there is none."""
        return self._jobs.get(number)

    def running(self) -> Job | None:
        """Return the job that runs, if one does."""
        return next((job for job in self._jobs.values() if not job.is_done), None)

    def stop(self) -> None:
        """Stop what runs, since the page ends."""
        if job := self.running():
            job.stop()
            job.wait(_LAST_SECONDS)
