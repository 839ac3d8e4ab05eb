"""Figures show the numbers that they are given, on the axes that they are given."""

from __future__ import annotations

import io
import json

import matplotlib as mpl
import numpy
import pytest
from recordings import bench_of, history_of, plan_of, speed_facts, write_run

from attentrim import plots
from attentrim.errors import AttentrimError

mpl.use("agg")
from matplotlib import pyplot


@pytest.fixture
def ax():
    figure, ax = pyplot.subplots()
    yield ax
    for kind in ("svg", "png"):
        file = io.BytesIO()
        figure.savefig(file, format=kind)
        assert len(file.getvalue()) > 1000
    pyplot.close(figure)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    plan = plan_of(removed={0: [2], 1: [0]})
    history = history_of(6, closed={(0, 2): 2, (1, 0): 4})
    return write_run(tmp_path_factory.mktemp("runs") / "run", plan=plan, history=history, bench=bench_of())


def crossed(ax):
    """(site, head) of every cross."""
    return sorted((int(y), int(x)) for points in ax.collections for x, y in points.get_offsets())


def lines(ax):
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in ax.get_lines()}


def test_head_map(run, ax):
    assert plots.head_map(run, ax) is ax
    numpy.testing.assert_allclose(ax.images[0].get_array(), [[0.5, 0.5, -0.27], [-0.25, 0.5, 0.5]])
    assert crossed(ax) == [(0, 2), (1, 0)]


def test_head_map_at_a_step(run, ax):
    plots.head_map(run, ax, step=3)
    assert crossed(ax) == [(0, 2)]
    assert ax.images[0].get_array()[1, 0] == 0.5


def test_head_map_of_a_plan(ax):
    plots.head_map(plan_of(3, removed={1: [0, 1]}, uniform=(2,)), ax)
    numpy.testing.assert_array_equal(ax.images[0].get_array()[:2], [[1, 1, 1], [0, 0, 1]])
    assert ax.images[0].get_array().mask[2].all()
    assert crossed(ax) == [(1, 0), (1, 1)]
    assert [list(line.get_ydata()) for line in ax.get_lines()] == [[2, 2]]


def test_head_map_over_training(run, ax):
    assert plots.head_map_over_training(run, ax) is ax
    parts = ax.child_axes
    assert [part.get_title() for part in parts] == ["step 0: 6 open", "step 3: 5 open", "step 6: 4 open"]
    assert [crossed(part) for part in parts] == [[], [(0, 2)], [(0, 2), (1, 0)]]


def test_head_map_over_training_at_given_steps(run, ax):
    plots.head_map_over_training(run, ax, steps=[1, 5])
    assert [part.get_title() for part in ax.child_axes] == ["step 1: 6 open", "step 5: 4 open"]


def test_heads_by_layer(run, ax):
    plots.heads_by_layer(run, ax)
    assert [bar.get_height() for bar in ax.patches] == pytest.approx([2 / 3, 2 / 3])
    places, values = lines(ax)["attention changed (1 - cosine)"]
    assert places == [0, 1]
    assert all(0 < value < 1 for value in values)


def test_kept_by_seeds(ax):
    plots.kept_by_seeds([plan_of(removed={0: [0]}), plan_of(removed={0: [0, 1]})], ax)
    numpy.testing.assert_allclose(ax.images[0].get_array(), [[0, 0.5, 1], [1, 1, 1]])
    assert crossed(ax) == [(0, 0)]


def test_kept_by_seeds_of_runs(run, ax):
    plots.kept_by_seeds([run, run], ax)
    assert crossed(ax) == [(0, 2), (1, 0)]


def test_runs_of_one_method_have_a_line_each(tmp_path, ax):
    for place in ("a/run", "b/run"):
        write_run(tmp_path / place)
    plots.metric_by_epoch([tmp_path / "a/run", tmp_path / "b/run"], ax)
    assert set(lines(ax)) == {"autoattention (a/run)", "autoattention (b/run)"}


