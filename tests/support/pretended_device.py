"""A simulated accelerator: tensors that report `card:0` and hold the data on the host.

    with Pretended() as card:            every operation on a tensor of the card is
        policy = card.moved(policy)      checked (no tensor of the host among its inputs), counted
        update(policy, …)                (launches, waits, copies), and computed on the host
    card.waits, card.launches

PyTorch's backend for Python (`torch.utils.backend_registration`) treats them as an accelerator's:
devices are compared, autograd runs on them, and `tensor.device` is `card:0`. It does not simulate
the kernels, speed or memory of a real card.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from functools import cache
from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from shoal_policy.model.loading import Policy

NAME: Final = "card"
_WAITS: Final = frozenset(
    {
        "aten::_local_scalar_dense",
        "aten::item",
        "aten::nonzero",
        "aten::masked_select",
        "aten::is_nonzero",
        "aten::_unique2",
        "aten::equal",
        "aten::repeat_interleave",
    }
)
"""Operations that need a result's value or size on the host."""
_FREE: Final = ("view", "alias", "detach", "expand", "permute", "transpose", "slice", "select",
                "unsqueeze", "squeeze", "split", "t", "as_strided", "unbind", "_unsafe_view",
                "lift_fresh", "empty", "empty_like", "empty_strided", "new_empty", "unfold",
                "_reshape_alias", "new_empty_strided", "chunk")  # fmt: skip
"""Operations that launch no kernel: views, and memory that is not written."""


@cache
def _set_up() -> None:
    """Register the device with PyTorch, once per process."""
    _setup_privateuseone_for_python_backend(NAME)


class OnCard(torch.Tensor):
    """A tensor of the simulated device; `host` has its data."""

    host: torch.Tensor

    @staticmethod
    def __new__(cls, host: torch.Tensor) -> OnCard:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            host.size(),
            strides=host.stride(),
            storage_offset=host.storage_offset(),
            dtype=host.dtype,
            device=torch.device(NAME, 0),
            requires_grad=False,
        )
        made.host = host
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} of a card's tensor outside `Pretended`")


def _on_host(one: Any) -> Any:
    if isinstance(one, torch.device):
        return torch.device("cpu")
    return one.host if isinstance(one, OnCard) else one


class WrongDeviceError(AssertionError):
    """An operation got tensors of both the card and the host."""


class _Made(TorchFunctionMode):
    """Creates tensors on the card: `torch.tensor` bypasses every other hook."""

    def __init__(self, card: Pretended) -> None:
        self._card = card

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        device = kwargs.get("device")
        if func is torch.tensor and device is not None and torch.device(device).type == NAME:
            self._card.from_host += 1
            return OnCard(func(*args, **{**kwargs, "device": "cpu"}))
        if func is torch.Tensor.tolist and isinstance(args[0], OnCard):
            self._card.operations["to the host"] += 1
            return args[0].host.tolist()
        if func is torch.nn.functional.scaled_dot_product_attention:
            self._card.note_attention(kwargs)
        return func(*args, **kwargs)


