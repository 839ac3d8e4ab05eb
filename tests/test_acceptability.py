"""The embedded sentences: balanced so that only relations between words help, and no sentence in two splits."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from attentrim.errors import TaskError
from attentrim.tasks.acceptability import PHENOMENA, SPLITS, Pair, pairs, sentences, vocabulary
from attentrim.tasks.acceptability.frames import fill, words
from attentrim.tasks.acceptability.lexicon import CONTENT, LEMMAS

MOST = {split: 10 * count for split, count in SPLITS.items()}


def content(pair: Pair) -> frozenset[str]:
    return frozenset(LEMMAS[word] for word in words(pair.good + pair.bad) if word in LEMMAS)


@pytest.mark.parametrize("split", SPLITS)
def test_half_are_acceptable_and_every_phenomenon_is_as_frequent(split):
    labels = Counter(label for _, label in sentences(split))
    assert labels == {0: SPLITS[split] // 2, 1: SPLITS[split] // 2}
    for count in (None, 101, 500):
        found = Counter(pair.phenomenon for pair in pairs(split, count=count))
        assert set(found) == set(PHENOMENA)
        assert max(found.values()) - min(found.values()) <= 1


def test_every_word_is_as_frequent_in_good_as_in_bad():
    balance: dict[str, Counter[str]] = {phenomenon: Counter() for phenomenon in PHENOMENA}
    for pair in pairs("train"):
        balance[pair.phenomenon].update(words(pair.good))
        balance[pair.phenomenon].subtract(words(pair.bad))
    assert [(name, word) for name, counts in balance.items() for word, count in counts.items() if count] == []


@pytest.mark.parametrize(("length", "most"), [(1, 0.55), (2, 0.65)])
def test_bags_of_words_and_of_neighbours_are_of_little_help(length, most):
    count = CountVectorizer(ngram_range=(1, length), token_pattern=r"[A-Za-z']+|[.,?]")
    texts, labels = zip(*sentences("train"), strict=True)
    held_texts, held_labels = zip(*sentences("validation"), strict=True)
    model = LogisticRegression(max_iter=200).fit(count.fit_transform(texts), labels)
    assert model.score(count.transform(held_texts), held_labels) < most


def test_no_sentence_and_no_content_is_in_two_splits():
    texts = {split: {text for seed in range(3) for text, _ in sentences(split, seed)} for split in SPLITS}
    topics = {split: {content(pair) for seed in range(3) for pair in pairs(split, seed)} for split in SPLITS}
    for found in (texts, topics):
        assert not found["train"] & found["validation"]
        assert not found["train"] & found["test"]
        assert not found["validation"] & found["test"]


@pytest.mark.parametrize("split", SPLITS)
def test_no_sentence_repeats_up_to_the_largest_count(split):
    texts = [text for text, _ in sentences(split, count=MOST[split])]
    assert len(set(texts)) == len(texts) == MOST[split]


def test_the_pairs_are_minimal():
    for pair in pairs("train"):
        good, bad = words(pair.good), words(pair.bad)
        changed = [index for index, (one, other) in enumerate(zip(good, bad, strict=True)) if one != other]
        assert len(changed) == 1 or (len(changed) == 2 and sorted(good) == sorted(bad)), pair


def test_sentences_are_spelled_as_english_is():
    shape = re.compile(r"[A-Z][a-z]*( [A-Za-z]+('t)?,?)* [A-Za-z]+[.?]")
    for text, _ in sentences("train") + sentences("test", seed=1):
        assert shape.fullmatch(text), text
        assert 5 <= len(text.split()) <= 18


def test_the_seed_decides():
    assert pairs("test", seed=3) == pairs("test", seed=3)
    assert pairs("test", seed=3) != pairs("test", seed=4)
    assert pairs("test", count=37) == pairs("test")[:37]
    assert sentences("test", seed=3) == sentences("test", seed=3)
    members = [text for pair in pairs("test") for text in (pair.good, pair.bad)]
    assert sorted(text for text, _ in sentences("test")) == sorted(members)
    assert [text for text, _ in sentences("test")] != members


def test_another_process_makes_the_same_list():
    code = "from attentrim.tasks.acceptability import pairs; print(pairs('test', 5, 40))"
    settings = {"PYTHONHASHSEED": "1", "PATH": ""}
    made = subprocess.run([sys.executable, "-c", code], env=settings, capture_output=True, text=True, check=True)
    assert made.stdout.strip() == str(pairs("test", 5, 40))


def test_the_vocabulary_is_what_occurs():
    found = {word for text, _ in sentences("train", count=MOST["train"]) for word in words(text)}
    assert vocabulary() == sorted(found)


def test_a_word_has_one_meaning():
    entries = [{word for form in entry for word in form.split()} for table in CONTENT.values() for entry in table]
    seen = Counter(word for entry in entries for word in entry - {"the"})
    assert set(seen.values()) == {1}
    assert set(seen) == set(LEMMAS)


def test_a_frame_has_four_sentences():
    class First:
        def choice(self, options):
            return options[0]

    frame = "[is|are] the <person1> {near|by} the {person2:1} <|not> {gap:0} {trait}?"
    assert fill(frame, First()) == (
        ("Is the doctor near the nurses nervous?", "Are the doctor near the nurses nervous?"),
        ("Are the doctors near the nurses not nervous?", "Is the doctors near the nurses not nervous?"),
    )


def test_requests_that_cannot_be_met():
    with pytest.raises(TaskError, match=r"Unknown split 'tests'\. Did you mean 'test'\?"):
        pairs("tests")
    with pytest.raises(TaskError, match=r"The count of pairs of test must be in \[0, 5040\].* Got 5041"):
        pairs("test", count=5041)
    with pytest.raises(TaskError, match=r"The count of sentences of train must be in \[0, 40320\].* Got -1"):
        sentences("train", count=-1)
