"""A bundle as ONNX graphs, for onnxruntime and whatever else reads them: an encoder, and a step with its cache.

`encoder.onnx` reads sources once and gives the keys and values that every step of the decoder looks at. `step.onnx` reads
the next tokens of each row, T of them (a prompt at once, then one by one), and gives logits and a longer cache. A language
model has only the second.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.attention import MultiHead
from regard.bundle import Bundle
from regard.errors import RegardError
from regard.files import JSON, new_folder, write_json, write_text
from regard.interop.family import library, must_be_known_to
from regard.interop.folder import refuse_to_replace
from regard.interop.onnx_graphs import EncoderGraph, StepGraph
from regard.models.config import GPTLineConfig, TransformerConfig
from regard.models.configs.attention import ExactConfig
from regard.models.gpt import GPT
from regard.models.transformer import Transformer

NAME = "the ONNX export"
KINDS = {"translate": ("transformer",), "generate": ("gpt1", "gpt2", "gpt3", "llama")}
POSITIONS = ("rotary", "sinusoidal", "learned", "none")
FACTS = "regard.json"
Shapes = Mapping[str, tuple[str | int, ...]]  # by name; a word is a size that may be any
B, T, S, P = 2, 3, 7, 5  # sizes of the examples that graphs are traced with: no two alike, none of them kept
LARGEST = 1 << 30  # bytes of weights above which they lie beside the graph, as its format allows 2 GB in one file


def export_onnx(bundle: Bundle, path: str | Path) -> Path:
    """Write a new folder with the graphs, the tokenizers, `regard.json` (names, shapes, ids) and a README with a loop."""
    path = Path(path)
    check_onnx(bundle)
    refuse_to_replace(path)
    with new_folder(path) as inside:
        graphs = graphs_of(bundle)
        for graph in graphs:
            graph.write(inside)
        write_json(inside / FACTS, _facts(bundle, graphs))
        write_text(inside / "README.md", _readme(bundle))
        bundle.tokenizers.save(inside)
    return path


def check_onnx(bundle: Bundle) -> None:
    """Refuse in words what has no graph here, and a machine that lacks the libraries."""
    config, task = bundle.config.model, bundle.config.task
    if config.kind not in KINDS.get(task, ()):
        raise RegardError(
            f"a {config.kind} for {task} has no ONNX graphs here",
            "transformer for translate, and gpt1, gpt2, gpt3 and llama for generate can be exported",
        )
    if isinstance(config, TransformerConfig):
        exact = dict.fromkeys(("encoder_attention", "decoder_attention", "cross_attention"), ExactConfig())
        must_be_known_to(NAME, config, positions=POSITIONS, positions_where="add", **exact)
    elif isinstance(config, GPTLineConfig):
        must_be_known_to(NAME, config, positions=POSITIONS, positions_where="add", experts=0)
        must_be_known_to(NAME, config, attention=ExactConfig(), reversible=False)
    library("onnx", "onnx"), library("onnxscript", "onnx")


# --- Writing them


class Graph:
    """A module with the names and the symbolic shapes of what goes in and comes out."""

    def __init__(
        self,
        name: str,
        module: nn.Module,
        inputs: Shapes,
        outputs: Shapes,
    ) -> None:
        self.name, self.module, self.inputs, self.outputs = name, module, inputs, outputs

    def write(self, folder: Path) -> None:
        sizes = {"batch": B, "source": S, "new": T, "past": P}
        examples = {
            name: self._example(name, [sizes.get(str(each), each) for each in shape])
            for name, shape in self.inputs.items()
        }
        moving = {
            name: {axis: each for axis, each in enumerate(shape) if isinstance(each, str)}
            for name, shape in self.inputs.items()
        }
        with torch.no_grad(), _quietly():
            program = torch.onnx.export(
                self.module, (), kwargs=examples, dynamo=True, verbose=False, dynamic_shapes=moving,
                input_names=list(self.inputs), output_names=list(self.outputs),
            )  # fmt: skip
            assert program is not None
            size = sum(parameter.numel() * 4 for parameter in self.module.parameters())
            program.save(str(folder / f"{self.name}.onnx"), external_data=size > LARGEST)

    def _example(self, name: str, shape: list[Any]) -> Tensor:
        if "keys" in name or "values" in name:
            return torch.zeros(shape)
        return torch.ones(shape, dtype=torch.int64)

    def data(self) -> dict[str, JSON]:
        def named(shapes: Shapes) -> dict[str, JSON]:
            return {name: list(shape) for name, shape in shapes.items()}

        return {"file": f"{self.name}.onnx", "inputs": named(self.inputs), "outputs": named(self.outputs)}


def graphs_of(bundle: Bundle) -> list[Graph]:
    """The graphs of a model, which hold a copy of it in float32."""
    model = copy.deepcopy(bundle.model).float().cpu().eval()
    return _translation(model) if bundle.config.task == "translate" else _language(model)


def _translation(model: nn.Module) -> list[Graph]:
    found = cast("Transformer", model)
    layers, looks = found.decoder.each(), cast("MultiHead", next(found.decoder.each()).cross)
    memory = (len(list(layers)), "batch", looks.heads, "source", looks.head_width)
    both = {"memory_keys": memory, "memory_values": memory}
    first = {"ids": ("batch", "source"), "lengths": ("batch",)}
    step = StepGraph(found, found.target, found.decoder, found.decoder_norm)
    return [
        Graph("encoder", EncoderGraph(found), first, both),
        _step(step, found.vocabularies[1], {**both, "memory_lengths": ("batch",)}),
    ]


def _language(model: nn.Module) -> list[Graph]:
    found = cast("GPT", model)
    return [_step(StepGraph(found, found.tokens, found.blocks, found.norm), found.vocabulary, {})]


def _step(module: StepGraph, vocabulary: int, memory: Shapes) -> Graph:
    heads = cast("MultiHead", next(module.blocks.each()).attention)
    shape = (len(module.blocks), "batch", heads.groups)
    past, grown = (*shape, "past", heads.head_width), (*shape, "past + new", heads.head_width)
    rows = ("batch", "new")
    inputs = {"ids": rows, "positions": rows, "past_keys": past, "past_values": past, **memory}
    return Graph("step", module, inputs, {"logits": (*rows, vocabulary), "keys": grown, "values": grown})


@contextmanager
def _quietly() -> Iterator[None]:
    """Without what torch's exporter says of libraries that are not needed."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _facts(bundle: Bundle, graphs: Iterable[Graph]) -> dict[str, JSON]:
    """The content of regard.json: all that a program must know to run the graphs."""
    graphs = list(graphs)
    text, size = bundle.tokenizers.target, bundle.config.vocabulary[-1]
    special = text.specials
    never = sorted((special.all - special.ends) | set(range(text.size, size)))
    config = cast("TransformerConfig | GPTLineConfig", bundle.config.model)
    bounded = config.positions != "none"
    return {
        "task": bundle.config.task,
        "kind": config.kind,
        "graphs": {graph.name: graph.data() for graph in graphs},
        "begin": special.begin,
        "ends": [special.end, *special.also_end],
        "never": never,  # ids that are not to be written
        "longest": cast("StepGraph", graphs[-1].module).places.reach if bounded else None,
        "tokenizers": _tokenizer_files(bundle),
    }


