"""One request on its way through the service: when it must be answered, whether its client is still there, what it cost."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.types import Receive

KEY = "regard.visit"


@dataclass(eq=False)
class Visit:
    """What is known of a request beside what it asks; its line in the log is made of it."""

    method: str
    path: str
    deadline: float  # of time.monotonic
    receive: Receive
    began: float = field(default_factory=time.monotonic)
    status: int = 0  # 0: nothing was answered
    model: str | None = None
    read: int = 0  # tokens
    written: int = 0

    def left(self) -> float:
        """Seconds until the answer must be there."""
        return max(0.0, self.deadline - time.monotonic())

    async def gone(self) -> None:
        """Return when the client has left."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    def line(self) -> dict[str, Any]:
        """The request as the log tells it: no text, and nothing that was asked."""
        found: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "method": self.method,
            "path": self.path[:200],
            "status": self.status,
            "ms": round(1000 * (time.monotonic() - self.began), 1),
        }
        if self.model is not None:
            found |= {"model": self.model, "tokens_read": self.read, "tokens_written": self.written}
        return found


def visit_of(request: Request) -> Visit:
    visit: Visit = request.scope[KEY]
    return visit
