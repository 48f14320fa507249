"""Random programs. PyTorch runs each line as it is written, so that shapes fit and nothing is undefined."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
DTYPES = ("bool", *INTEGERS, *FLOATS)
ELEMENTS_MAX = 96
RANK_MAX = 4
LINES_MAX = 14
# The part of the lines on which PyTorch raises that are kept, as the last line of their program.
ERRORS_KEPT = 0.08
ATTEMPTS_MAX = 60

UNARY = (
    "neg abs sign floor ceil round trunc relu square logical_not bitwise_not isnan isinf clone positive frac sgn "
    "nan_to_num exp sin cos tanh sigmoid sqrt rsqrt reciprocal log1p expm1 isfinite signbit deg2rad erf"
).split()
# A result that is rounded may differ in the last bit: what makes a jump of that is not asked.
JUMPS = frozenset("sign floor ceil round trunc frac relu logical_not isinf signbit eq_ ne_ lt_ le_ gt_ ge_ sgn".split())
BINARY = "+ - * / // % ** & | ^ == != < <= > >= << >>".split()
BINARY_FUNCTIONS = (
    "maximum minimum fmod atan2 logical_and logical_or logical_xor copysign hypot floor_divide remainder true_divide"
).split()
SMOOTH = frozenset("+ - * / maximum minimum atan2 hypot true_divide copysign".split())
# Operations whose results depend on the sign of a zero.
SIGNS = frozenset("/ true_divide atan2 copysign reciprocal rsqrt".split())
REDUCTIONS = "sum prod mean amax amin any all cumsum cumprod argmax argmin logsumexp var count_nonzero nansum".split()
IN_PLACE_UNARY = (
    "zero_ neg_ abs_ sign_ floor_ round_ relu_ square_ logical_not_ bitwise_not_ sin_ exp_ sigmoid_ trunc_"
).split()
IN_PLACE_BINARY = "add_ sub_ mul_ div_ copy_ fmod_ eq_ ne_ lt_ le_ gt_ ge_ logical_and_".split()
AUGMENTED = "+= -= *= /= //= %= &= |= ^=".split()
RANGE_ENDS = {
    "uint8": (0, 255),
    "int8": (-128, 127),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
SMALL = (0, 1, 2, 3, -1, -2, 5, 0.5, -1.5, 2.0, 0.0, True, False)
SCALARS = (*SMALL, 127, 128, 255, 256, -128, 2**31, 2**53 + 1, 2**63 - 1)


class Program:
    """A program that is being written: its lines, and PyTorch's variables after them."""

    def __init__(self, seed: int, scalars: tuple[Any, ...], shares_arrays: bool) -> None:
        self.random = random.Random(seed)
        self.shares_arrays = shares_arrays
        self.scalars = scalars
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {"torch": torch}
        self.count = 0
        # Tensors whose elements were rounded, or computed from such.
        self.rounded: set[str] = set()
        # Handles whose writes the tape does not see: `x.data` and its views.
        self.untracked: set[str] = set()
        # Handles that show an element several times. Results of PyTorch may, too, where those of GT are contiguous.
        self.repeating: set[str] = set()
        # Handles that got another shape in place, of which PyTorch's strides may have become contiguous.
        self.reshaped: set[str] = set()
        self.raised = False

    # Choices

    def pick(self, items: Any) -> Any:
        return self.random.choice(list(items))

    def chance(self, part: float) -> bool:
        return self.random.random() < part

    def names(self) -> list[str]:
        return [name for name, value in self.scope.items() if isinstance(value, torch.Tensor)]

    def tensor(self, fits: Callable[[torch.Tensor], bool] = lambda _: True) -> str | None:
        """The name of a variable, later ones more often."""
        names = self.tensors(fits)
        return names[-1 - int(len(names) * self.random.random() ** 2)] if names else None

    def tensors(self, fits: Callable[[torch.Tensor], bool]) -> list[str]:
        """The names of the variables that fit."""
        names = []
        for name in self.names():
            try:
                if fits(self.scope[name]):
                    names.append(name)
            except RuntimeError:
                # PyTorch refuses to say whether a view of several, whose base was written to, is a leaf.
                continue
        return names

    def arrays(self) -> list[str]:
        """The names of the NumPy arrays, each of which shares its elements with a tensor."""
        return [name for name, value in self.scope.items() if isinstance(value, np.ndarray)]

    def of(self, name: str) -> torch.Tensor:
        return self.scope[name]

    def axis(self, name: str) -> int:
        rank = self.of(name).ndim
        return self.random.randrange(-rank, rank) if rank else self.pick((0, -1))

    # Literals

    def value(self, dtype: str) -> Any:
        if dtype == "bool":
            return self.chance(0.5)
        if dtype in RANGE_ENDS:
            low, high = RANGE_ENDS[dtype]
            return self.pick((low, high, 0, 1)) if self.chance(0.12) else self.random.randint(max(low, -6), 6)
        return self.random.randint(-16, 16) / 4

    def literal(self, shape: tuple[int, ...], dtype: str) -> Any:
        if not shape:
            return self.value(dtype)
        return [self.literal(shape[1:], dtype) for _ in range(shape[0])]

    def shape(self) -> tuple[int, ...]:
        rank = self.pick((0, 1, 1, 2, 2, 2, 3))
        return tuple(self.pick((1, 2, 3, 4, 2, 3, 0 if self.chance(0.15) else 2)) for _ in range(rank))

    def scalar(self) -> Any:
        return self.pick(self.scalars)

    # Lines

    def create(self) -> str:
        dtype = self.pick(DTYPES)
        shape = self.shape()
        if self.tensor() and self.chance(0.6):
            # A shape that broadcasts with that of another tensor.
            own = list(self.of(self.tensor()).shape)
            shape = tuple(1 if self.chance(0.15) else size for size in own[self.random.randint(0, len(own)) :])
        grad = ", requires_grad=True" if dtype in FLOATS and self.chance(0.5) else ""
        if 0 in shape:
            return f"torch.zeros({shape}, dtype=torch.{dtype}{grad})"
        return f"torch.tensor({self.literal(shape, dtype)}, dtype=torch.{dtype}{grad})"

    def view(self) -> str:
        a = self.tensor()
        t = self.of(a)
        d, e = self.axis(a), self.axis(a)
        size = t.shape[d] if t.ndim else 1
        start = self.random.randint(0, max(size - 1, 0))
        length = self.random.randint(0 if self.chance(0.1) else 1, max(size - start, 1))
        # Results of GT are contiguous, where those of PyTorch may have the strides of an operand.
        reshaped = any(shares_memory(t, self.of(name)) for name in self.reshaped)
        alike = not reshaped and (t if t._base is None else t._base).is_contiguous()
        choices = [
            f"{a}[{self.index(t)}]",
            f"{a}[{self.index(t)}]",
            f"{a}.transpose({d}, {e})",
            f"{a}.narrow({d}, {start}, {length})",
            f"{a}.select({d}, {start})",
            f"{a}.unsqueeze({self.random.randint(-t.ndim - 1, t.ndim)})",
            f"{a}.squeeze({self.pick(('', d))})",
            f"{a}.expand({', '.join(map(str, [*([2] if self.chance(0.4) or not t.ndim else []), *self.expanded(t)]))})",
            f"{a}.movedim({d}, {e})",
            f"{a}.detach()",
            f"{a}.data",
            f"{a}.diagonal({self.pick((0, 0, 1, -1))}, {d}, {e})",
            f"{a}.unfold({d}, {self.pick((1, 2))}, {self.pick((1, 2))})",
            f"{a}.T" if t.ndim == 2 else f"{a}.flatten()" if alike else f"{a}.t()",
            f"{a}.t()",
            f"{a}.swapaxes({d}, {e})",
            f"{a}.permute({', '.join(map(str, self.random.sample(range(t.ndim), t.ndim)))})" if t.ndim else f"{a}.t()",
        ]
        if not t.requires_grad:
            # PyTorch refuses to write to these if they are views of what requires a gradient; GT does not.
            choices += [
                f"{a}.split({self.pick((1, 2))}, {d})[{self.pick((0, -1))}]",
                f"{a}.chunk(2, {d})[{self.pick((0, -1))}]",
                f"{a}.unbind({d})[{self.pick((0, -1))}]",
            ]
        if alike and t.is_contiguous():
            choices += [f"{a}.view(-1)", f"{a}.reshape({self.sizes(t.numel())})", f"{a}.flatten()", f"{a}.ravel()"] * 2
            # The bytes of a bool are 0 or 1, and those of a rounded number or NaN may be any.
            if a not in self.rounded and not t.detach().isnan().any():
                # To the same dtype, PyTorch detaches.
                others = [n for n in DTYPES[1:] if f"torch.{n}" != str(t.dtype)]
                choices += [f"{a}.view(torch.{self.pick(others)}).clone()"]
                other = self.pick(others)
                if t.dtype != torch.bool and not t.requires_grad and self.has_numbers(t, other):
                    choices += [f"{a}.view(torch.{other})"]
        return self.pick(choices)

    def has_numbers(self, t: torch.Tensor, dtype: str) -> bool:
        """Whether the bytes of a tensor are finite numbers of another dtype."""
        try:
            return bool(t.view(getattr(torch, dtype)).isfinite().all())
        except RuntimeError:
            return False

    def expanded(self, t: torch.Tensor) -> list[int]:
        return [self.pick((2, 3, -1)) if size == 1 else self.pick((size, -1)) for size in t.shape]

    def sizes(self, count: int) -> str:
        fits = [(a, b) for a in range(1, 5) for b in range(1, 9) if a * b == count]
        return ", ".join(map(str, self.pick(fits))) if fits else "-1"

    def index(self, t: torch.Tensor) -> str:
        parts = []
        for size in t.shape[: self.random.randint(0, t.ndim)]:
            low, high = self.random.randint(-size, size), self.random.randint(-size - 1, size + 1)
            parts.append(
                self.pick(
                    (
                        str(self.random.randint(-size, max(size - 1, 0))),
                        f"{low}:{high}",
                        f"{abs(low)}:",
                        f"::{self.pick((1, 2, 3))}",
                        ":",
                        "None" if self.chance(0.3) else ":",
                    )
                )
            )
        if self.chance(0.2):
            parts.append("...")
        return ", ".join(parts) or "..."

    def advanced_index(self, t: torch.Tensor) -> str:
        """An index of tensors, in which no element occurs twice."""
        kinds = ["mask", "list", "tensor"] if t.ndim else ["whole mask"]
        kind = self.pick(kinds)
        if kind == "whole mask":
            return f"torch.tensor({self.chance(0.5)})"
        if kind == "mask":
            shape = tuple(t.shape[: self.random.randint(1, t.ndim)])
            return f"torch.tensor({self.literal(shape, 'bool')}, dtype=torch.bool)" if 0 not in shape else ":"
        size = t.shape[0]
        chosen = self.random.sample(range(size), self.random.randint(0 if self.chance(0.1) else min(1, size), size))
        chosen = [i - size if self.chance(0.3) else i for i in chosen]
        if kind == "list":
            return f"{chosen}" if chosen else ":"
        last = f", {self.index(t[0])}" if t.ndim > 1 and size and self.chance(0.3) else ""
        return f"torch.tensor({chosen}, dtype=torch.int64){last}"

    def get(self) -> str:
        a = self.tensor()
        t = self.of(a)
        d = self.axis(a)
        size = t.shape[d] if t.ndim else 1
        # Nothing is read of a tensor without elements, and no index checked; PyTorch checks those of some functions.
        least = -1 if self.chance(0.02) and t.numel() else 0
        positions = [self.random.randrange(least, size) for _ in range(2)] if size else []
        found = f"torch.tensor({positions}, dtype=torch.int64)"
        return self.pick(
            (
                f"{a}[{self.advanced_index(t)}]",
                f"{a}[{self.advanced_index(t)}]",
                f"{a}.index_select({d}, {found})",
                f"torch.take({a}, torch.tensor([0, {max(t.numel() - 1, 0)}]))",
                f"{a}.masked_select({a} > {self.scalar()})" if a not in self.rounded else f"{a}[{self.index(t)}]",
                f"{a}.flip({d})",
                f"{a}.roll({self.pick((1, -1))}, {d})",
                f"{a}.repeat({', '.join(['2'] * max(t.ndim, 1))})",
                f"{a}.tril()" if t.ndim > 1 else f"{a}.clone()",
            )
        )

    def unary(self) -> str | None:
        name = self.pick(UNARY)
        a = self.tensor()
        if (name in JUMPS and a in self.rounded) or (name in SIGNS and self.has_rounded_zero(a)):
            return None
        if name in ("sin", "cos") and self.is_rounded_and_large(a):
            return None
        if name == "signbit" and self.has_nan(a):
            return None
        return f"{a}.{name}()" if self.chance(0.5) else f"torch.{name}({a})"

    def operand(self, a: str) -> str:
        shape = self.of(a).shape
        b = None if self.chance(0.35) else self.tensor(lambda t: broadcasts(t.shape, shape))
        return b or repr(self.scalar())

    def binary(self) -> str | None:
        a = self.tensor()
        b = self.operand(a)
        op = self.pick(BINARY) if self.chance(0.7) else self.pick(BINARY_FUNCTIONS)
        if op not in SMOOTH and {a, b} & self.rounded:
            return None
        if op in SIGNS and any(self.has_rounded_zero(name) for name in (a, b)):
            return None
        if op in ("<<", ">>") and not self.shifts(b):
            return None
        if op in "+ - / // %" and self.is_beyond_half(a, b):
            return None
        if op == "copysign" and self.has_nan(b):
            return None
        if op in ("atan2", "hypot") and self.squares_integers(a, b):
            return None
        if not op.isidentifier():
            if not self.chance(0.25):
                return f"{a} {op} {b}"
            if op == "/" and b not in self.scope and bool((self.of(a).reciprocal().isinf() & (self.of(a) != 0)).any()):
                # PyTorch multiplies a number by the reciprocal, which is infinite for the smallest numbers.
                return None
            return f"{b} {op} {a}"
        return f"torch.{op}({a}, {b})"

    def is_recorded(self) -> bool:
        """Whether a graph may have saved a tensor."""
        return any(self.of(name).grad_fn is not None for name in self.tensors(lambda t: t.requires_grad))

    def is_rounded_and_large(self, name: str) -> bool:
        """Whether the rounding of a number may be a part of a period of the sine."""
        t = self.of(name).detach()
        return name in self.rounded and bool((t.abs() > (1 if t.dtype in HALVES else 100)).any())

    def has_rounded_zero(self, name: str) -> bool:
        """Whether a zero is among rounded numbers: its sign is not promised."""
        return name in self.rounded and bool((self.of(name) == 0).any())

    def has_nan(self, b: str) -> bool:
        """Whether NaN is among the elements: it has no sign that either framework promises."""
        other = eval(b, {"torch": torch}, self.scope)
        return bool(torch.as_tensor(other).isnan().any())

    def shows_bits_of_nan(self, name: str) -> bool:
        """Whether a tensor has the memory of one of another dtype, and either of them has a NaN."""
        t = self.of(name)
        others = [other for other in map(self.of, self.names()) if other.dtype != t.dtype and shares_memory(t, other)]
        return bool(others) and any(bool(other.detach().isnan().any()) for other in (t, *others))

    def is_beyond_half(self, a: str, b: str) -> bool:
        """Whether a single number is beyond the range of float16 elements beside it: PyTorch may round it to these."""
        operands = [torch.as_tensor(eval(name, {"torch": torch}, self.scope)) for name in (a, b)]
        half = any(t.dtype == torch.float16 for t in operands)
        most = torch.finfo(torch.float16).max
        return half and any(t.numel() == 1 and bool(t.detach().double().abs().max() > most) for t in operands)

    def squares_integers(self, a: str, b: str) -> bool:
        """Whether PyTorch's gradient squares integers in their own dtype, where they wrap."""
        operands = [torch.as_tensor(eval(name, {"torch": torch}, self.scope)) for name in (a, b)]
        return any(t.requires_grad for t in operands) and any(not t.is_floating_point() for t in operands)

    def shifts(self, b: str) -> bool:
        amount = eval(b, {"torch": torch}, self.scope)
        amounts = amount.reshape(-1).tolist() if isinstance(amount, torch.Tensor) else [amount]
        return all(0 <= amount < 7 for amount in amounts)

    def reduce(self) -> str | None:
        a = self.tensor()
        name = self.pick(REDUCTIONS)
        if name in ("any", "all", "argmax", "argmin", "count_nonzero") and a in self.rounded:
            return None
        if name == "logsumexp" and self.of(a).dtype.itemsize == 2:
            # PyTorch rounds the sum to half precision before the logarithm.
            return None
        if name == "logsumexp" and self.beyond(a, 1e6):
            # PyTorch's gradient is exp(x - result), in which a large result has swallowed the logarithm.
            return None
        if name in ("sum", "mean", "cumsum", "nansum") and self.cancels(a):
            # The order and the rounding decide what remains.
            return None
        if name in ("amax", "amin") and self.has_both_zeros(a):
            # The sign of a zero is not promised where several numbers meet.
            return None
        if name == "var" and self.beyond(a, 1e6):
            # The variance of numbers far from 0, of which PyTorch rounds the deviations.
            return None
        words = []
        if name in ("cumsum", "cumprod", "logsumexp") or self.chance(0.5):
            words.append(f"{self.axis(a)}")
            if name not in ("cumsum", "cumprod", "count_nonzero") and self.chance(0.4):
                words.append("keepdim=True")
        if name in ("sum", "prod", "mean", "cumsum", "cumprod", "nansum") and self.chance(0.25):
            dtype = self.pick(DTYPES)
            if dtype not in FLOATS and not self.fits(a, dtype):
                return None
            words.append(f"dtype=torch.{dtype}")
        into = next((word.removeprefix("dtype=torch.") for word in words if "dtype" in word), None)
        if name in ("prod", "cumprod") and self.multiplies_beyond(a, into):
            # Whether a factor of 0 comes before or after the overflow is decided by the order and the rounding.
            return None
        if name in ("prod", "cumprod") and self.of(a).requires_grad and not self.of(a).isfinite().all():
            # A zero anywhere in the tensor, or `create_graph`, decides where PyTorch's gradient is NaN.
            return None
        return f"{a}.{name}({', '.join(words)})"

    def has_both_zeros(self, a: str) -> bool:
        """Whether 0.0 and -0.0 are among the elements."""
        t = self.of(a).detach()
        return t.is_floating_point() and bool(((t == 0) & t.signbit()).any() and ((t == 0) & ~t.signbit()).any())

    def beyond(self, a: str, limit: float) -> bool:
        """Whether the size of an element is above a limit."""
        return bool((self.of(a).detach().double().abs() > limit).any())

    def cancels(self, a: str) -> bool:
        """Whether large numbers of both signs are among the elements: a sum of floats rounds off the small ones."""
        t = self.of(a).detach().double()
        return bool(((t > 1e4).any() & (t < -1e4).any()).item())

    def multiplies_beyond(self, a: str, dtype: str | None) -> bool:
        """Whether a product of elements may be beyond the range of the floating-point dtype that it is computed in."""
        t = self.of(a).detach()
        into = getattr(torch, dtype) if dtype else t.dtype
        beyond = into.is_floating_point and t.double().abs().clamp_min(1).prod() > torch.finfo(into).max
        return bool(beyond)

    def join(self) -> str:
        a = self.tensor()
        b = self.tensor(lambda t: t.shape == self.of(a).shape) or a
        c = self.tensor(lambda t: broadcasts(t.shape, self.of(a).shape)) or a
        d, a_dtype = self.axis(a), self.of(a).dtype
        choices = [
            f"torch.cat(({a}, {b}), {d})",
            f"torch.stack(({a}, {b}), {d})",
            f"torch.where({c} > {self.scalar()}, {a}, {self.operand(a)})",
            f"torch.clamp({a}, {self.scalar()}, {self.scalar()})",
            f"{a}.masked_fill({c} != 0, {self.scalar()})",
            f"torch.lerp({a}, {b}, 0.5)",
            f"torch.addcmul({a}, {b}, {c})",
            # PyTorch does not compare the dtypes of empty batches.
            f"{a} @ {b}" if a_dtype != torch.bool and self.of(a).numel() else f"{a} | {b}",
            f"{a}.float().matmul({b}.float().mT)" if self.of(b).ndim > 1 else f"{a}.float() * {b}",
            f"torch.nn.functional.relu({a})",
            f"torch.nn.functional.softmax({a if self.of(a).is_floating_point() else f'{a}.float()'}, {d})",
            f"torch.nn.functional.one_hot({a}.long().abs(), {self.pick((3, 7))})",
        ]
        line = self.pick(choices)
        operands = [self.of(name) for name in (a, b, c)]
        if "addcmul" in line and {t.dtype in HALVES for t in operands} == {True, False}:
            # PyTorch rounds a single number of more precision to half precision first.
            return None
        if ("matmul" in line or " @ " in line) and (self.beyond(a, 1e18) or self.beyond(b, 1e18)):
            # The order of the products decides whether a sum overflows before it cancels.
            return None
        if "long" in line and not self.fits(a, "int64"):
            return None
        return None if ("where" in line or "masked" in line) and {a, c} & self.rounded else line

    def cast(self) -> str | None:
        a = self.tensor()
        dtype = self.pick(DTYPES)
        if not self.fits(a, dtype):
            return None
        choices = [f"{a}.to(torch.{dtype})", f"{a}.type(torch.{dtype})"]
        like = self.tensor()
        if self.fits(a, str(self.of(like).dtype).removeprefix("torch.")):
            choices.append(f"{a}.to({like})")
        return self.pick(choices)

    def fits(self, a: str, dtype: str) -> bool:
        """Whether the elements of a tensor of floats are in the range of an integer dtype."""
        t = self.of(a).detach()
        if not t.is_floating_point() or dtype in FLOATS:
            return True
        low, high = RANGE_ENDS.get(dtype, (-1, 1))
        exact = a not in self.rounded
        # Compared as Python's numbers: as one of float64, the largest of int64 is beyond it.
        inside = t.numel() == 0 or (t.min().item() >= low and t.max().item() <= high)
        return exact and bool(t.isfinite().all()) and inside

    def write(self) -> str | None:
        a = self.tensor()
        t = self.of(a)
        b = self.operand(a)
        small = self.tensor(lambda other: other.ndim == 0) or "1"
        d = self.axis(a)
        size = t.shape[d] if t.ndim else 1
        positions = self.random.sample(range(size), min(size, 2))
        found = f"torch.tensor({positions}, dtype=torch.int64)"
        dtype = str(t.dtype).removeprefix("torch.")
        rows = (
            f"torch.tensor({[i - len(t) if self.chance(0.4) else i for i in range(min(len(t), 3))]})" if t.ndim else ""
        )
        line = self.pick(
            (
                f"{a}.index_put_(({rows},), torch.tensor({self.value(dtype)}, dtype={t.dtype})"
                f"{self.pick(('', ', accumulate=True'))})"
                if t.ndim and len(t)
                else f"{a}.zero_()",
                f"{a}.{self.pick(IN_PLACE_BINARY)}({b})",
                f"{a}.{self.pick(IN_PLACE_BINARY)}({b})",
                self.unary_in_place(a),
                f"{a}.fill_({self.pick((self.scalar(), small))})",
                f"{a}[{self.index(t)}] = {b}",
                f"{a}[{self.index(t)}] = {self.scalar()}",
                f"{a}[{self.index(t)}] {self.pick(AUGMENTED)} {self.scalar()}",
                f"{a}[{self.advanced_index(t)}] = {self.pick((self.scalar(), small)) if t.ndim else self.scalar()}",
                f"{a}[{self.advanced_index(t)}] = {self.scalar()}",
                f"{a} {self.pick(AUGMENTED)} {b}",
                f"{a}.masked_fill_({a} > 0, {self.scalar()})",
                f"{a}.index_fill_({d}, {found}, {self.scalar()})",
                f"{a}.index_add_({d}, {found}, {a}.index_select({d}, {found}) * 2)",
                f"{a}.clamp_({self.scalar()}, {self.scalar()})",
            )
        )
        target = self.of(a)
        if overlaps(target) and not re.search(r"fill_\(|zero_|index_put_|\] = [-\dTF]", line):
            # The result is that of the order in which PyTorch visits the elements.
            return None
        whole = f"{a}.fill_" in line or f"{a}.zero_" in line
        if overlaps(target) and not whole and (t.requires_grad or a not in self.repeating):
            # PyTorch's gradients count a written element once for each place.
            return None
        if b == a and " = " in line and t._base is not None and self.is_recorded():
            # A part assigned to itself stays as it is; in PyTorch, `retain_grad` then follows the assignment.
            return None
        if a == b and t._backward_hooks and t._base is not None:
            # PyTorch's hook changes the gradient of the second operand alone.
            return None
        if any(
            overlaps(other) and shares_memory(target, other)
            for other in map(self.of, set(self.names()) - self.repeating)
        ):
            # A gradient that PyTorch expands, as that of a sum; a part of it shows what is written to another.
            return None
        sizes = {self.of(name).itemsize for name in self.names() if shares_memory(target, self.of(name))}
        rounds = any(word in line for word in ROUNDING) or {a, b} & self.rounded
        if len(sizes) > 1 and rounds:
            # The last bits of a rounded number are most of an element of fewer bytes.
            return None
        if len(sizes) > 1 and a in self.repeating and re.search(r"index_\w+_\(|masked_fill_|\] = ", line):
            # Elements of another size, which another axis repeats: GT refuses to write to some of them.
            return None
        if self.is_recorded() and any(shares_memory(target, self.of(name)) for name in self.untracked):
            # PyTorch's gradient of what was computed of `x.data` is that of its new elements; GT raises an error.
            return None
        if a in self.untracked and self.is_recorded():
            # In PyTorch, a gradient that was recorded before is computed of what is written then.
            return None
        retaining = (self.of(name) for name in self.names() if name != a and self.of(name).retains_grad)
        if any(shares_memory(target, other) for other in retaining):
            # PyTorch keeps the gradient of before the write until the program looks at the view's node.
            return None
        storage = target.untyped_storage()._cdata
        elsewhere = [self.of(name) for name in self.names() if self.of(name).untyped_storage()._cdata != storage]
        if self.is_recorded() and any(shares_memory(target, other) for other in elsewhere):
            # Two tensors of one NumPy array have a version each: PyTorch's gradient is that of what is written then.
            return None
        others = [self.of(name) for name in self.names() if name != a and name in line]
        if any(shares_memory(target, other) for other in others):
            return None
        jumps = (*JUMPS, "fmod", "//", "%", "masked_fill_", "logical")
        if {a, b} & self.rounded and any(word in line for word in jumps):
            return None
        number = re.search(r"(?:[-+/%]= |_\()(-?\d[\d.]*)\)?$", line)
        if t.dtype == torch.float16 and number and abs(float(number[1])) > torch.finfo(t.dtype).max:
            # PyTorch rounds the number to half precision, in which it is infinite.
            return None
        if f"({b})" in line and self.is_beyond_half(a, b):
            return None
        if "sin_" in line and self.is_rounded_and_large(a):
            return None
        if (
            re.search(r"\.(eq|ne|lt|le|gt|ge)_\(", line)
            and not t.requires_grad
            and any(o.requires_grad for o in others)
        ):
            # In PyTorch, the truth values then require a gradient, of zeros.
            return None
        if re.search(r"div_|/=", line) and self.has_rounded_zero(b):
            return None
        if any(other.is_floating_point() for other in [*others, t]) and not t.is_floating_point():
            # A conversion to integers that may not fit.
            return None
        return f"with torch.no_grad(): {line}" if self.chance(0.2) else line

    def unary_in_place(self, a: str) -> str:
        return f"{a}.{self.pick(IN_PLACE_UNARY)}()"

    def handle(self) -> str | None:
        """A line about handles: what a tensor is, not what it has."""
        a = self.tensor()
        b = self.tensor(lambda t: t.dtype == self.of(a).dtype)
        d, e = self.axis(a), self.axis(a)
        # PyTorch says that a view requires a gradient if its base does, but records nothing that was before.
        alone = not any(name != a and shares_memory(self.of(a), self.of(name)) for name in self.names())
        shapes = [
            f"{a}.t_()",
            f"{a}.transpose_({d}, {e})",
            f"{a}.unsqueeze_({d})",
            f"{a}.squeeze_()",
            f"{a}.swapaxes_({d}, {e})",
        ]
        line = self.pick(
            (
                *shapes,
                f"{a}.requires_grad_({self.pick((True, False))})" if alone else self.retain(a),
                f"{a}.data = {b}.detach()" if alone and not self.is_recorded() else self.retain(a),
                f"{a}.grad = None",
                self.retain(a),
            )
        )
        t = self.of(a)
        first = t.is_leaf and alone and not self.is_recorded()
        if line in shapes and t.requires_grad and t._base is None and not first:
            # Without recording, PyTorch's gradient of a result keeps the former shape, and that of what was computed of
            # a leaf before gets the new one.
            return None
        if line in shapes:
            self.reshaped.add(a)
        return f"with torch.no_grad(): {line}" if self.chance(0.4) else line

    def retain(self, a: str) -> str:
        """A call of `retain_grad`. PyTorch ignores it for a view that became part of a graph by a write to its base,
        until the view's node is looked at.
        """
        return f"{a}.grad_fn; {a}.retain_grad()" if self.of(a)._base is not None else f"{a}.retain_grad()"

    def autograd(self) -> str | None:
        a = self.tensor(lambda t: t.requires_grad)
        if a is None:
            return None
        leaf = self.tensor(lambda t: t.requires_grad and t.is_leaf) or a
        keep = ", retain_graph=True" if self.chance(0.5) else ""
        return self.pick(
            (
                f"{a}.sum().backward({keep[2:]})",
                f"{a}.sum().backward({keep[2:]})",
                f"{a}.backward(torch.ones_like({a}){keep})",
                f"torch.autograd.backward(({a} * {a}).sum(){keep})",
                f"{a}.register_hook(lambda g: g * 2)",
                f"{a}.register_hook(lambda g: g.sum())" if self.chance(0.2) else self.retain(a),
                f"{leaf}.register_hook(lambda g: None)",
                f"{self.fresh()} = torch.autograd.grad(({a} * {a}).sum(), {leaf}{keep})[0]",
                f"{self.fresh()} = torch.autograd.grad(({a} * {a}).sum(), {leaf}, create_graph=True)[0].detach()",
            )
        )

    def with_numpy(self) -> str | None:
        """A line about NumPy arrays that share their elements with tensors."""
        arrays = self.arrays()
        a = self.tensor(lambda t: t.dtype != torch.bfloat16 and t.numel() > 0 and not overlaps(t))
        if a and (not arrays or self.chance(0.3)):
            return f"n{len(arrays)} = {a}.detach().numpy()"
        if not arrays:
            return None
        n = self.pick(arrays)
        if self.chance(0.3):
            return f"{self.fresh()} = torch.from_numpy({n})"
        shared = [self.of(name) for name in self.names() if in_array(self.of(name), self.scope[n])]
        if self.is_recorded() or any(t.requires_grad for t in shared):
            # In PyTorch, a gradient that was recorded before is computed of what is written then.
            return None
        t = torch.from_numpy(self.scope[n])
        value = self.value(str(t.dtype).removeprefix("torch."))
        return self.pick((f"{n}[...] = {value}", f"{n}[{self.index(t)}] = {value}"))

    def fresh(self) -> str:
        return f"t{self.count}"

    # Writing

    def step(self) -> None:
        """Adds a line that PyTorch runs; or, rarely, one on which it raises, as the last."""
        kinds = {
            self.create: 1 if self.names() else 100,
            self.view: 4,
            self.get: 2,
            self.unary: 2,
            self.binary: 4,
            self.reduce: 2,
            self.join: 2,
            self.cast: 1,
            self.write: 6,
            self.handle: 1,
            self.autograd: 2,
            self.with_numpy: 2 if self.shares_arrays else 0,
        }
        kind = self.random.choices(list(kinds), kinds.values())[0] if self.count > 1 else self.create
        try:
            line = kind()
        except RuntimeError as error:
            # PyTorch may refuse to look at one of several views whose base was written to.
            if not is_about_memory(str(error)):
                raise
            return
        if line is None:
            return
        value = kind not in (self.write, self.handle, self.autograd, self.with_numpy)
        line = f"{self.fresh()} = {line}" if value else line
        before = {name: (self.of(name), self.of(name)._version) for name in self.names()}
        try:
            exec(line, self.scope)
        except Exception as error:
            self.raised = not is_about_memory(str(error)) and self.chance(ERRORS_KEPT)
            if self.raised or any(t._version != version for t, version in before.values()):
                # A line that raises after it has written cannot be left out.
                self.lines.append(line)
                self.raised = True
            return
        made = self.scope.get(self.fresh())
        if made is not None and not acceptable(made):
            del self.scope[self.fresh()]
            return
        self.lines.append(line)
        source = line.partition(" = ")[2] if value or "from_numpy" in line else line
        if made is not None:
            for kind, makes in ((self.untracked, r"\.data$"), (self.repeating, r"\.(expand|unfold)\(")):
                views = [name for name in kind if shares_memory(self.of(name), made)]
                if re.search(makes, source) or any(re.search(rf"\b{name}\b", source) for name in views):
                    kind.add(self.fresh())
        elif ".data = " in line:
            # Each of the two now shows what is written to the other.
            names = re.findall(r"\bt\d+\b", line)
            self.untracked |= {name for name in self.names() if shares_memory(self.of(name), self.of(names[0]))}
        self.count += made is not None
        changed = [name for name, (t, version) in before.items() if t._version != version]
        if kind == self.with_numpy and line.startswith("n"):
            changed += [
                name for name in self.names() if in_array(self.of(name), self.scope[line.split("[")[0].split()[0]])
            ]
        if kind == self.with_numpy and made is not None:
            views = [name for name in self.names() if shares_memory(self.of(name), made)]
            for names in (self.rounded, self.untracked):
                if names & set(views):
                    names.add(line.split()[0])
        # The bits of a NaN are not promised: the program ends before one that is seen as integers.
        if any(self.shows_bits_of_nan(name) for name in changed):
            self.lines.pop()
            self.raised = True
            return
        inexact = any(name in source for name in self.rounded) or any(word in line for word in ROUNDING)
        for name in [*changed, *([f"t{self.count - 1}"] if made is not None else [])]:
            if self.of(name).is_floating_point() and (inexact or self.of(name).dtype in HALVES):
                # Views of one memory are rounded together.
                self.rounded |= {other for other in self.names() if shares_memory(self.of(other), self.of(name))}


