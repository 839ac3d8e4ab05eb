"""The results pages: their tables and the numbers in their sentences are those of the raw files."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from scripts import BENCHMARKS, copy_of_benchmarks, modules_of, run_script

ROOT = BENCHMARKS.parent
PAGES = [ROOT / "RESULTS.md", *sorted((ROOT / "docs" / "results").glob("*.md"))]
NOT_MEASURED = """
L0; v2 preset; MPNet-base; MiniLM-L6; SST-2; WNUT-17; CoNLL-2003; SmolLM2-135M; int8; H200; TF32; A1; A2
95%; 5%; 90%; 80%; 70%; 65%; half a point
4, 6, 8 and 10 of 12 layers; 12 layers; 10 layers; 8 layers; 10 uniform layers; 8 of 12 layers; 10 to 11 of 12 layers
4 of its 30 attention blocks; kept of 12; 10 to 11 layers; windows of 15 and 25; within 2% of all
32 × 256; 2.6 ×; 1.8 ×; 2 ×; 4 ×; p = 0.1; rate 0.1 to 5; rate of 0.1; temperature of 1; below -1
99.3% of the heads on WNLI; Tables 1 and 2; Tables 2 and 3; Table 1; Table 2; Table 3; Table 4; Figures 6 and 7
Figures 3 and 4; Figure 2; Figure 3; Figure 4; Figure 5; Figure 7; eq. 3
"""
"""Names, settings and numbers of the papers in RESULTS.md: everything else there is filled in from raw files."""


def test_tables_and_numbers_of_all_pages_are_those_of_the_raw_files():
    done = run_script(BENCHMARKS / "tables.py", "--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_results_is_short_and_every_measured_number_in_it_is_filled_in():
    """Claims in the first column are the papers', so are their numbers."""
    text = (ROOT / "RESULTS.md").read_text()
    assert len(text.splitlines()) < 200
    with modules_of(BENCHMARKS):
        from pages.blocks import NUMBER
    lines = [re.sub(r"^\|[^|]*\|", "|", line) for line in NUMBER.sub("", text).splitlines()]
    left = "\n".join(lines)
    left = re.sub(r"\]\([^)]*\)|`[^`]*`|^\d+\. ", "", left, flags=re.MULTILINE)
    left = " ".join(left.split())  # lines are wrapped anywhere
    for known in sorted(re.split(r"; |\n", NOT_MEASURED.strip()), key=len, reverse=True):
        left = left.replace(known, "")
    assert re.findall(r"\S*\d\S*", left) == []


def test_every_number_that_is_defined_is_used():
    text = "".join(page.read_text() for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
    defined = re.findall(r"^  ([\w.-]+): \{", (BENCHMARKS / "numbers.yaml").read_text(), flags=re.MULTILINE)
    assert len(defined) > 50
    assert {name for name in defined if f"<!-- n: {name} -->" not in text} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_of_results_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)]*))?\)", page.read_text()):
        place = page.parent / target if target else page
        assert place.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", place.read_text(), flags=re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def settings(**more: Any) -> dict[str, Any]:
    return {"model": "{dense}", "method": "none", "num_train_epochs": 6, "learning_rate": "3e-5", **more}


def run(name: str, seed: int, value: float, **more: Any) -> dict[str, Any]:
    """As keep.py keeps it."""
    own = more.pop("settings", settings(model="m", num_train_epochs=4) if name == "dense" else settings())
    measured = {"metrics": {"matthews": value}, "sparsity": 0.0, "uniform_sites": [], "heads_kept": [4, 2]}
    return {"name": name, "seed": seed, "value": value, "settings": own, **measured, **more}


def plant(root: Path, name: str, runs: list[dict[str, Any]], **more: Any) -> None:
    model, _, task = name.partition("/")[2].rpartition("-")
    file = root / "benchmarks" / "results" / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    facts = {"model": model, "task": task, "metric": "matthews", "baseline": "dense-longer", "seeds": [0, 1]}
    file.write_text(json.dumps({**facts, "runs": runs, **more}))


