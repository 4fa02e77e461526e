"""Small models of transformers and of ours, every parameter at random, for the tests of what goes in and out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor, nn

from regard.bundle import Bundle, BundleConfig
from regard.models.table import build
from regard.tokens import TokenizerPair, TokensConfig, train_tokenizer

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

EXACT, ROUNDED = 1e-10, 1e-4  # how far logits may lie apart in float64 and in float32
SIZES: dict[str, Any] = {"layers": 3, "width": 24, "heads": 6, "feed_forward": 37, "max_length": 29}
TEXTS = (
    "the cat sat on the mat",
    "a dog ran, and the cat ran too!",
    "Größe, naïve café",
    "日本語 と emoji 👩‍👧",
    "12 34 567",
)
ODD_TEXTS = (
    *TEXTS,
    "",
    " ",
    "  two  spaces ",
    "tab\tline\nend\r\n",
    "THE CAT",
    "e\u0301 é ﬁ İ",
    "a" * 120,
    "\x00\x7f",
    "unfathomable",
)
PADDING = 3  # rows of the tables that no token has, as others make their vocabularies round


def byte_level(special: Sequence[str] = ("<|endoftext|>",)) -> Tokenizer:
    """As GPT-2's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=283, special_tokens=list(special), initial_alphabet=alphabet)
    )
    return tokenizer


def wordpiece() -> Tokenizer:
    """As BERT's; the file also says, as some do, that every text is cut and filled to one length."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(TEXTS, trainers.WordPieceTrainer(vocab_size=89, special_tokens=special))
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding(length=5, pad_token="[PAD]")
    return tokenizer


def shake(model: nn.Module) -> nn.Module:
    """Every parameter at random, also those that begin as ones and zeros: none can be taken for another."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator) + (parameter.dim() == 1))
    return model.eval()


def gpt2(**changes: Any) -> Any:
    sizes = {"n_layer": 3, "n_embd": 21, "n_head": 3, "n_inner": 37, "n_positions": 29, "vocab_size": 283 + PADDING}
    special = {"bos_token_id": 0, "eos_token_id": 0}
    return shake(transformers.GPT2LMHeadModel(transformers.GPT2Config(**{**sizes, **special, **changes})))


def llama(**changes: Any) -> Any:
    sizes = {
        "num_hidden_layers": 3, "hidden_size": 24, "num_attention_heads": 6, "num_key_value_heads": 2,
        "intermediate_size": 37, "max_position_embeddings": 29, "vocab_size": 283 + PADDING, "rope_theta": 500.0,
        "bos_token_id": 0, "eos_token_id": 0,
    }  # fmt: skip
    return shake(transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**sizes, **changes})))


def bert(kind: str = "BertForMaskedLM", **changes: Any) -> Any:
    sizes = {
        "num_hidden_layers": 3, "hidden_size": 21, "num_attention_heads": 3, "intermediate_size": 37,
        "max_position_embeddings": 29, "vocab_size": 89 + PADDING,
    }  # fmt: skip
    return shake(getattr(transformers, kind)(transformers.BertConfig(**{**sizes, **changes})))


def saved(model: Any, folder: Path, **options: Any) -> Path:
    model.save_pretrained(folder, **options)
    tokenizer = wordpiece() if model.config.model_type == "bert" else byte_level()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


class ExactNorm(nn.Module):
    """transformers rounds LLaMA's norms and angles to float32 whatever the model is in; these do not."""

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.weight, self.epsilon = norm.weight, norm.variance_epsilon

    def forward(self, x: Tensor) -> Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + self.epsilon).sqrt() * self.weight


class ExactAngles(nn.Module):
    def __init__(self, width: int, base: float) -> None:
        super().__init__()
        self.turns = base ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        angles = position_ids[..., None].double() * self.turns
        return torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()


def exact(model: Any) -> Any:
    """The model in float64 throughout."""
    model = model.double()
    if model.config.model_type == "llama":
        inner = model.model
        inner.rotary_emb = ExactAngles(model.config.head_dim, model.config.rope_parameters["rope_theta"])
        inner.norm = ExactNorm(inner.norm)
        for each in inner.layers:
            each.input_layernorm = ExactNorm(each.input_layernorm)
            each.post_attention_layernorm = ExactNorm(each.post_attention_layernorm)
    return model


def ids_of(rows: int, length: int, most: int = 280) -> Tensor:
    return torch.randint(5, most, (rows, length), generator=torch.Generator().manual_seed(11))


def apart(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).abs().max())


def uncached(model: Any, ids: Tensor) -> Tensor:
    return model.output(model.read(ids))


def bert_apart(model: Any, theirs: Any) -> float:
    """The largest difference of anything that the model gives, over real tokens of a padded batch with two segments."""
    ids, lengths = ids_of(4, 17, 60), torch.tensor([17, 11, 5, 2])
    segments = (torch.arange(17) > torch.tensor([7, 3, 2, 0])[:, None]).long()
    real = torch.arange(17) < lengths[:, None]
    out = theirs(ids, attention_mask=real.long(), token_type_ids=segments, output_hidden_states=True)
    vectors = model.encoder(ids, lengths, segments).vectors
    found = [apart(vectors[real], out.hidden_states[-1][real])]
    if model.head is not None:
        logits = out.prediction_logits if "prediction_logits" in out else out.logits
        found.append(apart(model.gaps(vectors)[real], logits[real]))
    if model.follows is not None:
        scores = out.seq_relationship_logits if "seq_relationship_logits" in out else out.logits
        found.append(apart(model.follows(model.encoder.pooled(vectors)), scores))
    elif "pooler_output" in out:
        found.append(apart(model.encoder.pooled(vectors), out.pooler_output))
    return max(found)


def our_bundle(task: Any, config: Any) -> Bundle:
    tokenizer = train_tokenizer(TEXTS, TokensConfig(kind="wordpiece", size=89, lowercase=True), mask=task == "fill")
    model = shake(build(task, config, (tokenizer.size,)))
    settings = BundleConfig(
        task=task, tokens=TokensConfig(kind="wordpiece", lowercase=True), vocabulary=(tokenizer.size,), model=config
    )
    return Bundle(settings, model, TokenizerPair(tokenizer, tokenizer), {})


def rewritten(folder: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Path:
    """Change the tensors of a folder in place."""
    path = folder / "model.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in change(load_file(path)).items()}, path)
    return folder


def same_weights(one: Bundle, other: Bundle) -> bool:
    mine, theirs = dict(one.model.named_parameters()), dict(other.model.named_parameters())
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)
