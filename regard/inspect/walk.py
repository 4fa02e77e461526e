"""The walk of a trained model: through a head, a block, all blocks to the next word, or the loop that decodes.

    found = walk(predictor, "A man rides a bike.", layer=2, head=1, query="bike")
    found["weights"]
    found.save("walk.html")
    walk(predictor, "A man rides a bike.", through="block")         heads, W_o, residual, norm, feed-forward
    walk(predictor, "A man rides a bike.", through="model")         every block in turn, to the ten likeliest words
    walk(predictor, "A man rides a bike.", through="decoding", beam=3)

The model runs twice: once to see what there is to choose from, once to take the vectors that enter the chosen layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from regard.attention import AttentionCall, MultiHead, Role, Seen
from regard.attention.soft import SoftAttention
from regard.errors import Advice, Option, UsageError, Verb, nearest
from regard.inspect.walk_attention import WalkChoice, check_known, heads_walk
from regard.inspect.walk_decoding import decoding_walk
from regard.inspect.walk_model import block_walk, labels_of, model_walk
from regard.inspect.walk_soft import soft_walk
from regard.look.layers import check_choice
from regard.look.recorded import NAMES
from regard.look.walk.steps import About, Walk, capital, quoted_token
from regard.predictor import Predictor, Reading, check_predictor
from regard.tokens.words import is_special, word_label, words_of

Through = Literal["head", "block", "model", "decoding"]
CHOSEN = ("second", "role", "layer", "head", "query")
WAYS: dict[str, tuple[str, ...]] = {  # and the options that each has
    "head": CHOSEN,
    "block": CHOSEN,
    "model": ("second", "query"),
    "decoding": ("beam", "max_length"),
}
NAMED = {"head": "a head", "block": "a block", "model": "the whole model", "decoding": "the loop of decoding"}
ROLES: tuple[Role, ...] = ("cross", "causal", "self", "pool")
KINDS = {**NAMES, "pool": "attention of a learned query"}


def walk(
    predictor: Predictor,
    text: str,
    second: str | None = None,
    *,
    role: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    query: int | str | None = None,
    through: Through = "head",
    beam: int | None = None,
    max_length: int | None = None,
) -> Walk:
    """Walk through a model of text with its own numbers.

    through     head: one attention for one query; block: all of its block; model: every block in turn, to the likeliest
                words; decoding: the search, token by token
    second      the translation (None: the model's own), or the other text of a classifier of pairs
    role        cross, causal, self or pool; None: what the family is looked at for
    layer       from 0; None: the last
    head        from 0; None: the one whose row is sharpest
    query       a number from 0, or a word of the text; None: the last word
    beam        of decoding: hypotheses that are kept; None: greedy
    max_length  of decoding: most tokens; None: what a translation needs, 12 of a text that goes on
    """
    check_predictor(predictor, "walk")
    chosen = {"second": second, "role": role, "layer": layer, "head": head, "query": query}
    _check_options(through, {**chosen, "beam": beam, "max_length": max_length})
    if through == "decoding":
        return decoding_walk(predictor, text, beam, max_length)
    task = predictor.config.task
    if not text.strip():
        raise UsageError('the text is empty; type one, as in: regard walk "A man rides a bike."')
    if second is not None and predictor.second is None:
        raise UsageError(f"a second text is for translations and pairs; this is a model to {task}")
    reading = predictor.read(text, second)
    seen = reading.look(only=ROLES)
    call = _call(seen, reading, role, layer)
    choice = _choice(seen, reading, call, head, query)
    attention = predictor.model.get_submodule(call.path)
    if isinstance(attention, MultiHead):
        check_known(predictor)
    if isinstance(attention, MultiHead) and through != "head":
        steps, differences = (block_walk if through == "block" else model_walk)(reading, choice, seen)
    elif through != "head":
        raise _no_blocks(predictor, through)
    elif isinstance(attention, MultiHead):
        steps, differences = heads_walk(reading, choice, attention)
    elif isinstance(attention, SoftAttention) and call.role != "self":
        steps, differences = soft_walk(reading, choice, attention)
    else:
        raise _nothing_to_walk(predictor)
    token = choice.queries[choice.query]
    about: About = {"role": call.role, "layer": call.layer, "head": choice.head, "query": choice.query, "token": token}
    about |= {"path": call.path, "queries": list(choice.queries), "keys": list(choice.keys), "task": task}
    about |= {} if through == "head" else {"through": through}
    summary = " ".join([_summary(seen, call, choice.head, through), *(f"Only {note}." for note in reading.notes)])
    return Walk(_title(call, token, through), summary, steps, about, differences)


def _check_options(through: str, options: Mapping[str, object]) -> None:
    """Refuse what the chosen way has no use for."""
    if through not in WAYS:
        raise UsageError(f"no walk goes through {through}", nearest(through, tuple(WAYS)))
    unused = next((name for name, value in options.items() if value is not None and name not in WAYS[through]), None)
    if unused == "second":
        raise UsageError(f"a walk through {NAMED[through]} writes the other text itself", "leave out the second text")
    if unused:
        told = Advice("leave out ", Option(unused))
        raise UsageError(f"a walk through {NAMED[through]} has no {unused.replace('_', ' ')} to choose", told)


def query_place(labels: tuple[str, ...], query: int | str | None) -> int:
    """The row of a query: that of a number, of a word (its last piece), or of the last word of all."""
    if query is None:
        real = [place for place, label in enumerate(labels) if not is_special(label)]
        return real[-1] if real else len(labels) - 1
    number = _number(query)
    if number is not None and -len(labels) <= number < len(labels):
        return number % len(labels)
    wanted = str(query).strip()
    words = {word_label(labels, word): word[-1] for word in reversed(words_of(labels))}
    pieces = {label.strip(): place for place, label in reversed(list(enumerate(labels)))}
    small = {word.lower(): place for word, place in words.items()}
    for known, word in ((words, wanted), (pieces, wanted), (small, wanted.lower())):
        if word in known:
            return known[word]
    there = ", ".join(f"{place} {word}" for word, place in sorted(words.items(), key=lambda each: each[1]))
    raise UsageError(f"no query {query}; it is a number from 0 to {len(labels) - 1} or a word of: {there}")


def _number(query: int | str) -> int | None:
    try:
        return int(query)
    except ValueError:
        return None


def _call(seen: Seen, reading: Reading, role: str | None, layer: int | None) -> AttentionCall:
    """The attention that a person means."""
    there = [each for each in ROLES if seen.only(each)]
    if not there:
        raise _nothing_to_walk(reading.predictor)
    wanted = role or (reading.role if reading.role in there else there[0])
    if wanted not in there:
        hint = Advice("choose ", Option("role", " or ".join(there)))
        raise UsageError(f"this model has no {wanted} attention", hint)
    calls = seen.only(wanted)
    number = len(calls) - 1 if layer is None else layer
    sizes: dict[str, list[int]] = {each: [call.heads for call in seen.only(each)] for each in there}
    check_choice(number, None, sizes.pop(wanted), KINDS[wanted], sizes)
    return calls[number]


def _choice(seen: Seen, reading: Reading, call: AttentionCall, head: int | None, query: int | str | None) -> WalkChoice:
    """The head and the query that a person means."""
    axes = seen.axes(call)
    queries, keys = labels_of(reading, axes[0], call.q.size(-2)), labels_of(reading, axes[1], call.k.size(-2))
    place = query_place(queries, query)
    return WalkChoice(call, queries, keys, place, _head(call, place, head), axes[0])


def _head(call: AttentionCall, place: int, head: int | None) -> int:
    if head is None:
        return int(call.weights()[0, :, place].amax(dim=-1).argmax())
    if not 0 <= head < call.heads:
        raise UsageError(f"no head {head}; layer {call.layer} has {call.heads}, numbered from 0 to {call.heads - 1}")
    return head


def _nothing_to_walk(predictor: Predictor) -> UsageError:
    kind = getattr(predictor.config.model, "kind", "model")
    return UsageError(
        f"there is no query, key and value to walk through in a {kind}",
        Advice("train one with attention heads, or see the steps without a model: ", Verb("walk", "--toy")),
    )


def _no_blocks(predictor: Predictor, through: str) -> UsageError:
    kind = getattr(predictor.config.model, "kind", "model")
    return UsageError(
        f"a {kind} has no blocks of attention and feed-forward, so no walk goes through {NAMED[through]}",
        Advice("leave out ", Option("through"), ", or see a block on paper: ", Verb("walk", "--example block")),
    )


def _title(call: AttentionCall, label: str, through: str) -> str:
    if through == "block":
        return f"One block, as {quoted_token(label)} goes through it"
    if through == "model":
        return "From tokens to words: every block in turn"
    if call.role == "cross":
        return f"Where the model looks before it writes {quoted_token(label)}"
    return "Where the label comes from" if call.role == "pool" else f"Where {quoted_token(label)} looks"


def _summary(seen: Seen, call: AttentionCall, head: int, through: str) -> str:
    if through != "head":
        what = f"Block {call.path.rpartition('.')[0]}" if through == "block" else "The whole model"
        return f"{what}, computed again from its weights. Every number is the model's own."
    layers, kind = len(seen.only(call.role)), KINDS[call.role]
    which = (
        f"layer {call.layer} of {layers}, head {head} of {call.heads}, both counted from 0"
        if call.heads > 1
        else "one head"
    )
    return f"{capital(kind)}, {which} ({call.path}). Every number is the model's own."