class Pages:
    """A copy of the generator with results and one page of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.script = copy_of_benchmarks(root) / "tables.py"
        self.page = root / "RESULTS.md"

    def fill(self, *blocks: str) -> list[str]:
        """The page's lines within the blocks; the first is filled in by an import, so figures are left out."""
        kinds = [re.match(r"[\w-]+", block)[0] for block in blocks]
        self.page.write_text(
            "".join(f"<!-- {block} -->\nold\n<!-- /{kind} -->\n" for block, kind in zip(blocks, kinds, strict=True))
        )
        assert self.check() == 1
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "plots", type(sys)("plots"))
            sys.modules["plots"].main = lambda: None
            done = run_script(self.script)
        assert done.returncode == 0, done.stderr
        assert self.check() == 0
        shown = re.sub(r"<!--.*?-->\n?", "", self.page.read_text(), flags=re.DOTALL)
        return shown.strip().splitlines()

    def check(self) -> int:
        return run_script(self.script, "--check").returncode


@pytest.fixture
def pages(tmp_path):
    return Pages(tmp_path)


def test_a_row_says_what_it_is_in_columns(pages):
    layers = settings(method="uniform-sites", method_config={"count": 8}, teacher="{dense}", distill_logits=1)
    runs = [
        run("dense", 0, 0.5),
        run("dense-longer", 0, 0.6),
        run("dense-longer", 1, 0.7),
        run("top-8", 0, 0.5, settings={**layers, "distill_hidden": 1}, uniform_sites=[0, 1]),
        run(
            "top-8-noise", 0, 0.4, settings={**layers, "distill_noise": 0.2, "learning_rate": 1e-4}, uniform_sites=[1]
        ),
        run(
            "l0-65",
            0,
            0.5,
            settings=settings(method="l0", method_config={"penalty": 3}, model="{top-8}"),
            sparsity=0.5,
        ),
    ]
    plant(pages.root, "ours-layers/m-cola", runs)
    found = pages.fill("results: ours-layers/m-cola dense dense-longer top-* l0-* greedy-*")
    header, _, *lines, _, link = found
    cells = [dict(zip(header.split(" | "), line.split(" | "), strict=True)) for line in lines]
    by_name = {row["raw name |"].strip("`| "): row for row in cells}
    assert list(by_name) == ["dense", "dense-longer", "top-8", "top-8-noise", "l0-65"], "no row that was not run"
    assert by_name["dense-longer"]["Matthews"] == "65.0 ± 7.1"
    assert by_name["dense-longer"]["difference (95% interval)"] == "baseline"
    assert by_name["dense"]["difference (95% interval)"] == "-10.0 (one seed)"
    assert [row["epochs"] for row in cells] == ["4", "4 + 6", "4 + 6", "4 + 6", "4 + 6 + 6"]
    assert [row["noise"] for row in cells] == ["", "", "", "20%", ""]
    assert [row["rate"] for row in cells] == ["3e-5", "3e-5", "3e-5", "1e-4", "3e-5"]
    states = ["", "", "dense, hidden states 1", "dense, hidden states 0", ""]
    assert [row["distilled from"] for row in cells] == states
    layers_of = "uniform layers, top first"
    methods = ["dense", "dense", layers_of, layers_of, "L0 after uniform layers, `penalty=3`"]
    assert [row["| method"].strip("| ") for row in cells] == methods
    assert by_name["l0-65"]["heads removed"] == "50%"
    assert by_name["top-8"]["uniform layers"] == "2"
    assert "data" not in header, "a column that is the same for all"
    assert "(benchmarks/results/ours-layers/m-cola.json)" in link
    assert "run.py ours-layers --model m --task cola --seeds 2" in link


