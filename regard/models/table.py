"""Which class builds which kind of model for which task: one explicit table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

from regard.config import StrictConfig
from regard.data.graphs.config import GraphFormat
from regard.data.pictures.config import PictureFormat
from regard.data.sound.config import SoundFormat
from regard.errors import UsageError, nearest
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.kinds import ADDED_KINDS, KINDS_OF, all_kinds
from regard.models.presets import PRESETS
from regard.plugins import NamedParts, adding

if TYPE_CHECKING:
    from regard.models.config import ModelConfig, TranslationConfig

FAMILIES = NamedParts[type[EncoderDecoder]](
    {
        "transformer": "regard.models.transformer:Transformer",
        "luong": "regard.models.recurrent:Luong",
        "bahdanau": "regard.models.recurrent:Bahdanau",
        "seq2seq": "regard.models.recurrent:Seq2Seq",
        "bytenet": "regard.models.bytenet:ByteNet",
        "decoder-only": "regard.models.decoder_only:DecoderOnly",
    }
)
GPT_LINE = ("gpt1", "gpt2", "gpt3", "llama")
RUNGS = {
    "tfidf": "Tfidf",
    "token-weights": "TokenWeights",
    "plain-attention": "PlainAttention",
    "additive": "Additive",
    "self-attention": "SelfAttention",
}
# By task and kind; a model's file is imported when one is built, and no other with it.
MODELS: dict[str, NamedParts[Any]] = {
    "translate": FAMILIES,
    "generate": NamedParts(
        {
            **dict.fromkeys(GPT_LINE, "regard.models.gpt:GPT"),
            "lstm": "regard.models.language:LSTM",
            "wavenet": "regard.models.wavenet:WaveNet",
            "pixelcnn": "regard.models.pixelcnn:PixelCNN",
            "pixelrnn": "regard.models.pixelrnn:PixelRNN",
            "image-transformer": "regard.models.image_transformer:ImageTransformer",
        }
    ),
    "align": NamedParts(dict.fromkeys(KINDS_OF["align"], "regard.models.preference:RewardModel")),
    "fill": NamedParts({"bert": "regard.models.bert:Bert"}),
    "classify": NamedParts(
        {
            **{kind: f"regard.models.text_classifiers:{name}" for kind, name in RUNGS.items()},
            "bert": "regard.models.classifier:BertClassifier",
            **dict.fromkeys(GPT_LINE, "regard.models.classifier:GPTClassifier"),
        }
    ),
    "classify-pictures": NamedParts(
        dict.fromkeys(KINDS_OF["classify-pictures"], "regard.models.pictures.classifier:PictureClassifier")
    ),
    "caption": NamedParts(
        {
            "show-attend-tell": "regard.models.pictures.show_attend_tell:ShowAttendTell",
            "caption-transformer": "regard.models.pictures.captioner:CaptionTransformer",
            "show-and-tell": "regard.models.pictures.captioner:ShowAndTell",
        }
    ),
    "answer": NamedParts({"answerer": "regard.models.pictures.answerer:Answerer"}),
    "ask": NamedParts(
        {
            "memory-network": "regard.models.memory_network:MemoryNetwork",
            "lstm": "regard.models.memory_network:StoryLSTM",
            "bert": "regard.models.memory_network:StoryTransformer",
        }
    ),
    "remember": NamedParts(
        {
            "turing-machine": "regard.models.turing_machine:TuringMachine",
            "lstm": "regard.models.bits:BitLSTM",
            "llama": "regard.models.bits:BitTransformer",
            "ponder": "regard.models.ponder:Ponder",
        }
    ),
    "compute": NamedParts({"programmer": "regard.models.programmer:Programmer"}),
    "transcribe": NamedParts(
        {
            "conformer": "regard.models.conformer:ConformerCTC",
            "conformer-transformer": "regard.models.conformer:ConformerTransformer",
        }
    ),
    "classify-sounds": NamedParts({"conformer": "regard.models.conformer:SoundClassifier"}),
    "classify-graphs": NamedParts(
        {
            "gat": "regard.models.graph:GAT",
            "gatv2": "regard.models.graph:GAT",
            "gcn": "regard.models.graph:GCN",
            "graph-transformer": "regard.models.graph:GraphTransformer",
        }
    ),
}

LABELLED = {
    "classify",
    "classify-pictures",
    "classify-sounds",
    "classify-graphs",
    "answer",
    "ask",
}  # tasks whose models are built for a number of labels


def add_kind(
    name: str,
    config: type[StrictConfig],
    model: Callable[..., nn.Module],
    tasks: Sequence[str],
    sizes: Mapping[str, Mapping[str, object]] | None = None,
) -> None:
    """Put a kind of model of one's own beside ours, for these tasks.

    `config` has a field `kind` whose default is the name, `width` and `longest`. `model` is called as ours are: with the
    configuration, then what it sees, its vocabularies and its number of labels where the task has them, then the smoothing.
    `sizes` are its presets; where there are none, tiny is what the configuration says itself.
    """
    adding("kind", name, all_kinds())
    if config.model_fields.get("kind") is None or config.model_fields["kind"].default != name:
        raise UsageError(f"the configuration of {name} needs a field: kind: Literal[{name!r}] = {name!r}")
    ADDED_KINDS[name] = config
    for size, values in (sizes or {"tiny": {}}).items():
        PRESETS.setdefault(size, {})[name] = dict(values)
    for task in tasks:
        KINDS_OF[task] = (*KINDS_OF.get(task, ()), name)
        MODELS.setdefault(task, NamedParts({}))[name] = model


def lend_kinds(lender: str, task: str) -> None:
    """Let a task that a plugin adds have the kinds of models of another, built in the same way."""
    own, none = MODELS.get(task, NamedParts({})), NamedParts[Any]({})
    MODELS[task] = NamedParts({**MODELS.get(lender, none).lent(), **own.lent()})
    KINDS_OF[task] = tuple(dict.fromkeys((*KINDS_OF.get(lender, ()), *KINDS_OF.get(task, ()))))
    LABELLED.update({task} if lender in LABELLED else ())


def build_model(
    config: TranslationConfig, source_vocabulary: int, target_vocabulary: int, smoothing: float = 0.0
) -> EncoderDecoder:
    """A translation model with fresh weights (seed torch first for repeatable ones)."""
    return FAMILIES[config.kind](config, source_vocabulary, target_vocabulary, smoothing)


def build(
    task: str,
    config: ModelConfig,
    vocabulary: tuple[int, ...] = (),
    *,
    labels: int = 0,
    pictures: PictureFormat | None = None,
    sounds: SoundFormat | None = None,
    graphs: GraphFormat | None = None,
    smoothing: float = 0.0,
) -> nn.Module:
    """A model of any task with fresh weights; `labels` is how many a classifier tells apart.

    `pictures`, `sounds` and `graphs` are what it is shown, if it is shown any.
    """
    kinds = MODELS[task]
    if config.kind not in kinds:
        raise UsageError(f"a {config.kind} does not {task}", f"{nearest(config.kind, kinds)}; {', '.join(kinds)} do")
    sees = [shown for shown in (pictures, sounds, graphs) if shown is not None]
    tells = (labels,) if task in LABELLED else ()
    model: nn.Module = kinds[config.kind](config, *sees, *vocabulary, *tells, smoothing)
    return model
