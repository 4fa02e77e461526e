"""Every task, one record each. Nothing of a task is imported here: what is needed of it is imported when it is used."""

from __future__ import annotations

from typing import Any

from regard.plugins import imported
from regard.tasks.rules import ANSWER, ASK, CAPTION, CLASSIFY, COMPUTE, FILL, GENERATE, PICTURES, SIZES, TRANSLATE
from regard.tasks.task import Task

_TASKS = (
    Task(
        "translate",
        "regard.tasks.translate.config:TranslateConfig",
        recipe="regard.tasks.translate.recipe:prepare_translate",
        predictor="regard.tasks.translate.predictor:Translator",
        subject="regard.tasks.translate.recipe:TranslateSubject",
        texts="regard.tasks.material:PAIRS",
        data="pairs.tsv (or: regard demo)",
        test="test.tsv",
        data_options=("source", "target"),
        eval_options=("beam", "softness", "weights", "lowercase", "tokenize", "save"),
        rules=TRANSLATE,
        sizes=SIZES["translate"],
        columns=("source", "target"),
        starts_from=("translate",),
        reads_text=True,
    ),
    Task(
        "generate",
        "regard.tasks.generate.config:GenerateConfig",
        recipe="regard.tasks.generate.recipe:prepare_generate",
        predictor="regard.tasks.generate.predictor:Generator",
        subject="regard.tasks.generate.recipe:GenerateSubject",
        rules=GENERATE,
        sizes=SIZES["generate"],
        texts="regard.tasks.material:STREAM",
        comparison="regard.tasks.comparison:LANGUAGE",
        data="book.txt",
        test="test.txt",
        data_options=("text",),
        eval_options=("context", "overlap"),
        columns=("text",),
        starts_from=("generate",),
        reads_text=True,
    ),
    Task(
        "fill",
        "regard.tasks.fill.config:FillConfig",
        recipe="regard.tasks.fill.recipe:prepare_fill",
        predictor="regard.tasks.fill.predictor:Filler",
        subject="regard.tasks.fill.recipe:FillSubject",
        rules=FILL,
        sizes=SIZES["fill"],
        texts="regard.tasks.material:RUNNING",
        comparison="regard.tasks.comparison:LANGUAGE",
        data="book.txt",
        test="test.txt",
        data_options=("text",),
        columns=("text",),
        starts_from=("fill",),
        reads_text=True,
    ),
    Task(
        "classify",
        "regard.tasks.classify.config:ClassifyConfig",
        recipe="regard.tasks.classify.recipe:prepare_classify",
        predictor="regard.tasks.classify.predictor:TextClassifier",
        subject="regard.tasks.classify.recipe:ClassifySubject",
        rules=CLASSIFY,
        texts="regard.tasks.material:LABELLED",
        comparison="regard.tasks.comparison:TEXTS",
        try_it='regard classify -m {model} "a text"   or: regard look -m {model} "a text"',
        data="texts.tsv",
        test="test.tsv",
        data_options=("text", "label", "pair"),
        eval_options=("save", "out"),
        columns=("text", "label"),
        starts_from=("fill", "generate"),
        reads_text=True,
        has_labels=True,
        meant="regard.tasks.classify.config:which_classify",
    ),
    Task(
        "classify-pictures",
        "regard.tasks.classify_pictures.config:ClassifyPicturesConfig",
        recipe="regard.tasks.classify_pictures.recipe:prepare_classify_pictures",
        predictor="regard.tasks.classify_pictures.predictor:PictureLabeller",
        subject="regard.tasks.classify_pictures.recipe:ClassifyPicturesSubject",
        rules=PICTURES,
        sizes=SIZES["classify-pictures"],
        comparison="regard.tasks.comparison:PICTURES",
        try_it="regard classify -m {model} photo.jpg   or: regard look -m {model} photo.jpg",
        data="folder",
        test="test-folder",
        eval_options=("save", "out"),
        has_labels=True,
    ),
    Task(
        "caption",
        "regard.tasks.caption.config:CaptionConfig",
        recipe="regard.tasks.caption.recipe:prepare_caption",
        predictor="regard.tasks.caption.predictor:Captioner",
        subject="regard.tasks.caption.recipe:CaptionSubject",
        rules=CAPTION,
        comparison="regard.tasks.comparison:CAPTIONS",
        try_it="regard caption -m {model} photo.jpg -o words.png",
        data="captions.jsonl",
        test="test.jsonl",
        starts_from=("caption",),
        eval_options=("beam", "save"),
    ),
    Task(
        "answer",
        "regard.tasks.answer.config:AnswerConfig",
        recipe="regard.tasks.answer.recipe:prepare_answer",
        predictor="regard.tasks.answer.predictor:QuestionAnswerer",
        subject="regard.tasks.answer.recipe:AnswerSubject",
        rules=ANSWER,
        comparison="regard.tasks.comparison:ANSWERS",
        try_it='regard answer -m {model} photo.jpg "a question?" --attention',
        data="questions.jsonl",
        test="test.jsonl",
        eval_options=("save",),
        has_labels=True,
    ),
    Task(
        "ask",
        "regard.tasks.ask.config:AskConfig",
        recipe="regard.tasks.ask.recipe:prepare_ask",
        predictor="regard.tasks.ask.predictor:StoryReader",
        subject="regard.tasks.ask.recipe:AskSubject",
        rules=ASK,
        try_it='regard ask -m {model} story.txt "Where is the ring?" --hops',
        data="babi-folder",
        test="test.txt",
        eval_options=("save",),
        has_labels=True,
    ),
    Task(
        "remember",
        "regard.tasks.remember.config:RememberConfig",
        recipe="regard.tasks.remember.recipe:prepare_remember",
        predictor="regard.tasks.remember.predictor:Rememberer",
        subject="regard.tasks.remember.recipe:RememberSubject",
        try_it="regard remember -m {model} 10 20 40 -o heads.png",
        data="builtin/copy-bits",
        test="builtin/copy-bits/test/40",
    ),
    Task(
        "compute",
        "regard.tasks.compute.config:ComputeConfig",
        recipe="regard.tasks.compute.recipe:prepare_compute",
        predictor="regard.tasks.compute.predictor:TableComputer",
        subject="regard.tasks.compute.recipe:ComputeSubject",
        rules=COMPUTE,
        try_it='regard compute -m {model} table.csv "How many rows have price over 5?" --steps',
        data="questions.jsonl",
        test="test.jsonl",
        eval_options=("save",),
    ),
)
TASKS: dict[str, Task] = {task.name: task for task in _TASKS}


def family_of(task: str) -> str:
    """The task of ours by whose rules models of a task are treated; one that nobody knows is its own."""
    return TASKS[task].family if task in TASKS else task


def part_of(task: str, field: str) -> Any:
    """A part of a task's record, imported: its own, else that of the task that it is like."""
    record = TASKS[task]
    own = getattr(record, field)
    return imported(getattr(TASKS.get(record.family, record), field) if own is None else own)
