"""`regard walk`: every number between a vector and what attention makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import regard
from regard.cli.model import check_model, load_model, newest_of_any
from regard.cli.options import AsJson, Device, Model, given
from regard.cli.output import results, say
from regard.config import Tables
from regard.data.pictures.config import is_picture
from regard.errors import UsageError, nearest

if TYPE_CHECKING:
    from regard.look.walk import Walk

SUFFIXES = (".html", ".json", ".txt", ".png", ".svg")
THROUGH = ("head", "block", "model", "decoding")
LIST = "list"  # in the place of an example's name


def walk(
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="The text to walk through.", show_default=False)
    ] = None,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TARGET",
            help="Its translation, or the second text of a pair.",
            show_default="the translation that the model writes",
        ),
    ] = None,
    model: Model = None,
    role: Annotated[
        str | None, typer.Option(metavar="ROLE", help="cross, self, causal or pool.", show_default="the family's own")
    ] = None,
    layer: Annotated[int | None, typer.Option(metavar="N", help="Layer, from 0.", show_default="the last")] = None,
    head: Annotated[int | None, typer.Option(metavar="N", help="Head, from 0.", show_default="the sharpest")] = None,
    query: Annotated[
        str | None,
        typer.Option(metavar="N|WORD", help="Who looks: a place from 0, or a word.", show_default="the last word"),
    ] = None,
    toy: Annotated[bool, typer.Option("--toy", help="A worked example of 3 tokens; needs no model.")] = False,
    example: Annotated[
        str | None,
        typer.Option(metavar="NAME|list", help="A worked example by name, without a model.", show_default=False),
    ] = None,
    own: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Your own numbers (.json .npz): x, W_q, W_k, W_v, W_o, memory, mask, scale, labels; or scores; or those of "
            "a convolution, an LSTM, texts, experts.",
            show_default=False,
        ),
    ] = None,
    through: Annotated[
        str, typer.Option(metavar="WHAT", help="head, block, model (to the likeliest words) or decoding (the loop).")
    ] = "head",
    beam: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Of decoding: hypotheses that are kept.", show_default="greedy"),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Of decoding: most tokens.",
            show_default="a translation's own, or 12",
        ),
    ] = None,
    digits: Annotated[int, typer.Option(metavar="N", min=0, max=12, help="Digits behind the point.")] = 3,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="Save it (.html .json .txt .png .svg).", show_default=False),
    ] = None,
    as_json: AsJson = False,
    device: Device = "auto",
) -> None:
    """Attention step by step with real numbers: of a head, a block, a whole model, decoding; and worked examples on paper."""
    if out is not None and out.suffix.lower() not in SUFFIXES:
        raise UsageError(f"cannot tell how to write a walk to {out.name}; end it in {', '.join(SUFFIXES)}")
    if through not in THROUGH:
        raise UsageError(f"no walk goes through {through}", nearest(through, THROUGH))
    farther = given(through=None if through == "head" else through, beam=beam, max_length=max_length)
    if example == LIST:
        list_examples(as_json)
        return
    if example is not None or own is not None:
        others = given(TEXT=text, model=model, role=role, layer=layer, head=head, toy=toy or None)
        found = numbers_walk(example, own, query, {**others, **farther})
    elif toy:
        found = toy_walk(text, role, layer, head, query, farther)
    else:
        chosen = given(role=role, layer=layer, head=head, query=query)
        found = model_walk(text, target, model, {**chosen, **farther}, device)
    if out is not None:
        say(f"wrote {found.save(out, digits)}")
    if as_json:
        print(found.json(), end="")
    elif out is None:
        console = results()
        colored = console.color_system is not None
        console.print(found.drawn(console.width, colored, digits), soft_wrap=True)


def numbers_walk(example: str | None, own: Path | None, query: str | None, others: Tables) -> Walk:
    """All queries of given numbers as matrices; with a query, that one term by term."""
    if example is not None and own is not None:
        raise UsageError("--example has numbers of its own; leave out --from, or --example")
    if others:
        names = ", ".join(name if name.isupper() else f"--{name.replace('_', '-')}" for name in others)
        raise UsageError(f"given numbers need no model: leave out {names}")
    from regard.look.walk import examples

    return examples.example_walk(str(example), query) if own is None else examples.file_walk(own, query)


def list_examples(as_json: bool) -> None:
    """Print the names of the examples and what each shows."""
    from regard.look.walk.examples import EXAMPLES

    if as_json:
        print(json.dumps({name: each.about for name, each in EXAMPLES.items()}, ensure_ascii=False))
        return
    widest = max(map(len, EXAMPLES))
    for name, each in EXAMPLES.items():
        print(f"{name:{widest}}  {each.about}")


def toy_walk(
    text: str | None, role: str | None, layer: int | None, head: int | None, query: str | None, farther: Tables
) -> Walk:
    if farther:
        raise UsageError("the worked example is one head; a whole block on paper: regard walk --example block")
    if text is not None or layer is not None or head is not None:
        raise UsageError(
            "the worked example has its own three tokens and one head; leave out the text, --layer and --head"
        )
    from regard.look.walk.examples import toy

    return toy.toy_walk(role or "self", query)


def model_walk(text: str | None, target: str | None, model: str | None, chosen: Tables, device: str) -> Walk:
    """Walk through a trained model; `chosen` are the options that were given."""
    if text is None:
        raise UsageError(
            'which text? type: regard walk "A man rides a bike." (or regard walk --toy, a worked example without a model)'
        )
    if is_picture(text) and Path(text).is_file():
        raise UsageError(
            f"{text} is a picture, and a walk goes through a text; where a model looks in it: regard look {text}"
        )
    run = model or newest_of_any("name one with -m, or see a worked example: regard walk --toy")
    check_model(run, device, **{name: chosen.get(name) for name in ("role", "layer", "head")})
    return regard.walk(load_model(run, device), text, target, **chosen)
