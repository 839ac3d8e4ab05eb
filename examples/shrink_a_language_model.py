"""Remove the attention blocks of a language model that matter least on a plain text, and measure what that costs.

    python examples/shrink_a_language_model.py --model HuggingFaceTB/SmolLM2-135M --text book.txt --blocks 4

One part of the text is used to choose, another to measure. Nothing is trained; it takes minutes on a CPU.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import attentrim

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", default="HuggingFaceTB/SmolLM2-135M")
parser.add_argument("--text", required=True)
parser.add_argument("--blocks", type=int, default=4, help="attention blocks to remove")
parser.add_argument("--length", type=int, default=256)
parser.add_argument("--output_dir", default="smaller-language-model")
args = parser.parse_args()

model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
tokenizer = AutoTokenizer.from_pretrained(args.model)
ids = tokenizer(Path(args.text).read_text(encoding="utf-8"), return_tensors="pt", verbose=False)["input_ids"][0]
pieces = [{"input_ids": piece[None]} for piece in ids.split(args.length) if len(piece) == args.length][:32]
calibration, judged = pieces[::2], pieces[1::2]


def perplexity(which: Any) -> float:
    with torch.no_grad():
        losses = [which(**piece, labels=piece["input_ids"]).loss for piece in judged]
    return math.exp(torch.stack(losses).mean())


plan = attentrim.Similarity(remove=f"attention:{args.blocks}").search(model, calibration)
small = attentrim.trim(model, plan)
before, after = attentrim.plan_cost(model, plan)
print(plan)
print(f"perplexity             {perplexity(model):8.2f} -> {perplexity(small):.2f}")
print(f"parameters             {before.parameters:8,} -> {after.parameters:,}")
print(f"cache bytes per token  {before.cache_bytes_per_token:8,} -> {after.cache_bytes_per_token:,}")

prompt = ids[None, :16]
for name, which in (("before", model), ("after", small)):
    written = which.generate(prompt, max_new_tokens=24, do_sample=False, pad_token_id=tokenizer.eos_token_id)
    print(f"\n{name}: {tokenizer.decode(written[0])}")
small.save_pretrained(args.output_dir)
tokenizer.save_pretrained(args.output_dir)
