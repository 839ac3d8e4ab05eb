"""How large a model's hidden states are, and how far they move when layers are made uniform without training.

    python benchmarks/hidden_states.py --model mpnet-base --text glue/CoLA/train.tsv --uniform 8

Prints one line per layer, embeddings first: the mean square of the states, the mean squared error with the last
layers uniform, and that error as a share of the mean square (which `distill_hidden` weighs), over the words of the
first lines of a text. --dropout turns the model's own dropout on, as in training.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from transformers import AutoModel, AutoTokenizer

from attentrim import Control


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--text", type=Path, required=True, help="the last tab-separated column of each line is read")
    parser.add_argument("--lines", type=int, default=64)
    parser.add_argument("--uniform", type=int, default=8, help="how many layers, from the last one down")
    parser.add_argument("--dropout", action="store_true", help="with the model's own dropout")
    args = parser.parse_args()
    lines = args.text.read_text(encoding="utf-8").splitlines()[: args.lines]
    batch = AutoTokenizer.from_pretrained(args.model)(
        [line.rpartition("\t")[2] for line in lines], return_tensors="pt", padding=True
    )
    valid = batch["attention_mask"].bool()
    model = AutoModel.from_pretrained(args.model).float().eval()
    with torch.no_grad(), Control(model) as control:
        before = model(**batch, output_hidden_states=True).hidden_states
        for site in range(len(control.sites) - args.uniform, len(control.sites)):
            control.set("uniform", site)
        torch.manual_seed(0)
        model.train(args.dropout)
        after = model(**batch, output_hidden_states=True).hidden_states
    squares = [float(state[valid].square().mean()) for state in before]
    errors = [float((old - new)[valid].square().mean()) for old, new in zip(before, after, strict=True)]
    shares = [error / square for error, square in zip(errors, squares, strict=True)]
    for layer, (square, error, share) in enumerate(zip(squares, errors, shares, strict=True)):
        print(f"{layer:3d}  {square:.4f}  {error:.4f}  {share:.2f}")
    print("all ", "  ".join(f"{sum(values) / len(values):.4f}" for values in (squares, errors, shares)))


if __name__ == "__main__":
    main()