def test_one_training_that_leaves_several_speeds_is_a_row_for_each_and_other_metrics_are_columns(pages):
    """As embedding models are compared: the share of steps, the speed, and metrics beside the main one."""
    own = settings(model="m", method="fisher", max_steps=6000, method_config={"speedup": "1.5,3"})
    speeds = [
        {"asked": asked, "value": value, "metrics": {"similarity_spearman": value, "cosine": value + 0.01}}
        for asked, value in ((1.5, 0.98), (3, 0.95))
    ]
    metrics = {"similarity_spearman": 1.0, "cosine": 1.0}
    dense = run("dense", 0, 1.0, settings=settings(model="m", max_steps=1, learning_rate=0), metrics=metrics)
    fisher = run("fisher", 0, 0.95, settings=own, speeds=speeds)
    plant(pages.root, "ours-embeddings/m-embedding", [dense, fisher], metric="similarity_spearman", baseline="dense")
    found = pages.fill("results: ours-embeddings/m-embedding\nmetrics: cosine pairs_spearman\n")
    assert found[:5] == [
        "| method | asked | epochs | Spearman of similarities | difference (95% interval) | cosine "
        "| seeds | raw name |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        "| dense |  | 0 | 100.0 | baseline | 100.0 | 1 | `dense` |",
        "| Fisher | 1.5 × | 3,000 steps | 98.0 | -2.0 (one seed) | 99.0 | 1 | `fisher@1.5` |",
        "| Fisher | 3 × | 6,000 steps | 95.0 | -5.0 (one seed) | 96.0 | 1 | `fisher@3` |",
    ]


def test_tables_over_tasks_pair_by_seed_and_take_the_first_experiment_that_has_a_row(pages):
    planted = {
        "ours-layers/m-cola": {("dense", 0): 0.5, ("dense", 1): 0.7, ("top-8", 0): 0.4, ("top-8", 1): 0.64},
        "ours-tasks/m-cola": {("dense", 0): 0.9, ("top-8", 0): 0.1, ("text-8", 0): 0.92},
        "ours-tasks/m-pos": {("dense", 0): 0.6, ("text-8", 0): 0.5, ("top-10", 0): 0.4},
    }
    for name, values in planted.items():
        plant(pages.root, name, [run(row, seed, value) for (row, seed), value in values.items()])
    places = " ".join([*planted, "ours-tasks/m-sst2"])
    found = pages.fill(
        f"across: dense {places} top-8 text-8 l0-65",
        f"pairs: {places}\nten layers: top-10 against text-8\nother ones: l0-65 against dense\n",
    )
    assert found[:4] == [
        "| method | CoLA | tags | mean of the tasks | seeds | raw name |",
        "| --- | --- | --- | --- | --- | --- |",
        # -10 and -6: 8 ± 12.7 * 2
        "| dense | -8.0 (-33.4 to +17.4) | - | - | 2 | `top-8` |",
        "| dense | +2.0 (one seed) | -10.0 (one seed) | -4.0 (one seed) | 1 | `text-8` |",
    ]
    assert [line for line in found[6:] if line][:3] == [
        "| what differs | CoLA | tags | seeds | raw names |",
        "| --- | --- | --- | --- | --- |",
        "| ten layers | - | -10.0 (one seed) | 1 | `top-10` against `text-8` |",
    ]
    pages.page.write_text("<!-- across: dense ours-tusks/m-cola top-8 -->\n<!-- /across -->\n")
    with pytest.raises(FileNotFoundError, match="no such experiment"):
        pages.check()


def curve(*points: tuple[float, float]) -> list[dict[str, float]]:
    """Of (on held-out data, on dev) by epoch, as keep.py keeps it."""
    return [
        {"epoch": float(epoch), "held_out": held_out, "value": value, "train_loss": 0.5, "uniform": 0}
        for epoch, (held_out, value) in enumerate(points, 1)
    ]


