"""Derivatives as function transforms, which can be nested. Arguments and results may be trees of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gt import _gt, _tape
from gt._autograd import enable_grad
from gt._functions import top
from gt._gt import Tensor
from gt.func.batching import vmap
from gt.func.trees import flatten

Argnums = int | tuple[int, ...]


class _Leaves:
    """The arguments of a function, of which the differentiated ones are new tape nodes (leaves)."""

    def __init__(self, args: tuple[Any, ...], argnums: Argnums, name: str) -> None:
        numbers = (argnums,) if isinstance(argnums, int) else argnums
        for n in numbers:
            if not -len(args) <= n < len(args):
                raise RuntimeError(f"{name}: got argnum={n}, but only {len(args)} positional inputs")
        picked = args[argnums] if isinstance(argnums, int) else tuple(args[n] for n in numbers)
        given, self.rebuild = flatten(picked)
        for t in given:
            if not isinstance(t, Tensor):
                raise ValueError(f"{name}: expected the differentiated arguments to be tensors, but got {type(t)}")
        self.leaves = [t.view_as(t) if t.requires_grad else t.detach().requires_grad_() for t in given]
        # The tape nodes of leaves that are not part of an outer graph.
        self.own = {
            _accumulator_id(t) for t, before in zip(self.leaves, given, strict=True) if not before.requires_grad
        }
        tree = self.rebuild(self.leaves)
        self.args = list(args)
        for i, n in enumerate(numbers):
            self.args[n] = tree if isinstance(argnums, int) else tree[i]

    def follow(self, outputs: list[Tensor], recorded: bool) -> bool:
        """Whether the outputs belong to an outer graph: the tape leads from them beyond these leaves."""
        if not recorded:
            return False
        nodes = [t.grad_fn for t in outputs if t.grad_fn is not None]
        seen = set()
        while nodes:
            node = nodes.pop()
            if repr(node) in seen or repr(node) in self.own:
                continue
            seen.add(repr(node))
            following = [function for function, _ in node.next_functions if function is not None]
            if not following:
                return True
            nodes += following
        return False


def _accumulator_id(leaf: Tensor) -> str:
    """The identity of the tape node that accumulates a leaf's gradient."""
    return repr(leaf.view_as(leaf).grad_fn.next_functions[0][0])


def _tensors(name: str, result: Any) -> tuple[list[Tensor], Callable[[list[Any]], Any]]:
    outputs, rebuild = flatten(result)
    for t in outputs:
        if not isinstance(t, Tensor):
            raise RuntimeError(f"{name}: Expected f(*args) to return only tensors, got {type(t)}")
    return outputs, rebuild


def _detach_unless(tree: Any, follow: bool) -> Any:
    leaves, rebuild = flatten(tree)
    return tree if follow else rebuild([t.detach() if isinstance(t, Tensor) else t for t in leaves])


def _gradients(outputs: list[Tensor], leaves: list[Tensor], seeds: list[Tensor], create_graph: bool) -> list[Tensor]:
    """The gradient of each leaf; zeros where the outputs do not depend on it."""
    live = [(out, seed) for out, seed in zip(outputs, seeds, strict=True) if out.requires_grad]
    if not live:
        return [top.zeros_like(leaf) for leaf in leaves]
    roots, weights = zip(*live, strict=True)
    found = _tape.gradients(list(roots), list(weights), leaves, True, create_graph)
    return [top.zeros_like(leaf) if g is None else g for g, leaf in zip(found, leaves, strict=True)]


