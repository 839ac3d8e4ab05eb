"""What a model loses when it keeps only the tokens of a task's training sentences: parameters, embeddings, accuracy.

    python benchmarks/vocabulary.py --model all-MiniLM-L6-v2 --data_dir glue/SST-2 --out vocabulary.json

The development sentences are told apart by whether all of their tokens are kept. Of those, ids and mean-pooled
embeddings must be the same; of the others, the cosine between the two models' embeddings says what they lose. Then a
classifier is fine-tuned on a few sentences, with all tokens, and its accuracy measured with all tokens and with those
that are kept.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from attentrim import trim_vocabulary
from attentrim.vocabulary.closure import CHARACTERS
from attentrim.vocabulary.used import used_ids

BATCH = 64


def sentences(path: Path) -> tuple[list[str], list[int]]:
    rows = [line.rpartition("\t") for line in path.read_text(encoding="utf-8").split("\n")[1:] if line]
    return [text for text, _, _ in rows], [int(label) for _, _, label in rows]


def parameters(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@torch.no_grad()
def embeddings(model: Any, tokenizer: Any, texts: list[str]) -> Tensor:
    """The mean of the last hidden states, as sentence encoders take it."""
    found = []
    for start in range(0, len(texts), BATCH):
        batch = tokenizer(texts[start : start + BATCH], padding=True, truncation=True, return_tensors="pt")
        states, mask = model(**batch).last_hidden_state, batch["attention_mask"].unsqueeze(-1)
        found.append((states * mask).sum(1) / mask.sum(1))
    return torch.cat(found)


@torch.no_grad()
def accuracy(model: Any, tokenizer: Any, texts: list[str], labels: list[int]) -> float:
    right = 0
    for start in range(0, len(texts), BATCH):
        batch = tokenizer(texts[start : start + BATCH], padding=True, truncation=True, return_tensors="pt")
        answers = model(**batch).logits.argmax(-1).tolist()
        right += sum(map(int.__eq__, answers, labels[start : start + BATCH]))
    return right / len(texts)


def fine_tuned(name: str, tokenizer: Any, texts: list[str], labels: list[int], rate: float, seed: int) -> Any:
    """One epoch."""
    torch.manual_seed(seed)
    model = AutoModelForSequenceClassification.from_pretrained(name, num_labels=2)
    optimizer = torch.optim.AdamW(model.parameters(), rate)
    order = torch.randperm(len(texts)).tolist()
    for start in range(0, len(order), 16):
        chosen = order[start : start + 16]
        batch = tokenizer([texts[index] for index in chosen], padding=True, truncation=True, return_tensors="pt")
        loss = model(**batch, labels=torch.tensor([labels[index] for index in chosen])).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


def characters(tokenizer: Any, used: set[int]) -> dict[str, int]:
    """What it costs to keep the characters of the texts, or all characters, as well as the tokens that occur."""
    vocab = tokenizer.get_vocab()
    single = {token: number for token, number in vocab.items() if len(token.removeprefix("##")) == 1}
    tokens = {token for token, number in vocab.items() if number in used}
    here = CHARACTERS.union(*(token.removeprefix("##") for token in tokens))
    special = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    least = used | special
    return {
        "that_occur": len(least),
        "with_characters_of_the_texts": len(
            least | {number for token, number in single.items() if token.removeprefix("##") in here}
        ),
        "with_all_characters": len(least | set(single.values())),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a sentence encoder with a WordPiece tokenizer")
    parser.add_argument("--data_dir", type=Path, required=True, help="SST-2, as GLUE publishes it")
    parser.add_argument("--fine_tune", type=int, default=2000, help="training sentences of the classifier")
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="a JSON file")
    args = parser.parse_args()
    train, train_labels = sentences(args.data_dir / "train.tsv")
    dev, dev_labels = sentences(args.data_dir / "dev.tsv")
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModel.from_pretrained(args.model).eval()
    small, fewer = trim_vocabulary(model, tokenizer, train)

    old, new = ([made(text, truncation=False)["input_ids"] for text in dev] for made in (tokenizer, fewer))
    kept = fewer.get_vocab()
    tokens = [tokenizer.convert_ids_to_tokens(ids) for ids in old]
    whole = torch.tensor([all(token in kept for token in words) for words in tokens])
    renumbered = sum(
        [kept.get(token) for token in words] == ids
        for words, ids, same in zip(tokens, new, whole.tolist(), strict=True)
        if same
    )
    # both halves in batches of their own, so that the kept ones are padded alike
    halves = [[text for text, same in zip(dev, whole.tolist(), strict=True) if same == half] for half in (True, False)]
    pairs = [(embeddings(model, tokenizer, texts), embeddings(small, fewer, texts)) for texts in halves]
    cosines = torch.cosine_similarity(*pairs[1])

    chosen = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[: args.fine_tune].tolist()
    few, labels = [train[index] for index in chosen], [train_labels[index] for index in chosen]
    rows = []
    for seed in range(args.seeds):
        trained = fine_tuned(args.model, tokenizer, few, labels, args.learning_rate, seed)
        cut, its = trim_vocabulary(trained, tokenizer, train)
        rows.append(
            {
                "seed": seed,
                "accuracy": accuracy(trained, tokenizer, dev, dev_labels),
                "accuracy_trimmed": accuracy(cut, its, dev, dev_labels),
            }
        )
    result = {
        "model": Path(args.model).name,
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "texts": len(train),
        "tokens_before": len(tokenizer),
        "tokens": len(fewer),
        "parameters_before": parameters(model),
        "parameters": parameters(small),
        "kept": characters(tokenizer, used_ids(tokenizer, train)),
        "dev": {
            "texts": len(dev),
            "with_all_tokens_kept": int(whole.sum()),
            "of_these_same_ids": renumbered,
            "of_these_max_abs_difference": float((pairs[0][0] - pairs[0][1]).abs().max()),
            "with_other_tokens": int((~whole).sum()),
            "of_these_cosine_mean": float(cosines.mean()),
            "of_these_cosine_median": float(cosines.median()),
            "of_these_cosine_lowest": float(cosines.min()),
            "of_these_with_unknown_added": sum(
                ids.count(fewer.unk_token_id) > before.count(tokenizer.unk_token_id)
                for ids, before in zip(new, old, strict=True)
            ),
            "tokens_gone": sum(token not in kept for words in tokens for token in words),
            "tokens": sum(map(len, tokens)),
        },
        "classifier": {"train_texts": len(few), "epochs": 1, "learning_rate": args.learning_rate, "seeds": rows},
    }
    text = json.dumps(result, indent=1)
    print(text)
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
