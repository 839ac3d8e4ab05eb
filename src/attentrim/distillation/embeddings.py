"""How far embeddings of texts are from others of the same texts."""

from __future__ import annotations

from torch import Tensor, nn

from ..errors import MethodError


def between_embeddings(mine: Tensor, theirs: Tensor, embedding: float, similarity: float) -> Tensor:
    """The weighted sum of two distances between embeddings of the same texts, [batch, width] each.

    Embedding: 1 less the cosine of the two embeddings of a text, the mean over texts. Similarity: the squared error of
    the cosines between the texts of the batch, the mean over all pairs; these may be embeddings of any width.
    """
    return by_text(mine, theirs, embedding, similarity).mean()


def by_text(mine: Tensor, theirs: Tensor, embedding: float, similarity: float) -> Tensor:
    """The same for each text, [batch]: its own distance, and the mean over the pairs that it is the first of."""
    if embedding and mine.shape != theirs.shape:
        raise MethodError(
            f"The model's embeddings have {mine.shape[-1]} numbers, the teacher's {theirs.shape[-1]}: set the weight "
            "embedding to 0 and learn from similarities, or use another teacher."
        )
    mine, theirs = (nn.functional.normalize(vectors.float(), dim=-1) for vectors in (mine, theirs))
    distances = mine.new_zeros(len(mine))
    if embedding:
        distances = distances + embedding * (1 - (mine * theirs).sum(-1))
    if similarity:
        distances = distances + similarity * (mine @ mine.T - theirs @ theirs.T).square().mean(1)
    return distances
