//! Tensors joined, repeated and rearranged.

use crate::common::{axes_of, zeros};
use crate::declaration::{Operands, Sizes, TensorOrNumber, functions};
use crate::shape::{atleast_3d, meshgrid};
use gt_ops::build::Index;
use gt_ops::error::Result;
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::{function, method, method_only};
use gt_ops::{DType, OpError};

fn check_nonempty(name: &str, tensors: &[Expr<'_>]) -> Result<()> {
    if tensors.is_empty() {
        return Err(OpError::runtime(format!("{name} expects a non-empty TensorList")));
    }
    Ok(())
}

/// The tensor, or the one row or column that a vector is.
fn as_matrix<'g>(tensor: Expr<'g>, sizes: impl FnOnce(i64) -> [i64; 2]) -> Result<Expr<'g>> {
    Ok(if tensor.rank()? < 2 { tensor.reshape(&sizes(tensor.numel()? as i64)) } else { tensor })
}

/// The positions of the combinations of `r` out of `count` elements, one after another in lexicographic order.
fn combined_places(count: i64, r: usize, with_replacement: bool) -> Vec<i64> {
    let mut places: Vec<i64> = (0..r as i64).map(|i| if with_replacement { 0 } else { i }).collect();
    let last = |i: usize| if with_replacement { count - 1 } else { count - (r - i) as i64 };
    if (0..r).any(|i| places[i] > last(i)) {
        return Vec::new();
    }
    let mut all = Vec::new();
    loop {
        all.extend(&places);
        let Some(moved) = (0..r).rev().find(|i| places[*i] < last(*i)) else { return all };
        places[moved] += 1;
        for i in moved + 1..r {
            places[i] = places[i - 1] + i64::from(!with_replacement);
        }
    }
}

/// The tensor repeated along each axis; `sizes` may begin with counts for further axes.
fn repeated<'g>(g: &'g Builder<'g>, input: Expr<'g>, sizes: &[i64]) -> Result<Expr<'g>> {
    let own = input.sizes()?;
    if sizes.len() < own.len() {
        return Err(OpError::runtime(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor",
        ));
    }
    // Each axis is preceded by one of size 1, which is expanded; axes in front are repetitions alone.
    let lead = sizes.len() - own.len();
    let mut result = input;
    let apart = |counts: &dyn Fn(usize) -> i64| -> Vec<i64> {
        (0..own.len()).flat_map(|axis| [counts(lead + axis), own[axis]]).collect()
    };
    if sizes.iter().any(|count| *count != 1) || lead > 0 {
        let wide = [&sizes[..lead], &apart(&|axis| sizes[axis])].concat();
        if own.len() * 2 + lead > gt_ops::RANK_MAX {
            return repeat_by_axis(g, input, sizes);
        }
        result = input.reshape(&apart(&|_| 1)).expand(&wide);
        let merged: Vec<i64> = (0..sizes.len()).map(|i| sizes[i] * if i < lead { 1 } else { own[i - lead] }).collect();
        result = result.reshape(&merged);
    }
    // The result is a copy, as PyTorch's, even where nothing is repeated.
    Ok(result.copied())
}

