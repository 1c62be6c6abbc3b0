"""One HTTP endpoint of a process: /metrics, /healthz and /readyz for all of its deployments.

* /healthz is for whoever restarts the process: 503 while a batch is stuck, or when every
  job has ended. One job that ended beside others that go on is no reason to stop them.
* /readyz is 503 until every deployment does its work, and when one has ended.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import StringIO
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, TextIO
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from streaming.operations.group_metrics import GroupMetrics
from streaming.operations.health import JobHealth
from streaming.operations.metrics import JobMetrics
from streaming.operations.progress import ProgressListener, SourceLag
from streaming.operations.report import JobReport, Metrics
from streaming.tables.delta import JobError

if TYPE_CHECKING:
    from wsgiref.types import StartResponse

    from pyspark.sql import SparkSession

    from conf.operations import HttpSettings
    from conf.settings import Settings

_logger = logging.getLogger(__name__)

_PATIENCE_S = 5
"""How long a connection may say or take nothing; a stop waits for as long."""

_OK, _UNAVAILABLE = "200 OK", "503 Service Unavailable"


class _Server(ThreadingMixIn, WSGIServer):
    # Closing waits for answers under way: the process must not end while one reads tables.
    daemon_threads = False
    block_on_close = True

    def server_bind(self) -> None:
        # The inherited one asks the resolver for this host's name, which may take seconds to fail.
        if self.allow_reuse_address:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what a client did wrong, or did not do in time; the inherited one prints it."""
        _logger.debug("a client at %s was given up", client_address, exc_info=True)


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = _PATIENCE_S

    def log_message(self, format: str, *args: Any) -> None:
        """Log no request: a probe comes every few seconds."""

    def get_stderr(self) -> TextIO:
        """Print nothing: what an answer raised is in the log, and the rest is a client that went away."""
        return StringIO()


class Endpoint:
    """What the process shows of its jobs; serves it while `serving`."""

    def __init__(self, settings: HttpSettings, deployments: Mapping[str, Settings]) -> None:
        """Make one health for each deployment, by its cluster's name."""
        self._settings = settings
        self.health = {cluster: JobHealth(cluster) for cluster in deployments}
        self._progress = ProgressListener(self._note_idle)
        registry = CollectorRegistry()
        groups = GroupMetrics(max_groups=settings.max_groups, cache_s=settings.cache_s)
        registry.register(groups)
        self._metrics = Metrics(job=JobMetrics(registry), groups=groups)
        sources = {name: [source.name for source in own.sources] for name, own in deployments.items()}
        registry.register(SourceLag(self._progress, self.health, sources))
        self._metrics_app = make_wsgi_app(registry)
        self._pages: Mapping[str, Callable[[], list[str]]] = {
            "/healthz": self.why_not_alive,
            "/readyz": self.why_not_ready,
        }
        self.port = 0

    def report_of(self, cluster: str) -> JobReport:
        """Give what a deployment's job is to tell, with metrics if they are served."""
        return JobReport(self.health[cluster], self._metrics if self._settings.bind else None)

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve in a thread of its own for as long as the block lasts, unless `http.bind` is "".

        Raises:
            JobError: the address cannot be had.
        """
        if not self._settings.bind:
            yield
            return
        host, port = self._settings.address()
        try:
            server = make_server(
                host,
                port,
                self.answer,
                server_class=_Server6 if ":" in host else _Server,
                handler_class=_Handler,
            )
        except OSError as error:
            raise JobError(
                f"http.bind {self._settings.bind!r}: {error.strerror or error}; choose another address"
            ) from None
        self.port = server.server_port
        _logger.info("metrics and health at port %d of %s", self.port, host)
        thread = threading.Thread(target=server.serve_forever, name="http", daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    @contextmanager
    def listening(self, spark: SparkSession) -> Iterator[None]:
        """Hear of the progress of the session's queries for as long as the block lasts, if it is served."""
        if not self._settings.bind:
            yield
            return
        spark.streams.addListener(self._progress)
        try:
            yield
        finally:
            spark.streams.removeListener(self._progress)

    def answer(self, environ: Mapping[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request; a WSGI application."""
        try:
            return self._answer(environ, start_response)
        except Exception:
            _logger.exception("no answer for %s", environ["PATH_INFO"])
            return _say(start_response, "500 Internal Server Error", ["see the log"])

    def _answer(self, environ: Mapping[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            return self._metrics_app(environ, start_response)  # type: ignore[no-any-return]
        if path not in self._pages:
            return _say(start_response, "404 Not Found", ["known: /metrics, /healthz, /readyz"])
        if environ["REQUEST_METHOD"] != "GET":
            return _say(start_response, "405 Method Not Allowed", ["use GET"])
        problems = self._pages[path]()
        return _say(start_response, _UNAVAILABLE if problems else _OK, problems or ["ok"])

    def why_not_alive(self) -> list[str]:
        """List what only a restart mends; [] for nothing."""
        stuck = [
            f"cluster {cluster}: {why}"
            for cluster, health in self.health.items()
            if (why := health.why_stuck(self._settings.stuck_after_s))
        ]
        ended = {cluster: why for cluster, health in self.health.items() if (why := health.why_ended())}
        if len(ended) == len(self.health):
            stuck += [f"cluster {cluster}: {why}" for cluster, why in ended.items()]
        return stuck

    def why_not_ready(self) -> list[str]:
        """List what is missing until every deployment does its work; [] when all do."""
        return [
            f"cluster {cluster}: {why}"
            for cluster, health in self.health.items()
            for why in health.why_not_ready()
        ]

    def _note_idle(self, query_id: str) -> None:
        for health in self.health.values():
            if health.query_id == query_id:
                health.reach("batch")


def _say(start_response: StartResponse, status: str, lines: list[str]) -> list[bytes]:
    body = "".join(f"{line}\n" for line in lines).encode()
    start_response(
        status, [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))]
    )
    return [body]
