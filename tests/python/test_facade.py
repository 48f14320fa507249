"""PyTorch's API apart from computation: devices, dtypes, generators, settings."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Iterator

import numpy as np
import pytest

import gt
from gt.utils import data


@pytest.fixture
def default_dtype() -> Iterator[None]:
    yield
    gt.set_default_dtype(gt.float32)


# Devices


def test_a_device_is_a_kind_and_a_number() -> None:
    device = gt.device("cuda", 1)
    assert (device.type, device.index) == ("cuda", 1)
    assert device == gt.device("cuda:1") == gt.device(device) == gt.device(1)
    assert hash(device) == hash(gt.device("cuda:1"))
    assert device != gt.device("cuda")
    assert str(device) == "cuda:1"
    assert repr(device) == "device(type='cuda', index=1)"
    assert repr(gt.device("cpu")) == "device(type='cpu')"
    assert pickle.loads(pickle.dumps(device)) == copy.deepcopy(device) == device
    for wrong, message in [
        ("gpu", "Expected one of cpu, cuda.* at start of device string: gpu"),
        ("cuda:x", "Invalid device string: 'cuda:x'"),
        ("cuda:01", "Invalid device string"),
    ]:
        with pytest.raises(RuntimeError, match=message):
            gt.device(wrong)
    with pytest.raises(RuntimeError, match="must not include an index"):
        gt.device("cuda:0", 0)
    with pytest.raises(TypeError):
        gt.device([])


def test_tensors_are_on_the_cpu() -> None:
    cpu = gt.device("cpu")
    for t in (gt.zeros(2, device="cpu"), gt.rand(2, device=cpu), gt.tensor([1], device=cpu), gt.ones(2).cpu()):
        assert t.device == cpu
        assert t.is_cpu
        assert not t.is_cuda
        assert t.get_device() == -1
    t = gt.ones(2)
    assert t.to(cpu) is t
    assert t.to("cpu", non_blocking=True) is t
    assert t.to(t.device) is t.cpu() is t.pin_memory() is t
    assert gt.as_tensor(t, device="cpu") is t
    with cpu:
        assert gt.zeros(1).device == gt.get_default_device() == cpu


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gt.zeros(2, device="cuda"), "No CUDA GPUs are available"),
        (lambda: gt.rand(2, device=gt.device("cuda", 1)), "No CUDA GPUs are available"),
        (lambda: gt.ones(2).cuda(), "No CUDA GPUs are available"),
        (lambda: gt.ones(2).to(0), "No CUDA GPUs are available"),
        (lambda: gt.ones(2).to("mps", gt.float64), "no device of type mps"),
        (lambda: gt.tensor([1], device="cuda"), "No CUDA GPUs are available"),
        (lambda: gt.Generator("cuda"), "No CUDA GPUs are available"),
        (lambda: gt.set_default_device("cuda"), "No CUDA GPUs are available"),
        (lambda: gt.cuda.current_device(), "No CUDA GPUs are available"),
        (lambda: gt.as_tensor([1.0], device="meta"), "meta"),
    ],
)
def test_a_device_that_is_not_there(make: object, message: str) -> None:
    with pytest.raises((RuntimeError, NotImplementedError), match=message):
        make()  # type: ignore[operator]


def test_arguments_of_to() -> None:
    t = gt.ones(2, dtype=gt.int32)
    assert t.to(gt.float64).dtype == t.to("cpu", gt.float64).dtype == t.to(dtype=gt.float64).dtype == gt.float64
    assert t.to(gt.ones(1, dtype=gt.float16)).dtype == gt.float16
    assert t.to("cpu", gt.float32, False, True).dtype == gt.float32
    assert t.to(gt.int32) is t
    assert t.to(device=None, dtype=None) is t
    copied = t.to(gt.int32, copy=True)
    copied[0] = 5
    assert t.tolist() == [1, 1]
    assert t.to("cpu", memory_format=gt.preserve_format) is t
    with pytest.raises(RuntimeError, match="required rank 4 tensor to use channels_last format"):
        t.to("cpu", memory_format=gt.channels_last)
    for wrong in [{"what": 1}, {"memory_format": "nchw"}]:
        with pytest.raises(TypeError):
            t.to("cpu", **wrong)
    with pytest.raises(TypeError):
        t.to()


def test_memory_is_the_daemon_s() -> None:
    t = gt.ones(2)
    assert not t.is_pinned()
    assert not t.is_shared()
    assert t.layout is gt.strided
    assert t.contiguous(memory_format=gt.contiguous_format) is t
    assert t.clone(memory_format=gt.preserve_format).tolist() == [1, 1]
    with pytest.raises(NotImplementedError, match="process"):
        t.share_memory_()


# Making tensors


def test_creation_functions_share_their_options() -> None:
    options = {"dtype": gt.float64, "device": "cpu", "requires_grad": True, "layout": gt.strided, "pin_memory": True}
    like = gt.zeros(2, 2, dtype=gt.float32)
    for t in (
        gt.zeros(2, **options),
        gt.empty((2,), **options),
        gt.full((2,), 1, **options),
        gt.arange(2, **options),
        gt.linspace(0, 1, 2, **options),
        gt.eye(2, **options),
        gt.randn(2, **options),
        gt.tensor([1.0], **options),
        gt.scalar_tensor(1, **options),
        gt.ones_like(like, memory_format=gt.preserve_format, **options),
        gt.rand_like(like, **options),
        like.new_zeros(2, **options),
    ):
        assert t.dtype == gt.float64
        assert t.requires_grad
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        gt.zeros(2, colour="red")
    with pytest.raises(TypeError, match="unexpected keyword argument 'out'"):
        gt.ones_like(like, out=like)


def test_the_oldest_constructors() -> None:
    assert gt.Tensor(2, 3).shape == gt.Tensor(gt.Size([2, 3])).shape == (2, 3)
    assert gt.Tensor([1, 2]).dtype == gt.float32
    assert gt.Tensor(np.array([1, 2])).tolist() == [1.0, 2.0]
    assert gt.Tensor().shape == (0,)
    assert gt.LongTensor([1.0, 2.0]).dtype == gt.int64
    assert gt.FloatTensor(3).shape == (3,)
    assert isinstance(gt.ones(1), gt.FloatTensor)
    assert not isinstance(gt.ones(1), gt.LongTensor)
    assert gt.ones(1).type() == "gt.FloatTensor"
    assert gt.ones(1).type("torch.LongTensor").dtype == gt.ones(1).type("gt.LongTensor").dtype == gt.int64


def test_tensors_of_other_things() -> None:
    assert gt.asarray([1, 2]).tolist() == [1, 2]
    t = gt.ones(2)
    assert gt.asarray(t) is t
    assert gt.asarray(t, copy=True) is not t
    with pytest.raises(ValueError, match="copy=False"):
        gt.asarray([1], copy=False)
    numbers = np.arange(4, dtype=np.float32)
    assert gt.frombuffer(bytearray(numbers), dtype=gt.float32, count=2, offset=4).tolist() == [1.0, 2.0]
    assert gt.frombuffer(bytes.fromhex("803f00c0"), dtype=gt.bfloat16).tolist() == [1.0, -2.0]


# Dtypes and sizes


def test_a_size_stays_one() -> None:
    size = gt.ones(2, 3, 4).size()
    assert size == (2, 3, 4)
    assert isinstance(size[:-1], gt.Size)
    assert isinstance(size[:1] + size[2:], gt.Size)
    assert isinstance((5, *size), tuple)
    assert repr(size[1:]) == "gt.Size([3, 4])"
    assert size.numel() == 24


def test_python_s_types_are_those_of_pytorch() -> None:
    assert gt.zeros(1, dtype=float).dtype == gt.float64
    assert gt.zeros(1, dtype=int).dtype == gt.int64
    assert gt.zeros(1, dtype=bool).dtype == gt.bool


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_limits_of_floats(name: str) -> None:
    told, known = gt.finfo(getattr(gt, name)), np.finfo(name)
    for limit in ("bits", "eps", "max", "min", "tiny", "resolution", "smallest_normal"):
        assert getattr(told, limit) == getattr(known, limit)


def test_limits() -> None:
    assert gt.finfo(gt.bfloat16).max == 3.3895313892515355e38
    assert gt.finfo(gt.bfloat16).eps == 0.0078125
    assert gt.finfo().dtype == "float32"
    assert (gt.iinfo(gt.int8).min, gt.iinfo(gt.int8).max, gt.iinfo(gt.uint8).max) == (-128, 127, 255)
    assert gt.iinfo(gt.int64).max == 2**63 - 1
    for wrong in (lambda: gt.finfo(gt.int8), lambda: gt.iinfo(gt.float32), lambda: gt.iinfo(gt.bool)):
        with pytest.raises(TypeError):
            wrong()


def test_promotion_as_functions() -> None:
    assert gt.promote_types(gt.int32, gt.float16) == gt.float16
    assert gt.promote_types(gt.uint8, gt.int8) == gt.int16
    assert gt.result_type(gt.ones(2, dtype=gt.int32), 1.5) == gt.float32
    assert gt.result_type(gt.ones(2, dtype=gt.float16), gt.ones((), dtype=gt.float64)) == gt.float16
    assert gt.can_cast(gt.int64, gt.float16)
    assert not gt.can_cast(gt.float32, gt.int64)
    assert not gt.can_cast(gt.int64, gt.bool)


@pytest.mark.usefixtures("default_dtype")
def test_numbers_take_the_default_dtype() -> None:
    assert gt.get_default_dtype() == gt.float32
    gt.set_default_dtype(gt.float64)
    for t in (gt.zeros(1), gt.tensor(1.5), gt.rand(1), gt.arange(0, 1, 0.5), gt.arange(2) * 1.5, gt.arange(2).exp()):
        assert t.dtype == gt.float64
    assert (gt.ones(2, dtype=gt.float32) * 1.5).dtype == gt.float32
    assert gt.arange(2).dtype == gt.int64
    assert repr(gt.ones(1)) == "tensor([1.])"
    for wrong in (gt.int64, "float64"):
        with pytest.raises(TypeError, match="only floating-point types are supported"):
            gt.set_default_dtype(wrong)


# Random numbers


def test_a_generator_draws_a_sequence_of_its_own() -> None:
    a, b = gt.Generator().manual_seed(3), gt.Generator().manual_seed(3)
    first = gt.rand(4, generator=a)
    assert first.equal(gt.rand(4, generator=b))
    assert not first.equal(gt.rand(4, generator=a))
    assert gt.randn(4, generator=a).equal(gt.randn(4, generator=b.clone_state())) is False
    state = a.get_state()
    again = gt.randint(0, 100, (9,), generator=a)
    a.set_state(state)
    assert again.equal(gt.randint(0, 100, (9,), generator=a))
    assert a.initial_seed() == 3
    assert a.seed() == a.initial_seed()
    with pytest.raises(RuntimeError, match="wrong size"):
        a.set_state(gt.zeros(3, dtype=gt.uint8))
    with pytest.raises(RuntimeError, match="Overflow"):
        a.manual_seed(2**64)


def test_the_default_generator() -> None:
    assert gt.manual_seed(7) is gt.default_generator
    assert gt.initial_seed() == gt.random.initial_seed() == 7
    state = gt.get_rng_state()
    first = gt.rand(3)
    with gt.random.fork_rng():
        gt.manual_seed(1)
        gt.rand(5)
    second = gt.rand(3)
    gt.set_rng_state(state)
    assert gt.rand(3).equal(first)
    assert gt.rand(3).equal(second)
    # The generator is independent of sessions: seeding starts none, and the end of a session does not change it.
    gt.manual_seed(-1)
    assert gt.initial_seed() == 2**64 - 1


def test_orders_of_samples_are_drawn_by_generators() -> None:
    def order() -> list[int]:
        return list(data.RandomSampler(range(20), generator=gt.Generator().manual_seed(4)))

    assert order() == order() != list(range(20))
    loader = data.DataLoader(data.TensorDataset(gt.arange(20)), shuffle=True, generator=gt.Generator().manual_seed(4))
    assert [int(x) for (x,) in loader] != [int(x) for (x,) in loader]
    halves = [data.random_split(range(10), [5, 5], generator=gt.Generator().manual_seed(1)) for _ in range(2)]
    assert halves[0][0].indices == halves[1][0].indices


# Settings


def test_inference_mode_records_nothing() -> None:
    x = gt.ones(2, requires_grad=True)
    with gt.inference_mode():
        assert gt.is_inference_mode_enabled()
        assert not gt.is_grad_enabled()
        y = x * 2
        with gt.inference_mode(False):
            assert gt.is_inference_mode_enabled() is False
            assert (x * 2).requires_grad
    assert not y.requires_grad
    assert not gt.is_inference_mode_enabled()
    assert gt.is_grad_enabled()

    @gt.inference_mode()
    def evaluate() -> bool:
        return (x * 2).requires_grad

    @gt.inference_mode
    def evaluate_too() -> bool:
        return (x * 2).requires_grad

    assert evaluate() is evaluate_too() is False


def test_settings_are_kept() -> None:
    threads = gt.get_num_threads()
    assert threads >= 1
    gt.set_num_threads(3)
    assert gt.get_num_threads() == 3
    gt.set_num_threads(threads)
    gt.use_deterministic_algorithms(True, warn_only=True)
    assert gt.are_deterministic_algorithms_enabled()
    gt.use_deterministic_algorithms(False)
    gt.set_float32_matmul_precision("high")
    assert gt.get_float32_matmul_precision() == "high"
    gt.set_float32_matmul_precision("highest")
    for wrong in (lambda: gt.set_num_threads(0), lambda: gt.set_float32_matmul_precision("low")):
        with pytest.raises(RuntimeError):
            wrong()


def test_products_of_float32_may_be_rounded_on_request() -> None:
    matmul, cudnn = gt.backends.cuda.matmul, gt.backends.cudnn
    assert (matmul.allow_tf32, cudnn.allow_tf32) == (False, True)
    gt.set_float32_matmul_precision("medium")
    assert (matmul.allow_tf32, matmul.fp32_precision) == (True, "tf32")
    matmul.allow_tf32 = True
    assert gt.get_float32_matmul_precision() == "medium"
    x = gt.tensor([[2049.0]])
    # A CPU has no tf32 products.
    assert (x @ x).item() == 2049.0**2
    matmul.fp32_precision = "ieee"
    assert (gt.get_float32_matmul_precision(), matmul.allow_tf32) == ("highest", False)
    cudnn.allow_tf32 = False
    assert not cudnn.allow_tf32
    cudnn.allow_tf32 = True
    with pytest.raises(RuntimeError, match="fp32_precision"):
        matmul.fp32_precision = "bf16"
    with pytest.raises(AttributeError):
        matmul.allow_tf31 = True


def test_how_tensors_are_shown_can_be_chosen() -> None:
    t = gt.tensor([1.23456, 100.0])
    try:
        gt.set_printoptions(precision=2)
        assert repr(t) == "tensor([  1.23, 100.00])"
        gt.set_printoptions(sci_mode=True)
        assert repr(t) == "tensor([1.23e+00, 1.00e+02])"
        gt.set_printoptions(threshold=3, edgeitems=1)
        assert repr(gt.arange(9)) == "tensor([0,  ..., 8])"
        with pytest.raises(ValueError, match="profile"):
            gt.set_printoptions(profile="long")
    finally:
        gt.set_printoptions(profile="default")
    assert repr(t) == "tensor([  1.2346, 100.0000])"


def test_small_questions() -> None:
    t = gt.ones(1)
    assert gt.is_tensor(t)
    assert not gt.is_storage(t)
    assert not gt.is_complex(t)
    assert gt.is_nonzero(t)
    assert gt.is_same_size(t, t * 2)
    assert gt.typename(t) == "gt.FloatTensor"
    assert gt.typename(3) == "int"
    assert gt.typename(gt.nn.Linear) == "gt.nn.layers.Linear"
    assert (gt.pi, gt.e, gt.inf) == (math.pi, math.e, math.inf)
    assert math.isnan(gt.nan)
    assert gt.newaxis is None
