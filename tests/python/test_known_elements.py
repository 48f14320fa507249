"""The elements that the client keeps: of small tensors once they are known, of others once many parts were read."""

from __future__ import annotations

import numpy as np
import pytest
from support import DTYPES, dtype_of, output_of

import gt

# More elements of float32 than the client keeps of a tensor, and fewer.
MANY, FEW = 1000, 24
STOPPED = """
import os, signal
import gt
daemon = gt._gt.session_info()["daemon_pid"]
def asked_nothing(read):
    os.kill(daemon, signal.SIGSTOP)
    signal.alarm(20)
    try:
        return read()
    finally:
        os.kill(daemon, signal.SIGCONT)
        signal.alarm(0)
"""


def test_known_elements_are_read_without_the_daemon() -> None:
    program = """
x = gt.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
print(asked_nothing(lambda: (x.tolist(), x.numpy().tolist(), x[1, 2].item(), float(x[0, 0]), x[:, ::2].tolist())))
computed = x * 2
computed.tolist()
print(asked_nothing(lambda: [v.item() for v in computed[1]]))
"""
    assert output_of(STOPPED + program).splitlines() == [
        "([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], 6.0, 1.0, [[1.0, 3.0], [4.0, 6.0]])",
        "[8.0, 10.0, 12.0]",
    ]


def test_a_large_tensor_is_fetched_whole_once_many_parts_were_read() -> None:
    program = """
x = gt.arange(20_000.0).reshape(100, 200)
print([x[i, i].item() for i in range(20)] == [201.0 * i for i in range(20)])
print(asked_nothing(lambda: (x[99, 199].item(), x[7, 3:6].tolist(), float(x[50].numpy().sum()), x[::50, 0].tolist())))
x[99, 199] = -1
print(x[99, 199].item(), x[99].tolist()[-2:])
"""
    assert output_of(STOPPED + program).splitlines() == [
        "True",
        "(19999.0, [1403.0, 1404.0, 1405.0], 2019900.0, [0.0, 10000.0])",
        "-1.0 [19998.0, -1.0]",
    ]


