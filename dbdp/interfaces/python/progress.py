"""Progress bars of long work, by rich; on a terminal only.

What has parts, a shuffle, epochs or candidates, shows how much is done and the time that is left: that of the parts
done, for as much as is left. A whole training by a role that may not read the table is one statement of the server,
which tells nothing of its way: its bar moves to and fro and shows the time since.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from dbdp.algorithms.rows import Progress as Report
from dbdp.algorithms.rows import silent


class _Count(ProgressColumn):
    """How much is done of how much; nothing for what has no parts."""

    def render(self, task: Task) -> Text:
        return Text("" if task.total in (None, 1) else f"{task.completed:.0f}/{task.total:.0f}")


class _Left(ProgressColumn):
    """The time that is left, where the time of one part at least is known.

    rich's own column forgets what is older than 30 s, and so an epoch that takes longer.
    """

    def render(self, task: Task) -> Text:
        seconds = seconds_left(task.completed, task.total, task.elapsed)
        return Text("" if seconds is None else f"{timedelta(seconds=round(seconds))} left", style="progress.remaining")


def seconds_left(done: float, total: float | None, elapsed: float | None) -> float | None:
    """Return how long the rest takes if it is as fast as what is done; None where that is not known."""
    if not done or total is None or elapsed is None or done >= total:
        return None
    return elapsed / done * (total - done)


@contextmanager
def progress_bar(*, enabled: bool = True) -> Iterator[Report]:
    """Give a function that reports (stage, done, total) on a progress bar."""
    if not (enabled and sys.stderr.isatty()):
        yield silent
        return
    columns = (TextColumn("{task.description:8}"), BarColumn(), _Count(), TimeElapsedColumn(), _Left())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        yield Bars(bar)


class Bars:
    """A report on bars, one for each stage."""

    needs_no_session = True  # may be called while a statement runs: it uses no session

    def __init__(self, shown: Progress) -> None:
        self._shown = shown
        self._tasks: dict[str, TaskID] = {}
        self._since = shown.get_time()  # the last report: a stage whose first one is of a part that is done began there

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show how much of a stage is done."""
        whole = None if (done, total) == (0, 1) else total  # one part tells nothing of its way
        if stage not in self._tasks:
            self._tasks[stage] = self._shown.add_task(stage, total=whole)
            self._shown.tasks[-1].start_time = self._since if done else self._shown.get_time()
        elif done < self._shown.tasks[self._tasks[stage]].completed:  # once more
            self._shown.reset(self._tasks[stage])
        self._shown.update(self._tasks[stage], completed=done, total=whole)
        self._since = self._shown.get_time()
