"""Semantic search with smaller sentence encoders, beside the full model and a static model made from it.

    python benchmarks/embedding_search.py --model all-MiniLM-L6-v2 --small run run/speedup-2 --texts texts/train.txt \\
        --queries texts/validation.txt --out search.json [--static 256]

Every model embeds texts and queries through sentence-transformers, in two interleaved rounds, so that all are timed
under the same conditions. Reports seconds, the share of each query's ten nearest texts that are also the full
model's, and how often the full model's nearest is among them. --static makes a model2vec model with that many
dimensions.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy

import attentrim  # noqa: F401  (so that trimmed models load)
from attentrim.machine import measured_with
from attentrim.tasks.similarity import measures

NEAREST, ROUNDS = 10, 3


def static_model(name: str, width: int) -> Any:
    from model2vec.distill import distill

    return distill(model_name=name, pca_dims=width)


def nearest(queries: Any, texts: Any) -> Any:
    """The numbers of the ten texts nearest to each query, nearest first."""
    scores = normalised(queries) @ normalised(texts).T
    return numpy.argsort(-scores, axis=1)[:, :NEAREST]


def normalised(vectors: Any) -> Any:
    return vectors / numpy.maximum(numpy.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def lines(path: Path, count: int) -> list[str]:
    found = path.read_text(encoding="utf-8").splitlines()
    return [line for line in found if line.strip()][:count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="the full model, a sentence-transformers directory")
    parser.add_argument("--small", nargs="*", default=[], help="models made from it")
    parser.add_argument("--static", type=int, metavar="WIDTH", help="a static model made from it, too")
    parser.add_argument("--texts", type=Path, required=True, help="what is searched, one text per line")
    parser.add_argument("--queries", type=Path, required=True)
    parser.add_argument("--count", type=int, default=4000, help="texts to search (default: 4000)")
    parser.add_argument("--questions", type=int, default=500, help="queries (default: 500)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()

    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(args.threads)
    models = {name: SentenceTransformer(name, device="cpu") for name in (args.model, *args.small)}
    if args.static:
        models[f"model2vec-{args.static}"] = static_model(args.model, args.static)
    texts, queries = lines(args.texts, args.count), lines(args.queries, args.questions)
    seconds: dict[str, list[float]] = {name: [] for name in models}
    found: dict[str, tuple[Any, Any]] = {}
    for _ in range(ROUNDS):
        for name, model in models.items():
            start = time.perf_counter()
            embedded = numpy.asarray(model.encode(texts, show_progress_bar=False))
            seconds[name].append(time.perf_counter() - start)
            found[name] = embedded, numpy.asarray(model.encode(queries, show_progress_bar=False))
    wanted = nearest(found[args.model][1], found[args.model][0])
    rows = []
    for name, (embedded, asked) in found.items():
        got = nearest(asked, embedded)
        shares = [len({*a} & {*b}) / NEAREST for a, b in zip(got.tolist(), wanted.tolist(), strict=True)]
        ratios = [full / own for full, own in zip(seconds[args.model], seconds[name], strict=True)]
        rows.append(
            {
                "model": Path(name).name if name != args.model else "full",
                "width": int(embedded.shape[1]),
                "seconds_median": median(seconds[name]),
                "speedup": median(ratios),
                "nearest_kept": float(numpy.mean(shares)),
                "first_found": float(numpy.mean([first in row for first, row in zip(wanted[:, 0], got, strict=True)])),
                **measures(asked, found[args.model][1]),
            }
        )
        print(json.dumps(rows[-1]))
    if args.out:
        result = {"texts": len(texts), "queries": len(queries), "rows": rows, "measured_with": measured_with()}
        args.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
