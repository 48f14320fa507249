"""Results with several parts, and other things that programs print: the texts are PyTorch's, where it is installed."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import pickle
from typing import Any

import pytest

import gt

PEERS = [gt, *([importlib.import_module("torch")] if importlib.util.find_spec("torch") else [])]
peers = pytest.mark.parametrize("t", PEERS, ids=lambda t: t.__name__)


@peers
def test_named_results_are_printed_a_line_each(t: Any) -> None:
    x = t.arange(6.0).reshape(2, 3)
    home = f"{t.__name__}.return_types"
    assert repr(x.max(1)) == f"{home}.max(\nvalues=tensor([2., 5.]),\nindices=tensor([2, 2]))"
    assert repr(t.aminmax(x)) == f"{home}.aminmax(\nmin=tensor(0.),\nmax=tensor(5.))"
    for name, found in (
        ("sort", x.sort()),
        ("topk", x.topk(1)),
        ("kthvalue", t.kthvalue(x, 1)),
        ("frexp", t.frexp(x)),
        ("linalg_eigh", t.linalg.eigh(t.eye(2))),
        ("linalg_slogdet", t.linalg.slogdet(t.eye(2))),
        ("svd", t.svd(t.eye(2))),
    ):
        assert repr(found).startswith(f"{home}.{name}(\n"), name
        assert isinstance(found, getattr(t.return_types, name))
        assert isinstance(found, tuple)


def test_named_results_are_copied_and_pickled() -> None:
    found = gt.arange(6.0).reshape(2, 3).min(1)
    for again in (copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert type(again) is gt.return_types.min
        assert again.values.tolist() == [0, 3]
        assert again.indices.tolist() == [0, 0]


@peers
def test_limits_of_dtypes(t: Any) -> None:
    assert repr(t.finfo(t.float16)) == (
        "finfo(resolution=0.001, min=-65504, max=65504, eps=0.000976562, smallest_normal=6.10352e-05, "
        "tiny=6.10352e-05, dtype=float16)"
    )
    assert repr(t.iinfo(t.int64)) == "iinfo(min=-9.22337e+18, max=9.22337e+18, dtype=int64)"
    assert [t.finfo(d).resolution for d in (t.float16, t.bfloat16, t.float32, t.float64)] == [1e-3, 1e-2, 1e-6, 1e-15]


@peers
def test_attention_ends_with_the_layer_that_pytorch_prints(t: Any) -> None:
    attention = t.nn.MultiheadAttention(4, 2)
    assert repr(attention) == (
        "MultiheadAttention(\n"
        "  (out_proj): NonDynamicallyQuantizableLinear(in_features=4, out_features=4, bias=True)\n)"
    )
    assert type(attention.out_proj) is t.nn.modules.linear.NonDynamicallyQuantizableLinear


@peers
def test_a_module_is_not_replaced_by_a_number(t: Any) -> None:
    module = t.nn.Sequential(t.nn.ReLU())
    with pytest.raises(TypeError, match=rf"cannot assign 'int' as child module '0' \({t.__name__}.nn.Module or None"):
        setattr(module, "0", 3)


@peers
def test_einsum_of_lists_of_axes(t: Any) -> None:
    x, y = t.arange(6.0).reshape(2, 3), t.arange(12.0).reshape(3, 4)
    assert t.equal(t.einsum(x, [0, 1], y, [1, 2], [0, 2]), x @ y)
    assert t.equal(t.einsum(x, [0, 51], y, [51, 2]), x @ y)
    assert t.equal(t.einsum(x, [..., 7], [7, ...]), x.T)
    assert t.equal(t.einsum(x, [0, 1], []), x.sum())


def test_einsum_refuses_an_axis_without_a_letter() -> None:
    with pytest.raises(ValueError, match="from 0 to 51"):
        gt.einsum(gt.ones(2), [52])
    with pytest.raises(TypeError, match="equation"):
        gt.einsum(gt.ones(2), gt.ones(2))


@peers
def test_an_averaging_function_gets_integer_buffers(t: Any) -> None:
    def mean(averaged: Any, current: Any, _count: Any) -> Any:
        return 0.5 * averaged + 0.5 * current

    norm = t.nn.BatchNorm1d(2)
    average = t.optim.swa_utils.AveragedModel(norm, avg_fn=mean, use_buffers=True)
    for _ in range(3):
        norm(t.ones(2, 2))
        average.update_parameters(norm)
    # 1, then the integer part of 1.5, then 2.
    assert average.module.num_batches_tracked.item() == 2
    lists = t._foreach_norm([t.ones(4)])
    assert isinstance(lists, tuple)
