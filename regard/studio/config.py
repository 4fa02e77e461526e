"""What a service is told when it starts: where it listens, who may ask, and how much of anything. No torch here."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from regard.config import StrictConfig
from regard.errors import Advice, Option, RegardError, UsageError
from regard.runs import MODELS, RUNS

TOKEN_VARIABLE = "REGARD_TOKEN"
SHORTEST_TOKEN = 16  # characters: what is shorter can be guessed
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


class Limits(StrictConfig):
    """Bounds of what is read, computed and kept for others."""

    body_bytes: int = Field(16 * 2**20, ge=1, description="Most bytes of a request's body.")
    held_bytes: int = Field(256 * 2**20, ge=1, description="Most bytes of all bodies that are being read or used.")
    characters: int = Field(20_000, ge=1, description="Most characters of a text.")
    texts: int = Field(128, ge=1, description="Most texts of a request.")
    tokens: int = Field(4_096, ge=1, description="Most tokens that are written for a text.")
    beam: int = Field(32, ge=1, description="Widest beam, and most sequences that are returned for a text.")
    look_tokens: int = Field(1_100, ge=1, description="Most tokens of a text whose attention is looked at.")
    seconds: float = Field(60.0, gt=0, description="Most seconds from a request's arrival to its answer.")
    read_seconds: float = Field(10.0, gt=0, description="Most seconds in which a request must have come in whole.")
    send_seconds: float = Field(30.0, gt=0, description="Most seconds beyond that in which an answer is taken away.")
    stop_seconds: float = Field(
        30.0, ge=0, description="Most seconds in which accepted requests are finished at a stop."
    )
    queue: int = Field(
        256, ge=1, description="Most requests that wait or are computed; one more is told to come again."
    )
    model_bytes: int = Field(2 * 2**30, ge=1, description="Most bytes of weights that are kept loaded.")
    archive_bytes: int = Field(2**30, ge=1, description="Most bytes of a model that is taken in, folded and unfolded.")
    archive_seconds: float = Field(
        600.0, gt=0, description="Most seconds in which such a file must have come in whole."
    )
    jobs: int = Field(4, ge=1, description="Most long jobs that wait or run.")


class ServeConfig(StrictConfig):
    """A service: the same for `regard serve` and `regard studio`."""

    host: str = Field("127.0.0.1", description="The address to listen on.")
    port: int = Field(8088, ge=0, le=65535, description="The port; 0 lets the system choose.")
    names: tuple[str, ...] = Field((), description="Names of this host, beside loopback's, that requests may be for.")
    origins: tuple[str, ...] = Field((), description="Pages of other sites that may ask, as https://example.org.")
    token: str | None = Field(None, repr=False, description="What every request must show; None: nothing.")
    models: tuple[Path, ...] = Field((), description="Runs and bundles that are served beside those of the folder.")
    runs: Path = Field(RUNS, description="The folder of runs.")
    imported: Path = Field(MODELS, description="The folder of bundles that came from elsewhere.")
    shipped: bool = Field(True, description="Whether the small bundles that come with Regard are served as well.")
    page: bool = Field(False, description="Whether the studio's page is served as well, and models are taken in.")
    limits: Limits = Limits()

    @property
    def is_loopback(self) -> bool:
        """Whether only programs of this machine can reach the service."""
        return is_loopback(self.host)

    @property
    def known_names(self) -> frozenset[str]:
        """The names that the header `Host` may have, in lower case and without port."""
        own = () if self.host in ("0.0.0.0", "::", "") else (self.host,)
        return frozenset(name.lower() for name in (*LOOPBACK_NAMES, *own, *self.names))

    def check(self) -> None:
        """Refuse a service that anyone could use."""
        if self.token is not None and len(self.token) < SHORTEST_TOKEN:
            raise UsageError(f"a token of {len(self.token)} characters can be guessed; use {SHORTEST_TOKEN} or more")
        if not self.is_loopback and self.token is None:
            raise UsageError(
                f"on {self.host} anyone who reaches this machine could use its models",
                Advice(
                    "give a token in a file: ", Option("token_file", "FILE"), f", or in the variable {TOKEN_VARIABLE}"
                ),
            )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_token(file: Path | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """The token of a file, else of the environment; None where neither has one."""
    if file is None:
        return environment.get(TOKEN_VARIABLE, "").strip() or None
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise RegardError(f"the token cannot be read from {file} ({error})") from error
    if not token:
        raise RegardError(f"{file} holds no token; write one into it: one line of {SHORTEST_TOKEN} characters or more")
    return token
