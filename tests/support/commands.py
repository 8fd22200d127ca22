"""Run the command line in a process of its own."""

import os
import subprocess
import sys


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `dbdp` with these arguments, and with these variables added to the environment."""
    command = [sys.executable, "-m", "dbdp.interfaces.cli.main", *arguments]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