def test_heads_of_uniform_sites_are_gone_too(tmp_path, ax):
    write_run(tmp_path / "u", plan=plan_of(2, uniform=(0,)))
    plots.metric_against_sparsity([tmp_path / "u"], ax)
    assert list(ax.containers[0][0].get_xdata()) == [50]
    assert ax.get_xlabel() == "heads removed or in uniform sites (%)"


def test_training_curve(run, ax):
    plots.training_curve(run, "loss", ax)
    ((steps, values),) = lines(ax).values()
    assert (steps[-1], values[-1]) == (6, pytest.approx(1 / 6))


def test_drop_rates(tmp_path, ax):
    history = [{"step": step, "epoch": step, "drop_rates": [0.5 + step / 100, 0.1]} for step in (10, 20)]
    plots.drop_rates(write_run(tmp_path / "run", history=history), ax)
    assert lines(ax) == {"site 0": ([10, 20], [0.6, 0.7]), "site 1": ([10, 20], [0.1, 0.1])}


def test_metric_by_epoch_has_a_line_a_run_and_one_for_a_plain_companion(tmp_path, ax):
    values = [(1, 0.6, 0.5), (2, 0.7, 0.8)]
    game = [{"step": epoch, "epoch": epoch, "eval_accuracy": a, "plain_accuracy": b} for epoch, a, b in values]
    runs = {
        "game": write_run(tmp_path / "game", history=game),
        "dense": write_run(tmp_path / "dense", history=history_of(2)),
    }
    assert plots.metric_by_epoch(runs, ax) is ax
    assert lines(ax) == {
        "game": ([1, 2], [0.6, 0.7]),
        "game: plain fine-tuning": ([1, 2], [0.5, 0.8]),
        "dense": ([1], [0.75]),
    }


def results():
    runs = [
        {"name": "dense", "seed": seed, "value": 0.8, "sparsity": 0, "settings": {"method": "none"}} for seed in (0, 1)
    ]
    for rate, sparsity, values in ((0.1, 0.25, (0.7, 0.9)), (1, 0.5, (0.6, 0.6)), (5, 0.75, (0.1, 0.3))):
        settings = {"method": "autoattention", "method_config": {"gate_lr": rate}}
        for seed, value in enumerate(values):
            run = {"name": f"auto-{rate}", "seed": seed, "value": value, "sparsity": sparsity, "settings": settings}
            runs.append(run)
    failed = {"name": "l0", "seed": 0, "error": "no", "settings": {"method": "l0"}}
    return {"metric": "matthews", "baseline": "dense", "runs": [{"error": None, **run} for run in runs] + [failed]}


@pytest.mark.parametrize("how", ["content", "file", "directory"])
def test_metric_against_sparsity(tmp_path, ax, how):
    given = results()
    if how != "content":
        (tmp_path / "results.json").write_text(json.dumps(given))
        given = tmp_path if how == "directory" else tmp_path / "results.json"
    plots.metric_against_sparsity(given, ax)
    (container,) = ax.containers
    numpy.testing.assert_allclose(numpy.array(container[0].get_data(), float), [[25, 50, 75], [0.8, 0.6, 0.2]])
    assert container.get_label() == "autoattention"
    assert set(lines(ax)["dense (baseline)"][1]) == {0.8}


def test_metric_against_sparsity_of_runs(tmp_path, ax):
    for name, removed, value in (("a", [0, 1, 2], 0.5), ("b", [0], 0.7)):
        write_run(tmp_path / name, plan=plan_of(removed={0: removed}), metrics={"value": value})
    plots.metric_against_sparsity([tmp_path / "a", tmp_path / "b"], ax)
    numpy.testing.assert_allclose(numpy.array(ax.containers[0][0].get_data(), float), [[100 / 6, 50], [0.7, 0.5]])


