"""`regard look`: where a model of any task looks, in a text or on a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.model import load_model
from regard.cli.options import Device
from regard.cli.output import results, say
from regard.errors import UsageError


def look(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text, or the picture file, to look at.")],
    question: Annotated[
        str | None, typer.Argument(metavar="[QUESTION]", help="A question about the picture.", show_default=False)
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("-m", "--model", metavar="RUN", help="A run or a bundle.", show_default="the newest run here"),
    ] = None,
    second: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The second text, where labels are of pairs.")
    ] = None,
    layer: Annotated[int | None, typer.Option(metavar="N", help="One layer, from 0.", show_default="the mean")] = None,
    head: Annotated[
        int | None, typer.Option(metavar="N", help="One head of it, from 0.", show_default="the mean")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Save it (.png .svg .html .json .csv).")
    ] = None,
    channels: Annotated[
        bool, typer.Option("--channels", help="Of a picture: how much of each channel is let through.")
    ] = False,
    smooth: Annotated[bool, typer.Option("--smooth", help="Of a picture: smooth the map (it is said on it).")] = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="Of a text: what the model mixes beside what exact attention would.")
    ] = False,
    device: Device = "auto",
) -> None:
    """Where a model looks: the words that a classifier weighs, coloured; who looks at whom; places of a picture."""
    user = load_model(model or _newest(), device)
    if (user.config.task == "answer") != (question is not None):
        raise UsageError(
            'a model that answers needs a picture and a question: regard look photo.jpg "what colour is it?"'
            if question is None
            else f"a question is for models that answer; this is a model to {user.config.task}"
        )
    if (channels or smooth) and user.config.pictures is None:
        raise UsageError(f"--{'channels' if channels else 'smooth'} is for models that see pictures")
    if channels and user.config.task != "classify-pictures":
        raise UsageError("--channels is for classifiers of pictures")
    if exact:
        shown = beside_exact(user, text, second, layer, head)
    else:
        shown = user.channels(text) if channels else looked_at(user, text, question or second, layer, head)
    if out is not None:
        say(f"wrote {shown.save(out, smooth=True) if smooth else shown.save(out)}")
    else:
        results().print(shown)


def looked_at(user: Any, text: str, second: str | None, layer: int | None, head: int | None) -> Any:
    """What there is to see of this text or picture in a model of any task."""
    if user.config.pictures is not None:
        asked = () if user.config.task != "answer" else (second,)
        if second is not None and not asked:
            raise UsageError("--second is for classifiers of pairs of texts")
        return user.look(text, *asked, layer=layer, head=head)
    if user.config.task == "classify":
        if layer is not None or head is not None:
            raise UsageError("a classifier shows what each word counted for the label; leave out --layer and --head")
        return user.look(text, second)
    if second is not None:
        raise UsageError(f"--second is for classifiers of pairs; this is a model to {user.config.task}")
    if user.config.task == "translate":
        return user.translate(text, attention=True).attention.map(layer, head)
    return user.attention(text).map(layer, head)


def beside_exact(user: Any, text: str, second: str | None, layer: int | None, head: int | None) -> Any:
    """The maps of a model of text, effective and exact."""
    if second is not None and user.config.task != "classify":
        raise UsageError(f"--second is for classifiers of pairs; this is a model to {user.config.task}")
    from regard.tasks.effective import effective_attention

    return effective_attention(user, text, second, layer, head)


def _newest() -> Path:
    from regard.runs import all_runs

    found = [run for run in all_runs() if (run.best / "config.json").exists()]
    if not found:
        raise UsageError("there is no trained run here; make one with: regard demo, or name a model with -m")
    say(f"model: {found[-1].folder} (the newest run here; -m takes another)")
    return found[-1].folder
