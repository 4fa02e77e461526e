"""Positions of a model, or by name: what each place is told by, and how two places are alike, by the way between them.

    positions_of("rotary", length=32)      by name, with fresh tables where they are learned
    positions_of(model, "a text")          those that a trained model has, over as many places as the text has tokens

Added positions (sinusoidal, learned) are held against each other by their dot product. Rotary positions turn queries and
keys: what is shown is the product of two equal vectors of ones that are turned by their places, over their length, which
is the mean of cos((s - t) θ) (Su et al. 2021, eq. 11). ALiBi and T5 add a number to scores; Shaw's add q · a_{s-t}, so
that of his the vectors a are held against that of the same place.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention.relative import T5, ALiBi, Rotary, Shaw, make_relative, text_distances
from regard.blocks.block import Block
from regard.embed import LearnedPositions, SinusoidalPositions, positions
from regard.embed.patches import FixedPositions
from regard.errors import UsageError, nearest
from regard.inspect.texts import PairPredictor
from regard.look.positions import PositionTable
from regard.predictor import Predictor

KINDS = ("sinusoidal", "learned", "rotary", "alibi", "shaw", "t5", "none")
LENGTH, WIDTH, HEADS, REACH = 32, 64, 4, 8  # where nobody says
LEARNED = ("learned", "shaw", "t5")  # kinds whose numbers are learned
MOST = 128  # places that are shown


def positions_of(
    what: Predictor | str, text: str = "", *, length: int = LENGTH, width: int = WIDTH, heads: int = HEADS
) -> PositionTable:
    """The positions of a trained model over the tokens of a text; or those of a name, over `length` places."""
    return _by_name(what, length, width, heads) if isinstance(what, str) else _of_model(what, text)


def has_positions(predictor: Predictor) -> bool:
    """Whether a model could be told positions: it has some, or blocks in which order would else be lost."""
    return any(isinstance(each, (*SHOWN, Block)) for each in predictor.model.modules())


def _by_name(kind: str, length: int, width: int, heads: int) -> PositionTable:
    """Learned ones with fresh, seeded tables, as before training."""
    if kind not in KINDS:
        raise UsageError(f"no positions {kind}", nearest(kind, KINDS))
    _check(length, width, heads)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = _fresh(kind, length, width, heads)
    notes = ("fresh tables: nothing was learned yet; of a trained model, look at a text",) if kind in LEARNED else ()
    return _shown(module, length, width, f"{kind} positions", notes)


def _check(length: int, width: int, heads: int) -> None:
    if not 1 <= length <= MOST:
        raise UsageError(f"{length} places cannot be shown; choose from 1 to {MOST}")
    if width < 2 * heads or width % (2 * heads):
        raise UsageError(f"a width of {width} is not {heads} heads of even width; choose a multiple of {2 * heads}")


def _fresh(kind: str, length: int, width: int, heads: int) -> nn.Module | None:
    if kind in ("sinusoidal", "learned"):
        return positions(kind, width, length)
    if kind == "rotary":
        return Rotary(width // heads)
    return None if kind == "none" else make_relative(kind, heads, width // heads, causal=False, reach=REACH)


def _of_model(predictor: Predictor, text: str) -> PositionTable:
    """The positions of a model: its encoder's if it has two halves, those of all patches if it reads pictures."""
    found = next((each for each in predictor.model.modules() if isinstance(each, SHOWN)), None)
    if predictor.config.pictures is None:
        length = _tokens(predictor, text)
    else:
        table = getattr(found, "table", None)
        length = LENGTH if table is None else len(table)
    length, width = max(2, min(MOST, length)), predictor.config.model.width
    return _shown(found, length, width, f"positions of this {predictor.config.model.kind}, {length} places", ())


def _tokens(predictor: Predictor, text: str) -> int:
    """How many tokens a model reads of a text."""
    if isinstance(predictor, PairPredictor):
        return len(predictor.tokenizers.source.encode(text)) + 1
    return len(predictor.read(text).ids["text"])


# --- What is shown of each


def _shown(module: nn.Module | None, length: int, width: int, title: str, notes: tuple[str, ...]) -> PositionTable:
    """Choose by what the module is; None: the model is told nothing."""
    with torch.no_grad():
        if isinstance(module, Rotary):
            return _rotary(module, length, title, notes)
        if isinstance(module, Shaw):
            return _shaw(module, length, title, notes)
        if isinstance(module, ALiBi | T5):
            return _bias(module, length, title, notes)
        return _added(module, length, width, title, notes)


