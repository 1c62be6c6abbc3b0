"""Plug-in assignors in processes of their own: one that loops, sleeps or dies costs its caller a time limit.

A plug-in is loaded and asked in a child process, which is killed when it does not answer in
time (docs/adr/0014). What it raises and which rule its answer breaks is found out there, by the
same code as without a limit, so the answers are the same. Children are kept for the next
question, and end when the process that started them does.
"""

from __future__ import annotations

import atexit
import faulthandler
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import assignors.plugins
from assignors.errors import AssignorError, PluginError
from assignors.model import Assignment, AssignorMemory, Subscription, TopicMetadata
from assignors.plugins import load_plugin
from assignors.registry import REGISTRY, Assignor

_DECLARED = ("name", "rebalance_protocol", "is_sticky", "promises")
_LONGEST_START_S = 60.0
_GRACE_S = 1.0
_MOST_TIMEOUTS = 3
_REST_IN_LIMITS = 10
"""A plug-in that took too long three times in a row, whoever asked, is not asked again for ten times its
limit: else each of its groups would make every other wait as long."""


class PluginTimeoutError(PluginError):
    """A plug-in did not answer in time; another time it may."""


class LimitedPlugins(dict[str, str]):
    """Plug-ins by protocol name, as `groups.plugins`, each of which has so long for an answer."""

    def __init__(self, plugins: Mapping[str, str], timeout_s: float) -> None:
        """Limit these; 0 = no limit, and no process of their own."""
        super().__init__(plugins)
        self.timeout_s = timeout_s

    def __reduce__(self) -> tuple[Any, ...]:
        """Let a pickle keep the limit."""
        return LimitedPlugins, (dict(self), self.timeout_s)


def get_assignor(name: str, plugins: Mapping[str, str] | None = None) -> Assignor:
    """Look an assignor up as assignors.get_assignor does; a limited plug-in is loaded and asked elsewhere.

    Raises:
        PluginTimeoutError: loading the plug-in took too long. So does asking it.
        AssignorError: as assignors.get_assignor; what the plug-in's process found out is a PluginError.
    """
    if name in REGISTRY or not isinstance(plugins, LimitedPlugins) or not plugins.timeout_s:
        return assignors.plugins.get_assignor(name, plugins)
    if name not in plugins:
        return assignors.plugins.get_assignor(name, plugins)
    key = (plugins[name], name)
    if key not in _declared:
        _declared[key] = _ask(_Question(path=plugins[name], name=name), plugins.timeout_s)
    return Assignor(**_declared[key], function=_Remote(plugins[name], name, plugins.timeout_s))


def find_assignor(name: str | None, plugins: Mapping[str, str]) -> Assignor | None:
    """Look an assignor up as `get_assignor` does; None for one that is not there or cannot be loaded."""
    try:
        return None if name is None else get_assignor(name, plugins)
    except AssignorError:
        return None


def find_load_failures(plugins: Mapping[str, str]) -> list[str]:
    """Load every plug-in once, and give a line for each that cannot be loaded."""
    failures = []
    for name in sorted(plugins):
        try:
            get_assignor(name, plugins)
        except AssignorError as error:
            failures.append(f"assignor {name!r} cannot be used: {error}")
    return failures


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """What a child is asked: to load a plug-in, or with `topics` for an assignment."""

    path: str
    name: str
    topics: Mapping[str, TopicMetadata] | None = None
    subscriptions: Mapping[str, Subscription] | None = None
    max_generation: int | None = None


@dataclass(frozen=True, slots=True)
class _Remote:
    """The function of a plug-in that another process asks."""

    path: str
    name: str
    timeout_s: float

    def __call__(
        self,
        topics: Mapping[str, TopicMetadata],
        subscriptions: Mapping[str, Subscription],
        memory: AssignorMemory | None = None,
    ) -> Assignment:
        question = _Question(
            path=self.path,
            name=self.name,
            topics=dict(topics),
            subscriptions=dict(subscriptions),
            max_generation=None if memory is None else memory.max_generation,
        )
        assignment, max_generation = _ask(question, self.timeout_s)
        if memory is not None:
            memory.max_generation = max_generation
        found: Assignment = assignment
        return found


_idle: list[_Child] = []
_declared: dict[tuple[str, str], dict[str, Any]] = {}
_timeouts_by_path: dict[str, int] = {}
_rests_until_s: dict[str, float] = {}


