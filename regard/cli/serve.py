"""`regard serve` and `regard studio`: trained models over HTTP, and the studio's page."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.output import say
from regard.config import check
from regard.runs import RUNS, bundle_folder
from regard.studio.config import Limits, ServeConfig, read_token

Models = Annotated[
    list[Path] | None,
    typer.Option(
        "-m", "--model", metavar="RUN", help="A run or a bundle beside those of the folder (may be repeated)."
    ),
]
RunsFolder = Annotated[Path, typer.Option("--runs", metavar="DIR", help="The folder of runs.")]
Host = Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen; beyond loopback a token is needed.")]
Port = Annotated[int, typer.Option(metavar="N", help="The port; 0 takes any that is free.")]
Names = Annotated[
    list[str] | None,
    typer.Option(
        "--name", metavar="HOST", help="Another name of this machine that requests may be for (may be repeated)."
    ),
]
Origins = Annotated[
    list[str] | None,
    typer.Option("--origin", metavar="URL", help="A page of another site that may ask, as https://example.org."),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Its content must come with every request.", show_default="$REGARD_TOKEN"),
]
Shipped = Annotated[bool, typer.Option("--shipped/--no-shipped", help="Also serve the bundles that come with Regard.")]
Seconds = Annotated[float, typer.Option(metavar="N", help="Most seconds for a request.")]
Queue = Annotated[int, typer.Option(metavar="N", help="Most requests that wait or are computed.")]
Memory = Annotated[float, typer.Option(metavar="GB", help="Most weights that are kept loaded.")]
LIMITS = Limits()


def serve(
    models: Models = None,
    runs: RunsFolder = RUNS,
    shipped: Shipped = True,
    host: Host = "127.0.0.1",
    port: Port = 8088,
    names: Names = None,
    origins: Origins = None,
    token_file: TokenFile = None,
    seconds: Seconds = LIMITS.seconds,
    queue: Queue = LIMITS.queue,
    memory: Memory = LIMITS.model_bytes / 2**30,
) -> None:
    """Serve models over HTTP, to programs that speak LibreTranslate's, OpenAI's or Hugging Face's API.

    The runs of this folder are served, and what -m names. One line of JSON for each request goes to stderr. Ctrl-C or a
    SIGTERM ends it when what was accepted is answered.
    """
    config = _config(models, runs, shipped, host, port, names, origins, token_file, seconds, queue, memory, page=False)
    from regard.studio import server

    server.serve(config, lambda address: say(f"serving on {address} · every route: {address}/docs"))


def studio(
    models: Models = None,
    runs: RunsFolder = RUNS,
    shipped: Shipped = True,
    host: Host = "127.0.0.1",
    port: Port = 8088,
    names: Names = None,
    origins: Origins = None,
    token_file: TokenFile = None,
    seconds: Seconds = LIMITS.seconds,
    queue: Queue = LIMITS.queue,
    memory: Memory = LIMITS.model_bytes / 2**30,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
) -> None:
    """Open the studio: your own models in a browser, and all that `regard serve` serves."""
    config = _config(models, runs, shipped, host, port, names, origins, token_file, seconds, queue, memory, page=True)
    from regard.studio import server

    def started(address: str) -> None:
        say(f"the studio is on {address} · Ctrl-C ends it")
        if browser:
            webbrowser.open(address)

    server.serve(config, started)


def _config(
    models: list[Path] | None,
    runs: Path,
    shipped: bool,
    host: str,
    port: int,
    names: list[str] | None,
    origins: list[str] | None,
    token_file: Path | None,
    seconds: float,
    queue: int,
    memory: float,
    *,
    page: bool,
) -> ServeConfig:
    """Check what was typed before torch is imported: a model that is not there is told now."""
    for model in models or ():
        bundle_folder(model)
    config = check(
        ServeConfig,
        {
            "host": host, "port": port, "names": tuple(names or ()), "origins": tuple(origins or ()),
            "token": read_token(token_file), "models": tuple(models or ()), "runs": runs, "shipped": shipped, "page": page,
            "limits": {"seconds": seconds, "queue": queue, "model_bytes": int(memory * 2**30)},
        },
        "the command line",
    )  # fmt: skip
    config.check()
    return config
