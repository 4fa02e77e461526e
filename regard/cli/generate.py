"""`regard generate`: how a text begins in, how it goes on out."""

from __future__ import annotations

import json
import sys
import unicodedata
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.model import load_model, newest_run
from regard.cli.options import Device, Model, Removals, given, removing
from regard.cli.output import finite, say
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.tasks.generate import Generated, Generator


def generate(
    prompts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="How the text begins; - reads standard input.")
    ] = None,
    model: Model = None,
    length: Annotated[
        int | None, typer.Option("-n", "--length", metavar="N", help="Most tokens to write.", show_default="200")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(metavar="X", help="Under 1 is more cautious, over 1 more daring.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(metavar="N", help="Draw among the N most likely tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option(metavar="X", help="Draw among the top tokens with this probability.")
    ] = None,
    min_p: Annotated[
        float | None, typer.Option(metavar="X", help="Draw among tokens at least so likely as X times the likeliest.")
    ] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always the most likely token.")] = False,
    beam: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Search for the likeliest text with N hypotheses.")
    ] = None,
    samples: Annotated[int | None, typer.Option("--samples", metavar="N", min=1, help="Write N of them.")] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Of the draws.", show_default="random")] = None,
    stop: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="End before this text (may be repeated).")
    ] = None,
    min_length: Annotated[int | None, typer.Option(metavar="N", help="Fewest tokens.")] = None,
    remove: Removals = None,
    device: Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one line for each text.")] = False,
) -> None:
    """Go on with a text.

    The text is printed as it is written, whole letters only; whatever else there is to say goes to stderr.
    """
    decode = _decode(locals())
    texts = [_read(text) for text in prompts or [""]]
    generator: Generator = load_model(model or newest_run("generate"), device, "generate")
    from regard.tasks.generate import check_stop

    generator.options(decode)  # what is wrong is told before anything is written
    check_stop(stop or [])
    generator.tokenizer.encode_all(texts)
    alone = len(texts) == 1 and not samples and not beam and not as_json
    with removing(generator, remove or ()):
        if alone:
            _stream(generator, texts[0], stop or [], decode)
        else:
            _print(generator.generate(texts, stop=stop or [], **decode), as_json)


def _print(results: list[Generated], as_json: bool) -> None:
    for found in results:
        for each in (found, *found.alternatives):
            print(
                json.dumps(finite(as_data(each)), ensure_ascii=False) if as_json else f"{for_terminal(str(each))}\n---"
            )


def as_data(found: Generated) -> dict[str, Any]:
    return {
        "prompt": found.prompt,
        "text": found.text,
        "log_probability": found.log_probability,
        "tokens": found.tokens,
        "token_log_probabilities": found.token_log_probabilities,
        "finished": found.finished,
    }


def for_terminal(text: str) -> str:
    """A terminal is not given control characters, which a model may say and which could rearrange it."""
    if not sys.stdout.isatty():
        return text
    return "".join(each for each in text if each in "\n\t" or unicodedata.category(each) != "Cc")


def _decode(options: dict[str, Any]) -> dict[str, Any]:
    """What the person asked of decoding."""
    shapes = {name: options[name] for name in ("temperature", "top_k", "top_p", "min_p")}
    if (options["greedy"] or options["beam"]) and given(**shapes):
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given(**shapes))
        raise UsageError(f"{names} shape random draws, which --greedy and --beam do not make; leave one out")
    if options["temperature"] == 0:
        raise UsageError("--temperature 0 would always take the most likely token; type --greedy instead")
    decode = given(max_length=options["length"], min_length=options["min_length"], **shapes)
    if options["greedy"] or options["beam"]:
        decode |= {"sample": False, "beam": options["beam"] or 1}
    else:
        decode |= {"sample": True}
        import random

        decode |= {"seed": options["seed"] if options["seed"] is not None else random.randrange(2**32)}
    if options["samples"]:
        decode |= {"n_best": options["samples"]}
    return decode


def _read(text: str) -> str:
    if text != "-":
        return text
    from regard.data.lines import decode_lines

    return "\n".join(decode_lines(sys.stdin.buffer, "stdin"))


def _stream(generator: Generator, prompt: str, stop: list[str], decode: dict[str, Any]) -> None:
    """Print the prompt, then each piece as it comes, and what the end adds."""
    written = ""

    def write(piece: str) -> None:
        nonlocal written
        written += piece
        print(for_terminal(piece), end="", flush=True)

    print(for_terminal(prompt), end="", flush=True)
    found = generator.generate(prompt, stop=stop, stream=write, **decode)
    print(for_terminal(found.text[len(written) :]))
    if not found.finished and sys.stderr.isatty():
        say(f"(stopped after {len(found.tokens)} tokens; -n N writes more)")
