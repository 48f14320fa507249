//! Sorting, order statistics, quantiles and distinct elements.

use crate::common::{along_axis, check_no_bools, filled, shared_by_equals};
use crate::declaration::{TensorOrNumber, TensorOrTuple, functions};
use crate::indexing::{flat, index_select, places};
use crate::scans::neighbours;
use gt_ops::error::Result;
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::method;
use gt_ops::{DType, Op, OpError, Shape};

const VALUES_INDICES: &[&str] = &["values", "indices"];

/// The axis of an order statistic, and its size; a tensor without axes has one of size 1.
fn line(input: Expr<'_>, dim: i64) -> Result<(i64, i64)> {
    Ok((input.shape()?.axis(dim)? as i64, input.size(dim)?))
}

/// The elements at a rank of a sorted order, and their indices; `rank` has size 1 along the axis.
fn at_rank<'g>(input: Expr<'g>, order: Expr<'g>, rank: Expr<'g>, axis: i64, keepdim: bool) -> [Expr<'g>; 2] {
    let indices = order.gather(axis, rank);
    let values = input.gather(axis, indices);
    if keepdim { [values, indices] } else { [values.squeeze(&[axis]), indices.squeeze(&[axis])] }
}

/// One rank for each line along an axis.
fn constant_rank<'g>(order: Expr<'g>, axis: i64, rank: i64) -> Result<Expr<'g>> {
    let shape = order.shape()?.with_dim(axis as usize, 1);
    Ok(order.builder().full(&shape, rank, DType::I64))
}

/// The element of a tensor without axes, and its index.
fn of_scalar(input: Expr<'_>) -> [Expr<'_>; 2] {
    [input.copied(), input.builder().full(&Shape::SCALAR, 0i64, DType::I64)]
}

fn check_size(name: &str, axis: i64, size: i64) -> Result<()> {
    if size == 0 {
        return Err(OpError::index(format!("{name}(): Expected reduction dim {axis} to have non-zero size.")));
    }
    Ok(())
}

/// The median along an axis and its index. `past_nan` says that NaN does not count.
fn median_along<'g>(name: &str, input: Expr<'g>, dim: i64, keepdim: bool, past_nan: bool) -> Result<[Expr<'g>; 2]> {
    check_no_bools("median_out", input)?;
    let (axis, size) = line(input, dim)?;
    if input.rank()? == 0 {
        return Ok(of_scalar(input));
    }
    check_size(name, axis, size)?;
    let (order, middle) = (input.detach().argsort(axis, false), (size - 1) / 2);
    if !input.dtype()?.is_float() {
        return Ok(at_rank(input, order, constant_rank(order, axis, middle)?, axis, keepdim));
    }
    // NaN is sorted behind all numbers, so the count of numbers is the rank of the first NaN.
    let still = input.detach();
    let numbers = still.eq(still).sum(&[axis], true);
    let rank = if past_nan {
        (numbers - 1i64).floor_divide(2i64).clamp_min(0i64)
    } else {
        numbers.lt(size).where_(numbers, middle)
    };
    Ok(at_rank(input, order, rank, axis, keepdim))
}

/// The median of all elements.
fn median_of_all<'g>(name: &str, input: Expr<'g>, past_nan: bool) -> Result<Expr<'g>> {
    check_no_bools("median_cpu", input)?;
    let dtype = input.dtype()?;
    if input.numel()? == 0 {
        let missing = if dtype.is_float() { f64::NAN } else { 0.0 };
        return Ok(input.builder().full(&Shape::SCALAR, missing, dtype));
    }
    let found = median_along(name, flat(input.detach())?, 0, false, past_nan)?[0];
    shared_by_equals(name, input, found)
}

