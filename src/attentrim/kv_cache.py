"""What decoding keeps of each token: keys and values, or what stands in for them."""

from __future__ import annotations

from typing import Any

from .sites import Site, find_sites, unwrap


def cache_bytes_per_token(model: Any) -> int | None:
    """Bytes that each token of a sequence adds to the cache of a model that generates; None for other models.

    Counted is what self-attention keeps, in the dtype of the weights. A site with a sliding window keeps the tokens of
    its window only. What cross-attention keeps does not grow with the tokens, and is left out.
    """
    inner = unwrap(model)
    sites = [site for site in find_sites(inner) if site.causal and getattr(site.module, "layer_idx", None) is not None]
    if not sites or not inner.can_generate():
        return None
    total, kinds = 0, set()
    for site in sites:
        kind = (site.stack, site.window is None)
        total += _bytes(site, first=kind not in kinds)
        kinds.add(kind)
    return total


def _bytes(site: Site, first: bool) -> int:
    dtype = next(site.output.parameters()).dtype
    own: Any = getattr(site.module, "cache_bytes", None)
    return int(own(site.width, dtype, first) if own else 2 * site.key_heads * site.head_size * dtype.itemsize)
