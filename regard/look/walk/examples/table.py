"""All worked examples by name, and the walks through a person's own numbers from a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from regard.errors import UsageError, nearest
from regard.look.walk.examples.convolution import convolution_walk, read_convolution
from regard.look.walk.examples.counts import count_walk, read_texts
from regard.look.walk.examples.given import check_numbers, read_values
from regard.look.walk.examples.lectures import hello_walk, look_ahead, order_walk, three_tokens
from regard.look.walk.examples.likeness import likeness_walk
from regard.look.walk.examples.matrices import walk_of
from regard.look.walk.examples.paper_block import block_walk
from regard.look.walk.examples.recurrent import lstm_walk, read_lstm
from regard.look.walk.examples.routing import experts_walk, read_routing
from regard.look.walk.examples.scores import additive_walk, read_additive, six_walk
from regard.look.walk.steps import Walk

Query = int | str | None


@dataclass(frozen=True)
class Example:
    """One example: what it shows, and its walk, of one query or (None) of all at once."""

    about: str
    walk: Callable[[Query], Walk]


EXAMPLES = {
    "three-tokens": Example(
        "3 tokens of 4 dimensions, keys of width 3, unscaled: from x to every output", three_tokens
    ),
    "three-tokens-scaled": Example("the same, scores divided by √3", partial(three_tokens, scale=None)),
    "look-ahead": Example("the mask of a decoder on “<start> I am fine”, and two ways to get it wrong", look_ahead),
    "hi-how-are-you": Example("a grid of scores, divided by 8, and its softmax", hello_walk),
    "orders": Example("“man eats small dinosaur” in all orders, with and without positions", order_walk),
    "basic": Example("self-attention without parameters: softmax(x · x), and with the sign turned", likeness_walk),
    "tfidf": Example("weights that are counted: tf · log(N / n_j), beside the smoothed formula", count_walk),
    "additive": Example("Bahdanau's score, v · tanh(s W + h_j U), term by term", additive_walk),
    "six-scores": Example("cosine, additive, location, general, dot and scaled dot on the same numbers", six_walk),
    "convolution": Example("window by window, with padding, stride and dilation; pooling", convolution_walk),
    "lstm": Example("the gates of an LSTM over three steps", lstm_walk),
    "experts": Example("a router: which expert takes which token, and the load", experts_walk),
    "block": Example("a whole block: heads, W_o, residual, norm, feed-forward with its zeros", block_walk),
    "block-pre": Example("the same with its norms before each sub-layer", partial(block_walk, order="pre")),
}

# Forms of numbers in a file, told apart by a name that only they have; any other file is attention's.
FORMS: dict[str, Callable[[Mapping[str, object], str, Query], Walk]] = {
    "kernel": read_convolution,
    "texts": read_texts,
    "W_x": read_lstm,
    "router": read_routing,
    "U": read_additive,
}


def example_walk(name: str, query: Query = None) -> Walk:
    """The walk through the example of that name; with `query`, one query term by term."""
    if name not in EXAMPLES:
        raise UsageError(f"no example {name}", nearest(name, EXAMPLES))
    return EXAMPLES[name].walk(query)


def file_walk(path: str | Path, query: Query = None) -> Walk:
    """The walk through the numbers of a .json or .npz file."""
    values = read_values(path)
    read = next((form for key, form in FORMS.items() if key in values), None)
    return walk_of(check_numbers(values, str(path)), query) if read is None else read(values, str(path), query)