/// The quantiles `q` of all elements, or along an axis. `past_nan` says that NaN does not count.
fn quantiles<'g>(
    name: &str,
    input: Expr<'g>,
    q: Expr<'g>,
    dim: Option<i64>,
    keepdim: bool,
    interpolation: &str,
    past_nan: bool,
) -> Result<Expr<'g>> {
    let g = input.builder();
    let dtype = input.dtype()?;
    if input.numel()? == 0 {
        return Err(OpError::runtime(format!("{name}() input tensor must be non-empty")));
    }
    if !matches!(dtype, DType::F32 | DType::F64) {
        return Err(OpError::runtime(format!("{name}() input tensor must be either float or double dtype")));
    }
    if !["linear", "lower", "higher", "midpoint", "nearest"].contains(&interpolation) {
        return Err(OpError::runtime(format!(
            "{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {interpolation}"
        )));
    }
    let q = match q.as_number() {
        Some(number) => {
            let number = number.to_f64();
            if !(0.0..=1.0).contains(&number) {
                return Err(OpError::runtime(format!("{name}() q must be in the range [0, 1] but got {number}")));
            }
            g.full(&Shape::SCALAR, number, dtype)
        }
        None => {
            if q.rank()? > 1 {
                return Err(OpError::runtime(format!("{name}() q must be a scalar or 1D tensor")));
            }
            if q.dtype()? != dtype {
                return Err(OpError::runtime(format!("{name}() q tensor must be same dtype as the input tensor")));
            }
            if !(q.ge(0.0) & q.le(1.0)).all(&[], false).is_true()? {
                return Err(OpError::runtime(format!("{name}() q values must be in the range [0, 1]")));
            }
            q
        }
    };
    let sizes = input.sizes()?;
    let axis = dim.map(|dim| input.shape()?.axis(dim)).transpose()?;
    // A row for each line whose quantiles are taken.
    let lines = match axis {
        None => flat(input)?.unsqueeze(0),
        Some(_) if sizes.is_empty() => input.reshape(&[1, 1]),
        Some(axis) => {
            let order: Vec<i64> = (0..sizes.len()).filter(|at| *at != axis).chain([axis]).map(|at| at as i64).collect();
            input.permute(&order).reshape(&[input.numel()? as i64 / sizes[axis], sizes[axis]])
        }
    };
    let size = lines.size(1)?;
    let ranked = lines.gather(1, lines.detach().argsort(1, false));
    let numbers = lines.eq(lines).sum(&[1], true);
    let wanted = q.reshape(&[1, q.numel()? as i64]);
    let positions = if past_nan {
        wanted * (numbers - 1i64).clamp_min(0i64)
    } else {
        // A row with a NaN has that as its quantile.
        numbers.lt(size).where_(size - 1, wanted * (size - 1))
    };
    let positions = positions.to(dtype);
    let at = |positions: Expr<'g>| ranked.gather(1, positions.to(DType::I64));
    let result = match interpolation {
        "lower" => at(positions.floor()),
        "higher" => at(positions.ceil()),
        "nearest" => at(positions.round()),
        _ => {
            let low = positions.floor();
            let weight = positions - low;
            let weight = if interpolation == "midpoint" { weight.eq(0.0).where_(0.0, 0.5).to(dtype) } else { weight };
            let (start, end) = (at(low), at(positions.ceil()));
            g.elementwise(Op::Lerp, &[start.into(), end.into(), weight.into()])
        }
    };
    // The axis of the quantiles comes first.
    let mut shape = if q.rank()? > 0 { vec![q.numel()? as i64] } else { Vec::new() };
    for (at, size) in sizes.iter().enumerate() {
        match axis {
            Some(axis) if axis != at => shape.push(*size),
            _ if keepdim => shape.push(1),
            _ => {}
        }
    }
    Ok(result.transpose(0, 1).reshape(&shape))
}

/// Runs of equal items among `count`: the first index of each, the run of each item, and the runs' lengths. `differs`
/// says of each item but the first whether it differs from the one before. Waits for the runs to be counted.
fn runs<'g>(g: &'g Builder<'g>, differs: Expr<'g>, count: i64) -> Result<[Expr<'g>; 3]> {
    let starts = g.cat(&[filled(g, &[count.min(1)], true, DType::Bool), differs], 0);
    let first = places(starts)?.squeeze(&[1]);
    let sizes = if count == 0 { first } else { neighbours(g.cat(&[first, g.ints(&[count], &[1])], 0), 0)? };
    Ok([first, starts.cumsum(0) - 1i64, sizes])
}

