"""A walk through the loop of decoding: the search done again step by step, beside what the decoder itself found."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from regard.decode.live import PENALTIES
from regard.decode.ranking import Hypothesis
from regard.inspect.walk_pass import to_array
from regard.look.walk.search import Searched, SearchRules, SearchWords, search, search_steps
from regard.look.walk.steps import About, Array, Numbers, Step, Walk, column, format_power, quoted_text
from regard.predictor import Predictor, SearchStart

TOKENS = 12  # that a language model writes where nobody says how many


def decoding_walk(predictor: Predictor, text: str, beam: int | None = None, max_length: int | None = None) -> Walk:
    """Walk through the search for how a text goes on, or for its translation; greedily, unless a beam is given."""
    if max_length is None and predictor.second != "translation":
        max_length = TOKENS
    width = 1 if beam is None else beam
    over = {"beam": width, "n_best": width, "sample": False}
    start = predictor.search_start(text, over if max_length is None else {**over, "max_length": max_length})
    rules = rules_of(start)
    found = search(lambda ids: log_probabilities(predictor, start, ids), rules)
    tokenizer = start.tokenizer
    words = SearchWords(lambda ids: tokenizer.decode(list(ids)), lambda token: tokenizer.labels([token])[0])
    last, differences = _compare(found, start.found())
    how = "greedily" if width == 1 else f"with a beam of {width}"
    written = words.text(found.best[0].ids)
    title = f"How {quoted_text(written)} was written, token by token"
    what = "translation of" if predictor.second == "translation" else "text behind"
    summary = f"The {what} {quoted_text(text)}, searched for {how}. Every number is the model's own."
    about: About = {"task": predictor.config.task, "beam": width, "text": written}
    return Walk(title, summary, (*search_steps(found, rules, words), last), about, differences)


def rules_of(start: SearchStart) -> SearchRules:
    """The options of a search as the loop needs them."""
    options, penalty = start.options, PENALTIES[start.options.length_penalty]
    return SearchRules(
        options.beam,
        start.ends,
        frozenset(start.forbidden),
        start.limit,
        options.min_length,
        lambda length: penalty(length, options.alpha),
        options.n_best,
        options.stopping == "early",
    )


@torch.inference_mode()
def log_probabilities(predictor: Predictor, start: SearchStart, ids: Sequence[int]) -> Array:
    """log p(w | ids) of every token w: (V,). One pass over all that was written, without a cache."""
    logits = to_array(start.vector(ids) @ predictor.output_table().mT)
    shifted = logits - logits.max()
    found: Array = shifted - np.log(np.exp(shifted).sum())
    return found


def _compare(found: Searched, decoded: list[Hypothesis]) -> tuple[Step, dict[str, float]]:
    """The last step: what the loop found and what the decoder found, by score, and whether they are the same texts."""
    same = min(len(found.best), len(decoded))
    mine, theirs = [each.score for each in found.best[:same]], [each.score for each in decoded[:same]]
    other = sum(one.ids != two.ids for one, two in zip(found.best, decoded, strict=False))
    other += abs(len(found.best) - len(decoded))
    differences = {
        "score": float(np.abs(np.array(mine) - np.array(theirs)).max()),
        "texts that differ": float(other),
    }
    text = (
        "The loop above reads every text anew and knows nothing of caches, batches or the fast decoder. The decoder that "
        f"`regard` uses finds {'the same texts' if not other else f'others in {other} places'}, and scores that differ by "
        f"{format_power(differences['score'])}."
    )
    names = tuple(str(number) for number in range(same))
    arrays = (
        Numbers("scores, twice", np.stack([mine, theirs]), ("the loop", "the decoder"), names),
        column("differences", list(differences.values()), tuple(differences), shading="plain"),
    )
    return Step("The loop = the decoder", "max |score of the loop - of the decoder|", text, arrays), differences