def grad_and_value(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that returns the gradient of a scalar function and its value.

    Args:
        func: A function that returns a scalar, or a pair of it and auxiliary data if `has_aux`.
        argnums: The positions of the arguments to differentiate.
        has_aux: Whether `func` returns auxiliary data, which is returned with the value.

    Example:
        >>> gt.func.grad_and_value(lambda x: x**2)(gt.tensor(3.0))
        (tensor(6.), tensor(9.))
    """

    def gradient(*args: Any, **kwargs: Any) -> Any:
        recorded = _gt.is_grad_enabled()
        with enable_grad():
            own = _Leaves(args, argnums, "grad")
            found = func(*own.args, **kwargs)
            if has_aux and not (isinstance(found, tuple) and len(found) == 2):
                raise RuntimeError(
                    "grad_and_value(f)(*args): output of function f should be a tuple: (output, aux) if has_aux is True"
                )
            value, aux = found if has_aux else (found, None)
            if not isinstance(value, Tensor):
                raise RuntimeError(
                    f"Expected f(*args) to return either a single Tensor with 0 dim, but got {type(value)}"
                )
            if value.ndim:
                raise RuntimeError(
                    "Expected f(*args) to return a scalar tensor, got tensor with "
                    f"{value.ndim} dims. Maybe you wanted to use the vjp or jacrev APIs instead?"
                )
            follow = own.follow([value], recorded)
            grads = _gradients([value], own.leaves, [top.ones_like(value)], follow)
        result = own.rebuild(grads)
        value = _detach_unless(value, follow)
        return (result, (value, _detach_unless(aux, follow))) if has_aux else (result, value)

    return gradient


def grad(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that returns the gradient of a scalar function.

    Args:
        func: A function that returns a scalar, or a pair of it and auxiliary data if `has_aux`.
        argnums: The positions of the arguments to differentiate.
        has_aux: Whether `func` returns auxiliary data, which is returned too.

    Example:
        >>> gt.func.grad(gt.func.grad(lambda x: x**3))(gt.tensor(2.0))
        tensor(12.)
    """
    both = grad_and_value(func, argnums, has_aux)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        found, value = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return gradient


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """The value of a function, and the function `v -> v^T J` for its Jacobian J.

    Args:
        func: The function.
        *primals: Its arguments.
        has_aux: Whether `func` returns auxiliary data, which is returned too.

    Example:
        >>> value, pullback = gt.func.vjp(lambda x: x * x, gt.tensor([1.0, 2.0]))
        >>> pullback(gt.tensor([1.0, 1.0]))
        (tensor([2., 4.]),)
    """
    recorded = _gt.is_grad_enabled()
    with enable_grad():
        own = _Leaves(primals, tuple(range(len(primals))), "vjp")
        found = func(*own.args)
        result, aux = found if has_aux else (found, None)
        outputs, _ = _tensors("vjp", result)
        follow = own.follow(outputs, recorded)

    def product(*vectors: Any) -> Any:
        seeds, _ = flatten(vectors[0] if len(vectors) == 1 else vectors)
        if len(seeds) != len(outputs):
            raise RuntimeError(
                f"vjp: expected {len(outputs)} cotangents, as many as there are outputs, got {len(seeds)}"
            )
        with enable_grad():
            # The product is recorded if the vectors require gradients.
            create = follow or any(seed.requires_grad for seed in seeds)
            return own.rebuild(_gradients(outputs, own.leaves, seeds, create))

    return (
        (_detach_unless(result, follow), product, _detach_unless(aux, follow))
        if has_aux
        else (_detach_unless(result, follow), product)
    )


def jvp(func: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...], *, has_aux: bool = False) -> Any:
    """The value of a function, and the product `J v` of its Jacobian with a vector.

    It is computed by the double-backward trick: `u^T J` is linear in `u`, and its derivative along `v` is `J v`.

    Args:
        func: The function.
        primals: Its arguments.
        tangents: The vector `v`, in the form of the arguments.
        has_aux: Whether `func` returns auxiliary data, which is returned too.

    Example:
        >>> gt.func.jvp(lambda x: x * x, (gt.tensor(3.0),), (gt.tensor(1.0),))
        (tensor(9.), tensor(6.))
    """
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple) or len(primals) != len(tangents):
        raise RuntimeError("jvp(f, primals, tangents): Expected primals and tangents to be tuples of the same length")
    recorded = _gt.is_grad_enabled()
    with enable_grad():
        own = _Leaves(primals, tuple(range(len(primals))), "jvp")
        found = func(*own.args)
        result, aux = found if has_aux else (found, None)
        outputs, rebuild = _tensors("jvp", result)
        along, _ = flatten(tangents)
        follow = own.follow(outputs, recorded) or (recorded and any(t.requires_grad for t in along))
        dummies = [top.zeros_like(out).requires_grad_() for out in outputs]
        products = _gradients(outputs, own.leaves, dummies, True)
        slopes = rebuild(_gradients(products, dummies, along, follow))
    done = (_detach_unless(result, follow), slopes)
    return (*done, _detach_unless(aux, follow)) if has_aux else done


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """The value of a function, and the function of `v` that gives `J v` with its Jacobian at the arguments.

    Args:
        func: The function; each product calls it again.
        *primals: Its arguments.

    Example:
        >>> value, product = gt.func.linearize(lambda x: x * x, gt.tensor(3.0))
        >>> value, product(gt.tensor(1.0)), product(gt.tensor(2.0))
        (tensor(9.), tensor(6.), tensor(12.))
    """

    def product(*tangents: Any) -> Any:
        return jvp(func, primals, tangents)[1]

    return func(*primals), product


