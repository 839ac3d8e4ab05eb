"""The measures of embeddings against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from attentrim.errors import TaskError
from attentrim.tasks import similarity
from attentrim.tasks.kinds import KINDS
from attentrim.tasks.kinds.base import EncodedDataset

COUNT = 25


def vectors(seed, count=COUNT, width=4):
    return np.random.default_rng(seed).normal(size=(count, width)).astype("float32")


def near(seed=0, noise=0.3):
    """A teacher's embeddings, and a model's that are near them."""
    theirs = vectors(seed)
    return theirs + noise * vectors(seed + 1), theirs


def cosine(a, b):
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def by_hand(mine, theirs, neighbours=10):
    count = len(mine)
    pairs = [(i, j) for i in range(count) for j in range(i)]
    spearman = stats.spearmanr(*([cosine(part[i], part[j]) for i, j in pairs] for part in (mine, theirs))).statistic
    kept = 0
    for i in range(count):
        others = [j for j in range(count) if j != i]
        ranked = [sorted(others, key=lambda j: -cosine(part[i], part[j]))[:neighbours] for part in (mine, theirs)]
        kept += len({*ranked[0]} & {*ranked[1]})
    return {
        "similarity_spearman": spearman,
        "cosine": np.mean([cosine(a, b) for a, b in zip(mine, theirs, strict=True)]),
        "neighbours": kept / (count * neighbours),
    }


@pytest.mark.parametrize("noise", [0.1, 0.5, 2.0])
def test_measures_are_as_by_hand(noise):
    mine, theirs = near(noise=noise)
    assert similarity.measures(mine, theirs) == pytest.approx(by_hand(mine, theirs), abs=1e-5)


def test_the_teacher_itself_is_the_best_whatever_the_length_of_its_vectors():
    theirs = vectors(0)
    assert similarity.measures(3 * theirs, theirs) == pytest.approx(
        {"similarity_spearman": 1.0, "cosine": 1.0, "neighbours": 1.0}
    )


def test_neighbours_are_found_block_by_block_alike(monkeypatch):
    mine, theirs = near()
    monkeypatch.setattr(similarity, "ROWS", 7)
    assert similarity.measures(mine, theirs) == pytest.approx(by_hand(mine, theirs), abs=1e-5)


def test_of_many_pairs_a_sample_is_ranked(monkeypatch):
    mine, theirs = near(noise=1.0)
    whole = similarity.measures(mine, theirs)["similarity_spearman"]
    monkeypatch.setattr(similarity, "MOST_PAIRS", 250)
    found = similarity.measures(mine, theirs)["similarity_spearman"]
    assert found != whole
    assert found == pytest.approx(whole, abs=0.15)
    assert similarity.measures(theirs, theirs)["similarity_spearman"] == pytest.approx(1)


def test_few_texts_have_fewer_neighbours():
    mine, theirs = (part[:6] for part in near())
    assert similarity.neighbours_of(6) == 5
    assert similarity.measures(mine, theirs)["neighbours"] == 1
    assert similarity.neighbours_of(11) == similarity.neighbours_of(1000) == 10


def test_a_teacher_of_another_width_has_no_cosine():
    mine = vectors(0)
    assert "cosine" not in similarity.measures(mine, vectors(1, width=7))


def test_scored_pairs_are_ranked_by_the_cosine():
    first, second = vectors(0), vectors(1)
    scores = [cosine(a, b) + 0.2 * number for a, b, number in zip(first, second, vectors(2)[:, 0], strict=True)]
    wanted = stats.spearmanr([cosine(a, b) for a, b in zip(first, second, strict=True)], scores).statistic
    outputs = np.concatenate([first, second])
    assert similarity.pairs_spearman(outputs, scores) == pytest.approx(wanted)
    kind = KINDS["embedding"]
    data = EncodedDataset({"input_ids": [[1]] * 2 * COUNT}, None, 0, COUNT, scores=scores)
    names = ("pairs_spearman", *kind.default_metrics)
    assert kind.judge(names, outputs, None, data, ()) == pytest.approx({"pairs_spearman": wanted})
    both = kind.judge(names, outputs, outputs, data, ())
    assert both == pytest.approx({"pairs_spearman": wanted, **dict.fromkeys(kind.default_metrics, 1.0)})


def test_two_texts_are_too_few():
    with pytest.raises(TaskError, match="of 2 texts are not meaningful"):
        KINDS["embedding"].score((), vectors(0, 2), vectors(0, 2), ())
