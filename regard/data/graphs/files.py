"""Read graphs: .npz archives, tables of edges and nodes, JSON Lines of whole graphs, and built-in ones. Nothing unpickles."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from regard.config import find_file
from regard.data.builtin.communities import NODES, communities, rings
from regard.data.config import generated
from regard.data.graphs.config import COMMUNITIES, ENDS, RINGS, TABLES, is_edge_table
from regard.data.graphs.graph import UNKNOWN, Features, Graph, SparseFeatures, degree_features, thinned, tidy_edges
from regard.data.labelled import in_order
from regard.data.lines import lines_of, suffix_of
from regard.data.rows import csv_rows, tsv_rows
from regard.errors import RegardError, UsageError

TESTED = 500  # built-in graphs of a validation or test set
PARTS = {
    "train": ("train", "train_mask"),
    "valid": ("valid", "val", "valid_mask", "val_mask"),
    "test": ("test", "test_mask"),
}
KEYS = "edges (2, E), features (N, F) or feat_row, feat_col and shape, label (N,), and train, valid, test"
SHOULD = '{"edges": [[0, 1], [1, 2]], "features": [[1.0], [0.5], [0.0]], "label": "..."}'
NODE_COLUMNS = ("id", "node", "name")


def of_whole_graphs(names: Sequence[str]) -> bool:
    """Whether labels are of whole graphs, and not of their nodes."""
    return names[0].startswith(RINGS) or suffix_of(Path(names[0])) in (".jsonl", ".json")


def read_graphs(
    names: Sequence[str],
    data_root: Path | None = None,
    *,
    directed: bool = False,
    split: str = "test",
    size: int = TESTED,
) -> list[Graph]:
    """The graphs that a person names: one with labels of nodes, or many with a label each."""
    if names[0].startswith("builtin/"):
        return _builtin(names[0], split, size)
    paths = [find_file(name, data_root) for name in names]
    suffix = suffix_of(paths[0])
    if suffix == ".npz" and len(paths) == 1:
        return [read_npz(paths[0], directed)]
    if suffix in TABLES and len(paths) == 2:
        return [read_tables(paths, directed)]
    if suffix in (".jsonl", ".json"):
        return _one_numbering([graph for path in paths for graph in read_lines_of_graphs(path, directed)])
    raise UsageError(
        f"{', '.join(names)}: cannot tell what graph that is",
        f"name one .npz with {KEYS}; two tables, edges.csv and nodes.csv; or a .jsonl with a graph a line",
    )


def _builtin(name: str, split: str, size: int) -> list[Graph]:
    """builtin/communities[/NODES][/test], or builtin/rings[/test]."""
    asked = generated(name, {COMMUNITIES.split("/")[1]: NODES, RINGS.split("/")[1]: 20})
    if asked.task == "rings":
        return rings(asked.split or split, size)
    return [communities(asked.split or "train", asked.most)]


# --- One archive


def read_npz(path: Path, directed: bool = False) -> Graph:
    """The graph of a NumPy archive, which holds arrays only."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise RegardError(
            f"{path} is not an archive of plain arrays: {error}", f"write one with numpy.savez: {KEYS}"
        ) from error
    for wanted in ("edges", "label"):
        if wanted not in arrays and f"{wanted}s" not in arrays:
            raise RegardError(f"{path} has no {wanted}; it has {', '.join(sorted(arrays))}", f"it needs {KEYS}")
    labels = arrays.get("label", arrays.get("labels"))
    assert labels is not None
    edges = tidy_edges(arrays["edges"], len(labels), directed, str(path))
    numbers, names = numbered([_label(each) for each in labels.tolist()])
    features = _features(arrays, edges, len(labels), path)
    if len(features) != len(labels):
        raise RegardError(
            f"{path}: {len(features):,} nodes have features and {len(labels):,} a label; give one for each"
        )
    return Graph(edges, features, numbers, names, parts=_parts(arrays, len(labels), path))


def _label(value: object) -> str:
    """A label as text; a negative number, or nothing, is none."""
    if isinstance(value, (int, float)) and value < 0:
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _features(arrays: Mapping[str, np.ndarray], edges: np.ndarray, nodes: int, path: Path) -> Features:
    if "features" in arrays:
        found = arrays["features"]
        if found.ndim != 2 or found.dtype.kind not in "fiub":
            raise RegardError(f"{path}: features are numbers (N, F), not {found.dtype} {found.shape}")
        return thinned(found)
    if not {"feat_row", "feat_col", "shape"} <= arrays.keys():
        return degree_features(edges, nodes)
    rows, columns, shape = (arrays[name].astype(np.int64) for name in ("feat_row", "feat_col", "shape"))
    values = arrays.get("feat_value", np.ones(len(rows), dtype=np.float32))
    if len(rows) != len(columns) or len(values) != len(rows) or len(shape) != 2:
        raise RegardError(f"{path}: feat_row, feat_col and feat_value are equally long, and shape has two numbers")
    if rows.max(initial=0) >= shape[0] or columns.max(initial=0) >= shape[1]:
        raise RegardError(f"{path}: a feature stands outside the shape {tuple(shape.tolist())}")
    return SparseFeatures.of(rows, columns, values, (int(shape[0]), int(shape[1])))


def _parts(arrays: Mapping[str, np.ndarray], nodes: int, path: Path) -> dict[str, np.ndarray] | None:
    """The split that a file brings: nodes by number, or booleans of all."""
    found = {}
    for part, keys in PARTS.items():
        given = next((arrays[key] for key in keys if key in arrays), None)
        if given is None:
            continue
        numbers = given.nonzero()[0] if given.dtype == bool else given.astype(np.int64)
        if (given.dtype == bool and len(given) != nodes) or (
            numbers.size and not 0 <= numbers.min() <= numbers.max() < nodes
        ):
            raise RegardError(f"{path}: {part} names nodes that are not there; there are {nodes:,}, from 0")
        found[part] = numbers
    return found if "train" in found else None


