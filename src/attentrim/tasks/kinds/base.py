"""What a kind of task knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..examples import Example

Item = TypeVar("Item")
CHUNK = 10_000
"""Examples that are tokenised at a time; more than that show a bar."""
SHOWN_EXAMPLES = 4
"""Examples that a run keeps the text and the attention of."""
SHOWN_TOKENS = 64
"""The same, of a running text: tokens at the start of a block."""


@dataclass(frozen=True)
class Encoding:
    """How texts become tokens."""

    tokenizer: Any
    max_length: int
    stride: int | None = None
    """Tokens that neighbouring windows of a long text share. None: what is too long is cut."""
    fixed: bool = False
    """What is chosen at random is chosen now and stays: for data that models are compared on."""
    prepare: Callable[[str], str] = str
    """What is done to a text before it is tokenised: a prompt goes before it, say."""


@dataclass
class EncodedDataset:
    """Token ids and labels, as a map-style dataset."""

    columns: dict[str, list[Any]]
    labels: list[Any] | None
    """None: not known, or drawn again in each batch."""
    truncated: int
    """How many examples were longer than allowed and lost their end."""
    examples: int
    groups: list[int] | None = None
    """The example that each row is a window of, where an example has several."""
    starts: list[list[int]] | None = None
    """Of each row: where its words begin."""
    tags: list[Any] | None = None
    """Of each row: the tags of all its words, also of those that were cut."""
    scores: list[Any] | None = None
    """Of each pair of texts, whose rows are all first texts and then all second ones: how alike people find them."""
    blank: int = 0
    """How many examples had no text and were left out."""
    texts: list[str] = field(default_factory=list)
    """The first examples, as people wrote them."""
    words: list[int] | None = None
    """Of each row of a running text: how many words it predicts, by the spaces between them."""

    def __len__(self) -> int:
        return len(self.columns["input_ids"])

    def written(self) -> list[str]:
        """The texts of the first rows, as people wrote them."""
        rows = range(min(SHOWN_EXAMPLES, len(self)))
        examples = rows if self.groups is None else [self.groups[row] for row in rows]
        return [self.texts[example] for example in examples]

    def only(self, rows: Sequence[int]) -> EncodedDataset:
        """Some rows of a running text, each an example."""
        assert self.labels is not None
        assert self.words is not None
        columns = {name: [values[row] for row in rows] for name, values in self.columns.items()}
        texts = [self.texts[row] for row in rows if row < len(self.texts)]
        labels, words = ([values[row] for row in rows] for values in (self.labels, self.words))
        return EncodedDataset(columns, labels, 0, len(rows), texts=texts, words=words)

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = {name: values[index] for name, values in self.columns.items()}
        return row if self.labels is None else {**row, "labels": self.labels[index]}


class Kind:
    """One kind of task."""

    name: str
    head: str
    """How the names of models end that can do it."""
    default_metrics: tuple[str, ...]
    classes: bool = False
    """Whether answers are classes or tags, whose names a model's config holds."""
    words: bool = False
    """Whether an input is a list of words, each with an answer of its own."""
    windows: bool = False
    """Whether a text that is too long can be read in windows."""
    predicts: bool = True
    """Whether there are answers to write to a file."""
    packs: bool = False
    """Whether texts follow one another and are cut into blocks, each an example."""
    max_length: int = 128
    """Tokens of an input, unless told otherwise."""
    most_rows: int = 64
    """Inputs that are run at a time, unless told otherwise; few where each token has a score for every other token."""
    embeds: bool = False
    """Whether a model's own embedding of a text is what it is about: no head, and no labels."""

    def fits(self, architectures: Sequence[str] | None) -> bool:
        """Whether a model of these classes can do it."""
        return any(name.endswith(self.head) for name in architectures or ())

    def refusal(self, config: Any) -> str:
        """Why models with such a config cannot do it; empty if they can."""
        known = type(config) in self.model_class._model_mapping
        return "" if known else f"transformers has no {config.model_type} model for {self.name}"

    @property
    def model_class(self) -> Any:
        import transformers

        return getattr(transformers, f"AutoModel{self.head}")

    def model_settings(self, labels: Sequence[str]) -> dict[str, Any]:
        """What a fresh task head needs to know."""
        names = dict(enumerate(labels))
        return {
            "num_labels": len(names),
            "id2label": names,
            "label2id": {name: index for index, name in names.items()},
        }

    def encode(self, examples: Sequence[Example], encoding: Encoding) -> EncodedDataset:
        raise NotImplementedError

    def collator(self, tokenizer: Any) -> Any:
        from transformers import DataCollatorWithPadding

        return DataCollatorWithPadding(tokenizer)

    def reduce(self, logits: Any, labels: Any) -> Any:
        """What is kept of a batch's outputs."""
        return logits[0] if isinstance(logits, tuple) else logits

    def held_out_metric(self, metrics: Sequence[str]) -> str:
        """The first metric that held-out training data can give."""
        return metrics[0]

    def judge(
        self, metrics: Sequence[str], outputs: Any, truth: Any, data: EncodedDataset, labels: Sequence[str]
    ) -> dict[str, float]:
        """The metrics of what a model made of `data`, or of another set."""
        return self.score(metrics, outputs, truth, labels)

    def score(self, metrics: Sequence[str], outputs: Any, truth: Any, labels: Sequence[str]) -> dict[str, float]:
        raise NotImplementedError

    def answers(self, outputs: Any, data: EncodedDataset, labels: Sequence[str]) -> list[Any]:
        """One for each example: the number of a class, a number, tags by name."""
        raise NotImplementedError


def labels_of(examples: Sequence[Example]) -> list[Any] | None:
    return None if examples[0].label is None else [example.label for example in examples]


def chunks(examples: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """With a bar, where it takes more than a moment."""
    from tqdm import tqdm

    starts = range(0, len(examples), CHUNK)
    for start in tqdm(starts, desc="tokenising", disable=None if len(examples) > CHUNK else True, leave=False):
        yield examples[start : start + CHUNK]


def gather(parts: Sequence[dict[str, list[Any]]]) -> dict[str, list[Any]]:
    """Columns of several chunks, end to end."""
    return {name: [value for part in parts for value in part[name]] for name in parts[0]}
