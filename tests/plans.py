"""Plans for tests: random valid ones, and the corner cases that every architecture must survive."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from attentrim import Plan, find_sites


def heads_of(site: Any, groups: Any) -> list[int]:
    return [head for group in groups for head in site.group(group)]


def random_plans(model: Any) -> st.SearchStrategy[Plan]:
    """Any mixture of kept, thinned, headless and uniform sites."""
    sites = find_sites(model)
    per_site = [
        st.tuples(st.sets(st.integers(0, site.groups - 1), max_size=site.groups), st.booleans()) for site in sites
    ]

    def build(choices: tuple[tuple[set[int], bool], ...]) -> Plan:
        heads = {site.index: heads_of(site, groups) for site, (groups, _) in zip(sites, choices, strict=True)}
        uniform = [site.index for site, (_, flat) in zip(sites, choices, strict=True) if flat]
        return Plan.of(model, heads=heads, uniform=uniform)

    return st.tuples(*per_site).map(build)


def corner_plans(model: Any) -> dict[str, Plan]:
    """Named plans that between them use every operation on every site."""
    sites = find_sites(model)
    everything = {site.index: range(site.heads) for site in sites}
    first = {site.index: heads_of(site, [0]) for site in sites}
    last = len(sites) - 1
    return {
        "nothing": Plan.of(model),
        "one group of every site": Plan.of(model, heads=first),
        "every site uniform": Plan.of(model, uniform=range(len(sites))),
        "every site uniform and thinned": Plan.of(model, heads=first, uniform=range(len(sites))),
        "first site headless": Plan.of(model, heads={0: everything[0]}),
        "every site headless": Plan.of(model, heads=everything),
        "first uniform, last thinned": Plan.of(model, heads={last: first[last]}, uniform=[0]),
        "first headless, last uniform": Plan.of(model, heads={0: everything[0]}, uniform=[last]),
    }