/// The tensor, or a tuple with those of the others that were asked for.
fn with_optional<'g>(values: Expr<'g>, others: [Option<Expr<'g>>; 2]) -> TensorOrTuple<'g> {
    let all: Vec<Expr<'g>> = std::iter::once(values).chain(others.into_iter().flatten()).collect();
    if all.len() == 1 { TensorOrTuple::Tensor(values) } else { TensorOrTuple::Tuple(all) }
}

/// A tensor with an axis in front, and the same as a matrix with a row for each slice.
fn slices_as_rows(input: Expr<'_>, dim: i64) -> Result<(Expr<'_>, Expr<'_>)> {
    let input = if input.rank()? == 0 { input.reshape(&[1]) } else { input };
    let (axis, count) = line(input, dim)?;
    let parts = to_front(input, axis)?;
    let each: i64 = parts.sizes()?[1..].iter().product();
    Ok((parts, parts.reshape(&[count, each])))
}

/// The axes with one moved to the front.
fn to_front(input: Expr<'_>, axis: i64) -> Result<Expr<'_>> {
    let order: Vec<i64> = std::iter::once(axis).chain((0..input.rank()? as i64).filter(|at| *at != axis)).collect();
    Ok(input.permute(&order))
}

/// The axes with the front one moved to `axis`.
fn from_front(input: Expr<'_>, axis: i64) -> Result<Expr<'_>> {
    let mut order: Vec<i64> = (1..input.rank()? as i64).collect();
    order.insert(axis as usize, 0);
    Ok(input.permute(&order))
}

/// Whether each row but the first differs from the one before.
fn row_differs<'g>(g: &'g Builder<'g>, rows: Expr<'g>) -> Result<Expr<'g>> {
    let sizes = rows.sizes()?;
    let later = (sizes[0] - 1).max(0);
    if rows.numel()? == 0 {
        return Ok(filled(g, &[later], false, DType::Bool));
    }
    let differs = rows.narrow(0, 1, later).ne(rows.narrow(0, 0, later));
    Ok(if sizes.len() > 1 { differs.any(&[1], false) } else { differs })
}

functions! {
    /// The indices that sort a tensor along an axis.
    ///
    /// Sorting is stable, and NaN is larger than any number.
    ///
    /// Args:
    ///     input: A tensor.
    ///     dim: The axis.
    ///     descending: Whether the largest element comes first.
    ///     stable: Accepted; sorting is always stable.
    ///
    /// Example:
    ///     >>> gt.argsort(gt.tensor([3.0, 1.0, 2.0]))
    ///     tensor([1, 2, 0])
    [method()]
    fn argsort(g, input: Expr<'g>, dim: i64 = -1, descending: bool = false, stable: bool = false) -> Expr<'g> {
        input.detach().argsort(dim, descending)
    }

    /// A tensor sorted along an axis, and the indices of its elements in the input.
    ///
    /// Sorting is stable, and NaN is larger than any number.
    ///
    /// Args:
    ///     input: A tensor.
    ///     dim: The axis.
    ///     descending: Whether the largest element comes first.
    ///     stable: Accepted; sorting is always stable.
    ///
    /// Returns:
    ///     A pair `(values, indices)`.
    ///
    /// Example:
    ///     >>> values, indices = gt.sort(gt.tensor([3.0, 1.0, 2.0]))
    ///     >>> values, indices
    ///     (tensor([1., 2., 3.]), tensor([1, 2, 0]))
    [method().out().results(VALUES_INDICES)]
    fn sort(g, input: Expr<'g>, dim: i64 = -1, descending: bool = false, stable: bool = false) -> [Expr<'g>; 2] {
        let indices = argsort(g, input, dim, descending, stable);
        [input.gather(dim, indices), indices]
    }

    /// A tensor sorted along its first axis.
    ///
    /// Example:
    ///     >>> gt.msort(gt.tensor([3, 1, 2]))
    ///     tensor([1, 2, 3])
    [method().out()]
    fn msort(g, input: Expr<'g>) -> Expr<'g> {
        sort(g, input, 0, false, true)[0]
    }

    /// The `k` largest or smallest elements along an axis, and their indices.
    ///
    /// Args:
    ///     input: A tensor.
    ///     k: The number of elements to take, at most the size of the axis.
    ///     dim: The axis; the last if not given.
    ///     largest: Whether the largest elements are taken, in descending order; otherwise the smallest, in ascending
    ///         order.
    ///     sorted: Ignored: the result is always sorted.
    ///
    /// Returns:
    ///     A named tuple `(values, indices)`. Both have the input's shape with size `k` along the axis, and
    ///     `values = input.gather(dim, indices)`.
    ///
    /// Raises:
    ///     RuntimeError: `k` is negative or larger than the axis.
    ///
    /// Example:
    ///     >>> values, indices = gt.topk(gt.tensor([1.0, 4.0, 3.0, 2.0]), 2)
    ///     >>> values, indices
    ///     (tensor([4., 3.]), tensor([1, 2]))
    ///     >>> gt.topk(gt.tensor([1.0, 4.0, 3.0, 2.0]), 2, largest=False).values
    ///     tensor([1., 2.])
    [method().out().results(VALUES_INDICES)]
    fn topk(g, input: Expr<'g>, k: i64, dim: i64 = -1, largest: bool = true, sorted: bool = true)
        -> Result<[Expr<'g>; 2]> {
        check_no_bools("topk_cpu", input)?;
        let (axis, size) = line(input, dim)?;
        if !(0..=size).contains(&k) {
            return Err(OpError::runtime("selected index k out of range"));
        }
        let indices = match input.rank()? {
            0 => input.detach().argsort(axis, largest),
            _ => input.detach().argsort_first(axis, largest, k),
        };
        Ok([input.gather(axis, indices), indices])
    }

    /// The `k`-th smallest element along an axis, counted from 1, and its index.
    ///
    /// Returns:
    ///     A pair `(values, indices)`.
    ///
    /// Example:
    ///     >>> values, indices = gt.kthvalue(gt.tensor([5.0, 1.0, 3.0]), 2)
    ///     >>> values, indices
    ///     (tensor(3.), tensor(2))
    [method().out().results(VALUES_INDICES)]
    fn kthvalue(g, input: Expr<'g>, k: i64, dim: i64 = -1, keepdim: bool = false) -> Result<[Expr<'g>; 2]> {
        check_no_bools("kthvalue_cpu", input)?;
        let (axis, size) = line(input, dim)?;
        if size == 0 {
            return Err(OpError::index(format!("kthvalue(): Expected reduction dim {axis} to have non-zero size.")));
        }
        if !(1..=size).contains(&k) {
            return Err(OpError::runtime(format!("kthvalue(): selected number k out of range for dimension {axis}")));
        }
        if input.rank()? == 0 {
            return Ok(of_scalar(input));
        }
        let order = input.detach().argsort(axis, false);
        Ok(at_rank(input, order, constant_rank(order, axis, k - 1)?, axis, keepdim))
    }

    /// The median of all elements, or along an axis: of two middle elements the lower one.
    ///
    /// Args:
    ///     input: A tensor.
    ///     dim: The axis.
    ///     keepdim: Whether the axis stays with size 1.
    ///
    /// Returns:
    ///     A tensor; with `dim` a pair `(values, indices)`. NaN if an element is NaN.
    ///
    /// Example:
    ///     >>> gt.median(gt.tensor([1.0, 4.0, 2.0, 3.0]))
    ///     tensor(2.)
    [method()]
    fn median(g, input: Expr<'g>) -> Result<Expr<'g>> {
        median_of_all("median", input, false)
    }

    /// `median` along an axis.
    [method().named("median").out().results(VALUES_INDICES)]
    fn median_dim(g, input: Expr<'g>, dim: i64, keepdim: bool = false) -> Result<[Expr<'g>; 2]> {
        median_along("median", input, dim, keepdim, false)
    }

    /// The median of the elements that are not NaN, of all or along an axis.
    ///
    /// Example:
    ///     >>> gt.nanmedian(gt.tensor([1.0, float("nan"), 3.0, 2.0]))
    ///     tensor(2.)
    [method().out()]
    fn nanmedian(g, input: Expr<'g>) -> Result<Expr<'g>> {
        median_of_all("nanmedian", input, true)
    }

    /// `nanmedian` along an axis.
    [method().named("nanmedian").out().results(VALUES_INDICES)]
    fn nanmedian_dim(g, input: Expr<'g>, dim: i64, keepdim: bool = false) -> Result<[Expr<'g>; 2]> {
        median_along("nanmedian", input, dim, keepdim, true)
    }

    /// The most frequent element along an axis, of several the smallest, and the index of its last occurrence.
    ///
    /// Returns:
    ///     A pair `(values, indices)`.
    ///
    /// Example:
    ///     >>> gt.mode(gt.tensor([1, 2, 2, 3])).values
    ///     tensor(2)
    [method().out().results(VALUES_INDICES)]
    fn mode(g, input: Expr<'g>, dim: i64 = -1, keepdim: bool = false) -> Result<[Expr<'g>; 2]> {
        let (axis, size) = line(input, dim)?;
        if input.rank()? == 0 {
            return Ok(of_scalar(input));
        }
        check_size("mode", axis, size)?;
        let order = input.detach().argsort(axis, false);
        let ranked = input.detach().gather(axis, order);
        let changes = ranked.narrow(axis, 1, size - 1).ne(ranked.narrow(axis, 0, size - 1));
        let position = g.arange(size, DType::I64).reshape(&along_axis(input.rank()?, axis as usize));
        // The start of each element's run of equal elements. The longest run has its end where the distance is largest.
        let later = changes.where_(position.narrow(axis, 1, size - 1), 0i64);
        let starts = g.cat(&[constant_rank(order, axis, 0)?, later], axis);
        let starts = starts.gather(axis, starts.along(Op::Cumargmax, axis));
        let longest = (position - starts).argmax(Some(axis), true);
        Ok(at_rank(input, order, longest, axis, keepdim))
    }

    /// The quantiles of all elements, or along an axis.
    ///
    /// Args:
    ///     input: A tensor of float32 or float64.
    ///     q: A fraction from 0 to 1, or a vector of fractions.
    ///     dim: The axis; all elements if not given.
    ///     keepdim: Whether the axis stays with size 1.
    ///     interpolation: The value between two elements: `"linear"`, `"lower"`, `"higher"`, `"midpoint"` or
    ///         `"nearest"`.
    ///
    /// Returns:
    ///     A tensor; for a vector `q`, with a first axis for the fractions. NaN if an element is NaN.
    ///
    /// Example:
    ///     >>> gt.quantile(gt.tensor([1.0, 2.0, 3.0, 4.0]), 0.25)
    ///     tensor(1.7500)
    [method().out()]
    fn quantile(g, input: Expr<'g>, q: TensorOrNumber<'g>, dim: Option<i64> = None, keepdim: bool = false;
        interpolation: &'g str = "linear") -> Result<Expr<'g>> {
        quantiles("quantile", input, q.0, dim, keepdim, interpolation, false)
    }

    /// The quantiles of the elements that are not NaN, of all or along an axis; see `quantile`.
    ///
    /// Example:
    ///     >>> gt.nanquantile(gt.tensor([1.0, float("nan"), 3.0]), 0.5)
    ///     tensor(2.)
    [method().out()]
    fn nanquantile(g, input: Expr<'g>, q: TensorOrNumber<'g>, dim: Option<i64> = None, keepdim: bool = false;
        interpolation: &'g str = "linear") -> Result<Expr<'g>> {
        quantiles("nanquantile", input, q.0, dim, keepdim, interpolation, true)
    }

    /// The distinct elements, or the distinct slices along an axis, sorted.
    ///
    /// Waits for them to be counted.
    ///
    /// Args:
    ///     input: A tensor.
    ///     sorted: Accepted; the result is always sorted.
    ///     return_inverse: Whether to return the index in the result of each element, too.
    ///     return_counts: Whether to return the number of occurrences, too.
    ///     dim: The axis of the slices; elements are compared if not given.
    ///
    /// Example:
    ///     >>> gt.unique(gt.tensor([3, 1, 3]))
    ///     tensor([1, 3])
    ///     >>> gt.unique(gt.tensor([3, 1, 3]), return_counts=True)
    ///     (tensor([1, 3]), tensor([1, 2]))
    [method()]
    fn unique(g, input: Expr<'g>, sorted: bool = true, return_inverse: bool = false, return_counts: bool = false,
        dim: Option<i64> = None) -> Result<TensorOrTuple<'g>> {
        let input = input.detach();
        let (count, order, differs, ranked, parts);
        match dim {
            None => {
                let all = flat(input)?;
                count = all.numel()? as i64;
                order = all.argsort(0, false);
                ranked = all.gather(0, order);
                differs = row_differs(g, ranked)?;
                parts = ranked;
            }
            Some(dim) => {
                let (slices, rows) = slices_as_rows(input, dim)?;
                count = rows.size(0)?;
                let mut by_columns = g.arange(count, DType::I64);
                // Radix sort by columns, the last first: each sort is stable.
                for column in (0..rows.size(1)?).rev() {
                    let keys = rows.select(1, column).gather(0, by_columns);
                    by_columns = by_columns.gather(0, keys.argsort(0, false));
                }
                order = by_columns;
                ranked = index_select(g, rows, 0, order)?;
                differs = row_differs(g, ranked)?;
                parts = slices;
            }
        }
        let [first, group, counts] = runs(g, differs, count)?;
        let mut inverse = None;
        if return_inverse {
            let places = g.zeros(group.meta()?).scatter(Op::Scatter, 0, order, group);
            inverse = Some(if dim.is_none() { places.reshape(&input.sizes()?) } else { places });
        }
        let values = match dim {
            None => ranked.gather(0, first),
            Some(dim) => {
                let axis = input.shape()?.axis(dim)? as i64;
                from_front(index_select(g, parts, 0, order.gather(0, first))?, axis)?
            }
        };
        Ok(with_optional(values, [inverse, return_counts.then_some(counts)]))
    }

    /// The elements, or the slices along an axis, without those that equal their predecessor.
    ///
    /// Waits for them to be counted.
    ///
    /// Args:
    ///     input: A tensor.
    ///     return_inverse: Whether to return the index in the result of each element, too.
    ///     return_counts: Whether to return the length of each run, too.
    ///     dim: The axis of the slices; elements are compared if not given.
    ///
    /// Example:
    ///     >>> gt.unique_consecutive(gt.tensor([1, 1, 2, 1]))
    ///     tensor([1, 2, 1])
    [method()]
    fn unique_consecutive(g, input: Expr<'g>, return_inverse: bool = false, return_counts: bool = false,
        dim: Option<i64> = None) -> Result<TensorOrTuple<'g>> {
        let input = input.detach();
        let (parts, rows) = match dim {
            None => (flat(input)?, flat(input)?),
            Some(dim) => slices_as_rows(input, dim)?,
        };
        let [first, group, counts] = runs(g, row_differs(g, rows)?, rows.size(0)?)?;
        let mut values = index_select(g, parts, 0, first)?;
        let mut inverse = group;
        match dim {
            None => inverse = group.reshape(&input.sizes()?),
            Some(dim) => values = from_front(values, input.shape()?.axis(dim)? as i64)?,
        }
        Ok(with_optional(values, [return_inverse.then_some(inverse), return_counts.then_some(counts)]))
    }
}