def test_held_out_data_chooses_row_and_epoch_and_dev_is_shown(pages):
    """By the mean over seeds: what is best on dev, or on held-out data of one seed alone, is not chosen."""
    curves = {
        "dense-95": [curve((0.4, 0.50), (0.6, 0.60), (0.5, 0.90)), curve((0.4, 0.50), (0.6, 0.70), (0.5, 0.90))],
        "better": [curve((0.9, 0.99), (0.5, 0.40)), curve((0.1, 0.99), (0.5, 0.40))],
        "better-window-25": [curve((0.5, 0.99), (0.6, 0.63)), curve((0.5, 0.99), (0.7, 0.73)), curve((0.1, 0.1))],
    }
    runs = [run(name, seed, 0.9, epochs=one) for name, found in curves.items() for seed, one in enumerate(found)]
    plant(pages.root, "ours-attendout-longer/m-cola", [*runs, run("default", 0, 0.9), run("dense", 0, 0.9)])
    found = pages.fill(
        "chosen: ours-attendout-longer/m-cola\n"
        "plain: dense-95\n"
        "AttendOut: better better-window-25 not-run\n"
        "our defaults: default\n"
    )
    assert found[2:4] == [
        "| plain | 65.0 ± 7.1 |  | `dense-95`, epoch 2 | 2 |",
        "| AttendOut | 68.0 ± 7.1, +3.0 (+3.0 to +3.0) | +3.0 (+3.0 to +3.0) | `better-window-25`, epoch 2 | 2 |",
    ]
    assert len([line for line in found if line.startswith("|")]) == 4, "no curve, no line"
    assert "held-out training data" in found[-1]


def test_rows_of_controls_and_of_score_dropout_are_called_what_they_are(pages):
    game = {"preset": "v2", "reward_source": "train_split", "generator_lr": 0}
    idle = {"prior": 30, "generator_lr": 0, "generator_warmup": 0.99, "holdout_curve": True}
    runs = [
        run("dense", 0, 0.5),
        run("dense-95", 0, 0.5, settings=settings(method="attendout", method_config=idle, model="m")),
        run("sampled-frozen", 0, 0.5, settings=settings(method="attendout", method_config=game, model="m")),
        *(
            run(
                f"{on}-0.1", 0, 0.5, settings=settings(method="attention-dropout", method_config={"on": on}, model="m")
            )
            for on in ("scores", "weights")
        ),
    ]
    plant(pages.root, "ours-attendout/m-cola", runs, baseline="dense")
    _, _, *lines, _, _ = pages.fill("results: ours-attendout/m-cola")
    methods = {line.split(" | ")[-1].strip("`| "): line.split(" | ")[0].strip("| ") for line in lines if "|" in line}
    assert methods["dense"] == methods["dense-95"] == "dense"
    assert methods["sampled-frozen"].startswith("AttendOut, `preset=v2`")
    assert methods["scores-0.1"].startswith("attention dropout, `on=scores`")
    assert methods["weights-0.1"].startswith("attention dropout, not rescaled")


def test_a_number_in_a_sentence_is_filled_in_and_checked(pages):
    plant(pages.root, "ours-heads/m-cola", [run("dense-longer", seed, 0.5) for seed in (0, 1)])
    rule = "{difference: l0-65, to: dense-longer, in: [ours-heads/m-cola]}"
    (pages.root / "benchmarks" / "numbers.yaml").write_text(
        f"numbers:\n  l0: {rule}\n  loss: {rule[:-1]}, show: loss}}\n"
    )
    pages.page.write_text("L0: ?<!-- n: l0 -->, by ?<!-- n: loss -->.\n")
    with pytest.raises(AssertionError, match="no seed has both"):
        pages.check()
    values = [run("dense-longer", seed, 0.5) for seed in (0, 1)] + [run("l0-65", 0, 0.4), run("l0-65", 1, 0.44)]
    plant(pages.root, "ours-heads/m-cola", values)
    assert pages.check() == 1
    written = "L0: -8.0 (-33.4 to +17.4)<!-- n: l0 -->, by 8.0<!-- n: loss -->.\n"
    pages.page.write_text(written)
    assert pages.check() == 0
    pages.page.write_text(written.replace("-8.0", "-7.9"))
    assert pages.check() == 1, "edited by hand"
    pages.page.write_text(written.replace("by 8.0", "by eight"))
    with pytest.raises(AssertionError, match="does not follow a number"):
        pages.check()
    pages.page.write_text(written)
    plant(pages.root, "ours-heads/m-cola", [*values[:3], run("l0-65", 1, 0.43)])
    assert pages.check() == 1, "a raw file changed"


