"""The log of a command that runs the job: on stderr, as text or as one JSON object a line."""

from __future__ import annotations

import logging
import sys
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conf.operations import LogSettings

_TEXT = "%(asctime)s %(levelname)s %(name)s %(context)s%(message)s"

_logger = logging.getLogger("counterpoise")


def set_up_logging(settings: LogSettings) -> None:
    """Let this process log as the settings say."""
    from streaming.log_context import ContextFilter

    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(ContextFilter())
    if settings.format == "json":
        handler.setFormatter(_json_lines())
        # What would reach stderr by another way: warnings of Python, and what ends the process.
        logging.captureWarnings(True)
        sys.excepthook = _log_the_end
    else:
        handler.setFormatter(logging.Formatter(_TEXT))
    logging.basicConfig(level=settings.level, handlers=[handler])
    # At INFO py4j tells every call, and Great Expectations two hundred times what it does not register.
    for name in ("py4j", "great_expectations"):
        logging.getLogger(name).setLevel(logging.WARNING)


def log_problem(problem: str) -> None:
    """Log what ends the command and its operator can mend, where plain lines must not stand between."""
    _logger.error("%s", problem)


def _json_lines() -> logging.Formatter:
    from pythonjsonlogger.core import RESERVED_ATTRS
    from pythonjsonlogger.orjson import OrjsonFormatter

    return OrjsonFormatter(
        ["levelname", "name", "message"],
        rename_fields={"levelname": "level", "name": "logger"},
        timestamp="time",
        reserved_attrs=[*RESERVED_ATTRS, "context"],
    )


def _log_the_end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    _logger.critical("ended by %s", kind.__name__, exc_info=(kind, error, trace))