def rows_of_jacobian(
    output: Tensor,
    leaves: list[Tensor],
    gradients: Callable[..., Any],
    create_graph: bool,
    chunk_size: int | None = None,
) -> list[Tensor]:
    """The derivative of every element of `output` with respect to each leaf: shape `output.shape + leaf.shape`.

    Args:
        output: What is differentiated.
        leaves: What it is differentiated by.
        gradients: A function of outputs, leaves, weights of the outputs' elements and `create_graph` that returns the
            gradients of the leaves.
        create_graph: Whether the results are differentiable.
        chunk_size: The most elements of `output` at a time; by default all.
    """
    count = output.numel()
    if count == 0:
        return [top.zeros(*output.shape, *leaf.shape) for leaf in leaves]
    flat = output.reshape(-1)
    each = vmap(lambda weights: gradients([flat], leaves, [weights], create_graph), chunk_size=chunk_size)
    rows = each(top.eye(count, dtype=output.dtype))
    return [row.reshape(*output.shape, *leaf.shape) for row, leaf in zip(rows, leaves, strict=True)]


def jacrev(
    func: Callable[..., Any], argnums: Argnums = 0, *, has_aux: bool = False, chunk_size: int | None = None
) -> Callable[..., Any]:
    """A function that returns the Jacobian of `func`, by a backward pass for all output elements at once.

    Args:
        func: The function.
        argnums: The positions of the arguments to differentiate.
        has_aux: Whether `func` returns auxiliary data, which is returned too.
        chunk_size: The most output elements at a time, which bounds the memory; by default all.

    Example:
        >>> gt.func.jacrev(lambda x: x * x)(gt.tensor([1.0, 2.0]))
        tensor([[2., 0.],
                [0., 4.]])
    """

    def derivative(*args: Any, **kwargs: Any) -> Any:
        recorded = _gt.is_grad_enabled()
        with enable_grad():
            own = _Leaves(args, argnums, "jacrev")
            found = func(*own.args, **kwargs)
            result, aux = found if has_aux else (found, None)
            outputs, rebuild = _tensors("jacrev", result)
            follow = own.follow(outputs, recorded)
            blocks = [own.rebuild(rows_of_jacobian(out, own.leaves, _gradients, follow, chunk_size)) for out in outputs]
        return (rebuild(blocks), _detach_unless(aux, follow)) if has_aux else rebuild(blocks)

    return derivative


def jacfwd(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, *, randomness: str = "error"
) -> Callable[..., Any]:
    """The same as `jacrev`: there is no forward mode, and the values are equal."""
    if randomness != "error":
        raise NotImplementedError(
            f"jacfwd: randomness={randomness!r} is not there: draw before, and pass what was drawn"
        )
    return jacrev(func, argnums, has_aux=has_aux)


def hessian(func: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """A function that returns the Hessian of a scalar function.

    Example:
        >>> gt.func.hessian(lambda x: (x**3).sum())(gt.tensor([1.0, 2.0]))
        tensor([[ 6.,  0.],
                [ 0., 12.]])
    """
    return jacfwd(jacrev(func, argnums), argnums)
