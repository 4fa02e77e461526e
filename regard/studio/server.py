"""The process: a socket, uvicorn around the application, and a stop that finishes what was accepted."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from asyncio import TimerHandle
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.errors import UsageError
from regard.studio.app import make_app
from regard.studio.config import ServeConfig
from regard.studio.guard import CUT, Guard, Log, log_line

CONNECTIONS = 1024  # at once; one more is told that there is no room
BACKLOG = 2048  # connections that wait to be accepted
ARRIVING = 0.2  # seconds in which a connection that was just accepted may still say what it wants, at a stop


class Server(uvicorn.Server):
    """uvicorn's server. At a stop it says so at /ready, and hears those out who have just come in."""

    def __init__(self, config: uvicorn.Config, guard: Guard) -> None:
        super().__init__(config)
        self.guard = guard

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.guard.app.state.service.stopping = True  # type: ignore[attr-defined]
        for server in self.servers:
            server.close()
        await asyncio.sleep(ARRIVING)
        await super().shutdown(sockets)


class Impatient(H11Protocol):
    """A connection that must say what it wants in time, and take its answer away in time: uvicorn waits without end."""

    read_seconds, send_seconds = 10.0, 30.0
    timer: TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait(self.read_seconds, self.transport.close)

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.scope[CUT] = self.transport.abort  # type: ignore[literal-required]
            self._hear()
        elif self.timer is None and not self.transport.is_closing():
            self._wait(self.read_seconds, self.transport.close)

    def on_response_complete(self) -> None:
        """The answer is written, if only into a buffer: closing would wait until that is empty."""
        self._hear()
        if self.transport.get_write_buffer_size():
            self._wait(self.send_seconds, self._cut)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._hear()
        super().connection_lost(exc)

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        self.timer = self.loop.call_later(seconds, then)

    def _hear(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _cut(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens; the port that the system chose is in its name."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(BACKLOG)  # who comes before the server runs waits for it
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host}:{port} ({error.strerror or error})", "choose another port"
        ) from error
    found.set_inheritable(False)
    return found


def address_of(config: ServeConfig, listening: socket.socket) -> str:
    """The address of the service, as a browser takes it."""
    port = listening.getsockname()[1]
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "::1": "[::1]"}.get(config.host, config.host)
    return f"http://{name}:{port}"


def make_server(config: ServeConfig, log: Log = log_line) -> Server:
    limits = config.limits
    guard = make_app(config, log)
    patience = {"read_seconds": limits.read_seconds, "send_seconds": limits.send_seconds}
    protocol = type("Connection", (Impatient,), patience)
    return Server(
        uvicorn.Config(
            guard, http=protocol, ws="none", loop="asyncio", lifespan="on", log_config=None, access_log=False,
            server_header=False, proxy_headers=False, timeout_keep_alive=15, limit_concurrency=CONNECTIONS,
            timeout_graceful_shutdown=int(limits.stop_seconds) or 1,
        ),
        guard,
    )  # fmt: skip


def serve(config: ServeConfig, started: Callable[[str], None], log: Log = log_line) -> None:
    """Serve until a signal says stop, then finish what was accepted. `started` is told the address."""
    config.check()
    listening = listening_socket(config.host, config.port)
    with contextlib.closing(listening), _ended_by_signal():
        server = make_server(config, log)
        started(address_of(config, listening))
        server.run(sockets=[listening])


@contextlib.contextmanager
def _ended_by_signal() -> Iterator[None]:
    """uvicorn sends itself the signal that stopped it again: after a good stop it ends this block, not the process."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise _StoppedError

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {each: signal.signal(each, leave) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    except _StoppedError:
        pass
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


class _StoppedError(Exception):
    """A signal said stop."""
