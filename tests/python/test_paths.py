"""PyTorch's import paths, and its older names."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support import environment

import gt
from gt import nn
from gt.utils import _pytree, data

PATHS = """
from torch.amp import custom_bwd, custom_fwd
from torch.autograd.gradcheck import gradcheck
from torch.autograd.graph import Node, saved_tensors_hooks
from torch.functional import einsum
from torch.multiprocessing.spawn import ProcessRaisedException
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.common_types import _size_2_t
from torch.nn.init import _calculate_fan_in_and_fan_out
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.loss import _Loss, _WeightedLoss
from torch.nn.modules.utils import _ntuple, _pair
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.nn.utils.stateless import functional_call
from torch.nn.utils.weight_norm import weight_norm
from torch.optim.adamw import AdamW
from torch.optim.lr_scheduler import _LRScheduler
from torch.optim.optimizer import Optimizer, required
from torch.overrides import has_torch_function
from torch.profiler import record_function
from torch.types import Device, Number
from torch.utils._pytree import tree_map
from torch.utils.data._utils.collate import default_collate
from torch.utils.data.distributed import DistributedSampler
from torch.utils.dlpack import from_dlpack, to_dlpack
import torch

# A module of a function's name takes nobody's place.
assert torch.nn.utils.weight_norm is weight_norm and torch.autograd.gradcheck is gradcheck
assert callable(torch.nn.utils.clip_grad_norm_)
assert torch.multiprocessing.ProcessRaisedException is ProcessRaisedException and callable(torch.multiprocessing.spawn)
"""


def test_programs_import_from_pytorch_s_files() -> None:
    run = [sys.executable, "-m", "gt.torch", "-c", PATHS]
    done = subprocess.run(run, env=environment(), capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr == ""


def test_layers_are_of_the_classes_that_programs_ask_for() -> None:
    modules = nn.modules
    assert isinstance(nn.BatchNorm2d(3), modules.batchnorm._BatchNorm)
    assert not isinstance(nn.InstanceNorm2d(3), modules.batchnorm._BatchNorm)
    assert isinstance(nn.ConvTranspose1d(1, 1, 1), modules.conv._ConvNd)
    assert isinstance(nn.GRU(1, 1), nn.RNNBase)
    assert isinstance(nn.GRUCell(1, 1), nn.RNNCellBase)
    assert isinstance(nn.NLLLoss(), modules.loss._Loss)
    with pytest.raises(ValueError, match="Unrecognized RNN mode: X"):
        nn.RNNBase("X", 2, 3)


def test_one_number_as_many() -> None:
    utils = nn.modules.utils
    assert utils._pair(3) == (3, 3)
    assert utils._pair([1, 2]) == (1, 2)
    assert utils._ntuple(4)(0) == (0, 0, 0, 0)
    assert utils._reverse_repeat_tuple((1, 2), 2) == (2, 2, 1, 1)
    state = nn.Linear(1, 1).state_dict(prefix="module.")
    utils.consume_prefix_in_state_dict_if_present(state, "module.")
    assert list(state) == ["weight", "bias"]


def test_older_names_warn() -> None:
    with pytest.warns(FutureWarning, match=r"`nn.init.constant` is now deprecated in favor of `nn.init.constant_`"):
        assert nn.init.constant(gt.zeros(2), 3.0).tolist() == [3, 3]
    with pytest.warns(FutureWarning, match="clip_grad_norm_"):
        nn.utils.clip_grad_norm([], 1.0)
    with pytest.warns(FutureWarning, match="NLLLoss2d"):
        nn.NLLLoss2d()
    with pytest.warns(FutureWarning, match=r"nn\.Container"):
        assert "layer" in nn.Container(layer=nn.ReLU())._modules
    with pytest.warns(FutureWarning, match="Positional args"):
        assert list(nn.Linear(1, 1).state_dict({}, "a.")) == ["a.weight", "a.bias"]


@pytest.mark.parametrize("loss", [nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.BCEWithLogitsLoss])
def test_losses_take_their_older_arguments(loss: type[nn.Module]) -> None:
    x, y = gt.tensor([1.0, 2.0]), gt.tensor([0.0, 1.0])
    with pytest.warns(UserWarning, match="please use reduction='sum' instead"):
        assert loss(size_average=False)(x, y).item() == loss(reduction="sum")(x, y).item()
    with pytest.warns(UserWarning, match="please use reduction='none' instead"):
        assert loss(reduce=False)(x, y).shape == (2,)


def test_elements_of_a_loss_have_weights() -> None:
    x, y, weight = gt.tensor([1.0, 2, 3]), gt.tensor([0.0, 0, 1]), gt.tensor([1.0, 2, 3])
    F = nn.functional  # noqa: N806
    assert F.mse_loss(x, y, weight=weight).item() == 3.5
    assert F.l1_loss(x, y, reduction="none", weight=weight).tolist() == [1, 4, 6]
    assert F.huber_loss(x, y, weight=weight).item() == pytest.approx(8 / 3)
    with pytest.raises(ValueError, match="Weights and input must have the same size"):
        F.mse_loss(x, y, weight=weight[:2])


def test_trees() -> None:
    leaves, spec = _pytree.tree_flatten({"a": [1, (2, 3)], "b": 4})
    assert leaves == [1, 2, 3, 4]
    assert _pytree.tree_unflatten([5, 6, 7, 8], spec) == {"a": [5, (6, 7)], "b": 8}
    assert _pytree.tree_map(lambda a, b: a + b, [1, {"x": 2}], [3, {"x": 4}]) == [4, {"x": 6}]
    assert _pytree.tree_map_only(int, lambda x: -x, [1, "a"]) == [-1, "a"]
    with pytest.raises(ValueError, match="`leaves` has length 1"):
        _pytree.tree_unflatten([1], spec)


class _Numbers(data.IterableDataset):
    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self):
        return iter(range(self.count))

    def __len__(self) -> int:
        return self.count


def test_datasets_after_and_beside_each_other() -> None:
    assert list(_Numbers(2) + _Numbers(1)) == [0, 1, 0]
    assert len(data.ChainDataset([_Numbers(2), _Numbers(3)])) == 5
    assert data.StackDataset([1, 2], "ab")[1] == (2, "b")
    assert data.StackDataset(x=[1, 2], y="ab")[0] == {"x": 1, "y": "a"}
    with pytest.raises(AssertionError, match="only supports IterableDataset"):
        list(data.ChainDataset([[1]]))
    with pytest.raises(ValueError, match="Size mismatch between datasets"):
        data.StackDataset([1], [1, 2])


def test_shares_of_the_samples() -> None:
    def shares(**options: bool) -> list[list[int]]:
        return [list(data.DistributedSampler(range(10), 3, rank, **options)) for rank in range(3)]

    assert shares(shuffle=False) == [[0, 3, 6, 9], [1, 4, 7, 0], [2, 5, 8, 1]]
    assert shares(shuffle=False, drop_last=True) == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    assert sorted({i for share in shares() for i in share}) == list(range(10))
    sampler = data.DistributedSampler(range(10), 1, 0)
    first = list(sampler)
    assert list(sampler) == first
    sampler.set_epoch(1)
    assert list(sampler) != first


def test_functions_of_one_s_own_under_autocast() -> None:
    seen = []

    class Double(gt.autograd.Function):
        @staticmethod
        @gt.amp.custom_fwd(device_type="cpu", cast_inputs=gt.bfloat16)
        def forward(ctx, x):  # noqa: ARG004
            seen.append((x.dtype, gt.is_autocast_enabled("cpu")))
            return x * 2

        @staticmethod
        @gt.amp.custom_bwd(device_type="cpu")
        def backward(ctx, grad):  # noqa: ARG004
            return grad * 2

    x = gt.ones(2, requires_grad=True)
    Double.apply(x).sum().backward()
    with gt.autocast("cpu", dtype=gt.bfloat16):
        Double.apply(x)
    assert seen == [(gt.float32, False), (gt.bfloat16, False)]


def test_a_layer_and_the_normalization_after_it_as_one() -> None:
    conv, norm = nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3)
    norm(conv(gt.randn(4, 2, 5, 5)))
    norm.weight.data = gt.tensor([0.5, 1.0, 2.0])
    with pytest.raises(AssertionError, match="only for eval"):
        nn.utils.fusion.fuse_conv_bn_eval(conv, norm)
    conv.eval(), norm.eval()
    x = gt.randn(2, 2, 4, 4)
    fused = nn.utils.fusion.fuse_conv_bn_eval(conv, norm)
    assert (fused(x) - norm(conv(x))).abs().max().item() < 1e-5
