"""Regard's own API for the runs of the folder: how each went, what it wrote, and how its attention formed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from fastapi import APIRouter, Request
from starlette.responses import Response

from regard.errors import RegardError
from regard.files import JSON
from regard.inspect.formation import labels_of_role
from regard.inspect.probes import Probes
from regard.runs import Run, all_runs, read_run
from regard.studio.catalog import DEPTH
from regard.studio.looks import KeptLook, Layers
from regard.studio.refusals import Refusal, json_response
from regard.studio.routes.looking import AskedMap, map_response
from regard.studio.service import Service, service_of
from regard.studio.work import Asked
from regard.training.history import CLOCK, LOG, summarise

router = APIRouter(prefix="/api/runs", tags=["runs"])
MOST_ROWS = 5_000  # of a log: a longer one is thinned out, its last rows kept
LARGEST_LOG = 64 * 2**20


def _runs(service: Service) -> dict[str, Run]:
    """The runs of the folder by their names, which are no paths."""
    root = service.config.runs
    found = all_runs(root, DEPTH)
    return {"-".join(run.folder.relative_to(root).parts) or root.name: run for run in found}


def _run(service: Service, name: str) -> Run:
    run = _runs(service).get(name)
    if run is None:
        raise Refusal(404, f"there is no run {name[:100]!r}", "GET /api/runs lists them")
    return run


@router.get("")
async def runs(request: Request) -> Response:
    """Every run, the newest first."""
    service = service_of(request)

    def compute(_: Asked) -> list[JSON]:
        found = [{"id": name, **asdict(summarise(run))} for name, run in _runs(service).items()]
        return [*reversed(found)]

    return json_response({"runs": await service.run(request, compute)})


@router.get("/{name}")
async def run(name: str, request: Request) -> Response:
    """One run: the rows of its log, the time, samples, what was chosen, and how many probes it kept."""
    service = service_of(request)
    return json_response(await service.run(request, lambda _: _detailed(name, _run(service, name))))


def _detailed(name: str, run: Run) -> dict[str, JSON]:
    config = read_run(run.folder)["config"]
    probes = _probes(run.folder)
    return {
        "id": name,
        **asdict(summarise(run)),
        "rows": _rows(run.folder / LOG),
        "clock": _rows(run.folder / CLOCK),
        "config": config,
        "probes": 0 if probes is None else len(probes.labels),
        "steps_probed": [] if probes is None else list(probes.steps),
    }


def _probes(folder: Path) -> Probes | None:
    try:
        return Probes.of(folder)
    except RegardError:
        return None


def _rows(path: Path) -> list[JSON]:
    """The rows of a log; a run may be writing its last."""
    if not path.exists() or path.stat().st_size > LARGEST_LOG:
        return []
    found: list[JSON] = []
    for line in path.read_bytes().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return _thinned(found)


def _thinned(rows: list[JSON]) -> list[JSON]:
    if len(rows) <= MOST_ROWS:
        return rows
    whole = [row for row in rows if isinstance(row, dict) and row.get("kind") == "valid"]
    every = -(-len(rows) // MOST_ROWS)
    some = [row for place, row in enumerate(rows) if place % every == 0 or place == len(rows) - 1]
    return sorted([*whole, *(row for row in some if row not in whole)], key=_step)


def _step(row: JSON) -> float:
    value = row.get("step", 0) if isinstance(row, dict) else 0
    return float(value) if isinstance(value, int | float) else 0.0


@router.get("/{name}/probes/{text}")
async def probe(name: str, text: int, request: Request) -> Response:
    """One probe as it was kept: its labels, roles, layers, and the steps at which its maps can be asked for."""
    service = service_of(request)

    def compute(_: Asked) -> dict[str, JSON]:
        probes = Probes.of(_run(service, name).folder)
        kept = _kept(probes, text, probes.steps[-1])
        layers = {role: each.data() for role, each in kept.roles.items()}
        return {"steps": list(probes.steps), "roles": list(kept.roles), "by_role": layers}

    return json_response(await service.run(request, compute))


@router.get("/{name}/probes/{text}/{step}/{layer}/{head}")
async def probe_map(
    name: str,
    text: int,
    step: int,
    request: Request,
    asked: AskedMap,
) -> Response:
    """One map of one probe at one step, as /api/look gives maps."""
    service = service_of(request)

    def compute(_: Asked) -> Response:
        kept = _kept(Probes.of(_run(service, name).folder), text, step)
        return map_response(kept, asked)

    return await service.run(request, compute)


def _kept(probes: Probes, text: int, step: int) -> KeptLook:
    """The maps of one text at one step, by role and layer."""
    by_role: dict[str, list[np.ndarray]] = {}
    paths: dict[str, list[str]] = {}
    for place, weights in probes.maps(step, text).items():
        role, _, path = place.partition("/")
        by_role.setdefault(role, []).append(weights.double().numpy())
        paths.setdefault(role, []).append(path)
    if not by_role:
        raise Refusal(404, "nothing was kept of this text at this step")
    layers = {role: _layers(probes.labels[text], role, found, paths[role]) for role, found in by_role.items()}
    return KeptLook(by_role, layers)


def _layers(labels: dict[str, tuple[str, ...]], role: str, maps: list[np.ndarray], paths: Sequence[str]) -> Layers:
    rows, columns = labels_of_role(labels, role, maps[0].shape[-2:])
    return Layers(columns, rows, tuple(len(each) for each in maps), tuple(paths))