def test_sweep(ax):
    plots.sweep(results(), "gate_lr", ax)
    (container,) = ax.containers
    numpy.testing.assert_allclose(numpy.array(container[0].get_data(), float), [[0.1, 1, 5], [0.8, 0.6, 0.2]])
    assert ax.get_xscale() == "log"
    right = next(other for other in ax.figure.axes if other is not ax)
    numpy.testing.assert_allclose(right.get_lines()[0].get_ydata(), [25, 50, 75])


def test_latency_and_flops(run, ax):
    plots.latency_and_flops(run, ax)
    before, after = ([bar.get_height() for bar in bars] for bars in ax.containers)
    assert (before, after) == ([1, 1], [0.5, 0.5])
    assert [label.get_text() for label in ax.texts] == ["20", "0.006", "10", "0.003"]


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda run: plots.drop_rates(run), "no drop rates"),
        (lambda run: plots.training_curve(run, "reward"), "no reward"),
        (lambda run: plots.latency_and_flops({}), "no pair of timed models"),
        (lambda run: plots.sweep(results(), "penalty"), "two or more values of penalty"),
        (lambda run: plots.metric_against_sparsity(run / "nothing.json"), "Cannot read the results"),
        (lambda run: plots.head_map_over_training(run, steps=[-1]), "no gates at steps"),
        (lambda run: plots.kept_by_seeds([]), "no plans"),
        (lambda run: plots.kept_by_seeds([plan_of(2), plan_of(3)]), "different shapes"),
    ],
)
def test_nothing_to_draw_is_said_and_makes_no_figure(run, draw, message):
    open_figures = len(pyplot.get_fignums())
    with pytest.raises(AttentrimError, match=message):
        draw(run)
    assert len(pyplot.get_fignums()) == open_figures


def test_without_an_ax_a_figure_is_made(run):
    ax = plots.head_map(run)
    assert ax.figure.number in pyplot.get_fignums()
    pyplot.close(ax.figure)


def test_metric_against_speed(tmp_path, ax):
    plots.metric_against_speed(write_run(tmp_path / "run", metrics=speed_facts()), ax)
    drawn = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in ax.lines}
    assert drawn["trimmed"] == ([1.52, 2.05], [0.74, 0.7])
    assert drawn["the dense model"] == ([1], [0.76])
    assert ax.get_ylabel() == "accuracy"


def test_models_of_several_runs_are_grouped_by_the_speed_that_was_requested(tmp_path, ax):
    """A seed whose model of one speed was not timed does not shift its others."""
    facts = speed_facts()
    faster, slower = facts["speeds"]
    second = {**facts, "speeds": [{**slower, "measured": None}, {**faster, "measured": 2.15, "value": 0.6}]}
    runs = [
        write_run(tmp_path / f"seed-{seed}", metrics={**found, "seed": seed})
        for seed, found in enumerate([facts, second])
    ]
    plots.metric_against_speed(runs, ax)
    found = lines(ax)["autoattention"]
    assert found[0] == pytest.approx([1.52, 2.1])
    assert found[1] == pytest.approx([0.74, 0.65])


def test_layer_times_are_stacked_by_part(tmp_path, ax):
    plots.layer_times(write_run(tmp_path / "run", metrics=speed_facts()), ax)
    bars = {bars.get_label(): [(bar.get_x(), bar.get_width()) for bar in bars] for bars in ax.containers}
    assert bars["attention, before"] == [(0, 1), (0, 1)]
    assert bars["feed-forward, before"] == [(1, 2), (1, 2)]
    assert bars["rest, before"] == [(3, 0.5), (3, 0.5)]
    assert bars["feed-forward"] == [(0.5, 1), (0, 0)]
    assert bars["rest"] == [(1.5, 0.25), (0, 0)]
    assert [text.get_text().strip() for text in ax.texts] == ["removed"]
    assert ax.get_xlabel() == "ms"


def test_sites_that_are_uniform_are_no_sites_without_heads(tmp_path, ax):
    plots.heads_by_layer(write_run(tmp_path / "run", plan=plan_of(2, removed={0: [0, 1, 2]}, uniform=(1,))), ax)
    assert [text.get_text() for text in ax.texts] == ["0", "", "uniform"]