def test_tables_of_speed_by_model_and_by_shape(pages):
    """Columns by model: the shapes of the first; FLOPs of what is shown. By shape: all, on every machine."""

    def row(batch: int, length: int, dtype: str, device: str, speedup: float) -> dict[str, Any]:
        ends = [speedup - 0.1, speedup + 0.1]
        measured = {"name": "model", "speedup": speedup, "speedup_quartiles": ends, "flop_ratio": 1 + length / 1000}
        return {"batch": batch, "length": length, "dtype": dtype, "device": device, **measured}

    planted = {
        "gpu/top-8": [row(32, 256, "tf32", "cuda", 1.5), {"name": "against", "speedup": 1}],
        "gpu/top-11": [row(32, length, "tf32", "cuda", 2) for length in (256, 512)],
        "cpu/top-11": [row(4, 256, "float32", "cpu", 1.2)],
    }
    machine = {"threads": 2, "cpu": "AMD EPYC", "gpus": ["NVIDIA H200"]}
    for name, rows in planted.items():
        file = pages.root / "benchmarks" / "results" / "speed" / f"{name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        heads = 144 - 12 * int(name.rpartition("-")[2])
        file.write_text(json.dumps({"machine": machine, "rows": rows, "heads": heads, "heads_against": 144}))
    found = pages.fill("speed: gpu top-8 top-11 top-12", "shapes: top-11 gpu cpu")
    assert found == [
        "| uniform layers | heads left | tf32, 32 × 256 | theoretical speed-up (FLOPs) | raw name |",
        "| --- | --- | --- | --- | --- |",
        "| 8 | 48 of 144 | 1.50 (1.40-1.60) | 1.26 | `top-8` |",
        "| 11 | 12 of 144 | 2.00 (1.90-2.10) | 1.26 | `top-11` |",
        "| batch × length | tf32 | float32 |",
        "| --- | --- | --- |",
        "| H200, 32 × 256 | 2.00 (1.90-2.10) |  |",
        "| H200, 32 × 512 | 2.00 (1.90-2.10) |  |",
        "| 2 cores of AMD EPYC, 4 × 256 |  | 1.20 (1.10-1.30) |",
    ]


def test_speed_by_a_latency_table_is_that_of_whole_models():
    """On the models that were timed whole, the estimate that the figure falls back on is within 2%."""
    with modules_of(BENCHMARKS):
        from pages.measured import speed_by_table
        from pages.raw import read

        table = read("speed/latency/mpnet-base-cpu.json")
        timed = read("speed/latency/mpnet-base-cpu-speeds.json")
        assert len(timed) > 10
        for entry in timed:
            assert speed_by_table(table, entry) == pytest.approx(entry["speedup"], rel=0.02)


def test_figures_are_drawn_from_the_raw_files(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    with modules_of(BENCHMARKS):
        import plots

        monkeypatch.setattr(plots, "OUT", tmp_path)
        plots.main()
    assert {file.stem for file in tmp_path.glob("*.svg")} == set(plots.FIGURES)
    shown = {match for page in PAGES for match in re.findall(r"(\w+)\.svg\)", page.read_text())}
    assert shown == set(plots.FIGURES)
