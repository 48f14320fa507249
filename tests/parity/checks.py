"""One operation in all its forms: its samples in several dtypes, gradients, methods, in-place, `out=`, wrong inputs."""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

import gt
from tests.parity import edges, names
from tests.parity.compare import difference
from tests.parity.convert import LeftOutError, ToGt, described, fresh, tensors_in

# The dtypes with the number of samples of each: of a dtype that computes as another does, a few.
SAMPLES_MAX = {
    torch.float32: 30,
    torch.int64: 30,
    torch.bool: 30,
    torch.float64: 30,
    torch.bfloat16: 30,
    torch.float16: 6,
    torch.uint8: 6,
    torch.int8: 4,
    torch.int16: 4,
    torch.int32: 4,
}
# The number of samples of each dtype that are also run as methods, in place, with `out=`, and checked for aliasing.
FORMS_MAX = 6
ELEMENTS_MAX = 1_000_000
FAILURES_KEPT_MAX = 12

# Results that are random or uninitialised: only shapes and dtypes can agree.
DRAWN = {
    *"bernoulli cauchy empty empty_like empty_permuted empty_strided exponential geometric log_normal".split(),
    *"multinomial new_empty new_empty_strided normal rand_like randint randint_like randn randn_like uniform".split(),
    *"pca_lowrank resize_ resize_as_ svd_lowrank".split(),
    *(
        f"nn.functional.{name}"
        for name in """
            alpha_dropout dropout dropout2d dropout3d feature_alpha_dropout fractional_max_pool2d fractional_max_pool3d
            rrelu multi_head_attention_forward
        """.split()
    ),
}

# The documented differences of GT: (name, kind of check, dtype) and the reason.
KNOWN = {
    ("__rdiv__", "error", None): "PyTorch's error is an accident of how it is written",
    ("matrix_exp", None, torch.bfloat16): "PyTorch's is NaN",
    **{
        (
            name,
            "edge",
            None,
        ): "squares or sums beyond the dtype are infinite; PyTorch's CPU sums in another order, in float64"
        for name in ("std", "std_mean", "var_mean")
    },
    ("nn.functional.layer_norm", "edge", None): "a row whose variance overflows is 0 times its weight, not NaN",
    ("ldexp", "edge", None): "0 times a power of 2 that overflows is 0, not NaN",
    ("nn.functional.gelu", "edge", None): "PyTorch's doubles the largest number, and overflows",
    ("nn.functional.hardswish", "edge", None): "PyTorch's multiplies the largest number by 6, and overflows",
    ("__rdiv__", "edge", torch.float16): "PyTorch's multiplies by the reciprocal, which overflows",
    **{
        (name, "edge", None): "a number beyond the integers becomes the nearest; in C++ the conversion is undefined"
        for name in ("byte", "char", "short", "int", "long", "masked.logsumexp")
    },
    **{(name, "edge", None): "PyTorch's is negative where the least integer takes part" for name in ("gcd", "lcm")},
    **{
        (name, kind, dtype): "at infinity it is 0 and at poles infinite; PyTorch's is NaN or a large number"
        for name in ("polygamma", "special.polygamma", "special.zeta")
        for kind, dtype in (("edge", None), ("number", torch.float32), (None, torch.int8), (None, torch.int16))
    },
    **{
        (f"special.modified_bessel_{kind}", "edge", None): "at infinity it is infinite; PyTorch's is NaN"
        for kind in ("i0", "i1")
    },
    **{
        (f"special.bessel_{kind}", None, torch.float64): "PyTorch's is wrong by up to 9e-7; SciPy's is as here"
        for kind in ("j0", "j1", "y0", "y1")
    },
    ("special.bessel_y1", "edge", None): "PyTorch's overflows in float32",
    ("special.airy_ai", "edge", None): "PyTorch's computes the angles of large numbers in float32",
    ("special.laguerre_polynomial_l", "number", torch.float32): "65,536 steps round differently",
    **{
        (name, "edge", None): "PyTorch's series has not converged at the ends of the range"
        for name in ("igamma", "igammac")
    },
    **{
        (name, kind, torch.float16): "PyTorch's rounds each step to float16, or overflows in one"
        for name, kind in (
            ("mvlgamma", "edge"),
            ("nn.functional.binary_cross_entropy_with_logits", "edge"),
            ("nn.functional.soft_margin_loss", None),
            ("special.xlog1py", "number"),
            ("masked.var", "offset"),
            ("masked.std", "offset"),
        )
    },
    **{
        (name, None, dtype): "PyTorch's rounds each step to half precision"
        for name in ("nn.functional.grid_sample", "nn.functional.hinge_embedding_loss")
        for dtype in (torch.bfloat16, torch.float16)
    },
    ("as_strided_scatter", "gradient", None): "PyTorch's is that of the elements replaced, not of those that stay",
}
# PyTorch's errors about writing to memory that is also read; GT's results are new tensors, so it needs none.
HAZARDS = ("refer to a single memory location", "must not overlap", "storage that is not resizable")
# A failed assertion within PyTorch, whose exception class is arbitrary.
ASSERTION = "Could this error message be improved"

