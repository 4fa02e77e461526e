"""Train a language model to answer: supervised fine-tuning on prompts and answers, with the loss on answers only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from torch import nn

from regard.bundle import Bundle, BundleConfig
from regard.data.chat_batches import ChatBatches, EncodedChat, chat_batch, encode_chats, first_prompts, fitting_chats
from regard.data.chats import Chat, load_chats
from regard.data.config import ChatFormat
from regard.decode.config import DecodeOptions
from regard.inspect.probes import first_lines, prober
from regard.tasks.config import RunConfig
from regard.tasks.finetune import few_at_once, fine_tuning
from regard.tasks.generate.config import GenerateConfig
from regard.tasks.generate.predictor import Generator
from regard.tasks.recipe import PreparedRun, Setup, digest_of, loss_metrics, mean_loss, some_batches
from regard.tokens import TokenizerPair
from regard.training.events import Working
from regard.training.finetune import NEW, Side
from regard.training.validation import Validation

SHOWN = 2  # prompts whose answers are shown at each validation


def prepare_chats(config: GenerateConfig, form: ChatFormat, setup: Setup) -> PreparedRun:
    """Read the chats, make or reload the tokenizer, build the model. Nothing is trained yet."""
    sets = load_chats(config.data, setup.data_root)
    texts = [text for chat in sets.train for turn in chat for text in turn]
    config = _chosen(config, setup, texts)
    setup.note(config)
    tokenizer = setup.tokenizer(config, lambda most: texts)
    longest = config.model.longest
    most = config.data.context if longest is None else min(config.data.context, longest - 1)
    train, left = fitting_chats(encode_chats(sets.train, tokenizer, form), most)
    valid, _ = fitting_chats(encode_chats(sets.valid, tokenizer, form), most)
    setup.emit(Working("building the model"))
    about = BundleConfig(
        task="generate",
        tokens=config.tokens,
        vocabulary=(tokenizer.size,),
        model=config.model,
        decode=config.decode,
        chat=form,
    )
    bundle = Bundle(about, setup.build(config, (tokenizer.size,)), TokenizerPair(tokenizer, tokenizer), {})
    generator, fill = Generator(bundle), tokenizer.specials.pad
    shown = ChatBatches(valid, fill, config.train.batch_tokens, seed=0)
    validate = _validation(config, shown, first_prompts(sets.valid, SHOWN), generator)
    few = partial(few_at_once, lambda rows: chat_batch([valid[row] for row in rows], fill), len(valid))
    job = setup.job(
        config,
        bundle,
        ChatBatches(train, fill, config.train.batch_tokens, config.train.seed),
        validate,
        {"the training data": _digest(sets.train), "the validation data": _digest(sets.valid)},
        held_out=lambda: some_batches(shown, shown.count(0)),
        probe=prober(generator, first_lines(chat[0][0] for chat in sets.valid), config.probes, setup.folder),
        unit="answer tokens",
        tuning=fine_tuning(config, setup.folder, setup.resume, [Side(NEW, validate, few)]),
    )
    return PreparedRun(job, (*sets.notes, *left, _counts(train, valid, tokenizer.size)))


def _chosen(config: GenerateConfig, setup: Setup, texts: Sequence[str]) -> GenerateConfig:
    """The configuration with what rules choose by the data; a context holds a whole chat, and is no matter of time."""
    context = config.data.context
    found: RunConfig = setup.choose(config, examples=len(texts) // 2, characters=sum(map(len, texts)))
    found = found.model_copy(update={"data": config.data.model_copy(update={"context": context})})
    assert isinstance(found, GenerateConfig)
    return found


def _digest(chats: Sequence[Chat]) -> str:
    return digest_of(*([text for turn in chat for text in turn] for chat in chats))


def _counts(train: Sequence[EncodedChat], valid: Sequence[EncodedChat], vocabulary: int) -> str:
    learned = sum(int(chat.learned.sum()) for chat in train)
    chats = f"{len(train):,} training and {len(valid):,} validation chats"
    return f"{chats}, {learned:,} tokens of answers, a vocabulary of {vocabulary:,}"


def _validation(
    config: GenerateConfig, batches: ChatBatches, prompts: Sequence[str], generator: Generator
) -> Callable[[nn.Module], Validation]:
    """Loss and perplexity of the answers to held-out prompts, and what it answers to some of them."""

    def validate(model: nn.Module) -> Validation:
        total, count = mean_loss(model, some_batches(batches, batches.count(0)))
        metrics = loss_metrics(total, count)
        if not config.samples or not np.isfinite(total):
            return Validation(metrics)
        options: DecodeOptions = {"seed": 0, "max_length": config.samples}
        answers = generator.generate(list(prompts), **options)
        return Validation(metrics, [(f"{each.prompt}\n", each.text, "") for each in answers])

    return validate