@pytest.mark.parametrize("count", [FEW, MANY])
def test_in_place_operations_show_in_what_is_read_afterwards(count: int) -> None:
    x = gt.arange(count, dtype=gt.float32)
    row, reversed_view = x.reshape(2, -1)[1], x.flip(0)
    assert x.tolist() == list(range(count))
    assert row[0].item() == count // 2
    x[count // 2] = -1
    assert x[count // 2].item() == row[0].item() == -1
    assert row.tolist()[1] == count // 2 + 1
    row += 10
    assert x[count // 2].item() == 9
    assert x.numpy()[count // 2 + 1] == count // 2 + 11
    assert reversed_view[-1].item() == 0
    copy = x.clone()
    x.zero_()
    assert row[0].item() == 0
    assert copy[count // 2].item() == 9
    x.data = gt.ones(count)
    assert x[0].item() == 1


def test_reading_a_part_gives_the_part() -> None:
    array = np.random.default_rng(0).integers(1, 9, (2, 3, 4))
    x = gt.from_numpy(array)
    parts = {
        "slices": (x[1, ::2, 1:3], array[1, ::2, 1:3]),
        "an ellipsis": (x[..., -1], array[..., -1]),
        "a new axis": (x[:, None, 2], array[:, None, 2]),
        "an empty slice": (x[1:1], array[1:1]),
        "transposed": (x.mT[1], np.swapaxes(array, 1, 2)[1]),
        "permuted": (x.permute(2, 0, 1)[3, 1], array.transpose(2, 0, 1)[3, 1]),
        "expanded": (x[0, 0].expand(3, 4)[2], np.broadcast_to(array[0, 0], (3, 4))[2]),
        "diagonal": (x[0].diagonal(), array[0].diagonal()),
        "indices": (x[0, [2, 0]], array[0, [2, 0]]),
        "unfolded": (x[0, 0].unfold(0, 2, 1)[2], array[0, 0][2:4]),
        "a view of a view": (x.view(6, 4)[1::2][2][1:], array.reshape(6, 4)[1::2][2][1:]),
        "bits": (x.view(gt.float64)[1, 2, 3:], array.view(np.float64)[1, 2, 3:]),
        "chunks": (x.chunk(2, dim=2)[1][0], array[..., 2:][0]),
    }
    for name, (part, wanted) in parts.items():
        assert part.tolist() == wanted.tolist(), name
        np.testing.assert_array_equal(part.numpy(), wanted, err_msg=name)


def test_a_part_of_known_elements_is_a_view_like_any_other() -> None:
    x = gt.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    row, corner = x[1], x[0, 1:]
    assert (row.stride(), row.storage_offset(), corner.storage_offset()) == ((1,), 3, 1)
    assert row._base is not None
    x[1, 0] = 9
    assert (row + 1).tolist() == [10, 6, 7]
    row *= 2
    corner.zero_()
    assert x.tolist() == [[1, 0, 0], [18, 10, 12]]
    assert gt.stack([row[:2], corner]).tolist() == [[18, 10], [0, 0]]
    with pytest.raises(IndexError, match="index 2 is out of bounds"):
        x[2]

    weight = gt.tensor([1.0, 2.0])
    before = weight[1]
    weight.requires_grad_()
    (weight[1] * before * 3).backward()
    assert (weight.grad.tolist(), before.requires_grad) == ([0, 6], True)
    assert gt.vmap(lambda rows: weight[0] * rows[1])(x).tolist() == [0, 10]


def test_complex_parts_and_bits_are_those_of_the_numbers() -> None:
    z = gt.tensor([1 + 2j, 3 - 4j])
    assert z.real[1].item() == 3
    assert z.imag.tolist() == [2, -4]
    assert z.conj()[0].item() == 1 - 2j
    assert gt.view_as_real(z)[1].tolist() == [3, -4]
    bits = gt.tensor([1.0, -2.0]).view(gt.int32)
    assert bits[0].item() == 0x3F800000
    assert bits.view(gt.uint8)[3].item() == 0x3F


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,), (3, 2), (50, 60)])
def test_numpy_gives_an_array_that_can_be_written(dtype: str, shape: tuple[int, ...]) -> None:
    x = gt.ones(*shape, dtype=dtype_of(dtype))
    if dtype == "bfloat16":
        with pytest.raises(TypeError, match="unsupported ScalarType BFloat16"):
            x.numpy()
        return
    first, second = x.numpy(), x.clone().numpy()
    assert first.shape == second.shape == shape
    assert first.dtype == second.dtype == np.dtype(dtype)
    assert first.flags.writeable
    assert first.flags.c_contiguous
    assert not np.shares_memory(first, second)
    first[...] = 0
    np.testing.assert_array_equal(second, np.ones(shape, dtype))


def test_what_was_uploaded_is_kept_as_it_was() -> None:
    array = np.arange(FEW, dtype=np.float32)
    x = gt.tensor(array)
    array[:] = 0
    assert x.tolist() == list(range(FEW))


def test_a_function_that_vmap_calls_reads_the_elements_of_its_row() -> None:
    x = gt.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert x.tolist() == [[1, 2], [3, 4]]
    assert gt.vmap(lambda row: row * row[0].item())(x).tolist() == [[1, 2], [9, 12]]


def test_known_elements_of_a_daemon_that_is_gone_raise() -> None:
    program = """
import os, signal, time
import gt
x = gt.tensor([1.0, 2.0])
assert x.tolist() == [1.0, 2.0]
os.kill(gt._gt.session_info()["daemon_pid"], signal.SIGKILL)
deadline = time.monotonic() + 20
while time.monotonic() < deadline:
    try:
        x.tolist()
    except gt.DisconnectedError as error:
        print(type(error).__name__)
        break
"""
    assert output_of(program).strip()
