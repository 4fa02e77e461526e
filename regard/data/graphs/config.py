"""Where graphs come from and what a model is shown of them. No torch here."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Literal

from pydantic import Field

from regard.config import StrictConfig
from regard.data.config import Names
from regard.data.lines import opened, suffix_of

COMMUNITIES, RINGS = "builtin/communities", "builtin/rings"
TABLES = (".csv", ".tsv")
ENDS = ("source", "target")  # columns of a table of edges


class GraphFormat(StrictConfig):
    """What a model of graphs is shown: so many features of a node, made so; and whether labels are of whole graphs."""

    features: int = Field(ge=1)
    whole: bool = False
    normalise: Literal["rows", "none"] = "none"
    directed: bool = False


class GraphsConfig(StrictConfig):
    """Labelled graphs. Labels of nodes: an .npz, or a table of edges and one of nodes; of whole graphs: .jsonl; or built-in."""

    train: Names = Field(
        (COMMUNITIES,),
        min_length=1,
        description="A graph with labelled nodes (.npz; edges.csv nodes.csv), graphs with a label each (.jsonl), "
        "builtin/communities or builtin/rings.",
    )
    valid: Names = Field(
        (), description="Validation graphs; without them some are held out. Of nodes, the file has a split."
    )
    test: Names = Field((), description="Test graphs, for the person's own notes; training never reads them.")
    directed: bool = Field(False, description="Edges lead one way only; else each is followed both ways.")
    normalise: Literal["auto", "rows", "none"] = Field(
        "auto", description="Features of a node sum to one (rows), or stay as they are; auto: rows if none is negative."
    )
    hold_out: int = Field(1000, ge=1, description="Most graphs held out for validation when there is no valid set.")
    builtin_size: int = Field(2000, ge=10, description="Training graphs generated for builtin/rings.")


def are_graphs(names: Sequence[str]) -> bool:
    """Whether these are graphs: built-in ones, an .npz, JSON Lines that have edges, or tables one of which is of edges."""
    if len(names) == 2 and any(is_edge_table(Path(name)) for name in names):
        return True
    return any(
        name.startswith((COMMUNITIES, RINGS)) or name.endswith(".npz") or _has_edges(Path(name)) for name in names
    )


def is_edge_table(path: Path) -> bool:
    """Whether the first line of a table names a source and a target."""
    if not path.is_file() or suffix_of(path) not in TABLES:
        return False
    first = first_line(path)
    cells = {cell.strip().casefold() for cell in next(csv.reader([first.replace("\t", ",").replace(";", ",")]), [])}
    return set(ENDS) <= cells


def first_line(path: Path) -> str:
    """The first line of a text file, gzipped or not."""
    with opened(path) as file:
        return b"".join(islice(file, 1)).decode("utf-8", "replace").strip().removeprefix("\ufeff")


def _has_edges(path: Path) -> bool:
    if not path.is_file() or suffix_of(path) not in (".jsonl", ".json"):
        return False
    try:
        row = json.loads(first_line(path))
    except ValueError:
        return False
    return isinstance(row, dict) and "edges" in row
