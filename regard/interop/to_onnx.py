"""A bundle as ONNX graphs, for onnxruntime and whatever else reads them: an encoder, and a step with its cache.

`encoder.onnx` reads sources once and gives the keys and values that every step of the decoder looks at. `step.onnx` reads
the next tokens of each row, T of them (a prompt at once, then one by one), and gives logits and a longer cache. A language
model has only the second. The graphs are plain products over the modules of the model: no recorder, no kernels.
"""

from __future__ import annotations

import copy
import logging
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.attention import MultiHead, Rotary
from regard.attention.attend import for_each_head
from regard.blocks import Block
from regard.bundle import Bundle
from regard.embed import TokenEmbedding, sinusoid
from regard.errors import RegardError
from regard.files import JSON, new_folder, write_json, write_text
from regard.interop.family import library, must_be_known_to
from regard.interop.folder import refuse_to_replace
from regard.models.config import GPTLineConfig, TransformerConfig
from regard.models.configs.attention import ExactConfig
from regard.models.gpt import GPT
from regard.models.transformer import Transformer

NAME = "the ONNX export"
KINDS = {"translate": ("transformer",), "generate": ("gpt1", "gpt2", "gpt3", "llama")}
POSITIONS = ("rotary", "sinusoidal", "learned", "none")
LEAST = 1024  # positions that fixed tables have at least
FACTS = "regard.json"
Shapes = Mapping[str, tuple[str | int, ...]]  # by name; a word is a size that may be any
Angles = tuple[Tensor, Tensor]  # cosines and sines
Memory = tuple[tuple[Tensor, ...], tuple[Tensor, ...], Tensor]  # keys and values of each block, and which are real
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
        must_be_known_to(NAME, config, positions=POSITIONS, **exact)
    elif isinstance(config, GPTLineConfig):
        must_be_known_to(NAME, config, positions=POSITIONS, experts=0, attention=ExactConfig(), reversible=False)
    library("onnx", "onnx"), library("onnxscript", "onnx")


# --- The graphs as modules


class Places(nn.Module):
    """The positions of one side of a model as tables: vectors to add to embeddings, or angles to turn heads by."""

    added: Tensor | None
    cosine: Tensor | None
    sine: Tensor | None

    def __init__(
        self, config: TransformerConfig | GPTLineConfig, embedding: TokenEmbedding, rotary: Rotary | None
    ) -> None:
        super().__init__()
        self.reach = config.longest or max(LEAST, config.max_length)
        added = {
            "sinusoidal": lambda: sinusoid(self.reach, config.width),
            "learned": lambda: next(embedding.positions.parameters()).detach(),
        }.get(config.positions)
        self.register_buffer("added", None if added is None else added().float())
        cosine, sine = (None, None) if rotary is None else rotary.tables(self.reach)
        self.register_buffer("cosine", None if cosine is None else cosine.float())
        self.register_buffer("sine", None if sine is None else sine.float())

    def add(self, x: Tensor, positions: Tensor) -> Tensor:
        return x if self.added is None else x + self.added[positions]  # (B, T, D)

    def angles(self, positions: Tensor) -> Angles | None:
        """Cosines and sines at positions (B, T), for all heads and blocks: (B, 1, T, E / 2) each."""
        if self.cosine is None or self.sine is None:
            return None
        return self.cosine[positions][:, None], self.sine[positions][:, None]


