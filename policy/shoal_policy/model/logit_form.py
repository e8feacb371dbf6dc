"""Changes of a model to its logits after the output matrix: a scale, a soft cap, or none.

hidden states ─▶ output matrix ─▶ × scale ─▶ cap · tanh(… / cap) ─▶ logits
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitForm:
    """Logits as a function of the output matrix's product."""

    scale: float = 1.0
    soft_cap: float | None = None

    @property
    def is_plain(self) -> bool:
        """Return whether logits equal the product."""
        return self.scale == 1.0 and self.soft_cap is None

    def apply(self, product: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        return self.apply_(product.clone())

    def apply_(self, product: torch.Tensor) -> torch.Tensor:
        """Convert the product to logits, in place."""
        if self.scale != 1.0:
            product *= self.scale
        if self.soft_cap is not None:
            product.div_(self.soft_cap).tanh_().mul_(self.soft_cap)
        return product

    def slope_of(self, logits: torch.Tensor) -> torch.Tensor | None:
        """Return the derivative of the logits by the scaled product; None where it is 1."""
        if self.soft_cap is None:
            return None
        return (logits / self.soft_cap).square_().neg_().add_(1.0)


PLAIN = LogitForm()


def form_of(config: Any) -> LogitForm:
    """Return the form of a model's configuration: Gemma caps, Cohere and Granite scale."""
    scale = float(getattr(config, "logit_scale", None) or 1.0)
    scale /= float(getattr(config, "logits_scaling", None) or 1.0)
    cap = getattr(config, "final_logit_softcapping", None)
    return LogitForm(scale=scale, soft_cap=None if cap is None else float(cap))