def _tokenizer_files(bundle: Bundle) -> dict[str, JSON]:
    pair = bundle.tokenizers
    if pair.source is pair.target:
        return {"source": "tokenizer.json", "target": "tokenizer.json"}
    return {"source": "tokenizer.source.json", "target": "tokenizer.target.json"}


def _readme(bundle: Bundle) -> str:
    is_pair = bundle.config.task == "translate"
    head = (
        f"# A {bundle.config.model.kind} for {bundle.config.task} as ONNX graphs\n\n"
        f"`{FACTS}` has the names and shapes of what goes into each graph and comes out, and the special ids. Ids, lengths\n"
        "and positions are int64, all else is float32. Caches are (blocks, batch, heads of keys, positions, width of a head).\n"
        "Positions count from 0. What comes out as `keys` and `values` goes in as `past_keys` and `past_values` at the next\n"
        "step; at the first they have no positions.\n\n"
        "Greedy search with NumPy:\n\n"
    )
    return f"{head}```python\n{TRANSLATE if is_pair else GENERATE}```\n"


_COMMON = '''import json

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

folder = "."
facts = json.load(open(f"{folder}/regard.json", encoding="utf-8"))
graphs = {
    name: onnxruntime.InferenceSession(f"{folder}/{graph['file']}", providers=["CPUExecutionProvider"])
    for name, graph in facts["graphs"].items()
}
layers, _, heads, _, width = facts["graphs"]["step"]["inputs"]["past_keys"]


def best(logits):
    """The likeliest token that may be written."""
    scores = logits[0, -1].copy()
    scores[facts["never"]] = -np.inf
    return int(scores.argmax())


'''
TRANSLATE = (
    _COMMON
    + '''def translate(source, most=60):
    """Ids of a source, without special ones -> ids of its translation."""
    ids = np.array([[*source, facts["ends"][0]]])
    lengths = np.array([ids.shape[1]])
    memory_keys, memory_values = graphs["encoder"].run(None, {"ids": ids, "lengths": lengths})
    memory = {"memory_keys": memory_keys, "memory_values": memory_values, "memory_lengths": lengths}
    keys = values = np.zeros((layers, 1, heads, 0, width), np.float32)
    written = [facts["begin"]]
    while len(written) <= most:
        last, place = np.array([written[-1:]]), np.array([[len(written) - 1]])
        given = {"ids": last, "positions": place, "past_keys": keys, "past_values": values, **memory}
        logits, keys, values = graphs["step"].run(None, given)
        token = best(logits)
        if token in facts["ends"]:
            break
        written.append(token)
    return written[1:]


reads, writes = (Tokenizer.from_file(f"{folder}/{facts['tokenizers'][side]}") for side in ("source", "target"))
source = reads.encode("A text to translate.", add_special_tokens=False).ids
print(writes.decode(translate(source)))
'''
)
GENERATE = (
    _COMMON
    + '''def generate(prompt, most=60):
    """Ids of a prompt, without special ones -> ids of how it goes on."""
    new = [facts["begin"], *prompt]
    keys = values = np.zeros((layers, 1, heads, 0, width), np.float32)
    written = []
    while len(written) < most:
        before = keys.shape[3]
        places = np.arange(before, before + len(new))[None]
        given = {"ids": np.array([new]), "positions": places, "past_keys": keys, "past_values": values}
        logits, keys, values = graphs["step"].run(None, given)
        new = [best(logits)]
        if new[0] in facts["ends"]:
            break
        written += new
    return written


text = Tokenizer.from_file(f"{folder}/{facts['tokenizers']['target']}")
prompt = text.encode("A text", add_special_tokens=False).ids
print(text.decode([*prompt, *generate(prompt)]))
'''
)
