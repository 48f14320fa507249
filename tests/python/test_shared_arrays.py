"""Tensors and NumPy arrays share memory, as in PyTorch on a CPU: what is written to one shows in the other."""

import gc
import warnings

import numpy as np
import pytest

import gt

SIZES = [5, 1000, 300_000]  # hashed at every read, with or without the bytes on the host, and watched by the kernel


@pytest.fixture(autouse=True)
def _on_cpu() -> None:
    if gt.cuda.is_available():
        pytest.skip("on a GPU, arrays are copies: test_cuda.py")


@pytest.mark.parametrize("size", SIZES)
def test_what_is_written_to_the_array_shows_in_the_tensor(size):
    t = gt.ones(size)
    array = t.numpy()
    np.add(array, 1, out=array)
    assert t[0].item() == 2
    assert t.sum().item() == 2 * size
    array[-1] = 7
    assert (t + 0)[-1].item() == 7
    assert t.sum().item() == 2 * (size - 1) + 7


@pytest.mark.parametrize("size", SIZES)
def test_what_is_written_to_the_tensor_shows_in_the_array(size):
    t = gt.ones(size)
    array = t.numpy()
    t.add_(1)
    assert array.sum() == 2 * size
    t[0] = 5
    t[1:3].mul_(4)
    t.detach().sub_(1)
    assert array[:4].tolist() == [4, 7, 7, 1]
    t.zero_()
    assert not array.any()


@pytest.mark.parametrize("size", SIZES)
def test_from_numpy_shares_with_the_array(size):
    array = np.zeros(size, np.float32)
    for t in (gt.from_numpy(array), gt.as_tensor(array), gt.as_tensor(array, dtype=gt.float32)):
        array[:] = 3
        assert t.sum().item() == 3 * size
        t.mul_(2)
        assert array.sum() == 6 * size


@pytest.mark.parametrize("size", SIZES)
def test_a_buffer_that_is_filled_again_and_again(size):
    buffer = np.zeros(size)
    t = gt.from_numpy(buffer)
    sums, expected = [], []
    for step in range(40):
        buffer[step % size] = step + 1
        sums.append(t.sum())
        expected.append(buffer.sum())
    assert [s.item() for s in sums] == expected


def test_what_was_issued_before_the_write_has_the_elements_of_then():
    array = np.ones(100_000, np.float32)
    t = gt.from_numpy(array)
    before = [(t * k).sum() for k in range(20)]
    array[:] = 5
    after = t.sum()
    assert [b.item() for b in before] == [k * 100_000 for k in range(20)]
    assert after.item() == 500_000


@pytest.mark.parametrize("size", [4, 400])
def test_views_share_their_part(size):
    t = gt.zeros(size, size)
    row, column, turned = t[1].numpy(), t[:, 2].numpy(), t.T.numpy()
    row[:] = 1
    assert t.sum().item() == size
    column[:] = 2
    assert t.sum().item() == size + 2 * size - 1
    assert turned.shape == (size, size)
    t.fill_(3)
    assert row.sum() == column.sum() == 3 * size
    assert turned.sum() == 3 * size * size


def test_arrays_of_a_large_tensor_and_of_its_part():
    t = gt.zeros(400, 400)
    row, whole = t[1].numpy(), t.numpy()
    whole[1, 0] = 5
    assert t.sum().item() == 5
    assert row[0] == 5
    row[1] = 6
    assert t.sum().item() == 11
    assert whole[1, 1] == 6


def test_a_view_of_the_tensor_sees_what_is_written_to_the_array():
    t = gt.zeros(4, 4)
    view = t[2]
    array = t.numpy()
    array[2] = 1
    assert view.tolist() == [1.0] * 4


def test_a_part_of_the_array_and_an_array_of_another_order():
    array = np.zeros((6, 4), np.float32)
    for part in (array[1:5], array[:, 1], array.T, array[::2, ::3]):
        t = gt.from_numpy(part)
        part[...] = 2
        assert (t == 2).all()
        t.copy_(gt.arange(t.numel()).reshape(t.shape))
        assert (part == np.arange(part.size).reshape(part.shape)).all()


def test_numpy_twice_is_one_memory():
    t = gt.arange(10)
    first, second = t.numpy(), t.numpy()
    first[0] = 9
    assert second[0] == 9
    array = np.zeros(3)
    assert np.shares_memory(gt.from_numpy(array).numpy(), array)


def test_what_numpy_makes_of_a_tensor():
    t = gt.zeros(3)
    assert np.shares_memory(np.asarray(t), t.numpy())
    copied = np.array(t)
    copied[0] = 1
    assert t[0].item() == 0
    assert np.asarray(t, np.float64).dtype == np.float64


def test_the_array_may_go_first_and_the_tensor_may_go_first():
    t = gt.zeros(1000, 100)
    array = t.numpy()
    array[0, 0] = 1
    del array
    gc.collect()
    assert t.sum().item() == 1
    array = t.numpy()
    del t
    assert array.sum() == 1
    made = np.zeros(50)
    t = gt.from_numpy(made)
    made[0] = 4
    del made
    assert t.sum().item() == 4


def test_arrays_of_parts_share_one_memory():
    t = gt.arange(24).reshape(2, 3, 4)
    row, column, turned, bits = t[1].numpy(), t[:, 1].numpy(), t.permute(2, 0, 1).numpy(), t[0].view(gt.int32).numpy()
    row[1] = 0
    assert column[1].tolist() == turned[:, 1, 1].tolist() == [0] * 4
    bits[2, ::2] = 7
    assert turned[:, 0, 2].tolist() == [7] * 4
    turned[...] = 1
    assert t.sum().item() == 24


