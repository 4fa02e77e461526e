"""`regard tokens`: a text as words, characters, bytes and byte pairs, how pairs are learned, and what a model's tokens are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import AsJson
from regard.cli.output import one_line, print_json, print_table, printable, say
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.tokens import TextTokenizer
    from regard.tokens.levels import Level, Merge

EVERY = 4  # of the built-in names those that pairs are learned from where nobody gives a text: a second
POINTS = 12  # of a line
SUFFIXES = (".png", ".svg")
SHOWN = ("·", "↵", "⇥")  # a space, a line end and a tab that would not be seen


def tokens(
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="A text.", show_default=False)] = None,
    model: Annotated[
        str | None,
        typer.Option("-m", "--model", metavar="RUN", help="Show what this run or bundle makes of the text instead."),
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Learn byte pairs from this text; give it again for more, such as one for each language.",
            show_default="names of places in twenty languages",
        ),
    ] = None,
    merges: Annotated[int, typer.Option(metavar="N", min=0, help="Pairs that are joined.")] = 200,
    each: Annotated[bool, typer.Option("--each", help="Show every merge, one after another.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            metavar="FILE",
            help="Draw length against size of vocabulary, for each text, as .png or .svg.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """See a text as words, characters, bytes and byte pairs, and how pairs are learned.

    With -m, what a trained model makes of it: each token with its id, unknown and special ones.
    """
    if model is not None:
        _show_model(text, model, as_json)
        return
    if text is None and not each and out is None:
        raise UsageError("there is no text", 'such as regard tokens "Me puedes traer un tenedor"')
    if out is not None and out.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{out}: a figure is written as {' or '.join(SUFFIXES)}", f"such as -o {out.stem}.png")
    from regard.tokens.levels import learn_merges, levels

    corpora = _corpora(data or [])
    learned = list(learn_merges((line for lines in corpora.values() for line in lines), merges))
    found = [] if text is None else levels(text, learned)
    if as_json:
        print_json({"text": text, "levels": [_level(one) for one in found], "merges": [_merge(one) for one in learned]})
    else:
        _print_levels(found)
        _print_merges(learned if each else [])
    if out is not None:
        from regard.look.figures.comparison import save_vocabularies
        from regard.tokens.levels import lengths_by_size

        sizes = _sizes(len(learned))
        lines = {name: lengths_by_size(lines, learned, sizes) for name, lines in corpora.items()}
        say(f"wrote {save_vocabularies(sizes, lines, out)}")


def _corpora(files: Sequence[Path]) -> dict[str, list[str]]:
    """Lines to learn from, by the name of their file or language."""
    if not files:
        from regard.data.builtin.names import language_names

        found: dict[str, list[str]] = {}
        for name, language in language_names("train")[::EVERY]:
            found.setdefault(language, []).append(name)
        return found
    from regard.data.lines import read_lines

    return {file.name: list(read_lines(file)) for file in files}


def _sizes(merges: int) -> list[int]:
    """Sizes of vocabularies from bytes alone to all merges, closer to each other where lengths fall fast."""
    steps = {round(merges * (step / POINTS) ** 2) for step in range(POINTS + 1)}
    return sorted(256 + step for step in steps)


# --- What is printed


def _print_levels(found: Sequence[Level]) -> None:
    rows = [
        (level.name, f"{len(level.tokens):,}", " ".join(map(_visible, level.tokens)), level.alphabet) for level in found
    ]
    if rows:
        print_table(("level", "tokens", "", "different ones"), rows, right=("tokens",), fold=("",), stack=True)


def _print_merges(learned: Sequence[Merge]) -> None:
    from regard.tokens.levels import shown

    rows = [
        (str(256 + number), f"{_visible(shown(one.left))} + {_visible(shown(one.right))}", _visible(shown(one.joined)),
         f"{one.count:,}", f"{one.pieces:,}")
        for number, one in enumerate(learned)
    ]  # fmt: skip
    if rows:
        print_table(
            ("id", "pair", "becomes", "times", "pieces of the text"), rows, right=("id", "times", "pieces of the text")
        )


def _visible(token: str) -> str:
    """A token in which white space is seen."""
    for sign, seen in zip((" ", "\n", "\t"), SHOWN, strict=True):
        token = token.replace(sign, seen)
    return printable(one_line(token)) if token else "∅"


def _level(level: Level) -> dict[str, object]:
    return {"name": level.name, "count": len(level.tokens), "tokens": list(level.tokens), "different": level.alphabet}


def _merge(merge: Merge) -> dict[str, object]:
    from regard.tokens.levels import shown

    return {
        "left": shown(merge.left), "right": shown(merge.right), "joined": shown(merge.joined),
        "count": merge.count, "pieces": merge.pieces,
    }  # fmt: skip


# --- A model's own tokens


def _show_model(text: str | None, model: str, as_json: bool) -> None:
    from regard.runs import bundle_folder
    from regard.tokens import TokenizerPair

    if text is None:
        raise UsageError("there is no text", f'such as regard tokens -m {model} "a text"')
    pair = TokenizerPair.load(bundle_folder(model))
    sides = {"text": pair.source} if pair.source is pair.target else {"source": pair.source, "target": pair.target}
    rows = [{"side": side, **row} for side, tokenizer in sides.items() for row in _rows(tokenizer, text)]
    if as_json:
        print_json({"text": text, "vocabulary": {name: each.size for name, each in sides.items()}, "tokens": rows})
        return
    columns = ("id", "token", "") if len(sides) == 1 else ("side", "id", "token", "")
    keys = ("id", "token", "kind") if len(sides) == 1 else ("side", "id", "token", "kind")
    table = [tuple(_visible(str(row[key])) if row[key] != "" else "" for key in keys) for row in rows]
    print_table(columns, table, right=("id",))
    for name, tokenizer in sides.items():
        count = sum(row["side"] == name for row in rows)
        say(f"{count:,} tokens of a vocabulary of {tokenizer.size:,}" + (f" ({name})" if len(sides) > 1 else ""))


def _rows(tokenizer: TextTokenizer, text: str) -> list[dict[str, object]]:
    ids = tokenizer.encode(text)
    specials = tokenizer.specials
    kinds = {specials.unknown: "unknown", **dict.fromkeys(specials.control, "special")}
    labels = tokenizer.labels(ids)
    return [
        {"id": token, "token": label, "kind": kinds.get(token, "")} for token, label in zip(ids, labels, strict=True)
    ]