# Ops that return positions, of which PyTorch may choose any among equal elements: the argument with the axis.
PLACES_OF_EQUALS = {"sort": 1, "argsort": 1, "topk": 2, "kthvalue": 2, "mode": 1}
# Ops whose vectors have no defined sign.
SIGNS_OPEN = {"linalg.eigh", "linalg.svd", "svd", "linalg.qr", "qr"}


@dataclass
class Result:
    """The results of all checks of one operation."""

    name: str
    claimed: bool = True
    checks: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    details: list[str] = field(default_factory=list)
    unsupported: Counter[str] = field(default_factory=Counter)
    missing: set[str] = field(default_factory=set)
    messages: list[str] = field(default_factory=list)

    @property
    def status(self) -> str:
        """Returns `absent`, `failed`, `partial` (some arguments or forms are documented as unsupported) or `passed`."""
        if not self.claimed:
            return "absent"
        if self.failures or not self.checks:
            return "failed" if self.failures else "partial"
        return "partial" if self.unsupported or self.missing else "passed"

    def fail(self, kind: str, what: str) -> None:
        self.failures[kind] += 1
        if self.failures[kind] <= FAILURES_KEPT_MAX:
            self.details.append(f"{kind}: {what}")


def check(op: Any, result: Result) -> None:
    """Runs the samples and wrong inputs of one operation."""
    function = names.function_of(op)
    if function is None:
        result.missing.add("function")
    method = _method(result, "method", op.method_variant)
    in_place = _method(result, "in place", op.inplace_variant)
    supported = op.supported_dtypes("cpu")
    for dtype in SAMPLES_MAX:
        if dtype not in supported:
            continue
        learns = op.supports_autograd and dtype == torch.float32
        samples = _samples(op, dtype, learns)
        if function:
            for kind, arguments, kwargs in edges.variants(op, dtype, samples):
                Case(op, result, dtype, arguments, kwargs, lambda got: got).values(function, kind)
        for i, sample in enumerate(samples):
            arguments = (sample.input, *sample.args)
            case = Case(op, result, dtype, arguments, sample.kwargs, sample.output_process_fn_grad)
            if function:
                case.values(function, "values")
                if learns:
                    case.gradients(function)
            if i < FORMS_MAX:
                if function:
                    case.aliasing(function)
                    if op.supports_out and not op.name.startswith("nn."):
                        case.out(function)
                if method and isinstance(sample.input, torch.Tensor) and not names.is_lambda(op.op):
                    case.values(method, "method", op.method_variant)
                if in_place and isinstance(sample.input, torch.Tensor) and not sample.broadcasts_input:
                    case.values(in_place, "in place", op.inplace_variant)
    if function:
        _wrong_inputs(op, function, result)


def _method(result: Result, form: str, variant: Callable[..., Any] | None) -> Callable[..., Any] | None:
    if variant is None or names.is_lambda(variant):
        return None
    method = names.method_of(variant)
    if method is None:
        result.missing.add(form)
    return method


