"""Progress bars of long work, by rich; on a terminal only."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from dbdp.training import Progress as Report
from dbdp.training import silent


@contextmanager
def progress_bar(*, enabled: bool = True) -> Iterator[Report]:
    """Give a function that reports (stage, done, total) on a progress bar."""
    if not (enabled and sys.stderr.isatty()):
        yield silent
        return
    columns = (TextColumn("{task.description:8}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        tasks: dict[str, TaskID] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done, total=total)

        yield report