def _ask(question: _Question, timeout_s: float) -> Any:
    """Ask a child; what it gives or raises.

    Raises:
        PluginTimeoutError: it took too long, or has done so too often.
        AssignorError: what the plug-in's process found out, or that it ended.
    """
    path, name = question.path, question.name
    if time.monotonic() < _rests_until_s.get(path, 0.0):
        raise PluginTimeoutError(
            f"assignor {name!r} took longer than {timeout_s:g} s {_MOST_TIMEOUTS} times in a row and rests",
            name,
        )
    child = _take_child()
    try:
        answer = child.ask(question, timeout_s)
    except TimeoutError:
        child.kill()
        _timeouts_by_path[path] = _timeouts_by_path.get(path, 0) + 1
        if _timeouts_by_path[path] >= _MOST_TIMEOUTS:
            _rests_until_s[path] = time.monotonic() + _REST_IN_LIMITS * timeout_s
        raise PluginTimeoutError(
            f"assignor {name!r} did not answer within {timeout_s:g} s (groups.plugin_timeout_s)", name
        ) from None
    except (EOFError, OSError):
        raise PluginError(f"assignor {name!r} ended its process ({child.kill()})", name) from None
    except BaseException:
        child.kill()
        raise
    _idle.append(child)
    _timeouts_by_path.pop(path, None)
    if isinstance(answer, AssignorError):
        raise answer
    return answer


def _take_child() -> _Child:
    """Take a child that waits for a question, or start one; threads may ask at the same time."""
    while _idle:
        child = _idle.pop()
        if child.is_alive():
            return child
        child.kill()
    return _Child()


class _Child:
    """A process that answers one question after another."""

    def __init__(self) -> None:
        """Start it; it is asked before it is ready, and answers when it is."""
        ours, theirs = socket.socketpair()
        with theirs:
            os.set_inheritable(theirs.fileno(), True)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "streaming.groups.plugin_process", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(_import_path())},
                # Ctrl-C in a terminal asks the job to stop, not a plug-in.
                start_new_session=True,
            )
        # A child that stands still must not hold the sender either, once the pipe is full.
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            ours.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(_LONGEST_START_S), 0))
        self._connection = Connection(ours.detach())
        self._is_ready = False

    def ask(self, question: _Question, timeout_s: float) -> Any:
        """Send the question and wait for the answer.

        Raises:
            TimeoutError: there was none in time.
            EOFError, OSError: the process has ended.
        """
        if not self._is_ready:
            self._wait(_LONGEST_START_S)
            self._connection.recv()
            self._is_ready = True
        try:
            self._connection.send((question, _import_path(), timeout_s + _GRACE_S))
            self._wait(timeout_s)
            return self._connection.recv()
        except BlockingIOError:
            raise TimeoutError from None

    def _wait(self, timeout_s: float) -> None:
        if not self._connection.poll(timeout_s):
            raise TimeoutError

    def is_alive(self) -> bool:
        """Say whether it is there to be asked."""
        return self._process.poll() is None

    def kill(self) -> str:
        """End it, whatever it is doing, and say how it ended."""
        self._process.kill()
        code = self._process.wait()
        self._connection.close()
        return f"signal {-code}" if code < 0 else f"exit code {code}"


@atexit.register
def _kill_idle() -> None:
    while _idle:
        _idle.pop().kill()


def _import_path() -> list[str]:
    """Give what the child must find modules by: ours, and whatever this process finds them by."""
    return [str(Path(__file__).resolve().parents[2]), *(path for path in sys.path if path)]


def _answer(question: _Question) -> Any:
    """Load the plug-in and, if asked to, let it assign: what the parent gets."""
    try:
        assignor = load_plugin(question.path, question.name)
        if question.topics is None:
            return {name: getattr(assignor, name) for name in _DECLARED}
        memory = None if question.max_generation is None else AssignorMemory(question.max_generation)
        assignment = assignor.function(question.topics, question.subscriptions or {}, memory)
    except AssignorError as error:
        return PluginError(*error.args)
    return assignment, memory and memory.max_generation


def _serve(connection: Connection) -> None:
    """Answer questions until the parent is gone."""
    connection.send("ready")
    while True:
        try:
            question, import_path, limit_s = connection.recv()
        except (EOFError, OSError):
            return
        if sys.path != import_path:
            sys.path[:] = import_path
        # The parent may be gone, or stand still, while a plug-in loops: then this ends it, even in C code.
        faulthandler.dump_traceback_later(limit_s, exit=True)
        answer = _answer(question)
        faulthandler.cancel_dump_traceback_later()
        connection.send(answer)


if __name__ == "__main__":
    # Run as a module of another name: what goes over the pipe must be of the real one.
    from streaming.groups import plugin_process

    os.dup2(2, 1)  # a plug-in that prints must not be read as part of anybody's output
    plugin_process._serve(Connection(int(sys.argv[1])))