def _samples(op: Any, dtype: torch.dtype, learns: bool) -> list[Any]:
    torch.manual_seed(0)
    found = []
    most = SAMPLES_MAX[dtype]
    for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=learns), 10 * most):
        if sum(t.numel() for t in tensors_in([sample.input, sample.args, sample.kwargs])) <= ELEMENTS_MAX:
            found.append(sample)
    step = max(1, -(-len(found) // most))
    return found[::step]


@dataclass
class Case:
    """One sample in one dtype, with its checks."""

    op: Any
    result: Result
    dtype: torch.dtype
    arguments: tuple[Any, ...]
    kwargs: dict[str, Any]
    process: Callable[[Any], Any]

    def __str__(self) -> str:
        return f"{described(self.arguments)} {described(self.kwargs)}".strip()

    def _both(self) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        theirs = fresh([self.arguments, self.kwargs])
        return tuple(theirs), tuple(ToGt()(theirs))

    def _guarded(self, kind: str, run: Callable[[], str | None]) -> None:
        """Runs a check and counts its outcome: no difference, a difference in words, or an exception."""
        for (name, what, dtype), reason in KNOWN.items():
            if name == self.op.name and what in (None, kind) and dtype in (None, self.dtype):
                self.result.unsupported[f"{kind}: {reason}"] += 1
                return
        try:
            why = run()
        except LeftOutError:
            return
        except NotImplementedError as error:
            self.result.unsupported[f"{kind}: {error}"] += 1
            return
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        self.result.checks[kind] += 1
        if why:
            self.result.fail(kind, f"{why} | {self}")

    def _reference(self, function: Callable[..., Any], arguments: Any, kwargs: Any) -> Any:
        """Returns PyTorch's result, or the exception that it raises."""
        try:
            return function(*arguments, **kwargs)
        except Exception as error:
            return error

    def _compared(self, wanted: Any, call: Callable[[], Any], look: Callable[[Any], str | None]) -> str | None:
        """Compares the result of `call` with PyTorch's by `look`; if PyTorch raised, `call` has to raise too."""
        if not isinstance(wanted, Exception):
            return look(call())
        try:
            got = call()
            difference(wanted, got)
            [_fetch(t) for t in tensors_in(got)]
        except Exception as error:
            if isinstance(error, (type(wanted), NotImplementedError)):
                return None
            return f"raised {type(error).__name__} ({error}) for {type(wanted).__name__} ({_line(wanted)})"
        return f"did not raise {type(wanted).__name__}: {_line(wanted)}"

    def _settled(self, result: Any, arguments: Any, kwargs: Any) -> Any:
        """Normalises a result where PyTorch leaves it open: positions among equal elements, signs of eigenvectors."""
        if self.op.name in PLACES_OF_EQUALS and arguments[0].ndim:
            place = PLACES_OF_EQUALS[self.op.name]
            dim = kwargs.get("dim", arguments[place] if len(arguments) > place else -1)
            *values, places = result if isinstance(result, (list, tuple)) else [result]
            wide = places if places.ndim == arguments[0].ndim else places.unsqueeze(dim)
            return [*values, arguments[0].gather(dim, wide).reshape(places.shape)]
        if self.op.name in SIGNS_OPEN and isinstance(result, (list, tuple)):
            length = min(arguments[0].shape[-2:])
            parts = [part.abs() for part in result]
            if len(parts) == 3:
                last = parts[2][..., :length, :] if self.op.name == "linalg.svd" else parts[2][..., :length]
                return [parts[0][..., :length], parts[1], last]
            return parts
        return result

    def values(self, function: Callable[..., Any], kind: str, reference: Callable[..., Any] | None = None) -> None:
        """Checks the result, and the arguments after the call."""

        def run() -> str | None:
            with torch.no_grad(), gt.no_grad():
                (theirs, their_kwargs), (ours, our_kwargs) = self._both()
                wanted = self._reference(reference or self.op.op, theirs, their_kwargs)
                if isinstance(wanted, Exception) and kind == "values":
                    raise LeftOutError(str(wanted))
                drawn = self.op.name in DRAWN or bool(their_kwargs.get("dropout_p"))

                def look(got: Any) -> str | None:
                    a, b = wanted, got
                    if difference(a, b, values=False) is None:
                        a, b = self._settled(a, theirs, their_kwargs), self._settled(b, ours, our_kwargs)
                    return difference(a, b, not drawn)

                why = self._compared(wanted, lambda: function(*ours, **our_kwargs), look)
                if why or isinstance(wanted, Exception) or drawn:
                    return why
                return _prefixed("afterwards, the arguments: ", _changed(theirs, ours))

        self._guarded(kind, run)

    def gradients(self, function: Callable[..., Any]) -> None:
        """Checks the gradients of the arguments after `backward` of the sum of the results."""
        if (
            self.op.name in DRAWN
            or self.kwargs.get("dropout_p")
            or not any(t.requires_grad for t in tensors_in([self.arguments, self.kwargs]))
        ):
            return

        def run() -> str | None:
            (theirs, their_kwargs), (ours, our_kwargs) = self._both()
            wanted = self._reference(self.op.op, theirs, their_kwargs)
            if isinstance(wanted, Exception):
                raise LeftOutError(str(wanted))
            try:
                outputs = [t for t in tensors_in(self.process(wanted)) if t.requires_grad]
                if outputs:
                    torch.autograd.backward([t.sum() for t in outputs])
            except Exception as error:
                raise LeftOutError(str(error)) from error
            got = function(*ours, **our_kwargs)
            process = names.with_gt(self.process) if names.is_lambda(self.process) else self.process
            ours_out = tensors_in(process(got))
            for t in ours_out:
                if t.requires_grad:
                    # GT's tape frees saved tensors after one backward pass, so the results go back one after the other.
                    t.sum().backward(retain_graph=True)
            pairs = zip(tensors_in([theirs, their_kwargs]), tensors_in([ours, our_kwargs]), strict=True)
            for i, (a, b) in enumerate(pairs):
                if not a.is_leaf:
                    continue
                if a.grad is None and b.grad is None:
                    continue
                if a.grad is None or b.grad is None:
                    missing, there = ("theirs", b.grad) if a.grad is None else ("ours", a.grad)
                    # A gradient of zeros and no gradient are equivalent.
                    if bool((there != 0).any()):
                        return f"argument {i}: {missing} is None"
                    continue
                if why := difference(a.grad, b.grad):
                    return f"argument {i}: {why}"
            return None

        self._guarded("gradient", run)

    def aliasing(self, function: Callable[..., Any]) -> None:
        """Checks that writing to the result changes the arguments exactly where it does in PyTorch."""
        if self.op.name in DRAWN:
            return

        def run() -> str | None:
            with torch.no_grad(), gt.no_grad():
                (theirs, their_kwargs), (ours, our_kwargs) = self._both()
                wanted = self._reference(self.op.op, theirs, their_kwargs)
                if isinstance(wanted, Exception) or not tensors_in(wanted):
                    raise LeftOutError("no tensor")
                got = function(*ours, **our_kwargs)
                results = tensors_in(got)
                if len(results) != len(tensors_in(wanted)):
                    raise LeftOutError("reported as a difference of values")
                for a, b in zip(tensors_in(wanted), results, strict=True):
                    try:
                        a.copy_(torch.ones_like(a))
                    except RuntimeError as error:
                        # An expanded tensor cannot be written to.
                        raise LeftOutError("overlaps") from error
                    b.copy_(gt.ones_like(b))
                return _prefixed("after a write to the result, the arguments: ", _changed(theirs, ours))

        self._guarded("aliasing", run)

    def out(self, function: Callable[..., Any]) -> None:
        """Checks the result with `out=`."""
        if self.op.name in DRAWN or "out" in self.result.missing:
            return

        def run() -> str | None:
            with torch.no_grad(), gt.no_grad():
                (theirs, their_kwargs), (ours, our_kwargs) = self._both()
                wanted = self._reference(self.op.op, theirs, their_kwargs)
                if not isinstance(wanted, torch.Tensor):
                    raise LeftOutError("no tensor, or several")
                to_gt = ToGt()
                out = to_gt(torch.zeros(wanted.shape, dtype=wanted.dtype))
                try:
                    got = function(*ours, **our_kwargs, out=out)
                except TypeError as error:
                    if "out" in str(error) and "argument" in str(error):
                        self.result.missing.add("out")
                        raise LeftOutError("out") from error
                    raise
                if got is not out:
                    return "the result is not `out`"
                return difference(wanted, out)

        self._guarded("out", run)


def _fetch(t: Any) -> Any:
    return t.tolist()


def _prefixed(prefix: str, why: str | None) -> str | None:
    return prefix + why if why else None


def _changed(theirs: Any, ours: Any) -> str | None:
    return difference(tensors_in(theirs), tensors_in(ours))


def _line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0]


def _wrong_inputs(op: Any, function: Callable[..., Any], result: Result) -> None:
    """Checks inputs that PyTorch rejects: GT has to raise the same class of exception."""
    if op.error_inputs_func is None or (op.name, "error", None) in KNOWN:
        return
    for wrong in op.error_inputs("cpu"):
        sample = wrong.sample_input
        arguments, kwargs = (sample.input, *sample.args), sample.kwargs
        case = Case(op, result, torch.float32, arguments, kwargs, sample.output_process_fn_grad)
        try:
            theirs, their_kwargs = fresh([arguments, kwargs])
            ours, our_kwargs = ToGt()([theirs, their_kwargs])
        except LeftOutError:
            continue
        except NotImplementedError as error:
            result.unsupported[f"error: {error}"] += 1
            continue
        try:
            op.op(*theirs, **their_kwargs)
        except Exception as error:
            if any(words in str(error) for words in (*HAZARDS, ASSERTION)):
                continue
            wanted = error
        else:
            continue
        result.checks["error"] += 1
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for t in tensors_in(function(*ours, **our_kwargs)):
                    _fetch(t)
        except Exception as error:
            if not isinstance(error, (type(wanted), NotImplementedError)):
                result.fail(
                    "error",
                    f"raised {type(error).__name__} ({_line(error)}) for {type(wanted).__name__} "
                    f"({_line(wanted)}) | {case}",
                )
            elif _line(error) != _line(wanted):
                result.messages.append(f"{_line(error)} | for | {_line(wanted)}")
        else:
            result.fail("error", f"did not raise {type(wanted).__name__}: {_line(wanted)} | {case}")