# --- Two tables


def read_tables(paths: Sequence[Path], directed: bool = False) -> Graph:
    """A graph of a table of edges and a table of nodes, in either order."""
    first, second = paths
    edges_at, nodes_at = (first, second) if is_edge_table(first) or not is_edge_table(second) else (second, first)
    head, rows = _table(nodes_at)
    folded = [name.strip().casefold() for name in head]
    if "label" not in folded:
        raise RegardError(f"{nodes_at} has no column label; it has {', '.join(head)}", "name one: id,label,...")
    named = next((folded.index(name) for name in NODE_COLUMNS if name in folded), 0)
    split = folded.index("split") if "split" in folded else None
    others = [place for place in range(len(head)) if place not in (named, folded.index("label"), split)]
    names = tuple(row[named] for row in rows)
    if len(set(names)) < len(names):
        raise RegardError(f"{nodes_at}: two nodes are called {next(n for n in names if names.count(n) > 1)!r}")
    numbers, labels = numbered([row[folded.index("label")].strip() for row in rows])
    edges = tidy_edges(_edges(edges_at, names), len(names), directed, str(edges_at))
    features = thinned(_numbers(nodes_at, rows, others, head)) if others else degree_features(edges, len(names))
    return Graph(edges, features, numbers, labels, names, _split_of(rows, split))


def _table(path: Path) -> tuple[list[str], list[list[str]]]:
    """The names of the columns, and the rows below them."""
    read = csv_rows(path) if suffix_of(path) == ".csv" else tsv_rows(path)
    rows = [cells for _, cells in read if any(cell.strip() for cell in cells)]
    if len(rows) < 2:
        raise RegardError(f"{path} has {len(rows)} rows; the first names the columns")
    if short := next((cells for cells in rows if len(cells) != len(rows[0])), None):
        raise RegardError(f"{path}: a row has {len(short)} cells and the first has {len(rows[0])}: {short[:4]}")
    return rows[0], rows[1:]


def _edges(path: Path, names: Sequence[str]) -> np.ndarray:
    head, rows = _table(path)
    folded = [name.strip().casefold() for name in head]
    ends = [folded.index(end) if end in folded else place for place, end in enumerate(ENDS)]
    rows = rows if set(ENDS) & set(folded) else [head, *rows]  # no names: a first edge
    place = {name: number for number, name in enumerate(names)}
    unknown = next((row[end] for row in rows for end in ends if row[end] not in place), None)
    if unknown is not None:
        raise RegardError(f"{path}: an edge names {unknown!r}, which is not in the table of nodes")
    return np.array([[place[row[end]] for row in rows] for end in ends])


def _numbers(path: Path, rows: Sequence[Sequence[str]], places: Sequence[int], head: Sequence[str]) -> np.ndarray:
    try:
        return np.array([[float(row[place]) for place in places] for row in rows], dtype=np.float32)
    except ValueError as error:
        columns = ", ".join(head[place] for place in places[:5])
        raise RegardError(f"{path}: {error}; columns besides id, label and split are features ({columns})") from error


def _split_of(rows: Sequence[Sequence[str]], place: int | None) -> dict[str, np.ndarray] | None:
    if place is None:
        return None
    said = np.array([row[place].strip().casefold() for row in rows])
    return {part: np.isin(said, keys).nonzero()[0] for part, keys in PARTS.items()}


# --- A graph a line


def read_lines_of_graphs(path: Path, directed: bool = False) -> list[Graph]:
    """The graphs of JSON Lines, each with a label."""
    return [
        _graph(line, f"{path}, line {number}", directed)
        for number, line in enumerate(lines_of(path), 1)
        if line.strip()
    ]


def _graph(line: str, where: str, directed: bool) -> Graph:
    try:
        row = json.loads(line)
        edges = np.array(row["edges"], dtype=np.int64).reshape(-1, 2).T
        features = np.array(row["features"], dtype=np.float32) if row.get("features") is not None else None
        label = str(row.get("label", ""))
    except (ValueError, KeyError, TypeError) as error:
        raise RegardError(f"{where}: {type(error).__name__}: {error}", f"a line is {SHOULD}") from error
    nodes = int(row.get("nodes", edges.max(initial=0) + 1)) if features is None else len(features)
    if features is not None and features.ndim != 2:
        raise RegardError(f"{where}: features are a list of numbers for each node", f"a line is {SHOULD}")
    edges = tidy_edges(edges, nodes, directed, where)
    numbers, names = numbered([label])
    return Graph(edges, degree_features(edges, nodes) if features is None else features, numbers, names)


def _one_numbering(graphs: Sequence[Graph]) -> list[Graph]:
    """Graphs whose labels are numbers of the same names."""
    names = tuple(in_order(name for graph in graphs for name in graph.label_names))
    return [renumbered(graph, names) for graph in graphs]


def numbered(labels: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """The number of each label, and their names; an empty one is unknown."""
    names = tuple(in_order(label for label in labels if label))
    place = {name: number for number, name in enumerate(names)}
    return np.array([place.get(label, UNKNOWN) for label in labels], dtype=np.int64), names


def renumbered(graph: Graph, names: Sequence[str]) -> Graph:
    """The graph with its labels as numbers of `names`; what these do not have comes behind them."""
    every = (*names, *(name for name in graph.label_names if name not in names))
    places = np.array([*(every.index(name) for name in graph.label_names), UNKNOWN])
    return replace(graph, labels=places[graph.labels], label_names=every)