class EncoderGraph(nn.Module):
    """ids (B, S) and lengths (B,) -> the memory's keys and values for each block of the decoder, (L, B, H, S, E) each."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.embedding, self.blocks, self.norm = model.source, model.encoder, model.encoder_norm
        self.looks = nn.ModuleList(cast("MultiHead", block.cross) for block in model.decoder.each())
        first = cast("MultiHead", next(model.encoder.each()).attention)
        self.places = Places(cast("TransformerConfig", model.config), model.source, first.rotary)

    def forward(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        positions = torch.arange(ids.size(1), device=ids.device)[None]  # (1, S)
        allowed = (positions < lengths[:, None])[:, None, None]  # (B, 1, 1, S)
        angles = self.places.angles(positions)
        x = self.places.add(_embedded(self.embedding, ids), positions)  # (B, S, D)
        for block in self.blocks.each():
            own = OwnPast(angles, allowed)
            x = block.around_attention(x, own.attention(block))
            x = block.around_feed_forward(x, block.feed_forward)
        x = self.norm(x)
        both = [cast("MultiHead", look).keys_values(x) for look in self.looks]
        return torch.stack([k for k, _ in both]), torch.stack([v for _, v in both])


class StepGraph(nn.Module):
    """The next tokens of each row, ids and positions (B, T), behind a past -> logits (B, T, V) and the longer past.

    The past is keys and values of every block, (L, B, G, P, E) each; P may be 0. A decoder is given a memory, too.
    """

    def __init__(self, model: Any, embedding: TokenEmbedding, blocks: Any, norm: nn.Module) -> None:
        super().__init__()
        self.embedding, self.blocks, self.norm, self.output = embedding, blocks, norm, model.output
        self.places = Places(model.config, embedding, cast("MultiHead", next(blocks.each()).attention).rotary)

    def forward(
        self,
        ids: Tensor,
        positions: Tensor,
        past_keys: Tensor,
        past_values: Tensor,
        memory_keys: Tensor | None = None,
        memory_values: Tensor | None = None,
        memory_lengths: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        x = self.places.add(_embedded(self.embedding, ids), positions)  # (B, T, D)
        angles, causal = self.places.angles(positions), _causal(ids.size(1), past_keys.size(3), ids.device)
        memory: Memory | None = None
        if memory_keys is not None and memory_values is not None and memory_lengths is not None:
            inside = torch.arange(memory_keys.size(3), device=ids.device) < memory_lengths[:, None]  # (B, S)
            memory = memory_keys.unbind(), memory_values.unbind(), inside[:, None, None]
        pasts = []
        for number, block in enumerate(self.blocks.each()):
            own = OwnPast(angles, causal, past_keys[number], past_values[number])
            x = block.around_attention(x, own.attention(block))
            if memory is not None:
                x = _look(block, x, memory[0][number], memory[1][number], memory[2])
            x = block.around_feed_forward(x, block.feed_forward)
            pasts.append(own)
        keys, values = torch.stack([own.keys for own in pasts]), torch.stack([own.values for own in pasts])
        return self.output(self.norm(x)), keys, values


class OwnPast:
    """The keys and values (B, G, P, E) of one block, which grow as it attends; `allowed` are those that queries may see."""

    keys: Tensor
    values: Tensor

    def __init__(
        self, angles: Angles | None, allowed: Tensor, keys: Tensor | None = None, values: Tensor | None = None
    ) -> None:
        self.angles, self.allowed, self.past = (
            angles,
            allowed,
            None if keys is None or values is None else (keys, values),
        )

    def attention(self, block: Block) -> Callable[[Tensor], Tensor]:
        heads = cast("MultiHead", block.attention)

        def attend(y: Tensor) -> Tensor:
            q, (k, v) = heads.queries(y), heads.keys_values(y)
            if self.angles is not None:
                q, k = _turned(torch.cat([q, k], dim=1), self.angles).split([heads.heads, heads.groups], dim=1)
            if self.past is not None:
                k, v = torch.cat([self.past[0], k], dim=2), torch.cat([self.past[1], v], dim=2)
            self.keys, self.values = k, v
            return _seen(heads, q, k, v, self.allowed if not heads.band else self.allowed & self._near(heads.band))

        return attend

    def _near(self, band: int) -> Tensor:
        """Keys no farther back than the band (Child et al. 2019)."""
        queries, keys = self.allowed.shape[-2:]
        here = torch.arange(queries, device=self.allowed.device)[:, None] + keys - queries  # (T, 1)
        return torch.arange(keys, device=self.allowed.device) > here - band  # (T, P + T)


def _causal(new: int, past: int, device: torch.device) -> Tensor:
    """Whether a new token may see each key, of the past and of the new ones: (T, P + T)."""
    here = torch.arange(new, device=device)[:, None] + past  # (T, 1)
    return torch.arange(past + new, device=device) <= here


def _look(block: Block, x: Tensor, keys: Tensor, values: Tensor, allowed: Tensor) -> Tensor:
    """From the decoder to the memory (B, H, S, E)."""
    heads, around = cast("MultiHead", block.cross), cast("nn.Module", block.around_cross)
    found: Tensor = around(x, lambda y: _seen(heads, heads.queries(y), keys, values, allowed))
    return found


def _turned(x: Tensor, angles: Angles) -> Tensor:
    """Turn heads (B, H, T, E) (Su et al. 2021)."""
    (cosine, sine), (first, second) = angles, x.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


def _embedded(embedding: TokenEmbedding, ids: Tensor) -> Tensor:
    return embedding.table(ids) * embedding.scale  # (B, T, D)


def _seen(heads: MultiHead, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    """softmax(q kᵀ · scale) v over the allowed keys, joined: (B, T, D) (Vaswani et al. 2017, eq. 1)."""
    scale = 1 / math.sqrt(heads.head_width) if heads.scale is None else heads.scale
    k, v = for_each_head(k, heads.heads), for_each_head(v, heads.heads)  # (B, H, S, E)
    scores = (q * scale) @ k.transpose(-2, -1)  # (B, H, T, S)
    return heads.join(scores.masked_fill(~allowed, -math.inf).softmax(dim=-1) @ v)


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
