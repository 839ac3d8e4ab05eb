import torch

from attentrim.methods.scored import ScoredGates


class TopSession(ScoredGates):
    def choose(self, amount):
        """The indices of the gates to close: of all of them in order, the first that make up the amount."""
        order = torch.arange(self.count, device=self.device)
        return self.first(order.flip(0) if self.method.from_top else order, amount)