functions! {
    /// Tensors concatenated along an axis that they have.
    ///
    /// Args:
    ///     tensors: A sequence of tensors whose other sizes agree. Their dtypes are promoted to a common one.
    ///     dim: The axis.
    ///
    /// Returns:
    ///     A tensor whose size along `dim` is the sum of theirs.
    ///
    /// Example:
    ///     >>> x = gt.tensor([[1, 2]])
    ///     >>> gt.cat([x, x, x])
    ///     tensor([[1, 2],
    ///             [1, 2],
    ///             [1, 2]])
    ///     >>> gt.cat([x, x], dim=1)
    ///     tensor([[1, 2, 1, 2]])
    [function().out().aliases(&["concat", "concatenate"])]
    fn cat(g, tensors: Vec<Expr<'g>>, dim: i64 = 0) -> Expr<'g> {
        g.cat(&tensors, dim)
    }

    /// Tensors of one shape stacked along a new axis.
    ///
    /// Args:
    ///     tensors: A sequence of tensors of the same shape.
    ///     dim: The position of the new axis.
    ///
    /// Example:
    ///     >>> gt.stack([gt.tensor([1, 2]), gt.tensor([3, 4])])
    ///     tensor([[1, 2],
    ///             [3, 4]])
    ///     >>> gt.stack([gt.tensor([1, 2]), gt.tensor([3, 4])], dim=1)
    ///     tensor([[1, 3],
    ///             [2, 4]])
    [function().out()]
    fn stack(g, tensors: Vec<Expr<'g>>, dim: i64 = 0) -> Expr<'g> {
        g.stack(&tensors, dim)
    }

    /// Tensors concatenated horizontally: along axis 1, vectors along axis 0.
    ///
    /// Example:
    ///     >>> gt.hstack([gt.tensor([1, 2]), gt.tensor([3])])
    ///     tensor([1, 2, 3])
    [function().out()]
    fn hstack(g, tensors: Vec<Expr<'g>>) -> Result<Expr<'g>> {
        check_nonempty("hstack", &tensors)?;
        let mut parts = Vec::new();
        for tensor in tensors {
            parts.push(if tensor.rank()? == 0 { tensor.reshape(&[1]) } else { tensor });
        }
        let axis = if parts[0].rank()? == 1 { 0 } else { 1 };
        Ok(g.cat(&parts, axis))
    }

    /// Tensors concatenated vertically, along axis 0; vectors become rows.
    ///
    /// Example:
    ///     >>> gt.vstack([gt.tensor([1, 2]), gt.tensor([3, 4])])
    ///     tensor([[1, 2],
    ///             [3, 4]])
    [function().out().aliases(&["row_stack"])]
    fn vstack(g, tensors: Vec<Expr<'g>>) -> Result<Expr<'g>> {
        check_nonempty("vstack", &tensors)?;
        let rows = tensors.into_iter().map(|tensor| as_matrix(tensor, |count| [1, count]));
        Ok(g.cat(&rows.collect::<Result<Vec<_>>>()?, 0))
    }

    /// Tensors concatenated along axis 2; vectors become rows, and matrices get a third axis.
    ///
    /// Example:
    ///     >>> gt.dstack([gt.tensor([1, 2]), gt.tensor([3, 4])]).shape
    ///     gt.Size([1, 2, 2])
    [function().out()]
    fn dstack(g, tensors: Vec<Expr<'g>>) -> Result<Expr<'g>> {
        check_nonempty("dstack", &tensors)?;
        let deep = tensors.into_iter().map(|tensor| atleast_3d(g, tensor));
        Ok(g.cat(&deep.collect::<Result<Vec<_>>>()?, 2))
    }

    /// Tensors concatenated along axis 1; vectors become columns.
    ///
    /// Example:
    ///     >>> gt.column_stack([gt.tensor([1, 2]), gt.tensor([3, 4])])
    ///     tensor([[1, 3],
    ///             [2, 4]])
    [function().out()]
    fn column_stack(g, tensors: Vec<Expr<'g>>) -> Result<Expr<'g>> {
        check_nonempty("column_stack", &tensors)?;
        let columns = tensors.into_iter().map(|tensor| as_matrix(tensor, |count| [count, 1]));
        Ok(g.cat(&columns.collect::<Result<Vec<_>>>()?, 1))
    }

    /// The block-diagonal matrix of several matrices; elements outside the blocks are zero.
    ///
    /// Example:
    ///     >>> gt.block_diag(gt.ones(1, 2), gt.ones(1, 1))
    ///     tensor([[1., 1., 0.],
    ///             [0., 0., 1.]])
    [function()]
    fn block_diag(g, tensors: Operands<'g>) -> Result<Expr<'g>> {
        let mut blocks = Vec::new();
        let mut width = 0;
        for (i, tensor) in tensors.iter().enumerate() {
            let block = as_matrix(*tensor, |count| [1, count])?;
            if block.rank()? > 2 {
                return Err(OpError::runtime(format!(
                    "torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {i} has {} dimensions",
                    block.rank()?
                )));
            }
            width += block.size(1)?;
            blocks.push(block);
        }
        let (mut left, mut rows) = (0, Vec::new());
        for block in &blocks {
            let (height, own, dtype) = (block.size(0)?, block.size(1)?, block.dtype()?);
            let before = zeros(g, &[height, left], dtype);
            left += own;
            rows.push(g.cat(&[before, *block, zeros(g, &[height, width - left], dtype)], 1));
        }
        Ok(if rows.is_empty() { zeros(g, &[1, 0], DType::default_float()) } else { g.cat(&rows, 0) })
    }

    /// The Cartesian product of vectors, a row for each combination of elements.
    ///
    /// Example:
    ///     >>> gt.cartesian_prod(gt.tensor([1, 2]), gt.tensor([3, 4]))
    ///     tensor([[1, 3],
    ///             [1, 4],
    ///             [2, 3],
    ///             [2, 4]])
    [function()]
    fn cartesian_prod(g, tensors: Operands<'g>) -> Result<Expr<'g>> {
        if let [one] = tensors[..] {
            return Ok(one);
        }
        let mut columns = Vec::new();
        for grid in meshgrid(g, tensors, Some("ij"))? {
            columns.push(grid.reshape(&[grid.numel()? as i64]));
        }
        Ok(g.stack(&columns, 1))
    }

    /// The combinations of `r` elements of a vector, a row each, in lexicographic order of their positions.
    ///
    /// Args:
    ///     input: A vector.
    ///     r: The number of elements in a combination.
    ///     with_replacement: Whether an element may occur more than once.
    ///
    /// Example:
    ///     >>> gt.combinations(gt.tensor([1, 2, 3]))
    ///     tensor([[1, 2],
    ///             [1, 3],
    ///             [2, 3]])
    [function()]
    fn combinations(g, input: Expr<'g>, r: i64 = 2, with_replacement: bool = false) -> Result<Expr<'g>> {
        if input.rank()? != 1 {
            return Err(OpError::runtime(format!("Expect a 1D vector, but got shape {:?}", input.sizes()?)));
        }
        if r < 0 {
            return Err(OpError::runtime(format!("Expect a non-negative number, but got {r}")));
        }
        if r == 0 {
            return Ok(zeros(g, &[0], input.dtype()?));
        }
        let places = combined_places(input.size(0)?, r as usize, with_replacement);
        let count = places.len() as i64;
        Ok(input.gather(0, g.ints(&places, &[count])).reshape(&[count / r, r]))
    }

    /// A copy repeated along each axis.
    ///
    /// Args:
    ///     sizes: The number of repetitions along each axis. Further axes come in front.
    ///
    /// Example:
    ///     >>> gt.tensor([1, 2]).repeat(2, 2)
    ///     tensor([[1, 2, 1, 2],
    ///             [1, 2, 1, 2]])
    [method_only()]
    fn repeat(g, input: Expr<'g>, sizes: Sizes<'g>) -> Result<Expr<'g>> {
        repeated(g, input, &sizes)
    }

    /// A copy repeated along each axis, NumPy's way: missing counts in front are 1.
    ///
    /// Example:
    ///     >>> gt.tile(gt.tensor([1, 2]), (2,))
    ///     tensor([1, 2, 1, 2])
    [method()]
    fn tile(g, input: Expr<'g>, dims: Sizes<'g>) -> Result<Expr<'g>> {
        let missing = input.rank()?.saturating_sub(dims.len());
        repeated(g, input, &[&vec![1; missing][..], &dims].concat())
    }

    /// Elements shifted along axes; those shifted beyond the end come in again at the start.
    ///
    /// Args:
    ///     input: A tensor.
    ///     shifts: The number of positions, one for each axis in `dims`.
    ///     dims: The axes. Without them the tensor is rolled flattened, and gets its shape back.
    ///
    /// Example:
    ///     >>> gt.roll(gt.tensor([1, 2, 3, 4]), 1)
    ///     tensor([4, 1, 2, 3])
    [method()]
    fn roll(g, input: Expr<'g>, shifts: &'g [i64], dims: Option<&'g [i64]> = None) -> Result<Expr<'g>> {
        let Some(dims) = dims.filter(|dims| !dims.is_empty()) else {
            let [shift] = *shifts else { return Err(OpError::runtime("roll: several shifts need as many dims")) };
            let (sizes, count) = (input.sizes()?, input.numel()? as i64);
            return Ok(rolled(g, input.reshape(&[count]), shift, 0)?.reshape(&sizes));
        };
        if input.rank()? == 0 {
            return Err(OpError::index(format!("Dimension specified as {} but tensor has no dimensions", dims[0])));
        }
        let axes = axes_of(input, dims)?;
        if shifts.len() != axes.len() {
            return Err(OpError::runtime(format!(
                "shifts and dimensions must align. shifts: {}, dims:{}",
                shifts.len(),
                axes.len()
            )));
        }
        let mut result = input;
        for (shift, axis) in shifts.iter().zip(axes) {
            result = rolled(g, result, *shift, axis as i64)?;
        }
        Ok(result.copied())
    }

    /// A copy with the elements in reverse order along axes.
    ///
    /// Args:
    ///     input: A tensor.
    ///     dims: An axis or several.
    ///
    /// Example:
    ///     >>> gt.flip(gt.tensor([[1, 2], [3, 4]]), [0])
    ///     tensor([[3, 4],
    ///             [1, 2]])
    [method()]
    fn flip(g, input: Expr<'g>, dims: Sizes<'g>) -> Result<Expr<'g>> {
        let rank = input.rank()?;
        let axes = axes_of(input, &dims)?;
        let backwards = |axis| Index::Range { start: None, stop: None, step: axes.contains(&axis).then_some(-1) };
        Ok(input.index(&(0..rank).map(backwards).collect::<Vec<_>>()).copied())
    }

    /// A copy with the columns (axis 1) in reverse order.
    ///
    /// Example:
    ///     >>> gt.fliplr(gt.tensor([[1, 2], [3, 4]]))
    ///     tensor([[2, 1],
    ///             [4, 3]])
    [method()]
    fn fliplr(g, input: Expr<'g>) -> Result<Expr<'g>> {
        if input.rank()? < 2 {
            return Err(OpError::runtime("Input must be >= 2-d."));
        }
        Ok(input.flip(1))
    }

    /// A copy with the rows (axis 0) in reverse order.
    ///
    /// Example:
    ///     >>> gt.flipud(gt.tensor([[1, 2], [3, 4]]))
    ///     tensor([[3, 4],
    ///             [1, 2]])
    [method()]
    fn flipud(g, input: Expr<'g>) -> Result<Expr<'g>> {
        if input.rank()? < 1 {
            return Err(OpError::runtime("Input must be >= 1-d."));
        }
        Ok(input.flip(0))
    }

    /// A copy or view rotated by multiples of 90 degrees in the plane of two axes.
    ///
    /// Args:
    ///     input: A tensor.
    ///     k: The number of quarter turns, from the first axis towards the second.
    ///     dims: The two axes.
    ///
    /// Example:
    ///     >>> gt.rot90(gt.tensor([[1, 2], [3, 4]]))
    ///     tensor([[2, 4],
    ///             [1, 3]])
    [method()]
    fn rot90(g, input: Expr<'g>, k: i64 = 1, dims: &'g [i64] = &[0, 1]) -> Result<Expr<'g>> {
        let &[dim0, dim1] = dims else {
            return Err(OpError::runtime(format!("expected total rotation dims == 2, but got dims = {}", dims.len())));
        };
        let rank = input.rank()?;
        if rank < 2 {
            return Err(OpError::runtime(format!("expected total dims >= 2, but got total dims = {rank}")));
        }
        let axes = axes_of(input, dims)?;
        let (first, second) = (axes[0] as i64, axes[1] as i64);
        if first == second {
            return Err(OpError::runtime(format!(
                "expected rotation dims to be different, but got dim0 = {dim0} and dim1 = {dim1}"
            )));
        }
        Ok(match k.rem_euclid(4) {
            1 => input.flip(second).transpose(first, second),
            2 => input.flip(first).flip(second),
            3 => input.flip(first).transpose(first, second),
            _ => input.copied(),
        })
    }

    /// A copy of the tensor's shape and dtype with every element equal to `value`.
    ///
    /// Example:
    ///     >>> gt.fill(gt.zeros(2), 3)
    ///     tensor([3., 3.])
    [function()]
    fn fill(g, input: Expr<'g>, value: TensorOrNumber<'g>) -> Result<Expr<'g>> {
        let meta = input.meta()?;
        Ok(match value.as_number() {
            Some(number) => g.full(&meta.shape, number, meta.dtype),
            None => value.to(meta.dtype).expand_to(&meta.shape),
        })
    }
}

/// A tensor repeated along one axis after another, where the axes of a single expansion would be too many.
fn repeat_by_axis<'g>(g: &'g Builder<'g>, input: Expr<'g>, sizes: &[i64]) -> Result<Expr<'g>> {
    let lead = sizes.len() - input.rank()?;
    let mut result = input.reshape(&[&vec![1; lead][..], &input.sizes()?].concat());
    for (axis, count) in sizes.iter().enumerate() {
        let own = result.sizes()?;
        let parts = vec![result; (*count).max(0) as usize];
        let none = [&own[..axis], &[0], &own[axis + 1..]].concat();
        result = if parts.is_empty() { zeros(g, &none, input.dtype()?) } else { g.cat(&parts, axis as i64) };
    }
    Ok(result.copied())
}

/// The elements shifted along one axis.
pub(crate) fn rolled<'g>(g: &'g Builder<'g>, input: Expr<'g>, shift: i64, axis: i64) -> Result<Expr<'g>> {
    let size = input.size(axis)?;
    let start = if size == 0 { 0 } else { (-shift).rem_euclid(size) };
    Ok(g.cat(&[input.narrow(axis, start, size - start), input.narrow(axis, 0, start)], axis))
}
