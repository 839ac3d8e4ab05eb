"""Make a sentence encoder faster with plain text only, and compare its search results with the original model's.

    python examples/shrink_an_embedding_model.py --model sentence-transformers/all-MiniLM-L6-v2 --texts texts.txt

texts.txt has some thousands of texts, one per line, of the kind that the model will embed. With MiniLM-L6 and the
default of 1,000 steps it takes a quarter of an hour on two CPU cores.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sentence_transformers import SentenceTransformer, util

from attentrim.runs.headline import headline_of
from attentrim.runs.pipeline import run
from attentrim.runs.settings import RunSettings

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", default="sentence-transformers/all-MiniLM-L6-v2")
parser.add_argument("--texts", required=True)
parser.add_argument("--speedup", default="1.5")
parser.add_argument("--max_steps", type=int, default=1000)
parser.add_argument("--output_dir", default="embedder")
args = parser.parse_args()

finished = run(
    RunSettings(
        model=args.model,
        task="embedding",
        train_file=args.texts,
        speedup=args.speedup,
        output_dir=args.output_dir,
        training={"max_steps": args.max_steps},
    ),
    say=print,
)
print(headline_of(finished.result, finished.speed, here=True))
for name, value in finished.result["metrics"].items():
    print(f"{name:20} {value:.3f}")

texts = Path(args.texts).read_text(encoding="utf-8").splitlines()[:5000]
query = texts[0]
for name in (args.model, args.output_dir):
    encoder = SentenceTransformer(name, device="cpu")
    hits = util.semantic_search(encoder.encode([query]), encoder.encode(texts), top_k=4)[0]
    print(f"\nnearest to {query!r} with {name}:")
    for hit in hits[1:]:
        print(f"  {hit['score']:.2f}  {texts[hit['corpus_id']]}")
