"""The peers that are Go programs of ours around somebody's released module: bench/kmsg and bench/balance."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path


class GoUnavailableError(RuntimeError):
    """A Go program cannot be built here; the message says what is missing."""


def build_go(name: str, folder: Path) -> Path:
    """Compile bench/`name` into a folder.

    Raises:
        GoUnavailableError: Go is missing, too old or cannot fetch a module.
    """
    go = shutil.which("go")
    if go is None:
        raise GoUnavailableError("the peer is a Go program, and there is no go on the PATH")
    program = folder / name
    done = subprocess.run(
        [go, "build", "-o", str(program), "."],
        cwd=Path(__file__).parent / name,
        env={**os.environ, "GOFLAGS": "-mod=readonly"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise GoUnavailableError(f"go could not build bench/{name}: {done.stderr.strip()[-400:]}")
    return program