HALVES = (torch.float16, torch.bfloat16)
ROUNDING = (
    "exp sin cos tanh sigmoid sqrt recip log / mean softmax var prod ** @ matmul dot hypot atan2 erf deg2rad grad frac "
    "lerp addcmul div sum %"
).split()


def is_about_memory(text: str) -> bool:
    """Whether an error is about memory as PyTorch lays it out, which differs in GT."""
    return any(
        words in text
        for words in (
            "view size is not compatible",
            "single memory location",
            "modified by an inplace operation",
            "stride(",
            "modified inplace",
            # GT raises where a gradient needs what was released, PyTorch also where it does not.
            "backward through the graph a second time",
            "INTERNAL ASSERT",
        )
    )


def acceptable(made: Any) -> bool:
    """Whether a result is small, and its numbers can be compared."""
    if not isinstance(made, torch.Tensor):
        return False
    supported = str(made.dtype).removeprefix("torch.") in DTYPES
    return supported and made.numel() <= ELEMENTS_MAX and made.ndim <= RANK_MAX and made.layout == torch.strided


def broadcasts(small: Any, large: Any) -> bool:
    """Whether a tensor of shape `small` broadcasts to shape `large`."""
    pairs = zip(reversed(small), reversed(large), strict=False)
    return len(small) <= len(large) and all(a in (1, b) for a, b in pairs)


