"""The processor time of short commands, beside that of a Python that imports the driver which lists need."""

import os
import subprocess
import sys
from functools import partial

from benchmarks.harness import Samples, Side, Spread, alternate

OTHER = "import psycopg"
EXPLAIN = ("explain", "--rows", "48842", "--features", "124", "--epsilon", "1", "--delta", "1e-6")


def sides(url: str, dataset: str) -> dict[str, Side]:
    """Return the short commands, and the other side."""
    commands = {"--help": ("--help",), "datasets": ("datasets",), "budget": ("budget", dataset), "explain": EXPLAIN}
    started = {name: ("-m", "dbdp.interfaces.cli.main", *words) for name, words in commands.items()}
    return {name: partial(processor_seconds, words, url) for name, words in (started | {OTHER: ("-c", OTHER)}).items()}


def processor_seconds(words: tuple[str, ...], url: str) -> float:
    """Return the seconds of processor time, in user and kernel mode, of a Python with these arguments."""
    environment = os.environ | {"DBDP_URL": url}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    process = subprocess.Popen([sys.executable, *words], env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with exit code {process.returncode}")
    return used.ru_utime + used.ru_stime


def measure(url: str, dataset: str, repeats: int) -> Samples:
    """Time every command and the other side in turn."""
    return alternate(sides(url, dataset), repeats)


def ratios(samples: Samples) -> dict[str, Spread]:
    """Return the ratio of each command to the other side."""
    return {name: samples.ratio(name, OTHER) for name in samples.seconds if name != OTHER}