SHOWN = (SinusoidalPositions, LearnedPositions, FixedPositions, Rotary, ALiBi, Shaw, T5)


def _added(module: nn.Module | None, length: int, width: int, title: str, notes: tuple[str, ...]) -> PositionTable:
    """A vector for each place, and all their products."""
    if module is None:
        kind, table = "none", torch.zeros(length, width)
        notes = (*notes, "no position is told: without a mask, all orders of the tokens are one to the model")
    elif isinstance(module, SinusoidalPositions | LearnedPositions):
        kind = "learned" if isinstance(module, LearnedPositions) else "sinusoidal"
        table = module.rows(min(length, len(module.table)) if kind == "learned" else length)
    else:
        assert isinstance(module, FixedPositions)
        kind, table = "sinusoidal", module.table[:length]
    rows = table.double().cpu().numpy()  # (T, D)
    products = rows @ rows.T
    distances, mean, least, most = by_distance(products)
    lines = {"mean": mean} if np.allclose(least, most) else {"mean": mean, "least": least, "greatest": most}
    return PositionTable(
        title, notes, kind, rows, _numbered(len(rows)), _numbered(rows.shape[1]), "p, by place and dimension",
        products, "p · p′", distances, lines,
    )  # fmt: skip


def by_distance(pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Distances s - t of pairs (T, T), and the mean, the least and the greatest number at each."""
    distances = np.arange(1 - len(pairs), len(pairs))
    diagonals = [np.diagonal(pairs, offset) for offset in distances]
    mean, least, most = (np.array([fold(each) for each in diagonals]) for fold in (np.mean, np.min, np.max))
    return distances, mean, least, most


def _rotary(module: Rotary, length: int, title: str, notes: tuple[str, ...]) -> PositionTable:
    cosine, sine = module.tables(length)  # each (T, E / 2)
    pairs = (cosine @ cosine.T + sine @ sine.T) / cosine.size(1)  # mean of cos(a - b)
    distances, mean, _, _ = by_distance(pairs.numpy())
    return PositionTable(
        title, (*notes, "each pair of dimensions is turned by an angle that grows with the place"), "rotary",
        cosine.numpy(), _numbered(length), _numbered(cosine.size(1)), "cosine of the angle, by place and pair",
        pairs.numpy(), "mean cos((s − t) θ)", distances, {"mean over pairs": mean},
    )  # fmt: skip


def _bias(module: ALiBi | T5, length: int, title: str, notes: tuple[str, ...]) -> PositionTable:
    """The bias that is added to scores, head by head."""
    heads = len(module.slopes) if isinstance(module, ALiBi) else module.table.size(1)
    device = "cpu" if isinstance(module, ALiBi) else module.table.device
    bias = module.bias(torch.zeros(1, heads, length, 2, device=device), length)[0].double().cpu().numpy()  # (H, T, T)
    lines = {f"head {head}": by_distance(each)[1] for head, each in enumerate(bias)}
    distances = by_distance(bias[0])[0]
    table = np.stack(list(lines.values()))  # (H, distances)
    kind = "alibi" if isinstance(module, ALiBi) else "t5"
    names = tuple(f"head {head}" for head in range(heads))
    return PositionTable(
        title, notes, kind, table, names, tuple(map(str, distances)), "added to scores, by head and distance",
        bias[0], "added to scores", distances, lines, ", head 0" if heads > 1 else "",
    )  # fmt: skip


def _shaw(module: Shaw, length: int, title: str, notes: tuple[str, ...]) -> PositionTable:
    """The vector of each distance, and its product with that of the same place."""
    keys = module.key_table.double().cpu()  # (distances, E)
    known = torch.arange(len(keys)) - module.reach
    products = keys @ keys[module.reach]  # (distances,) with a_0
    rows = text_distances(length, length, 0, "cpu").clamp(-module.reach, module.right) + module.reach  # (T, T)
    pairs: Tensor = products[rows]
    notes = (
        *notes,
        f"farther than {module.reach} is as {module.reach}: a score gets q · a of its distance, whatever q is",
    )
    return PositionTable(
        title, notes, "shaw", keys.numpy(), tuple(map(str, known.tolist())), _numbered(keys.size(1)),
        "a, by distance and dimension", pairs.numpy(), "a · a of distance 0", known.numpy(),
        {"a · a of distance 0": products.numpy(), "length of a": keys.norm(dim=-1).numpy()},
    )  # fmt: skip


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(map(str, range(count)))
