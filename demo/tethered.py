"""`counterpoise`, ended as by SIGTERM when stdin ends: a job never outlives the demo that started it."""

from __future__ import annotations

import os
import signal
import sys
import threading

from console.cli import main


def _end_with_stdin() -> None:
    while sys.stdin.buffer.read(1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    main()
