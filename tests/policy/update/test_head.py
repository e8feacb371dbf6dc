"""The head in tiles: soft caps and scales, bfloat16 matrices, tiles of a GPU's size."""

from __future__ import annotations

import pytest
import torch

from shoal_policy.model.logit_form import PLAIN, LogitForm
from shoal_policy.update import head
from tests.policy.model.test_loading import capped_policy
from tests.policy.update.update_cases import assert_plain

FORMS = [PLAIN, LogitForm(scale=0.3), LogitForm(soft_cap=4.0), LogitForm(scale=2, soft_cap=1.5)]


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("foretold", [True, False])
@pytest.mark.parametrize("rows", [1, 4, 100])
def test_every_form_of_logits_gives_the_gradients_of_whole_logits(
    form: LogitForm, foretold: bool, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head, "TILE_ELEMENTS", 30 * rows)
    torch.manual_seed(0)
    given, targets = torch.randn(9), torch.randint(0, 30, (9,))
    leaves = [torch.randn(9, 8), torch.randn(30, 8), torch.randn(30)]
    ours = [leaf.clone().requires_grad_() for leaf in leaves]
    plain = [leaf.clone().requires_grad_() for leaf in leaves]
    logprobs, entropy = head.head_logprobs(
        *(ours[0], ours[1], ours[2], targets, 0.7),
        (lambda _logprobs, part: given[part]) if foretold else None,
        form=form,
    )
    logprobs.backward(given)
    raw = plain[0] @ plain[1].T + plain[2]
    raw = raw * form.scale
    if form.soft_cap is not None:
        raw = form.soft_cap * torch.tanh(raw / form.soft_cap)
    whole = (raw / 0.7).log_softmax(-1)
    expected = whole.gather(-1, targets[:, None])[:, 0]
    expected.backward(given)
    torch.testing.assert_close(logprobs, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(entropy, -(whole.exp() * whole).sum(-1), atol=1e-5, rtol=1e-5)
    for mine, theirs in zip(ours, plain, strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("size", [0.01, 3.0])
def test_an_update_of_a_capped_model_holds_no_logits_whole(
    size: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal_policy.update.logprobs._from_logits", None)
    assert_plain(capped_policy(size))


def test_a_bfloat16_matrix_gets_its_gradient_added_up_in_float32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    hidden, weight = torch.randn(4096, 8).bfloat16(), torch.randn(30, 8).bfloat16()
    given, targets = torch.full((4096,), 1 / 4096), torch.randint(0, 30, (4096,))

    def error(rows: int) -> float:
        monkeypatch.setattr(head, "TILE_ELEMENTS", 30 * rows)
        leaf = weight.clone().requires_grad_()
        head.head_logprobs(hidden, leaf, None, targets, 1.0)[0].backward(given)
        exact = weight.double().requires_grad_()
        whole = (hidden.double() @ exact.T).log_softmax(-1)
        (whole.gather(-1, targets[:, None])[:, 0] @ given.double()).backward()
        assert leaf.grad is not None and exact.grad is not None
        return float((leaf.grad.double() - exact.grad).norm() / exact.grad.norm())

    assert error(8) < 1.5 * error(4096)  # many tiles are as good as one
    assert error(8) < 0.01


def test_a_gpu_has_few_and_large_tiles() -> None:
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    assert head.tile_rows(8192, 151_936, cpu) == 110
    assert head.tile_rows(8192, 151_936, gpu) == 1766
    assert head.tile_rows(50, 151_936, gpu) == 50 and head.tile_rows(50, 1 << 40, gpu) == 1