class Pretended(TorchDispatchMode):
    """The context in which tensors of the card can be used."""

    def __init__(self) -> None:
        super().__init__()
        _set_up()
        self.operations: Counter[str] = Counter()
        self.from_host = 0
        """Copies of host tensors to the card. A launch each, and a wait without pinned memory."""

        self.math_attention = 0
        """Attention calls without a fused CUDA kernel on most cards: those with a mask (flash
        accepts none) and fewer key heads than query heads (the memory-efficient kernel does not
        accept these)."""
        self._made = _Made(self)

    def __enter__(self) -> Pretended:
        super().__enter__()
        self._made.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._made.__exit__(*error)
        super().__exit__(*error)

    def note_attention(self, options: dict[str, Any]) -> None:
        """Record which kernel a call of torch's attention would use on a card."""
        if options.get("attn_mask") is not None and options.get("enable_gqa"):
            self.math_attention += 1

    @property
    def waits(self) -> int:
        """Number of times that the host waited for the card."""
        return (
            sum(count for name, count in self.operations.items() if name in _WAITS)
            + (self.operations["to the host"])
        )

    @property
    def launches(self) -> int:
        """Number of launched kernels: every operation that is not a view."""
        return sum(
            count
            for name, count in self.operations.items()
            if name.removeprefix("aten::") not in _FREE
        )

    def clear(self) -> None:
        """Reset the counters."""
        self.operations.clear()
        self.from_host = self.math_attention = 0

    def moved(self, policy: Policy) -> Policy:
        """Return the policy with its model on the card, with tied weights still tied."""
        device = torch.device(NAME, 0)
        known: dict[int, torch.nn.Parameter] = {}
        for module in policy.model.modules():
            for name, weight in list(module._parameters.items()):
                if weight is not None:
                    if id(weight) not in known:
                        known[id(weight)] = torch.nn.Parameter(
                            OnCard(weight.detach()), requires_grad=weight.requires_grad
                        )
                    module._parameters[name] = known[id(weight)]
            for name, buffer in list(module._buffers.items()):
                if buffer is not None:
                    module._buffers[name] = OnCard(buffer)
        return dataclasses.replace(policy, device=device)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        flat, _ = tree_flatten((args, kwargs))
        tensors = [one for one in flat if isinstance(one, torch.Tensor)]
        on_card = [one for one in tensors if isinstance(one, OnCard)]
        requested = next((one for one in flat if isinstance(one, torch.device)), None)
        name = func._schema.name
        if not on_card and (requested is None or requested.type != NAME):
            return func(*args, **kwargs)
        self._check(func, tensors, on_card, requested)
        self._count(name, kwargs, on_card, tensors, requested)
        inner = tree_map(_on_host, (args, kwargs))
        stays = requested is None or requested.type == NAME
        # A tensor created in inference mode could not be a view of one created outside.
        with torch.inference_mode(False):
            made = func(*inner[0], **inner[1])
            return self._wrapped(func, made, flat) if stays else made

    @staticmethod
    def _check(func: Any, tensors: Any, on_card: Any, requested: Any) -> None:
        strangers = [one for one in tensors if not isinstance(one, OnCard) and one.ndim > 0]
        copies = func._schema.name in ("aten::_to_copy", "aten::to", "aten::copy_")
        # A card accepts an index on the host: PyTorch copies it. It waits, so it counts.
        if on_card and strangers and not copies and "index" not in func._schema.name:
            raise WrongDeviceError(f"{func._schema.name}: tensors of {NAME} and of the host")

    def _count(self, name: str, kwargs: Any, on_card: Any, tensors: Any, requested: Any) -> None:
        if name in ("aten::_to_copy", "aten::to", "aten::copy_") and len(on_card) < len(tensors):
            self.from_host += 1
        if on_card and requested is not None and requested.type != NAME:
            self.operations["to the host"] += 1
            return
        if name == "aten::copy_" and isinstance(tensors[0], OnCard) is False:
            self.operations["to the host"] += 1
            return
        if name == "aten::repeat_interleave" and kwargs.get("output_size") is not None:
            name = "repeat_interleave of a known size"
        if name.startswith("aten::index") and any(
            one.dtype in (torch.bool, torch.uint8) for one in tensors[1:]
        ):
            self.operations["aten::nonzero"] += 1
        self.operations[name] += 1

    @staticmethod
    def _wrapped(func: Any, made: Any, given: list[Any]) -> Any:
        """Return results as tensors of the card; tensors changed in place stay the same objects."""
        known = {id(one.host): one for one in given if isinstance(one, OnCard)}

        def wrap(one: Any) -> Any:
            if not isinstance(one, torch.Tensor):
                return one
            return known.get(id(one)) if id(one) in known else OnCard(one)

        return tree_map(wrap, made)
