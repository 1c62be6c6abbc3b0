"""How the tests' Java programs are built: with Maven, once, however many processes ask at the same time."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

_LOCK = Path(__file__).parent / ".maven.lock"


def build_java(folder: Path, products: Sequence[Path], what: str, unavailable: type[Exception]) -> None:
    """Run Maven in a folder, unless that was done since its sources changed.

    Args:
        folder: has a pom.xml and src.
        products: what must be there afterwards; the last is touched and tells the time of the build.
        what: the program, for messages.
        unavailable: the error to raise.

    Raises:
        Exception: of type `unavailable`; no java, javac or mvn on the path, or Maven failed.
    """
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    if missing:
        raise unavailable(f"{what} needs {', '.join(missing)} on the PATH (Java 17 and Maven)")
    sources = [folder / "pom.xml", *(path for path in (folder / "src").rglob("*") if path.is_file())]
    newest = max(source.stat().st_mtime for source in sources)
    # Two Mavens at once would write into one repository, and into one target.
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if all(product.exists() for product in products) and products[-1].stat().st_mtime >= newest:
            return
        for offline in (["-o"], []):
            # Offline first: a machine that built it before needs no network.
            done = subprocess.run(
                ["mvn", "-q", "-B", *offline, "compile"],
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode == 0:
                products[-1].touch()
                return
    raise unavailable(f"mvn could not build {what}: {(done.stdout + done.stderr)[-600:]}")
