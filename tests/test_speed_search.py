"""The search for the least loss within a budget, against brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
import training as tr
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import made_up

from attentrim import Fisher, Plan
from attentrim.errors import MethodError
from attentrim.methods.fisher.choosing import Chooser, Scores
from attentrim.speed.layers import LayerPlaces
from attentrim.speed.search import GONE, Ways, least_cost, least_loss, ways_of
from attentrim.speed.table import GroupCosts

# Ways with whole costs


def ways_at_random(seed, layers=4, most=6):
    random = np.random.default_rng(seed)
    found = []
    for _ in range(layers):
        count = int(random.integers(1, most))
        costs, losses = random.integers(0, 12, count).astype(float), random.random(count).round(3)
        found.append(Ways(costs, losses, tuple((("heads", number),) for number in range(count))))
    return found


def totals(ways, picks):
    chosen = list(zip(ways, picks, strict=True))
    return sum(way.costs[pick] for way, pick in chosen), sum(way.losses[pick] for way, pick in chosen)


def by_brute_force(ways, budget):
    """The least loss of all combinations that fit; None where none does."""
    every = (totals(ways, picks) for picks in itertools.product(*(range(len(way.costs)) for way in ways)))
    return min((loss for cost, loss in every if cost <= budget), default=None)


@pytest.mark.parametrize("seed", range(8))
def test_the_least_loss_is_that_of_brute_force(seed):
    """In steps of 1, every whole cost is met; budgets from too little to enough for everything."""
    ways = ways_at_random(seed)
    least, enough = int(least_cost(ways)), int(sum(way.costs.max() for way in ways))
    for budget in range(least - 2, enough + 3):
        picks, wanted = least_loss(ways, budget, steps=max(budget, 1)), by_brute_force(ways, budget)
        assert (picks is None) == (wanted is None) == (budget < least)
        if picks is not None:
            cost, loss = totals(ways, picks)
            assert cost <= budget
            assert loss == pytest.approx(wanted)


@given(st.integers(0, 10_000), st.floats(0.01, 60), st.sampled_from([50, 400, 8000]))
@settings(max_examples=60)
def test_rounding_never_exceeds_the_budget_and_costs_a_step_per_layer_at_most(seed, budget, steps):
    ways = ways_at_random(seed)
    picks = least_loss(ways, budget, steps)
    with_less = by_brute_force(ways, budget * (1 - len(ways) / steps))
    if picks is None:
        assert with_less is None
        return
    cost, loss = totals(ways, picks)
    assert cost <= budget * (1 + 1e-9)
    assert loss >= by_brute_force(ways, budget * (1 + 1e-9)) - 1e-9
    assert with_less is None or loss <= with_less + 1e-9


def test_a_budget_of_nothing_buys_what_is_free():
    ways = [Ways(np.array([0.0, 0.5, 3.0]), np.array([2.0, 1.0, 0.0]), ((), (), ()))]
    assert least_loss(ways, 0.0) == [0]
    assert least_loss(ways, -1.0) is None
    assert least_loss([Ways(np.array([0.5, 3.0]), np.array([1.0, 0.0]), ((), ()))], 0.0) is None


def test_without_layers_there_is_nothing_to_choose():
    assert least_loss([], 3.0) == []
    assert least_cost([]) == 0


def test_a_layer_is_removed_whole_where_units_one_by_one_look_better():
    """The rest of a layer is what costs here: its neurons are the dearest per cost, and yet all of it must go.

    Greedy by loss per cost takes neurons of layer 0 (0.1 per ms) to the last, and then is not fast enough.
    """
    group = GroupCosts((), 10.0, {"neurons": {0: 0.0, 4: 4.0}})
    cheap = {("neurons", kept): 0.1 * (4 - kept) for kept in range(5)}
    dear = {("neurons", kept): 0.5 * (4 - kept) for kept in range(5)}
    layers = [LayerPlaces(index, {"blocks": (index,)}) for index in range(2)]
    ways = [
        ways_of(layers[0], group, [cheap], None),
        ways_of(layers[1], group, [dear], 2.0),
    ]
    for budget, gone, left in ((28, False, 4), (26, False, 2), (24, False, 0), (19, True, 4), (14, True, 4)):
        picks = least_loss(ways, budget, steps=budget)
        first, second = (way.levels[pick] for way, pick in zip(ways, picks, strict=True))
        assert (second is GONE) == gone
        assert first == (("neurons", left),), budget


# The ways to leave a layer


@given(st.data())
@settings(max_examples=60)
def test_just_the_combinations_that_none_beats_are_kept(data):
    number = st.integers(0, 6)
    heads = {("heads", kept): float(data.draw(number)) for kept in range(3)}
    neurons = {("neurons", kept): float(data.draw(number)) for kept in range(4)}
    costs = {"heads": {kept: float(data.draw(number)) for kept in range(3)}}
    costs["neurons"] = {kept: float(data.draw(number)) for kept in range(4)}
    if_gone = data.draw(st.none() | st.floats(0, 20))
    layer, rest = LayerPlaces(0, {"sites": (0,), "blocks": (0,)}), float(data.draw(number))
    ways = ways_of(layer, GroupCosts((layer,), rest, costs), [heads, neurons], if_gone)
    every = [
        (rest + costs["heads"][a] + costs["neurons"][b], heads["heads", a] + neurons["neurons", b])
        for a in range(3)
        for b in range(4)
    ]
    every += [] if if_gone is None else [(0.0, if_gone)]
    wanted = {point for point in every if not any(o != point and o[0] <= point[0] and o[1] <= point[1] for o in every)}
    assert set(zip(ways.costs.tolist(), ways.losses.tolist(), strict=True)) == wanted
    assert len(ways.costs) == len(wanted)
    for cost, loss, levels in zip(ways.costs, ways.losses, ways.levels, strict=True):
        if levels is GONE:
            assert (cost, loss) == (0.0, if_gone)
        else:
            (_, a), (_, b) = levels
            assert cost == rest + costs["heads"][a] + costs["neurons"][b]
            assert loss == heads["heads", a] + neurons["neurons", b]


# On a real model

SMALL = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 3}


class Problem:
    """A chooser for a tiny BERT, and all that it could choose."""

    def __init__(self, prune=("heads", "neurons", "layers"), seed=0, **costs):
        self.model = tr.classifier(**SMALL)
        self.session = Fisher(prune=",".join(prune), cost="flops").attach(self.model)
        self.units, self.table = self.session.units, made_up(self.model, **costs)
        self.chooser = Chooser(self.model, self.units, self.table, prune, step=1)
        self.session.detach()
        generator = torch.Generator().manual_seed(seed)
        self.gates = torch.rand(10, generator=generator)
        self.switches = (2 * torch.rand(2, generator=generator)).tolist()
        names = {"layers": ("layers", 0), "uniform": ("uniform", 0)}
        self.scores = Scores(
            self.gates,
            {(kind, place): self.switches[place] for kind, _ in names.values() for place in range(2)},
        )

    def inside(self, layer):
        """The gates in a layer: heads come first."""
        return [2 * layer, 2 * layer + 1, *range(4 + 3 * layer, 7 + 3 * layer)]

    def if_gone(self, layer):
        return max(float(self.gates[self.inside(layer)].sum()), self.switches[layer])

    def outcomes(self, layers=True):
        """(cost, loss) of every set of gates, and of every layer gone but that which the loss feels most."""
        stays = max(range(2), key=self.if_gone)
        for gone in [(), (1 - stays,)] if layers else [()]:
            free = [gate for layer in range(2) if layer not in gone for gate in self.inside(layer)]
            for closed in itertools.product([False, True], repeat=len(free)):
                shut = [gate for gate, off in zip(free, closed, strict=True) if off]
                heads = {site: [g - 2 * site for g in shut if 2 * site <= g < 2 * site + 2] for site in range(2)}
                neurons = {
                    block: [g - 4 - 3 * block for g in shut if 4 + 3 * block <= g < 7 + 3 * block]
                    for block in range(2)
                }
                plan = Plan.of(
                    self.model,
                    layers=gone,
                    heads={site: units for site, units in heads.items() if site not in gone},
                    neurons={block: units for block, units in neurons.items() if block not in gone},
                )
                yield self.table.cost(plan), float(self.gates[shut].sum()) + sum(map(self.if_gone, gone))

    def plan(self, choice):
        return Plan.of(self.model, **self.chooser.removed(choice))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rest", [0.0, 6.0])
def test_a_choice_is_the_best_of_all_sets_of_gates_and_layers(seed, rest):
    problem = Problem(seed=seed, rest=rest, head=2.0, neuron=1.0)
    every, went = list(problem.outcomes()), set()
    for budget in range(5, int(problem.table.dense) + 2):
        wanted = min((loss for cost, loss in every if cost <= budget), default=None)
        choice = problem.chooser.choose(
            problem.scores, torch.ones(10), frozenset(), float(budget), steps=max(1, budget - 5)
        )
        assert (choice is None) == (wanted is None), budget
        if choice is not None:
            assert choice.loss == pytest.approx(wanted, abs=1e-5)
            assert choice.cost == pytest.approx(problem.table.cost(problem.plan(choice)))
            assert choice.cost <= budget
            closed = torch.tensor(
                [g for layer in range(2) if layer not in choice.layers for g in problem.inside(layer)]
            )
            felt = float((problem.gates * (1 - choice.open))[closed].sum()) + sum(map(problem.if_gone, choice.layers))
            assert felt == pytest.approx(choice.loss, abs=1e-5)
            went |= choice.layers
    assert len(went) == (rest > 0), "the one that is felt most stays, and both where a layer costs what is in it"


def test_what_may_not_go_stays():
    problem = Problem(prune=("neurons",))
    choice = problem.chooser.choose  # heads have no gates here
    assert problem.units.count == 6
    found = choice(Scores(torch.arange(6.0), {}), torch.ones(6), frozenset(), problem.table.dense - 3.9)
    plan = problem.plan(found)
    assert (plan.heads_kept, plan.layers) == ([2, 2], ())
    assert plan.neurons == {0: (0, 1, 2), 1: (0,)}


def test_closed_gates_stay_closed_and_removed_layers_gone():
    problem = Problem()
    open_gates = torch.ones(10)
    open_gates[[0, 5]] = 0
    choice = problem.chooser.choose(problem.scores, open_gates, frozenset([1]), problem.table.dense, 1000)
    assert (choice.open == open_gates).all()
    assert choice.layers == {1}
    assert choice.loss == 0
    # 5 around the layers; layer 0 has 3, a head and two neurons
    assert choice.cost == 5 + 3 + 4 + 2


def test_a_site_turns_uniform_where_that_costs_the_loss_less_than_its_heads():
    problem = Problem(prune=("heads", "uniform"), uniform=5.0)
    gates = torch.tensor([3.0, 3.0, 3.0, 3.0])
    scores = Scores(gates, {("uniform", 0): 5.0, ("uniform", 1): 0.5})
    dense = problem.table.dense
    choice = problem.chooser.choose(scores, torch.ones(4), frozenset(), dense - 2.9)
    assert (choice.whole, choice.loss, choice.cost) == ({"uniform": {1}}, 0.5, dense - 3)
    plan = problem.plan(choice)
    assert (plan.uniform, plan.heads) == ((1,), {})
    assert problem.table.cost(plan) == choice.cost
    # more than uniform sites can give: a head of the other site as well
    choice = problem.chooser.choose(scores, torch.ones(4), frozenset(), dense - 6.9)
    assert choice.loss == pytest.approx(3.5, rel=1e-5)


def test_beyond_reach_is_said_with_what_can_be_reached():
    problem = Problem(fixed=10.0, rest=5.0, head=4.0, neuron=1.0)
    # a layer: 5 + 8 + 3; one goes, and of the other 5 stay
    assert problem.table.dense == 42
    problem.chooser.check_reach(2.7)
    with pytest.raises(
        MethodError, match=r"cannot be made 2.8 times as fast: without all heads and neurons and layers"
    ) as error:
        problem.chooser.check_reach(2.8)
    assert "2.80 times as fast at 8 x 16 tokens on cpu" in str(error.value)
    narrow = Problem(prune=("heads",), fixed=10.0, rest=5.0)
    with pytest.raises(MethodError, match=r"without all heads that can be removed, it is 1.62 times"):
        narrow.chooser.check_reach(2.0)


def test_the_table_is_asked_for_more_where_it_promises_too_much():
    """By the table 4 times, in truth 2: what cannot be reached is said before training, not after it."""
    problem = Problem(fixed=10.0, rest=5.0, head=4.0, neuron=1.0, checks=((2.4, 1.6),))
    problem.chooser.check_reach(1.8)
    with pytest.raises(MethodError, match=r"it is 1.87 times as fast"):
        problem.chooser.check_reach(1.9)


def test_wide_places_keep_multiples_of_a_step():
    model = tr.classifier(intermediate_size=100)
    session = Fisher(prune="neurons", cost="flops").attach(model)
    chooser = Chooser(model, session.units, made_up(model), ("neurons",), step=32)
    session.detach()
    scores = Scores(torch.rand(200, generator=torch.Generator().manual_seed(0)), {})
    for share in (0.95, 0.8, 0.6, 0.5):
        choice = chooser.choose(scores, torch.ones(200), frozenset(), share * chooser.table.dense, 4000)
        for part in choice.open.split(100):
            assert int(part.sum()) in (0, 32, 64, 96, 100)
