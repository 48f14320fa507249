//! Elements picked by indices or masks. Results whose shape depends on the elements wait for them to be counted.

use crate::common::filled;
use crate::declaration::{TensorOrTuple, functions};
use crate::shape::broadcast_shape;
use gt_ops::error::Result;
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::method;
use gt_ops::{DType, Op, OpError, Scalar};

/// Refuses an index that is not of dtype int64.
fn check_index(index: Expr<'_>) -> Result<()> {
    match index.dtype()? {
        DType::I64 => Ok(()),
        dtype => Err(OpError::runtime(format!("expected an index of dtype int64, but got {dtype}"))),
    }
}

/// The elements in one row.
pub(crate) fn flat(input: Expr<'_>) -> Result<Expr<'_>> {
    Ok(input.reshape(&[input.numel()? as i64]))
}

/// The indices of the nonzero elements, a row each. Waits for them to be counted.
pub(crate) fn places(input: Expr<'_>) -> Result<Expr<'_>> {
    let mask = if input.dtype()? == DType::Bool { input } else { input.ne(0i64) };
    Ok(mask.nonzero(mask.sum(&[], false).item()?.to_i64() as usize))
}

/// The indices of the nonzero elements, a vector for each axis. Waits for them to be counted.
pub(crate) fn coordinates(input: Expr<'_>) -> Result<Vec<Expr<'_>>> {
    let found = places(if input.rank()? == 0 { input.unsqueeze(0) } else { input })?;
    Ok((0..found.size(1)?).map(|axis| found.select(1, axis)).collect())
}

/// The positions of the true elements of a flattened mask.
pub(crate) fn true_places(mask: Expr<'_>) -> Result<Expr<'_>> {
    Ok(places(flat(mask)?)?.squeeze(&[1]))
}

/// `input` and `mask`, broadcast to a common shape.
fn broadcast<'g>(input: Expr<'g>, mask: Expr<'g>) -> Result<[Expr<'g>; 2]> {
    let shape = broadcast_shape(&[input, mask])?;
    Ok([input.expand(&shape), mask.expand(&shape)])
}

/// Each index as often as the count at it says. Waits for the counts.
fn repeated_places<'g>(g: &'g Builder<'g>, repeats: Expr<'g>) -> Result<Expr<'g>> {
    if !matches!(repeats.dtype()?, DType::I64 | DType::I32) {
        return Err(OpError::runtime("repeats has to be Long or Int tensor"));
    }
    let counts: Vec<i64> = repeats.elements()?.into_iter().map(Scalar::to_i64).collect();
    if counts.iter().any(|count| *count < 0) {
        return Err(OpError::runtime("repeats can not be negative"));
    }
    let all: Vec<i64> =
        counts.iter().enumerate().flat_map(|(i, count)| std::iter::repeat_n(i as i64, *count as usize)).collect();
    Ok(g.ints(&all, &[all.len() as i64]))
}

/// Checks the size of a repeated axis.
fn check_output_size(result: Expr<'_>, axis: i64, output_size: Option<i64>) -> Result<()> {
    let made = result.size(axis)?;
    match output_size {
        Some(size) if size != made => {
            Err(OpError::runtime(format!("repeat_interleave: output_size is {size}, but the repeats make {made}")))
        }
        _ => Ok(()),
    }
}

functions! {
    /// Elements picked along an axis: each element of the output has its own index.
    ///
    /// For a matrix, `output[i][j] = input[index[i][j]][j]` if `dim=0`, and `input[i][index[i][j]]` if `dim=1`.
    ///
    /// Args:
    ///     dim: The axis that the indices count along.
    ///     index: A tensor of int64 or int32 with as many axes as the input. Along each axis other than `dim`, it is at
    ///         most as long as the input; nothing is broadcast.
    ///
    /// Returns:
    ///     A tensor of the shape of `index` and the dtype of the input.
    ///
    /// Raises:
    ///     RuntimeError: `index` is too long along another axis.
    ///     IndexError: An index is out of range. The indices are known to the daemon only, so this is raised where the
    ///         result is fetched, by `item()` or `print` for example.
    ///
    /// Example:
    ///     >>> x = gt.tensor([[1, 2], [3, 4]])
    ///     >>> gt.gather(x, 1, gt.tensor([[0, 0], [1, 0]]))
    ///     tensor([[1, 1],
    ///             [4, 3]])
    [method().out_same_dtype()]
    fn gather(g, input: Expr<'g>, dim: i64, index: Expr<'g>) -> Result<Expr<'g>> {
        let wanted = index.shape()?;
        if wanted.numel() == 0 && wanted.rank() != input.rank()? {
            // An empty index picks nothing, whichever axis it indexes.
            return Ok(flat(input)?.narrow(0, 0, 0).with_shape(&wanted));
        }
        let empty = wanted.numel() == 0;
        Ok(input.gather(dim, if empty { index.to(DType::I64) } else { index }))
    }

    /// Slices picked along an axis by a vector of indices.
    ///
    /// Args:
    ///     input: A tensor.
    ///     dim: The axis.
    ///     index: A vector of int64 or int32.
    ///
    /// Returns:
    ///     A copy whose size along `dim` is the length of `index`.
    ///
    /// Raises:
    ///     IndexError: An index is out of range; raised when the result is fetched.
    ///
    /// Example:
    ///     >>> x = gt.tensor([[1, 2], [3, 4], [5, 6]])
    ///     >>> gt.index_select(x, 0, gt.tensor([0, 2]))
    ///     tensor([[1, 2],
    ///             [5, 6]])
    [method().out()]
    fn index_select(g, input: Expr<'g>, dim: i64, index: Expr<'g>) -> Result<Expr<'g>> {
        if index.rank()? > 1 {
            return Err(OpError::index("index_select(): Index is supposed to be a vector"));
        }
        if !matches!(index.dtype()?, DType::I64 | DType::I32) {
            return Err(OpError::runtime("index_select(): Expected dtype int32 or int64 for index"));
        }
        let index = index.to(DType::I64);
        if input.rank()? == 0 {
            input.shape()?.axis(dim)?;
            return Ok(input.reshape(&[1]).gather(0, index.reshape(&[1])).reshape(&[]));
        }
        Ok(input.index_select(dim, index))
    }

    /// Elements picked from the flattened tensor by indices, in the shape of the indices.
    ///
    /// Raises:
    ///     IndexError: An index is out of range; raised when the result is fetched.
    ///
    /// Example:
    ///     >>> gt.take(gt.tensor([[1, 2], [3, 4]]), gt.tensor([0, 3]))
    ///     tensor([1, 4])
    [method().out()]
    fn take(g, input: Expr<'g>, index: Expr<'g>) -> Result<Expr<'g>> {
        if index.dtype()? != DType::I64 {
            return Err(OpError::runtime(format!(
                "take(): Expected a long tensor for index, but got {}",
                index.dtype()?
            )));
        }
        let size = input.numel()? as i64;
        if size == 0 && index.numel()? > 0 {
            return Err(OpError::index("index is out of bounds for dimension with size 0"));
        }
        let found = flat(input)?.gather_wrapped(0, flat(index)?);
        Ok(found.reshape(&index.sizes()?))
    }

    /// `gather` whose input and indices broadcast along the other axes.
    ///
    /// Args:
    ///     input: A tensor.
    ///     indices: A tensor of int64 with as many axes.
    ///     dim: The axis to index; both are flattened if not given.
    ///
    /// Example:
    ///     >>> x = gt.tensor([[10, 30, 20], [60, 40, 50]])
    ///     >>> gt.take_along_dim(x, gt.argsort(x, dim=1), dim=1)
    ///     tensor([[10, 20, 30],
    ///             [40, 50, 60]])
    [method().out()]
    fn take_along_dim(g, input: Expr<'g>, indices: Expr<'g>, dim: Option<i64> = None) -> Result<Expr<'g>> {
        let Some(dim) = dim else { return take_along_dim(g, flat(input)?, flat(indices)?, Some(0)) };
        let (own, mut others) = (input.sizes()?, indices.sizes()?);
        if own.len() != others.len() {
            return Err(OpError::runtime(format!(
                "torch.take_along_dim(): input and indices should have the same number of dimensions, but got {} \
                 dimensions for input, and {} dimensions for indices",
                own.len(),
                others.len()
            )));
        }
        let axis = input.shape()?.axis(dim)?;
        check_index(indices)?;
        if own.is_empty() {
            return Ok(input.gather_wrapped(0, indices));
        }
        let mut wide = own.clone();
        for at in (0..own.len()).filter(|at| *at != axis) {
            let common = if others[at] == 1 { own[at] } else { others[at] };
            (wide[at], others[at]) = (common, common);
        }
        Ok(input.expand(&wide).gather_wrapped(axis as i64, indices.expand(&others)))
    }

    /// A copy with each slice of an axis repeated in place.
    ///
    /// Args:
    ///     input: A tensor; alone, a vector of counts, for which the result has the repeated indices.
    ///     repeats: The number of repetitions, or one for each slice.
    ///     dim: The axis; the tensor is flattened if not given.
    ///     output_size: The size of the result along the axis, which is checked.
    ///
    /// Example:
    ///     >>> gt.repeat_interleave(gt.tensor([1, 2]), gt.tensor([2, 1]))
    ///     tensor([1, 1, 2])
    [method()]
    fn repeat_interleave(g, input: Expr<'g>, repeats: i64, dim: Option<i64> = None; output_size: Option<i64> = None)
        -> Result<Expr<'g>> {
        let Some(dim) = dim else { return repeat_interleave(g, flat(input)?, repeats, Some(0), output_size) };
        if repeats < 0 {
            return Err(OpError::runtime("Repeats must be non-negative"));
        }
        let input = if input.rank()? == 0 { input.reshape(&[1]) } else { input };
        let (axis, sizes) = (input.shape()?.axis(dim)?, input.sizes()?);
        let wide = [&sizes[..=axis], &[repeats], &sizes[axis + 1..]].concat();
        let merged = [&sizes[..axis], &[sizes[axis] * repeats], &sizes[axis + 1..]].concat();
        let result = input.unsqueeze(axis as i64 + 1).expand(&wide).reshape(&merged).copied();
        check_output_size(result, axis as i64, output_size)?;
        Ok(result)
    }

    /// `repeat_interleave` with a count for each slice. Waits for the counts.
    [method().named("repeat_interleave")]
    fn repeat_interleave_each(g, input: Expr<'g>, repeats: Expr<'g>, dim: Option<i64> = None;
        output_size: Option<i64> = None) -> Result<Expr<'g>> {
        let Some(dim) = dim else { return repeat_interleave_each(g, flat(input)?, repeats, Some(0), output_size) };
        let (axis, size) = (input.shape()?.axis(dim)? as i64, input.size(dim)?);
        if repeats.rank()? != 1 || repeats.numel()? as i64 != size {
            return Err(OpError::runtime(format!(
                "repeats must have the same size as input along dim, but got repeats.size(0) = {} and \
                 input.size({axis}) = {size}",
                repeats.numel()?
            )));
        }
        let result = index_select(g, input, axis, repeated_places(g, repeats)?)?;
        check_output_size(result, axis, output_size)?;
        Ok(result)
    }

    /// The indices of a vector of counts, each as often as its count says. Waits for the counts.
    [method().named("repeat_interleave")]
    fn repeat_interleave_places(g, repeats: Expr<'g>; output_size: Option<i64> = None) -> Result<Expr<'g>> {
        let result = repeated_places(g, repeats)?;
        check_output_size(result, 0, output_size)?;
        Ok(result)
    }

    /// The indices of the nonzero elements.
    ///
    /// Waits for the elements: their number decides the shape of the result.
    ///
    /// Args:
    ///     input: A tensor.
    ///     as_tuple: Whether the result is a tuple with a vector for each axis.
    ///
    /// Returns:
    ///     A matrix with a row of indices for each nonzero element.
    ///
    /// Example:
    ///     >>> gt.nonzero(gt.tensor([[0, 1], [2, 0]]))
    ///     tensor([[0, 1],
    ///             [1, 0]])
    [method().out()]
    fn nonzero(g, input: Expr<'g>; as_tuple: bool = false) -> Result<TensorOrTuple<'g>> {
        match as_tuple {
            true => coordinates(input).map(TensorOrTuple::Tuple),
            false => places(input).map(TensorOrTuple::Tensor),
        }
    }

    /// The indices of the first `size` nonzero elements, a row each.
    ///
    /// Args:
    ///     input: A tensor.
    ///     size: The number of rows.
    ///     fill_value: The number that fills rows for which there is no element.
    ///
    /// Example:
    ///     >>> gt.nonzero_static(gt.tensor([0, 3, 4]), size=3)
    ///     tensor([[ 1],
    ///             [ 2],
    ///             [-1]])
    [method().out()]
    fn nonzero_static(g, input: Expr<'g>; size: i64, fill_value: i64 = -1) -> Result<Expr<'g>> {
        let found = places(input)?.slice(0, None, Some(size), None);
        let missing = [size - found.size(0)?, input.rank()? as i64];
        Ok(g.cat(&[found, filled(g, &missing, fill_value, DType::I64)], 0))
    }

    /// The indices of the nonzero elements, a row each: `nonzero` under NumPy's name.
    ///
    /// Example:
    ///     >>> gt.argwhere(gt.tensor([[0, 1], [1, 0]]))
    ///     tensor([[0, 1],
    ///             [1, 0]])
    [method()]
    fn argwhere(g, input: Expr<'g>) -> Result<Expr<'g>> {
        places(input)
    }

    /// The elements where a mask is true, as a vector.
    ///
    /// Waits for the mask: its number of true elements decides the length of the result.
    ///
    /// Args:
    ///     input: A tensor.
    ///     mask: A tensor of bools that broadcasts with `input`.
    ///
    /// Example:
    ///     >>> x = gt.tensor([1.0, -2.0, 3.0])
    ///     >>> gt.masked_select(x, x > 0)
    ///     tensor([1., 3.])
    [method().out()]
    fn masked_select(g, input: Expr<'g>, mask: Expr<'g>) -> Result<Expr<'g>> {
        if mask.dtype()? != DType::Bool {
            return Err(OpError::runtime("masked_select: expected BoolTensor for mask"));
        }
        let [input, mask] = broadcast(input, mask)?;
        Ok(flat(input)?.gather(0, true_places(mask)?))
    }

    /// A copy with elements of `source` written at indices of the flattened tensor, or added there.
    ///
    /// Args:
    ///     input: A tensor.
    ///     index: A tensor of int64.
    ///     source: As many elements, of the dtype of `input`.
    ///     accumulate: Whether elements are added.
    ///
    /// Example:
    ///     >>> gt.put(gt.zeros(2, 2), gt.tensor([0, 3]), gt.tensor([1.0, 2.0]))
    ///     tensor([[1., 0.],
    ///             [0., 2.]])
    [method().in_place()]
    fn put(g, input: Expr<'g>, index: Expr<'g>, source: Expr<'g>, accumulate: bool = false) -> Result<Expr<'g>> {
        let (count, given) = (index.numel()?, source.numel()?);
        if count != given {
            return Err(OpError::index(format!(
                "put_(): Expected source and index to have the same number of elements, but got source.numel() = \
                 {given}, index.numel() = {count}"
            )));
        }
        let (own, other) = (input.dtype()?, source.dtype()?);
        if own != other {
            return Err(OpError::runtime(format!(
                "put_(): self and source expected to have the same dtype, but got self.dtype = {own} and \
                 source.dtype = {other}"
            )));
        }
        check_index(index)?;
        let (mut at, size) = (flat(index)?, input.numel()? as i64);
        let op = match accumulate {
            // The sum of bools, which is a logical or, takes no negative indices.
            true if own == DType::Bool => {
                at = (at.lt(0i64) & at.ge(-size)).where_(at + size, at);
                Op::ScatterAdd
            }
            true => Op::IndexPutAdd,
            false => Op::IndexPut,
        };
        Ok(flat(input)?.scatter(op, 0, at, flat(source)?).reshape(&input.sizes()?))
    }

    /// A copy in which the elements of `source`, in order, replace those where a mask is true.
    ///
    /// Example:
    ///     >>> gt.masked_scatter(gt.zeros(3), gt.tensor([True, False, True]), gt.tensor([1.0, 2.0]))
    ///     tensor([1., 0., 2.])
    [method().in_place()]
    fn masked_scatter(g, input: Expr<'g>, mask: Expr<'g>, source: Expr<'g>) -> Result<Expr<'g>> {
        if mask.dtype()? != DType::Bool {
            return Err(OpError::runtime(format!(
                "masked_scatter_ only supports boolean masks, but got mask with dtype {}",
                mask.dtype()?
            )));
        }
        if source.dtype()? != input.dtype()? {
            return Err(OpError::runtime(format!(
                "masked_scatter: expected self and source to have same dtypes but got {} and {}",
                input.dtype()?,
                source.dtype()?
            )));
        }
        let [input, mask] = broadcast(input, mask)?;
        let at = true_places(mask)?;
        let (wanted, given) = (at.numel()?, source.numel()?);
        if given < wanted {
            return Err(OpError::runtime(format!(
                "masked_scatter: expected the number of elements in source >= number of ones in mask, but got {given} \
                 and {wanted}"
            )));
        }
        let chosen = flat(source)?.narrow(0, 0, wanted as i64);
        Ok(flat(input)?.scatter(Op::Scatter, 0, at, chosen).reshape(&input.sizes()?))
    }
}