def test_many_arrays_of_small_parts_share_with_the_tensor_and_each_other():
    t = gt.from_numpy(np.zeros((2000, 100), np.float32))
    parts = [t[i].numpy() for i in range(100)]
    parts[3][0] = parts[90][1] = 1
    assert t.sum().item() == 2
    t.add_(1)
    assert [part.sum() for part in (parts[3], parts[4], parts[90])] == [101, 100, 101]
    again = t[90].numpy()
    again[2] = 9
    assert parts[90][2] == 9
    assert t[90].sum().item() == 109


@pytest.mark.parametrize("dtype", [gt.float32, gt.complex64])
def test_expanded_windows_and_parts_of_numbers(dtype):
    t = gt.arange(6).to(dtype)
    wide, windows, diagonal = t.expand(2, 6).numpy(), t.unfold(0, 3, 2).numpy(), t.reshape(2, 3).diagonal().numpy()
    assert windows.tolist() == [[0, 1, 2], [2, 3, 4]]
    diagonal[1] = 9
    assert wide[:, 4].tolist() == [9, 9]
    wide[0] = 3
    assert t.tolist() == [3] * 6
    if dtype is gt.complex64:
        t.imag.numpy()[1] = 2
        assert t[1].item() == 3 + 2j


def test_a_diagonal_of_a_part_is_where_it_is_in_memory():
    t = gt.arange(24).reshape(4, 3, 2)
    diagonal = t.transpose(1, 0)[2:].diagonal(-1, -1, 1)
    assert diagonal.storage_offset() == 5
    assert diagonal.numpy().tolist() == [[5]]


def test_a_copy_does_not_share():
    array = np.zeros(3)
    copies = [gt.tensor(array), gt.from_numpy(array).clone(), gt.as_tensor(array, dtype=gt.float32)]
    array[:] = 1
    assert [c.sum().item() for c in copies] == [0, 0, 0]
    t = gt.zeros(3)
    copied = t.clone().numpy()
    t.add_(1)
    assert copied.sum() == 0


def test_an_array_that_cannot_be_written_is_copied():
    array = np.arange(3)
    array.flags.writeable = False
    t = gt.from_numpy(array)
    t.add_(1)
    assert array.tolist() == [0, 1, 2]
    assert t.tolist() == [1, 2, 3]


def test_gradients_are_those_of_what_was_computed():
    array = np.full(3, 2.0, np.float32)
    x = gt.from_numpy(array).requires_grad_()
    y = (x * x).sum()
    y.backward()
    assert x.grad.tolist() == [4.0] * 3
    with gt.no_grad():
        x.sub_(1)
    assert array.tolist() == [1.0] * 3
    array[:] = 5
    (x * x).sum().backward()
    assert x.grad.tolist() == [14.0] * 3
    assert x.is_leaf


def test_an_optimizer_moves_the_array_of_a_parameter():
    w = gt.nn.Parameter(gt.ones(3))
    array = w.detach().numpy()
    optimizer = gt.optim.SGD([w], lr=0.5)
    (w * gt.tensor([1.0, 2.0, 3.0])).sum().backward()
    gradient = w.grad.numpy()
    optimizer.step()
    assert array.tolist() == [0.5, 0.0, -0.5]
    (w * 1.0).sum().backward()
    assert gradient.tolist() == [2.0, 3.0, 4.0]


@pytest.mark.parametrize("dtype", [gt.bool, gt.uint8, gt.int64, gt.float16, gt.float64, gt.complex64])
def test_dtypes(dtype):
    t = gt.zeros(4, 3, dtype=dtype)
    array = t.numpy()
    array[1] = 1
    assert t.to(gt.complex128).sum().item() == 3
    t[2] = 1
    assert array.sum() == 6


def test_a_tensor_and_its_bits():
    t = gt.zeros(4)
    bits = t.view(gt.int32).numpy()
    bits[:] = 0x3F800000
    assert t.tolist() == [1.0] * 4
    t.zero_()
    assert not bits.any()


def test_a_resized_array_is_an_error_that_says_so():
    array = np.zeros(100)
    t = gt.from_numpy(array)
    array.resize(50, refcheck=False)
    with pytest.raises(ValueError, match=r"has 400 bytes now, and had 800: it was resized.*from_numpy\(array\)"):
        t.sum()


def test_an_error_that_the_operation_would_raise_stays_its_own():
    t = gt.zeros(3)
    array = t.numpy()
    with pytest.raises(RuntimeError):
        t.add_(gt.zeros(4))
    array[0] = 1
    assert t.sum().item() == 1


def test_arrays_that_the_kernel_does_not_watch():
    """Where large memory is compared ever more rarely, a write that is found late is told in a warning."""
    memory = np.zeros(200_000)
    other = gt.from_numpy(memory[:20_000])  # The kernel watches a page for one array.
    assert other.sum().item() == other.sum().item() == 0
    t = gt.from_numpy(memory)
    for step in range(30):
        memory[5] = step
        assert t.sum().item() == step
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(100):
            t.sum()
    memory[5] = 1000
    with pytest.warns(UserWarning, match="share"):
        sums = [t.sum().item() for _ in range(200)]
    assert sums[-1] == 1000
