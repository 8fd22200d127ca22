"""Run the command line, in a process of its own or in this one."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click

from dbdp.interfaces.cli.main import app, main


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `dbdp` with these arguments, and with these variables added to the environment."""
    command = [sys.executable, "-m", "dbdp.interfaces.cli.main", *arguments]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


def run_here(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the same `main` in this process, which has imported all it needs: a second less."""
    output, errors, code = io.StringIO(), io.StringIO(), 0
    with (
        patch.object(sys, "argv", ["dbdp", *arguments]),
        patch.dict(os.environ, environment),
        redirect_stdout(output),
        redirect_stderr(errors),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
    return subprocess.CompletedProcess(arguments, code, output.getvalue(), errors.getvalue())


def every_command() -> Iterator[tuple[str, click.Command]]:
    """Each command by its words."""
    for name in app.list_commands(None):
        command = app.get_command(None, name)
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", command.get_command(None, inner)) for inner in command.list_commands(None))
        else:
            yield name, command


def features_file(folder: Path, features: dict[str, Any]) -> str:
    """Write the features of a declaration to a file; return its name."""
    path = folder / "features.json"
    path.write_text(json.dumps(features))
    return str(path)
