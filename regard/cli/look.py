"""`regard look`: where a model of any task looks, in a text or on a picture; and what of it is not attention."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import regard
from regard.cli.model import READING, as_music, check_files, check_model, check_out, load_model, newest_of_any
from regard.cli.options import Device
from regard.cli.output import results, say
from regard.data.graphs.config import are_graphs
from regard.data.pictures.config import is_picture
from regard.data.sound.config import is_sound
from regard.errors import UsageError, nearest
from regard.tasks.table import family_of
from regard.tasks.views import VIEWS, check_view, view_of

if TYPE_CHECKING:
    from regard.inspect.texts import Material
    from regard.predictor import Predictor
    from regard.tasks.classify_graphs.predictor import GraphLabeller

ATTENTION = ("map", "grid", "lines", "graph", "words", "rollout")  # forms of attention
SUFFIXES = (".png", ".svg", ".html", ".json")  # of a view
POSITIONS = ("sinusoidal", "learned", "rotary", "alibi", "shaw", "t5", "none")  # kinds that need no model


def look(
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="The text, or the file of a picture or a graph, to look at.")
    ],
    question: Annotated[
        str | None,
        typer.Argument(metavar="[QUESTION]", help="A question about the picture; or a graph's table of nodes.",
                       show_default=False),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("-m", "--model", metavar="RUN", help="A run or a bundle.", show_default="the newest run here"),
    ] = None,
    second: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="The translation to look at (else the model's own); or the second of a pair."),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("--as", metavar="FORM", show_default="map; words for a classifier",
                     help="map, grid (all heads), lines, graph, words (colours in the text), rollout; or what is not "
                     "attention: states, features, positions, routing, beam, outputs; roll (of music), pixels."),
    ] = None,
    role: Annotated[
        str | None,
        typer.Option(metavar="ROLE", help="cross, self or causal.", show_default="what the task looks with"),
    ] = None,
    layer: Annotated[int | None, typer.Option(metavar="N", help="One layer, from 0.", show_default="the mean")] = None,
    head: Annotated[
        int | None, typer.Option(metavar="N", help="One head of it, from 0.", show_default="the mean")
    ] = None,
    word: Annotated[
        str | None,
        typer.Option(metavar="WORD", help="With --as words, roll or pixels: whose look, by its text or its number from 0.",
                     show_default="each in turn; in a file the mean"),
    ] = None,
    pieces: Annotated[bool, typer.Option("--pieces", help="Keep the pieces of words apart.")] = False,
    specials: Annotated[
        bool, typer.Option("--show-special/--hide-special", help="Show <s>, </s> and the like.")
    ] = True,
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
    on: Annotated[
        list[str] | None,
        typer.Option("--on", metavar="FILE...", help="With --as states: texts for gradients and the probe.",
                     show_default="its validation data"),
    ] = None,
    place: Annotated[
        str | None,
        typer.Option(metavar="ROW,COLUMN", help="With --as features: of which place, from 0.", show_default="the middle"),
    ] = None,
    below: Annotated[
        float | None,
        typer.Option(metavar="WEIGHT", help="With --as lines or graph, and of a graph: leave out weights below.",
                     show_default="what is faint"),
    ] = None,
    node: Annotated[
        str | None,
        typer.Option(metavar="NODE", help="Of a graph: whose neighbourhood, by name or number.",
                     show_default="all, or the first"),
    ] = None,
    row: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Of a file of graphs: which, from 0.", show_default="0")
    ] = None,
    beam: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="With --as beam: hypotheses.", show_default="4")
    ] = None,
    device: Device = "auto",
) -> None:  # fmt: skip
    """Where a model looks: who looks at whom, all heads, words in colours; what a classifier weighs; places of a picture."""
    if not text.strip():
        raise UsageError('the text is empty; type one, as in: regard look "A man rides a bike."')
    if form is not None and form not in (*ATTENTION, *VIEWS):
        raise UsageError(f"nothing is shown as {form}", nearest(form, (*ATTENTION, *VIEWS)))
    wanted = {"second": second, "layer": layer, "place": _place(place), "beam": beam, "material": on or None}
    text = as_music(text)
    if form in VIEWS:
        own = {name: value for name, value in (("head", head), ("word", word)) if name in VIEWS[form].takes}
        others = {"question": question, "--role": role, "--head": head, "--word": word, "--pieces": pieces or None,
                  "--hide-special": None if specials else True, "--channels": channels or None,
                  "--smooth": smooth or None, "--exact": exact or None, "--below": below,
                  "--node": node, "--row": row}  # fmt: skip
        wanted, others = (
            wanted | own,
            {name: value for name, value in others.items() if name.removeprefix("--") not in own},
        )
        _show(_view(text, form, model, device, wanted, others, out), out)
        return
    for name in ("place", "beam", "material"):
        if wanted[name] is not None:
            views = {"place": "features", "beam": "beam", "material": "states"}
            raise UsageError(f"--{'on' if name == 'material' else name} is for --as {views[name]}")
    check_out(out)
    run = model or newest_of_any("make one with: regard demo, or name a model with -m", tasks=_tasks(text, question))
    if check_model(run, device).task == "classify-graphs":
        said = {"--second": second, "--as": form, "--role": role, "--word": word, "--pieces": pieces or None,
                "--channels": channels or None, "--smooth": smooth or None, "--exact": exact or None}  # fmt: skip
        _refuse(said, "is for texts and pictures, and this model reads graphs; leave it out")
        files = [text] if question is None else [text, question]
        graphs: GraphLabeller = load_model(run, device)
        _show(graphs.look(files, node, row or 0, layer, head, below), out)
        return
    _refuse({"--node": node, "--row": row}, f"is for models of graphs; {run} reads none")
    _check_picture(text, run, check_model(run, device, role=role, layer=layer, head=head).task)
    predictor = load_model(run, device)
    for_text = {
        "--as": form, "--role": role, "--word": word, "--pieces": pieces or None, "--hide-special": None if specials else True
    }  # fmt: skip
    given = [name for name, value in for_text.items() if value is not None]
    _check(predictor, question, second, channels=channels, smooth=smooth, exact=exact, given=given)
    from regard.inspect.looking import AskedView, effective_attention, look_at

    shown: Any  # one of the forms of `regard.look`, or a map of a picture
    if exact:
        shown = effective_attention(predictor, text, second, layer, head)
    elif predictor.config.sounds is not None:
        shown = predictor.look(text, layer=layer, head=head)
    elif predictor.config.pictures is not None:
        asked = (text,) if question is None else (text, question)
        shown = predictor.channels(text) if channels else predictor.look(*asked, layer=layer, head=head)
    else:
        asked_view = AskedView(form, role, layer, head, pieces, specials, word, below)
        shown = look_at(predictor, text, second, asked_view)
    _show(shown, out, smooth=smooth)


def _refuse(given: Mapping[str, object], why: str) -> None:
    """Refuse options that have no meaning here."""
    for name, value in given.items():
        if value is not None:
            raise UsageError(f"{name} {why}")


def _show(shown: Any, out: Path | None, *, smooth: bool = False) -> None:  # one of the forms of `regard.look`
    """Print it, or save it as the suffix says."""
    if out is None:
        results().print(shown)
    else:
        say(f"wrote {shown.save(out, smooth=True) if smooth else shown.save(out)}")


def _view(
    text: str,
    form: str,
    model: str | None,
    device: str,
    asked: dict[str, Any],
    others: Mapping[str, object],
    out: Path | None,
) -> Any:  # one of the views of `regard.tasks.views`
    """A view of what is not attention; `others` are options that are about attention."""
    _refuse(others, f"is about attention, and --as {form} shows something else; leave it out")
    check_view(form, asked)
    check_out(out, (*SUFFIXES, ".gif") if form == "pixels" else SUFFIXES)
    if form == "positions" and text in POSITIONS:
        return regard.positions_of(text)
    check_files(asked["material"] or ())
    run = model or newest_of_any(
        "make one with: regard demo, or name a model with -m",
        tasks=("generate",) if form == "pixels" else _tasks(text, None),
    )
    task = check_model(run, device).task
    if form != "pixels":
        _check_picture(text, run, task)
    predictor = load_model(run, device)
    if form == "states":
        asked |= {"material": _material(predictor, run, asked["material"])}
    return view_of(predictor, form, text, **asked)


def _check_picture(text: str, run: str | Path, task: str) -> None:
    """Refuse to read the name of a picture as a text."""
    if task in READING and is_picture(text) and Path(text).is_file():
        raise UsageError(f"{text} is a picture, and {run} is a model to {task} texts; name one that sees with -m")


def _material(predictor: Predictor, run: str | Path, on: list[str] | None) -> Material | None:
    """The texts that a person names, or those that the run was validated on; None where there are none."""
    from regard.tasks.material import material_of

    try:
        return material_of(predictor, run, on or ())
    except UsageError:
        if on:
            raise
        return None


def _place(text: str | None) -> tuple[int, int] | None:
    """A row and a column, as in 3,4."""
    if text is None:
        return None
    numbers = text.split(",")
    if len(numbers) != 2 or not all(each.strip().isdecimal() for each in numbers):
        raise UsageError(f"--place takes a row and a column, as in --place 3,4, not {text}")
    return int(numbers[0]), int(numbers[1])


def _tasks(text: str, question: str | None) -> tuple[str, ...]:
    """Whose newest run is meant: the name of a picture is for models that see, with a question for those that answer."""
    if are_graphs([text]) or (question is not None and are_graphs([text, question])):
        return ("classify-graphs",)
    if question is not None:
        return ("answer",)
    named = is_picture(text) and (Path(text).is_file() or not any(letter.isspace() for letter in text))
    if is_sound(text) and Path(text).is_file():
        return ("transcribe", "classify-sounds")
    return ("classify-pictures", "caption") if named else READING


def _check(
    predictor: Predictor,
    question: str | None,
    second: str | None,
    *,
    channels: bool,
    smooth: bool,
    exact: bool,
    given: list[str],
) -> None:
    """Refuse what does not go together, before anything is computed. `given` are options for texts."""
    task, family = predictor.config.task, family_of(predictor.config.task)
    if (family == "answer") != (question is not None):
        raise UsageError(
            'a model that answers needs a picture and a question: regard look photo.jpg "what colour is it?"'
            if question is None
            else f"a question is for models that answer; this is a model to {task}"
        )
    if (channels or smooth) and predictor.config.pictures is None:
        raise UsageError(f"--{'channels' if channels else 'smooth'} is for models that see pictures")
    if channels and family != "classify-pictures":
        raise UsageError("--channels is for classifiers of pictures")
    if given and (predictor.config.pictures is not None or predictor.config.sounds is not None):
        raise UsageError(f"{given[0]} is for models of text; this is a model to {task}")
    if given and exact:
        raise UsageError(f"--exact has a form of its own; leave out {given[0]}")
    if exact and second is not None and family != "classify":
        raise UsageError(f"--second is for classifiers of pairs; this is a model to {task}")
    if second is not None and predictor.config.pictures is not None and not channels:
        raise UsageError("--second is for classifiers of pairs of texts")
