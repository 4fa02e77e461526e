"""`regard translate`: text in, text out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.model import load_translator, newest_run
from regard.cli.options import Beam, Device, Removals, Softness, given, removing
from regard.cli.output import finite, one_line, progress, results, say
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.tasks.translate import Translation, Translator

CHUNK = 256  # lines translated together


def translate(
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Texts; without, the lines of standard input.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("-m", "--model", metavar="RUN", help="A run or a bundle.", show_default="the newest run here"),
    ] = None,
    beam: Beam = None,
    n_best: Annotated[int | None, typer.Option(metavar="N", help="Print the N best of the beam, or N samples.")] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw at random instead of searching for the best.")] = False,
    temperature: Annotated[
        float | None, typer.Option(metavar="X", help="Of samples: under 1 is more cautious.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(metavar="N", help="Sample among the N most likely tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option(metavar="X", help="Sample among the top tokens with this probability.")
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Of samples.")] = None,
    length_penalty: Annotated[str | None, typer.Option(metavar="NAME", help="gnmt, power or none.")] = None,
    alpha: Annotated[float | None, typer.Option(metavar="X", help="Exponent of the length penalty.")] = None,
    min_length: Annotated[int | None, typer.Option(metavar="N", help="Fewest tokens.")] = None,
    max_length: Annotated[int | None, typer.Option(metavar="N", help="Most tokens.")] = None,
    softness: Softness = None,
    remove: Removals = None,
    attention: Annotated[bool, typer.Option("--attention", help="Show where the model looked.")] = False,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="Save the attention map (.png .svg .html .json .csv)."),
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Put score and log-probability before each text.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
    device: Device = "auto",
) -> None:
    """Translate texts, or the lines of standard input: text in, text out.

    Line n of the output translates line n of the input; whatever else there is to say goes to stderr.
    """
    _check(texts or [], attention, out)
    decode = given(
        beam=beam, n_best=n_best, sample=sample or None, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed,
        length_penalty=length_penalty, alpha=alpha, min_length=min_length, max_length=max_length,
        softness=softness,
    )  # fmt: skip
    translator = load_translator(model or newest_run("translate"), device)
    translator.options(decode)  # a wrong option is told before anything is read
    looks = attention or out is not None
    with removing(translator, remove or ()):
        found = _from_texts(translator, texts, decode, looks) if texts else _from_stdin(translator, decode)
        for number, each in enumerate(found, start=1):
            if as_json:
                print(json.dumps(finite(as_data(each)), ensure_ascii=False))
                continue
            for line in as_lines(each, number, scores):
                print(line)
            if looks:
                _show(translator, each, attention, out)


def _show(translator: Translator, found: Translation, attention: bool, out: Path | None) -> None:
    """Where the model looked, in words as `regard look` shows it; JSON has every layer and head, in pieces."""
    from regard.tasks.looking import View, has_pieces, shown

    if found.attention is None:
        return
    map = shown(found.attention, View(), has_pieces(translator)) if found.attention.layers else found.attention.map()
    if attention:
        results().print(map)
    if out is not None:
        say(f"wrote {(found.attention if out.suffix.lower() == '.json' else map).save(out)}")


def as_lines(found: Translation, number: int, scores: bool) -> list[str]:
    """The text alone; with its scores before it; or all alternatives, each with the number of its source as well."""
    if found.alternatives:
        return [f"{number}\t{_scored(each)}" for each in (found, *found.alternatives)]
    return [_scored(found) if scores else one_line(found.text)]


def as_data(found: Translation) -> dict[str, Any]:
    data: dict[str, Any] = {
        "source": found.source,
        "text": found.text,
        "score": found.score,
        "log_probability": found.log_probability,
        "tokens": found.tokens,
        "token_log_probabilities": found.token_log_probabilities,
    }
    if found.alternatives:
        data["alternatives"] = [as_data(each) for each in found.alternatives]
    if found.attention is not None:
        data["attention"] = found.attention.data()
    return data


def _scored(found: Translation) -> str:
    return f"{found.score:.4f}\t{found.log_probability:.4f}\t{one_line(found.text)}"


def _check(texts: list[str], attention: bool, out: Path | None) -> None:
    if (attention or out is not None) and not texts:
        raise UsageError('attention needs a TEXT, not standard input: regard translate "a sentence" --attention')
    if out is None:
        return
    if len(texts) > 1:
        raise UsageError(f"-o saves the map of one text, and there are {len(texts)}; a text with spaces needs quotes")
    from regard.look.saving import SUFFIXES

    if out.suffix.lower() not in SUFFIXES:
        raise UsageError(f"-o {out}: a map is saved as {', '.join(SUFFIXES)}")


def _from_texts(translator: Translator, texts: list[str], decode: dict[str, Any], attention: bool) -> list[Translation]:
    return translator.translate(texts, attention=attention, **decode)


def _from_stdin(translator: Translator, decode: dict[str, Any]) -> Iterator[Translation]:
    """Translations of the lines of standard input, in order, as soon as a chunk of them is done."""
    from regard.data.lines import decode_lines

    typed = sys.stdin.isatty()
    if typed:
        say("type a sentence and press Enter; Ctrl-D ends")
    lines = decode_lines(sys.stdin.buffer, "stdin")
    if typed or sys.stdout.isatty():
        yield from _in_chunks(translator, lines, decode, 1 if typed else CHUNK)
        return
    with progress("translating") as advance:
        for done, each in enumerate(_in_chunks(translator, lines, decode, CHUNK), start=1):
            yield each
            advance(done, 0)


def _in_chunks(
    translator: Translator, lines: Iterable[str], decode: dict[str, Any], size: int
) -> Iterator[Translation]:
    lines, done = iter(lines), 0
    while chunk := list(islice(lines, size)):
        yield from translator.translate(chunk, first=done, **decode)
        done += len(chunk)
        sys.stdout.flush()
