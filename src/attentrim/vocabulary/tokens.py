"""A tokenizer's vocabulary as its tokenizer.json has it; the same tokenizer with fewer tokens."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UnsupportedModelError

FILE, CONFIG = "tokenizer.json", "tokenizer_config.json"


@dataclass(frozen=True)
class Vocabulary:
    """The tokens by id, and what tokenizer.json says about them."""

    data: dict[str, Any]
    """All of tokenizer.json."""
    tokens: dict[int, str]
    numbers: dict[str, int]
    """The id of each token."""
    special: set[int]
    """Ids of special and added tokens, and of those that the tokenizer puts around texts."""

    @classmethod
    def of(cls, tokenizer: Any) -> Vocabulary:
        if not getattr(tokenizer, "is_fast", False):
            raise UnsupportedModelError(
                f"{type(tokenizer).__name__} has no tokenizer.json: only tokenizers of the library tokenizers can be "
                "trimmed."
            )
        data = json.loads(tokenizer.backend_tokenizer.to_str())
        vocab = data["model"]["vocab"]
        tokens = (
            {number: entry[0] for number, entry in enumerate(vocab)}
            if isinstance(vocab, list)
            else {number: token for token, number in vocab.items()}
        )
        added = {entry["id"]: entry["content"] for entry in data["added_tokens"]}
        tokens |= added
        special = {*added, *tokenizer.all_special_ids, *_ids_around(data)} & tokens.keys()
        return cls(data, tokens, {token: number for number, token in tokens.items()}, special)

    @property
    def model(self) -> dict[str, Any]:
        return self.data["model"]  # type: ignore[no-any-return]

    @property
    def merges(self) -> list[tuple[str, str]]:
        """Of a BPE tokenizer, in the order in which they were learnt."""
        pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in self.model["merges"])
        return [(str(first), str(second)) for first, second in pairs]

    def merged(self, pair: tuple[str, str]) -> str:
        """What a merge makes."""
        return pair[0] + pair[1].removeprefix(self.model.get("continuing_subword_prefix") or "")

    @property
    def inside(self) -> set[int]:
        """The ids in the tokenizer's model; those of tokens that were only added come after them."""
        vocab = self.model["vocab"]
        return set(range(len(vocab))) if isinstance(vocab, list) else set(vocab.values())

    def order(self, kept: set[int], fixed: set[int]) -> list[int]:
        """Old ids by new id. Special tokens, and `fixed` ones, keep their ids where there is room."""
        first = sorted(kept & self.inside)
        staying = {number for number in (self.special | fixed) & set(first) if number < len(first)}
        others = iter(number for number in first if number not in staying)
        placed = [place if place in staying else next(others) for place in range(len(first))]
        return [*placed, *sorted(kept - self.inside)]


def rebuilt(tokenizer: Any, vocabulary: Vocabulary, numbers: Mapping[int, int]) -> Any:
    """The tokenizer with those tokens alone, under their new ids; made the way in which it will be loaded."""
    wanted = {token: numbers[number] for token, number in tokenizer.get_vocab().items() if number in numbers}
    with tempfile.TemporaryDirectory() as directory:
        tokenizer.save_pretrained(directory)
        text = json.dumps(_renumbered(vocabulary, numbers), ensure_ascii=False)
        (Path(directory) / FILE).write_text(text, encoding="utf-8")
        path = Path(directory) / CONFIG
        config = json.loads(path.read_text(encoding="utf-8"))
        config.pop("added_tokens_decoder", None)  # tokenizer.json has them, under their new ids
        path.write_text(json.dumps(config, ensure_ascii=False), encoding="utf-8")
        small = type(tokenizer).from_pretrained(directory, local_files_only=True, trust_remote_code=False)
    if small.get_vocab() != wanted:
        raise UnsupportedModelError(
            f"{type(tokenizer).__name__} does not load a smaller vocabulary as it was written: it is not supported."
        )
    small.name_or_path = tokenizer.name_or_path
    for name in ("name_or_path", "is_local", "local_files_only"):
        if name in tokenizer.init_kwargs:
            small.init_kwargs[name] = tokenizer.init_kwargs[name]
        else:
            small.init_kwargs.pop(name, None)
    return small


def _renumbered(vocabulary: Vocabulary, numbers: Mapping[int, int]) -> dict[str, Any]:
    """tokenizer.json with the tokens that have a number."""
    data = json.loads(json.dumps(vocabulary.data))
    model, vocab = data["model"], data["model"]["vocab"]
    if isinstance(vocab, list):
        staying = sorted((number for number in range(len(vocab)) if number in numbers), key=numbers.__getitem__)
        model["vocab"] = [vocab[number] for number in staying]
    else:
        model["vocab"] = {token: numbers[number] for token, number in vocab.items() if number in numbers}
    if model.get("unk_id") is not None:
        model["unk_id"] = numbers[model["unk_id"]]
    if "merges" in model:
        here = model["vocab"].keys()
        model["merges"] = [list(pair) for pair in vocabulary.merges if {*pair, vocabulary.merged(pair)} <= here]
    for entry in data["added_tokens"]:
        entry["id"] = numbers[entry["id"]]
    if data["padding"]:
        data["padding"]["pad_id"] = numbers.get(data["padding"]["pad_id"], 0)
    for part in _processors(data):
        for name in ("sep", "cls"):
            if name in part:
                part[name][1] = numbers[part[name][1]]
        for entry in (part.get("special_tokens") or {}).values():
            entry["ids"] = [numbers[number] for number in entry["ids"]]
    return data  # type: ignore[no-any-return]


def _ids_around(data: dict[str, Any]) -> set[int]:
    """The ids that padding and post-processors put around texts."""
    found = {data["padding"]["pad_id"]} if data["padding"] else set()
    for part in _processors(data):
        found |= {part[name][1] for name in ("sep", "cls") if name in part}
        found |= {number for entry in (part.get("special_tokens") or {}).values() for number in entry["ids"]}
    return found


def _processors(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The post-processor, or those that it is a sequence of."""
    found, left = [], [data["post_processor"]]
    while left:
        part = left.pop()
        if part:
            found.append(part)
            left.extend(part.get("processors") or [])
    return found