def overlaps(t: torch.Tensor) -> bool:
    """Whether an element of memory appears at several indices."""
    if t.numel() < 2:
        return False
    positions = torch.zeros(t.shape, dtype=torch.int64)
    for axis, (size, stride) in enumerate(zip(t.shape, t.stride(), strict=True)):
        line = [1] * t.ndim
        line[axis] = size
        positions = positions + (torch.arange(size) * stride).reshape(line)
    return positions.unique().numel() < t.numel()


def shares_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors have one storage, or memory of one NumPy array. A storage without elements has no address,
    but it is an object.
    """
    own, other = a.untyped_storage(), b.untyped_storage()
    return bool(own._cdata == other._cdata) or meet((own.data_ptr(), own.nbytes()), (other.data_ptr(), other.nbytes()))


def in_array(t: torch.Tensor, array: np.ndarray) -> bool:
    """Whether a tensor's storage has memory of an array."""
    low, high = np.lib.array_utils.byte_bounds(array)
    storage = t.untyped_storage()
    return meet((storage.data_ptr(), storage.nbytes()), (low, high - low))


def meet(a: tuple[int, int], b: tuple[int, int]) -> bool:
    """Whether two ranges of memory, each an address and a number of bytes, have a byte in common."""
    return a[0] < b[0] + b[1] and b[0] < a[0] + a[1] and min(a[1], b[1]) > 0


def program(seed: int, scalars: tuple[Any, ...] = SCALARS, shares_arrays: bool = True) -> list[str]:
    """The lines of a random program; those of a seed are always the same. Without `shares_arrays`, none makes an array
    of NumPy's: those of tensors on a GPU are copies, where PyTorch, on the processor, shares elements.
    """
    written = Program(seed, scalars, shares_arrays)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(ATTEMPTS_MAX):
            written.step()
            if written.raised or len(written.lines) >= LINES_MAX:
                break
    return written.lines
