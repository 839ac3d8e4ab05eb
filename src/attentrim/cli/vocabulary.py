"""The vocabulary flags of attentrim trim: which texts it must write, and what others lose."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import AttentrimError
from ..runs.remarks import Say
from ..runs.settings import TaskSettings
from .arguments import add_settings

WHERE = ("data_dir", "dataset", "dataset_config")
"""Where the task of --vocabulary_task is."""
COLUMNS = ("text_column", "text_pair_column")


def add_vocabulary_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a smaller vocabulary")
    texts = "plain text, or tables with a text column"
    group.add_argument("--vocabulary", nargs="+", metavar="FILE", help=f"keep the tokens of these texts: {texts}")
    group.add_argument("--vocabulary_task", metavar="NAME", help="keep the tokens of this task's training texts")
    group.add_argument(
        "--vocabulary_check", nargs="+", metavar="FILE", help="count the texts in these files that need removed tokens"
    )
    add_settings(group, [*WHERE, *COLUMNS])


def wants_vocabulary(args: argparse.Namespace) -> bool:
    """Whether the vocabulary is to be trimmed; raises an error for flags that have no effect then."""
    wanted = bool(args.vocabulary or args.vocabulary_task)
    for name in ("vocabulary_check", *COLUMNS):
        if getattr(args, name) and not wanted:
            raise AttentrimError(f"--{name} goes with --vocabulary or --vocabulary_task.")
    for name in WHERE:
        if getattr(args, name) and not args.vocabulary_task:
            raise AttentrimError(f"--{name} goes with --vocabulary_task.")
    return wanted


@dataclass
class Vocabulary:
    """Texts, and the tokenizer that reads them: all tokens at first, those that are kept once a model was trimmed."""

    texts: list[str]
    prompts: list[str]
    checked: list[str]
    tokenizer: Any
    files: tuple[str, ...]
    """Beside a model, those that hold a vocabulary."""
    sizes: tuple[int, int] = (0, 0)
    check: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, args: argparse.Namespace, say: Say) -> Vocabulary:
        """All that the flags name."""
        from ..runs.directories import OF_A_VOCABULARY
        from ..runs.pretrained import load_tokenizer
        from ..runs.texts import prompts_of, texts_of_files, texts_of_task

        columns = (args.text_column, args.text_pair_column)
        texts = texts_of_files(args.vocabulary or [], *columns, say=say)
        if args.vocabulary_task:
            where = {name: getattr(args, name) for name in WHERE}
            texts += texts_of_task(TaskSettings(task=args.vocabulary_task, **where))
        checked = texts_of_files(args.vocabulary_check or [], *columns, say=say)
        return cls(texts, prompts_of(args.model), checked, load_tokenizer(args.model), OF_A_VOCABULARY)

    def trim(self, model: Any) -> Any:
        """The model with fewer tokens."""
        from ..vocabulary import check_texts, trim_vocabulary

        small, tokenizer = trim_vocabulary(model, self.tokenizer, [*self.texts, *self.prompts], progress=True)
        self.sizes = (len(self.tokenizer), len(tokenizer))
        if self.checked:
            found = check_texts(self.tokenizer, tokenizer, self.checked)
            self.check = {
                "texts": found.texts,
                "texts_with_other_tokens": found.others,
                "tokens": found.tokens,
                "tokens_gone": found.gone,
            }
        self.tokenizer = tokenizer
        return small

    def save(self, directory: Path) -> None:
        self.tokenizer.save_pretrained(directory)

    def describe(self) -> list[str]:
        """What went, as plans say it."""
        before, after = self.sizes
        return [f"{before - after} of {before} tokens"] if before > after else []

    @property
    def remarks(self) -> list[str]:
        before, after = self.sizes
        lines = [f"tokens: {before:,} before, {after:,} after; all that the texts ({len(self.texts):,}) need are kept"]
        if self.check:
            texts, others = self.check["texts"], self.check["texts_with_other_tokens"]
            tokens, gone = self.check["tokens"], self.check["tokens_gone"]
            lines.append(
                f"checked: {others:,} of {texts:,} texts ({others / texts:.1%}) need tokens that are gone "
                f"({gone / tokens:.1%} of all their tokens): they are written with others"
            )
        return lines

    def result(self) -> dict[str, Any]:
        """The same for JSON."""
        before, after = self.sizes
        found = {"tokens_before": before, "tokens": after, "vocabulary_texts": len(self.texts), "tokens_covered": 1.0}
        return {**found, **({"vocabulary_check": self.check} if self.check else {})}
