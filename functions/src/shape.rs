//! Views under other shapes, parts of tensors, and copies with a part replaced.

use crate::common::{axes_of, check_no_bools, zeros};
use crate::declaration::{Operands, Sizes, functions};
use gt_ops::build::{self, Index};
use gt_ops::error::Result;
use gt_ops::expr::Expr;
use gt_ops::forms::{function, internal, method, method_only};
use gt_ops::{DType, Op, OpError, Scalar};

/// The index of all elements of an axis.
const ALL: Index = Index::Range { start: None, stop: None, step: None };

/// The axis that `dim` names, of a tensor that must have axes.
fn axis_of_nonscalar(name: &str, input: Expr<'_>, dim: i64) -> Result<usize> {
    let shape = input.shape()?;
    if shape.rank() == 0 {
        return Err(OpError::index(format!("{name}() cannot be applied to a 0-dim tensor.")));
    }
    shape.axis(dim)
}

/// Consecutive parts of these sizes along an axis.
fn pieces<'g>(input: Expr<'g>, sizes: &[i64], dim: i64) -> Result<Vec<Expr<'g>>> {
    build::check_split(input.shape()?, sizes, dim)?;
    let starts = sizes.iter().scan(0, |end, size| Some(std::mem::replace(end, *end + size)));
    Ok(starts.zip(sizes).map(|(start, size)| input.narrow(dim, start, *size)).collect())
}

/// The size of an axis that is split.
fn split_extent(input: Expr<'_>, dim: i64) -> Result<usize> {
    let shape = input.shape()?;
    let found = shape.dims().get(shape.axis(dim)?).copied();
    found.ok_or_else(|| OpError::runtime("split expects at least a 1-dimensional tensor"))
}

/// The parts between neighbouring cuts of an axis.
fn parts<'g>(input: Expr<'g>, dim: i64, cuts: &[i64]) -> Result<Vec<Expr<'g>>> {
    if input.rank()? == 0 {
        return Err(OpError::runtime(
            "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims",
        ));
    }
    let starts = std::iter::once(0).chain(cuts.iter().copied());
    let ends = cuts.iter().copied().map(Some).chain([None]);
    Ok(starts.zip(ends).map(|(start, end)| input.slice(dim, Some(start), end, None)).collect())
}

/// The cuts that divide an axis into a number of parts, of which the first are longer by one if it is not divisible.
fn even_cuts(input: Expr<'_>, sections: i64, dim: i64) -> Result<Vec<i64>> {
    if input.rank()? == 0 {
        return Err(OpError::runtime(
            "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims",
        ));
    }
    if sections <= 0 {
        return Err(OpError::runtime(format!("number of sections must be larger than 0, got {sections}")));
    }
    let size = input.size(dim)?;
    let (short, longer) = (size / sections, size % sections);
    Ok((1..sections).map(|i| i * short + i.min(longer)).collect())
}

/// As [`even_cuts`], of an axis that the number of parts must divide.
fn equal_cuts(name: &str, input: Expr<'_>, sections: i64, dim: i64) -> Result<Vec<i64>> {
    let size = input.size(dim)?;
    if sections <= 0 || size % sections != 0 {
        return Err(OpError::runtime(format!(
            "torch.{name} attempted to split along dimension {dim}, but the size of the dimension {size} is not \
             divisible by the split_size {sections}!"
        )));
    }
    even_cuts(input, sections, dim)
}

/// The axis along which `hsplit`, `vsplit` and `dsplit` cut.
fn split_axis(name: &str, input: Expr<'_>) -> Result<i64> {
    let rank = input.rank()?;
    let (least, axis) = match name {
        "hsplit" => (1, if rank == 1 { 0 } else { 1 }),
        "vsplit" => (2, 0),
        _ => (3, 2),
    };
    if rank < least {
        return Err(OpError::runtime(format!(
            "torch.{name} requires a tensor with at least {least} dimension, but got a tensor with {rank} dimensions!"
        )));
    }
    Ok(axis)
}

/// A copy of `input` with `src` written to a diagonal of the matrices that two axes form.
fn with_diagonal<'g>(input: Expr<'g>, src: Expr<'g>, offset: i64, rows: usize, columns: usize) -> Result<Expr<'g>> {
    let sizes = input.sizes()?;
    let rank = sizes.len();
    let kept: Vec<i64> = (0..rank).filter(|axis| *axis != rows && *axis != columns).map(|axis| axis as i64).collect();
    let order = [&kept[..], &[rows as i64, columns as i64]].concat();
    let (height, width) = (sizes[rows], sizes[columns]);
    let count = (height + offset.min(0)).min(width - offset.max(0)).max(0);
    if count == 0 {
        return Ok(input.copied());
    }
    let lead: Vec<i64> = kept.iter().map(|axis| sizes[*axis as usize]).collect();
    let flat = input.permute(&order).reshape(&[&lead[..], &[height * width]].concat());
    // In the flattened matrix, neighbours on the diagonal are one row and one column apart.
    let start = offset.max(0) + width * (-offset).max(0);
    let stop = start + (count - 1) * (width + 1) + 1;
    let diagonal = Index::Range { start: Some(start), stop: Some(stop), step: Some(width + 1) };
    let written = flat.set_index(&[Index::Ellipsis, diagonal], src).reshape(&[&lead[..], &[height, width]].concat());
    let mut back = vec![0; rank];
    for (place, axis) in order.iter().enumerate() {
        back[*axis as usize] = place as i64;
    }
    Ok(written.permute(&back))
}

/// Checks that `src` has the shape of the part that it replaces.
fn check_part(part: Expr<'_>, src: Expr<'_>) -> Result<()> {
    if part.shape()? != src.shape()? {
        return Err(OpError::runtime(format!(
            "expected src to have a size equal to the slice of self. src size = {:?}, slice size = {:?}",
            src.sizes()?,
            part.sizes()?
        )));
    }
    Ok(())
}

/// The tensor under another shape, with the warning that PyTorch gives.
fn resized<'g>(input: Expr<'g>, sizes: &[i64]) -> Result<Expr<'g>> {
    input.builder().warn("non-inplace resize is deprecated");
    let (own, count) = (input.sizes()?, sizes.iter().product::<i64>());
    if count != input.numel()? as i64 {
        let times = |sizes: &[i64]| sizes.iter().map(i64::to_string).collect::<Vec<_>>().join("x");
        return Err(OpError::runtime(format!(
            "requested resize to {} ({count} elements in total), but the given tensor has a size of {} ({} \
             elements). autograd's resize can only change the shape of a given tensor, while preserving the number \
             of elements. ",
            times(sizes),
            times(&own),
            input.numel()?
        )));
    }
    Ok(input.reshape(sizes))
}

/// Checks that the bytes of a tensor in PyTorch's memory are those of elements of another dtype.
///
/// # Errors
/// PyTorch's.
fn check_bits(input: Expr<'_>, to: DType) -> Result<()> {
    let from = input.dtype()?;
    let (old, new) = (from.size(), to.size());
    input.meta()?.resized_as(to)?;
    if old == new {
        return Ok(());
    }
    let of_sizes =
        format!("to view {} as {} (different element sizes)", from.scalar_type_name(), to.scalar_type_name());
    // The strides of a tensor without elements say nothing.
    let strides = if input.numel()? == 0 { Vec::new() } else { input.strides()? };
    if let Some(stride) = strides.last().filter(|stride| **stride != 1) {
        return Err(OpError::runtime(format!("self.stride(-1) must be 1 {of_sizes}, but got {stride}")));
    }
    let ratio = (new / old).max(1) as i64;
    let whole = |name: &str, elements: i64| match elements % ratio {
        0 => Ok(()),
        _ => Err(OpError::runtime(format!("self.{name} must be divisible by {ratio} {of_sizes}, but got {elements}"))),
    };
    whole("storage_offset()", input.storage_offset()?)?;
    let outer = &strides[..strides.len().saturating_sub(1)];
    outer.iter().enumerate().try_for_each(|(axis, stride)| whole(&format!("stride({axis})"), *stride))
}

functions! {
    /// The same elements in row-major order under another shape.
    ///
    /// Args:
    ///     shape: The sizes, as arguments or as one sequence. One may be -1: it follows from the others.
    ///
    /// Returns:
    ///     A view where the strides allow one, as in PyTorch; otherwise a copy.
    ///
    /// Raises:
    ///     RuntimeError: The shape has another number of elements.
    ///
    /// Example:
    ///     >>> gt.arange(6).reshape(2, -1)
    ///     tensor([[0, 1, 2],
    ///             [3, 4, 5]])
    [method().view()]
    fn reshape(g, input: Expr<'g>, shape: Sizes<'g>) -> Expr<'g> {
        input.reshape(&shape)
    }

    /// `reshape` to the shape of another tensor.
    [method_only().view()]
    fn reshape_as(g, input: Expr<'g>, other: Expr<'g>) -> Result<Expr<'g>> {
        Ok(input.reshape(&other.sizes()?))
    }

    /// A view of the same elements, in row-major order, under another shape. Writing to it writes to this tensor.
    ///
    /// As in PyTorch, some tensors have no such view, the transpose of a matrix for example; `reshape` accepts them.
    ///
    /// Args:
    ///     shape: The sizes, as arguments or as one sequence. One may be -1: it follows from the others.
    ///
    /// Returns:
    ///     A tensor of the new shape.
    ///
    /// Raises:
    ///     RuntimeError: The shape has another number of elements, or the strides of this tensor do not allow a view.
    ///     NotImplementedError: A dtype is given instead of a shape. Use `.to(dtype)` to convert the elements.
    ///
    /// Example:
    ///     >>> x = gt.arange(6)
    ///     >>> y = x.view(3, -1)
    ///     >>> y[0] = 7
    ///     >>> y
    ///     tensor([[7, 7],
    ///             [2, 3],
    ///             [4, 5]])
    ///     >>> x
    ///     tensor([7, 7, 2, 3, 4, 5])
    [method_only().strict_view().view_and_copy()]
    fn view(g, input: Expr<'g>, shape: Sizes<'g>) -> Expr<'g> {
        input.reshape(&shape)
    }

    /// The bytes of the elements read as another dtype.
    ///
    /// Args:
    ///     dtype: The dtype.
    ///
    /// Returns:
    ///     A view, whose last axis has as many bytes as before; to bool a copy, which waits for the elements.
    ///
    /// Raises:
    ///     RuntimeError: The sizes of the dtypes differ, and the bytes of the last axis are not those of whole elements
    ///         that lie side by side.
    ///
    /// Example:
    ///     >>> x = gt.tensor([1.0, 2.0])
    ///     >>> x.view(gt.int32)[0] = 0
    ///     >>> x
    ///     tensor([0., 2.])
    [method_only().named("view").view().or_itself()]
    fn view_dtype(g, input: Expr<'g>, dtype: DType) -> Result<Expr<'g>> {
        if input.dtype()? == dtype {
            return Ok(input);
        }
        check_bits(input, dtype)?;
        if dtype != DType::Bool {
            return Ok(input.bitcast(dtype));
        }
        let to = input.meta()?.resized_as(dtype)?;
        let val = g.finish(input)?;
        g.with_graph(|graph| {
            let bytes = graph.fetch(val)?;
            graph.upload(to, &bytes)
        }).map(|val| g.tensor(val))
    }

    /// `view` to the shape of another tensor.
    [method_only().strict_view()]
    fn view_as(g, input: Expr<'g>, other: Expr<'g>) -> Result<Expr<'g>> {
        Ok(input.reshape(&other.sizes()?))
    }

    /// `reshape` under a name that PyTorch deprecates.
    [method_only().view()]
    fn resize(g, input: Expr<'g>, sizes: Sizes<'g>) -> Result<Expr<'g>> {
        resized(input, &sizes)
    }
    /// `resize` to the shape of another tensor.
    [method_only().view()]
    fn resize_as(g, input: Expr<'g>, tensor: Expr<'g>) -> Result<Expr<'g>> {
        resized(input, &tensor.sizes()?)
    }

    /// A view with two axes exchanged.
    ///
    /// Args:
    ///     dim0: The one axis; without axes, the method exchanges the last two.
    ///     dim1: The other.
    ///
    /// Example:
    ///     >>> gt.transpose(gt.tensor([[1, 2, 3], [4, 5, 6]]), 0, 1)
    ///     tensor([[1, 4],
    ///             [2, 5],
    ///             [3, 6]])
    [method().view_and_copy().in_place().aliases(&["swapdims"])]
    fn transpose(g, input: Expr<'g>, dim0: i64, dim1: i64) -> Expr<'g> {
        input.transpose(dim0, dim1)
    }

    /// A view with the last two axes exchanged.
    [method_only().named("transpose").view()]
    fn transpose_last(g, input: Expr<'g>) -> Result<Expr<'g>> {
        Ok(if input.rank()? < 2 { input } else { input.transposed() })
    }

    /// A view with two axes exchanged: NumPy's name for `transpose`.
    [method().view().in_place()]
    fn swapaxes(g, input: Expr<'g>, axis0: i64, axis1: i64) -> Expr<'g> {
        input.transpose(axis0, axis1)
    }

    /// A view with the axes in another order.
    ///
    /// Args:
    ///     dims: The input's axes in their new order, as arguments or as one sequence.
    ///
    /// Example:
    ///     >>> gt.zeros(2, 3, 5).permute(2, 0, 1).shape
    ///     gt.Size([5, 2, 3])
    [method().view_and_copy()]
    fn permute(g, input: Expr<'g>, dims: Sizes<'g>) -> Expr<'g> {
        input.permute(&dims)
    }

    /// A matrix transposed: a view. Vectors stay as they are.
    ///
    /// Example:
    ///     >>> gt.tensor([[1, 2], [3, 4]]).t()
    ///     tensor([[1, 3],
    ///             [2, 4]])
    [method().view_and_copy().in_place()]
    fn t(g, input: Expr<'g>) -> Result<Expr<'g>> {
        match input.rank()? {
            0 | 1 => Ok(input),
            2 => Ok(input.transpose(0, 1)),
            rank => Err(OpError::runtime(format!("t() expects a tensor with <= 2 dimensions, but self is {rank}D"))),
        }
    }

    /// The conjugate transpose of matrices; of real ones a view, `mT`.
    [method().view()]
    fn adjoint(g, input: Expr<'g>) -> Result<Expr<'g>> {
        let rank = input.rank()?;
        if rank < 2 {
            return Err(OpError::runtime(format!(
                "tensor.mT is only supported on matrices or batches of matrices. Got {rank}-D tensor."
            )));
        }
        Ok(input.transposed().conj())
    }

    /// A view without the axes of size 1.
    ///
    /// Args:
    ///     dim: The axis, or several, to leave out where its size is 1; all of them if not given.
    ///
    /// Example:
    ///     >>> gt.zeros(1, 3, 1).squeeze().shape
    ///     gt.Size([3])
    ///     >>> gt.zeros(1, 3, 1).squeeze(0).shape
    ///     gt.Size([3, 1])
    [method().view_and_copy().in_place()]
    fn squeeze(g, input: Expr<'g>, dim: Option<&'g [i64]> = None) -> Expr<'g> {
        input.squeeze_axes(dim)
    }

    /// A view with a new axis of size 1.
    ///
    /// Args:
    ///     dim: The position of the new axis; -1 puts it after the last.
    ///
    /// Example:
    ///     >>> gt.tensor([1, 2, 3]).unsqueeze(1).shape
    ///     gt.Size([3, 1])
    [method().view_and_copy().in_place()]
    fn unsqueeze(g, input: Expr<'g>, dim: i64) -> Expr<'g> {
        input.unsqueeze(dim)
    }

    /// A view whose axes of size 1 are repeated.
    ///
    /// Args:
    ///     size: The new sizes, as arguments or as one sequence. -1 keeps a size; further axes come in front.
    ///
    /// Raises:
    ///     RuntimeError: An axis of another size than 1 would change.
    ///
    /// Example:
    ///     >>> gt.tensor([[1], [2]]).expand(2, 3)
    ///     tensor([[1, 1, 1],
    ///             [2, 2, 2]])
    [method_only().view_and_copy()]
    fn expand(g, input: Expr<'g>, size: Sizes<'g>) -> Expr<'g> {
        input.expand(&size)
    }

    /// `expand` to the shape of another tensor.
    [method_only().view()]
    fn expand_as(g, input: Expr<'g>, other: Expr<'g>) -> Result<Expr<'g>> {
        Ok(input.expand(&other.sizes()?))
    }

    /// A view broadcast to a shape: `expand` as a function.
    ///
    /// Example:
    ///     >>> gt.broadcast_to(gt.tensor([1, 2]), (2, 2))
    ///     tensor([[1, 2],
    ///             [1, 2]])
    [method().view()]
    fn broadcast_to(g, input: Expr<'g>, size: Sizes<'g>) -> Expr<'g> {
        input.expand(&size)
    }

    /// Views of tensors, broadcast to a common shape.
    ///
    /// Example:
    ///     >>> a, b = gt.broadcast_tensors(gt.zeros(3, 1), gt.zeros(2))
    ///     >>> a.shape, b.shape
    ///     (gt.Size([3, 2]), gt.Size([3, 2]))
    [function().view()]
    fn broadcast_tensors(g, tensors: Operands<'g>) -> Result<Vec<Expr<'g>>> {
        let shape = broadcast_shape(&tensors)?;
        Ok(tensors.iter().map(|tensor| tensor.expand(&shape)).collect())
    }

    /// Coordinate grids of vectors: one view for each, of the shape of the grid.
    ///
    /// Args:
    ///     tensors: The vectors, as arguments or as one sequence.
    ///     indexing: `"ij"`, the first vector along axis 0, or `"xy"`, the first two axes exchanged.
    ///
    /// Example:
    ///     >>> rows, columns = gt.meshgrid(gt.tensor([1, 2]), gt.tensor([3, 4, 5]))
    ///     >>> rows
    ///     tensor([[1, 1, 1],
    ///             [2, 2, 2]])
    [function().view()]
    fn meshgrid(g, tensors: Operands<'g>; indexing: Option<&'g str> = None) -> Result<Vec<Expr<'g>>> {
        if indexing.is_none() {
            g.warn(
                "meshgrid: without `indexing`, the first axis of the grids is the first tensor's (indexing=\"ij\"), \
                 unlike numpy.meshgrid's (indexing=\"xy\"): pass the one that is meant.",
            );
        }
        let indexing = indexing.unwrap_or("ij");
        if indexing != "ij" && indexing != "xy" {
            return Err(OpError::runtime(format!(
                "meshgrid: indexing must be one of \"xy\" or \"ij\", but received: {indexing}"
            )));
        }
        let mut sizes = Vec::new();
        for tensor in tensors.iter() {
            sizes.push(tensor.numel()? as i64);
        }
        let swaps = indexing == "xy" && tensors.len() > 1;
        if swaps {
            sizes.swap(0, 1);
        }
        let grids = tensors.iter().enumerate().map(|(i, tensor)| {
            let axis = if swaps && i < 2 { 1 - i } else { i };
            let mut line = vec![1; sizes.len()];
            line[axis] = sizes[axis];
            tensor.reshape(&line).expand(&sizes)
        });
        Ok(grids.collect())
    }

    /// A view with several neighbouring axes merged into one.
    ///
    /// Args:
    ///     start_dim: The first axis to merge.
    ///     end_dim: The last.
    ///
    /// Example:
    ///     >>> gt.zeros(2, 3, 4).flatten(1).shape
    ///     gt.Size([2, 12])
    [method().view().or_itself()]
    fn flatten(g, input: Expr<'g>, start_dim: i64 = 0, end_dim: i64 = -1) -> Expr<'g> {
        input.flatten(start_dim, end_dim)
    }

    /// A view with one axis split into several.
    ///
    /// Args:
    ///     input: A tensor.
    ///     dim: The axis.
    ///     sizes: The sizes of the new axes, whose product is the old size. One may be -1.
    ///
    /// Example:
    ///     >>> gt.unflatten(gt.zeros(3, 8), 1, (2, -1)).shape
    ///     gt.Size([3, 2, 4])
    [method().view()]
    fn unflatten(g, input: Expr<'g>, dim: i64, sizes: &'g [i64]) -> Result<Expr<'g>> {
        let axis = axis_of_nonscalar("unflatten", input, dim)?;
        if sizes.is_empty() {
            return Err(OpError::runtime("unflatten: sizes must be non-empty"));
        }
        let own = input.sizes()?;
        let known: i64 = sizes.iter().filter(|size| **size != -1).product();
        let complete: Vec<i64> =
            sizes.iter().map(|size| if *size == -1 && known != 0 { own[axis] / known } else { *size }).collect();
        if complete.iter().product::<i64>() != own[axis] || sizes.iter().filter(|size| **size == -1).count() > 1 {
            return Err(OpError::runtime(format!(
                "unflatten: Provided sizes {sizes:?} don't multiply up to the size of dim {dim} ({}) in the \
                 input tensor",
                own[axis]
            )));
        }
        Ok(input.reshape(&[&own[..axis], &complete, &own[axis + 1..]].concat()))
    }

    /// A view with all elements along one axis.
    ///
    /// Example:
    ///     >>> gt.ravel(gt.tensor([[1, 2], [3, 4]]))
    ///     tensor([1, 2, 3, 4])
    [method().view()]
    fn ravel(g, input: Expr<'g>) -> Expr<'g> {
        input.reshape(&[-1])
    }

    /// A view with some axes moved to other positions; the others keep their order.
    ///
    /// Args:
    ///     input: A tensor.
    ///     source: The axes to move.
    ///     destination: Their new positions.
    ///
    /// Example:
    ///     >>> gt.movedim(gt.zeros(2, 3, 4), 0, -1).shape
    ///     gt.Size([3, 4, 2])
    [method().view().aliases(&["moveaxis"])]
    fn movedim(g, input: Expr<'g>, source: &'g [i64], destination: &'g [i64]) -> Result<Expr<'g>> {
        let (old, new) = (axes_of(input, source)?, axes_of(input, destination)?);
        let once = |axes: &[usize]| axes.iter().enumerate().all(|(i, axis)| !axes[..i].contains(axis));
        if old.len() != new.len() || !once(&old) || !once(&new) {
            return Err(OpError::runtime(format!(
                "movedim: source {old:?} and destination {new:?} are as many axes, each once"
            )));
        }
        let rank = input.rank()?;
        let mut rest = (0..rank).filter(|axis| !old.contains(axis));
        let order: Vec<i64> = (0..rank)
            .filter_map(|place| match new.iter().position(|axis| *axis == place) {
                Some(i) => Some(old[i] as i64),
                None => rest.next().map(|axis| axis as i64),
            })
            .collect();
        Ok(if rank == 0 { input } else { input.permute(&order) })
    }

    /// A view of the slice at one index of an axis, without that axis.
    ///
    /// Args:
    ///     input: A tensor.
    ///     dim: The axis.
    ///     index: The index; negative ones count from the end.
    ///
    /// Example:
    ///     >>> gt.select(gt.tensor([[1, 2], [3, 4]]), 1, 0)
    ///     tensor([1, 3])
    [method().view()]
    fn select(g, input: Expr<'g>, dim: i64, index: i64) -> Result<Expr<'g>> {
        let axis = axis_of_nonscalar("select", input, dim)?;
        let sizes = input.sizes()?;
        if index < -sizes[axis] || index >= sizes[axis] {
            return Err(OpError::index(format!(
                "select(): index {index} out of range for tensor of size {sizes:?} at dimension {dim}"
            )));
        }
        Ok(input.select(axis as i64, index))
    }

    /// A view of `length` positions of an axis from `start` on.
    ///
    /// Args:
    ///     dim: The axis.
    ///     start: The first position; negative ones count from the end.
    ///     length: The number of positions.
    ///
    /// Example:
    ///     >>> gt.narrow(gt.arange(10), 0, 2, 3)
    ///     tensor([2, 3, 4])
    [method().view()]
    fn narrow(g, input: Expr<'g>, dim: i64, start: i64, length: i64) -> Expr<'g> {
        input.narrow(dim, start, length)
    }

    /// A copy of `length` positions of an axis from `start` on.
    [method().out()]
    fn narrow_copy(g, input: Expr<'g>, dim: i64, start: i64, length: i64) -> Expr<'g> {
        input.narrow(dim, start, length)
    }

    /// Views of the tensor cut along an axis into chunks of a size.
    ///
    /// Args:
    ///     split_size: The size of each chunk, of which the last may be smaller; or a list with the size of each.
    ///     dim: The axis.
    ///
    /// Returns:
    ///     A tuple of views.
    ///
    /// Example:
    ///     >>> x = gt.arange(5)
    ///     >>> gt.split(x, 2)
    ///     (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    ///     >>> x.split([1, 4])
    ///     (tensor([0]), tensor([1, 2, 3, 4]))
    [method().view_and_copy().aliases(&["unsafe_split"])]
    fn split(g, input: Expr<'g>, split_size: i64, dim: i64 = 0) -> Result<Vec<Expr<'g>>> {
        pieces(input, &build::split_sizes(split_extent(input, dim)?, split_size)?, dim)
    }

    /// `split` into parts of given sizes.
    [method().named("split").view_and_copy()]
    fn split_into(g, input: Expr<'g>, split_size: &'g [i64], dim: i64 = 0) -> Result<Vec<Expr<'g>>> {
        split_extent(input, dim)?;
        pieces(input, split_size, dim)
    }

    /// Views of the tensor cut along an axis into parts of given sizes.
    ///
    /// Example:
    ///     >>> gt.split_with_sizes(gt.arange(5), [1, 4])
    ///     (tensor([0]), tensor([1, 2, 3, 4]))
    [method().view_and_copy().aliases(&["unsafe_split_with_sizes"])]
    fn split_with_sizes(g, input: Expr<'g>, split_sizes: &'g [i64], dim: i64 = 0) -> Result<Vec<Expr<'g>>> {
        split_into(g, input, split_sizes, dim)
    }

    /// Views of the tensor cut along an axis into a number of chunks.
    ///
    /// Args:
    ///     chunks: The number of chunks. If it does not divide the size, the last is smaller, and there may be fewer.
    ///     dim: The axis.
    ///
    /// Returns:
    ///     A tuple of views.
    ///
    /// Example:
    ///     >>> gt.chunk(gt.arange(5), 2)
    ///     (tensor([0, 1, 2]), tensor([3, 4]))
    [method().view().aliases(&["unsafe_chunk"])]
    fn chunk(g, input: Expr<'g>, chunks: i64, dim: i64 = 0) -> Result<Vec<Expr<'g>>> {
        pieces(input, &build::chunk_sizes(split_extent(input, dim)?, chunks)?, dim)
    }

    /// Views of the slices along an axis, without that axis.
    ///
    /// Example:
    ///     >>> gt.unbind(gt.tensor([[1, 2], [3, 4]]))
    ///     (tensor([1, 2]), tensor([3, 4]))
    [method().view_and_copy()]
    fn unbind(g, input: Expr<'g>, dim: i64 = 0) -> Result<Vec<Expr<'g>>> {
        let axis = axis_of_nonscalar("unbind", input, dim)? as i64;
        Ok((0..input.size(axis)?).map(|i| input.select(axis, i)).collect())
    }

    /// Views of the tensor cut along an axis into a number of parts, or at given indices.
    ///
    /// Args:
    ///     input: A tensor.
    ///     indices_or_sections: The number of parts, of which the first are longer by one if the size is not
    ///         divisible; or the indices at which to cut.
    ///     dim: The axis.
    ///
    /// Example:
    ///     >>> gt.tensor_split(gt.arange(5), 2)
    ///     (tensor([0, 1, 2]), tensor([3, 4]))
    ///     >>> gt.tensor_split(gt.arange(5), (1, 3))
    ///     (tensor([0]), tensor([1, 2]), tensor([3, 4]))
    [method().view()]
    fn tensor_split(g, input: Expr<'g>, indices_or_sections: Expr<'g>, dim: i64 = 0) -> Result<Vec<Expr<'g>>> {
        let numbers: Vec<i64> = indices_or_sections.elements()?.into_iter().map(Scalar::to_i64).collect();
        let cuts = match (indices_or_sections.rank()?, numbers.as_slice()) {
            (0, [sections]) => even_cuts(input, *sections, dim)?,
            _ => numbers,
        };
        parts(input, dim, &cuts)
    }

    /// `tensor_split` into a number of parts.
    [method().named("tensor_split").view()]
    fn tensor_split_evenly(g, input: Expr<'g>, indices_or_sections: i64, dim: i64 = 0) -> Result<Vec<Expr<'g>>> {
        parts(input, dim, &even_cuts(input, indices_or_sections, dim)?)
    }

    /// `tensor_split` at indices.
    [method().named("tensor_split").view()]
    fn tensor_split_at(g, input: Expr<'g>, indices_or_sections: &'g [i64], dim: i64 = 0) -> Result<Vec<Expr<'g>>> {
        parts(input, dim, indices_or_sections)
    }

    /// `tensor_split` into equal parts along axis 1, or along axis 0 of a vector.
    ///
    /// Example:
    ///     >>> gt.hsplit(gt.arange(4).reshape(1, 4), 2)
    ///     (tensor([[0, 1]]), tensor([[2, 3]]))
    [method().view()]
    fn hsplit(g, input: Expr<'g>, indices_or_sections: i64) -> Result<Vec<Expr<'g>>> {
        let axis = split_axis("hsplit", input)?;
        parts(input, axis, &equal_cuts("hsplit", input, indices_or_sections, axis)?)
    }

    /// `hsplit` at indices.
    [method().named("hsplit").view()]
    fn hsplit_at(g, input: Expr<'g>, indices_or_sections: &'g [i64]) -> Result<Vec<Expr<'g>>> {
        parts(input, split_axis("hsplit", input)?, indices_or_sections)
    }

    /// `tensor_split` into equal parts along axis 0.
    ///
    /// Example:
    ///     >>> gt.vsplit(gt.arange(4).reshape(2, 2), 2)
    ///     (tensor([[0, 1]]), tensor([[2, 3]]))
    [method().view()]
    fn vsplit(g, input: Expr<'g>, indices_or_sections: i64) -> Result<Vec<Expr<'g>>> {
        let axis = split_axis("vsplit", input)?;
        parts(input, axis, &equal_cuts("vsplit", input, indices_or_sections, axis)?)
    }

    /// `vsplit` at indices.
    [method().named("vsplit").view()]
    fn vsplit_at(g, input: Expr<'g>, indices_or_sections: &'g [i64]) -> Result<Vec<Expr<'g>>> {
        parts(input, split_axis("vsplit", input)?, indices_or_sections)
    }

    /// `tensor_split` into equal parts along axis 2.
    [method().view()]
    fn dsplit(g, input: Expr<'g>, indices_or_sections: i64) -> Result<Vec<Expr<'g>>> {
        let axis = split_axis("dsplit", input)?;
        parts(input, axis, &equal_cuts("dsplit", input, indices_or_sections, axis)?)
    }

    /// `dsplit` at indices.
    [method().named("dsplit").view()]
    fn dsplit_at(g, input: Expr<'g>, indices_or_sections: &'g [i64]) -> Result<Vec<Expr<'g>>> {
        parts(input, split_axis("dsplit", input)?, indices_or_sections)
    }

    /// A view of sliding windows along an axis; the elements of a window are in a new last axis.
    ///
    /// Args:
    ///     input: A tensor.
    ///     dimension: The axis.
    ///     size: The length of a window.
    ///     step: The distance between the starts of neighbouring windows.
    ///
    /// Example:
    ///     >>> gt.arange(5).unfold(0, 2, 1)
    ///     tensor([[0, 1],
    ///             [1, 2],
    ///             [2, 3],
    ///             [3, 4]])
    [method_only().view_and_copy()]
    fn unfold(g, input: Expr<'g>, dimension: i64, size: i64, step: i64) -> Expr<'g> {
        input.unfold(dimension, size, step)
    }

    /// A view of a contiguous tensor with given shape, strides and offset.
    ///
    /// Args:
    ///     input: A contiguous tensor.
    ///     size: The shape of the view.
    ///     stride: The distance in memory between neighbours along each axis, in elements.
    ///     storage_offset: The index of the first element in the memory of the flattened tensor that `input` is or is a
    ///         view of; that of `input` if not given.
    ///
    /// Raises:
    ///     NotImplementedError: The tensor has gaps between its elements, or it is a view and `storage_offset` is
    ///         before its first element.
    ///
    /// Example:
    ///     >>> gt.as_strided(gt.arange(6), (2, 2), (1, 2))
    ///     tensor([[0, 2],
    ///             [1, 3]])
    [method().view_and_copy().in_place_function()]
    fn as_strided(g, input: Expr<'g>, size: &'g [i64], stride: &'g [i64], storage_offset: Option<i64> = None)
        -> Result<Expr<'g>> {
        // The offset counts from the start of PyTorch's memory, of which a view has a part.
        let offset = storage_offset.map_or(Ok(0), |offset| Ok(offset - input.storage_offset()?))?;
        if storage_offset.is_some_and(|offset| offset >= 0) && offset < 0 {
            return Err(OpError::not_implemented(
                "as_strided: the storage_offset is before the first element of the view: call as_strided on the tensor \
                 it is a view of",
            ));
        }
        if !input.is_contiguous()? {
            return Err(OpError::not_implemented("as_strided is there for contiguous tensors: call contiguous() first"));
        }
        if size.len() != stride.len() {
            return Err(OpError::runtime("mismatch in length of strides and shape"));
        }
        Ok(input.as_strided(size, stride, offset))
    }

    /// Views with at least one axis, of one tensor or of several.
    ///
    /// Example:
    ///     >>> gt.atleast_1d(gt.tensor(1.0)).shape
    ///     gt.Size([1])
    [function().view().or_itself()]
    fn atleast_1d(g, input: Expr<'g>) -> Result<Expr<'g>> {
        Ok(if input.rank()? == 0 { input.reshape(&[1]) } else { input })
    }

    /// `atleast_1d` of each tensor.
    [function().named("atleast_1d").view()]
    fn atleast_1d_of_each(g, tensors: Operands<'g>) -> Result<Vec<Expr<'g>>> {
        tensors.iter().map(|tensor| atleast_1d(g, *tensor)).collect()
    }

    /// Views with at least two axes; vectors become rows.
    ///
    /// Example:
    ///     >>> gt.atleast_2d(gt.tensor([1.0, 2.0])).shape
    ///     gt.Size([1, 2])
    [function().view().or_itself()]
    fn atleast_2d(g, input: Expr<'g>) -> Result<Expr<'g>> {
        Ok(if input.rank()? < 2 { input.reshape(&[1, input.numel()? as i64]) } else { input })
    }

    /// `atleast_2d` of each tensor.
    [function().named("atleast_2d").view()]
    fn atleast_2d_of_each(g, tensors: Operands<'g>) -> Result<Vec<Expr<'g>>> {
        tensors.iter().map(|tensor| atleast_2d(g, *tensor)).collect()
    }

    /// Views with at least three axes; matrices get a new last axis.
    ///
    /// Example:
    ///     >>> gt.atleast_3d(gt.zeros(2, 3)).shape
    ///     gt.Size([2, 3, 1])
    [function().view().or_itself()]
    fn atleast_3d(g, input: Expr<'g>) -> Result<Expr<'g>> {
        Ok(match input.rank()? {
            0 | 1 => input.reshape(&[1, input.numel()? as i64, 1]),
            2 => input.unsqueeze(-1),
            _ => input,
        })
    }

    /// `atleast_3d` of each tensor.
    [function().named("atleast_3d").view()]
    fn atleast_3d_of_each(g, tensors: Operands<'g>) -> Result<Vec<Expr<'g>>> {
        tensors.iter().map(|tensor| atleast_3d(g, *tensor)).collect()
    }

    /// A view of the diagonals of the matrices that two axes make, as a new last axis.
    ///
    /// Args:
    ///     offset: The diagonal: 0 is the main one, positive ones are above it, negative ones below.
    ///     dim1: The axis of the rows.
    ///     dim2: The axis of the columns.
    ///
    /// Example:
    ///     >>> x = gt.arange(9).reshape(3, 3)
    ///     >>> gt.diagonal(x)
    ///     tensor([0, 4, 8])
    ///     >>> x.diagonal(1)
    ///     tensor([1, 5])
    [method().view_and_copy()]
    fn diagonal(g, input: Expr<'g>, offset: i64 = 0, dim1: i64 = 0, dim2: i64 = 1) -> Expr<'g> {
        input.diagonal(offset, dim1, dim2)
    }

    /// Matrices whose diagonals are the last axis, with zeros elsewhere.
    ///
    /// Args:
    ///     input: A tensor whose last axis has the diagonals.
    ///     offset: The diagonal: 0 is the main one, positive ones are above it.
    ///     dim1: The axis of the rows in the result.
    ///     dim2: The axis of the columns in the result.
    ///
    /// Example:
    ///     >>> gt.diag_embed(gt.tensor([1, 2]))
    ///     tensor([[1, 0],
    ///             [0, 2]])
    [method()]
    fn diag_embed(g, input: Expr<'g>, offset: i64 = 0, dim1: i64 = -2, dim2: i64 = -1) -> Result<Expr<'g>> {
        let own = input.sizes()?;
        let Some((last, lead)) = own.split_last() else {
            return Err(OpError::runtime("diag_embed: expected a tensor with axes"));
        };
        let (size, rank) = (last + offset.abs(), own.len() + 1);
        let axis = |dim: i64| gt_ops::shape::normalize_axis(dim, rank);
        let (first, second) = (axis(dim1)?, axis(dim2)?);
        if first == second {
            return Err(OpError::runtime(format!("diagonal dimensions cannot be identical {dim1}, {dim2}")));
        }
        let mut shape = lead.to_vec();
        for axis in [first.min(second), first.max(second)] {
            shape.insert(axis, size);
        }
        with_diagonal(zeros(g, &shape, input.dtype()?), input, offset, first, second)
    }

    /// The matrix with a vector on its diagonal, or a copy of the diagonal of a matrix.
    ///
    /// Args:
    ///     input: A vector or a matrix.
    ///     diagonal: The diagonal: 0 is the main one, positive ones are above it.
    ///
    /// Example:
    ///     >>> gt.diag(gt.tensor([1, 2]))
    ///     tensor([[1, 0],
    ///             [0, 2]])
    ///     >>> gt.diag(gt.tensor([[1, 2], [3, 4]]))
    ///     tensor([1, 4])
    [method().out()]
    fn diag(g, input: Expr<'g>, diagonal: i64 = 0) -> Result<Expr<'g>> {
        match input.rank()? {
            1 => diag_embed(g, input, diagonal, -2, -1),
            2 => Ok(input.diagonal(diagonal, 0, 1)),
            rank => Err(OpError::runtime(format!("diag(): Supports 1D or 2D tensors. Got {rank}D"))),
        }
    }

    /// The matrix with the flattened elements on its diagonal.
    ///
    /// Example:
    ///     >>> gt.diagflat(gt.tensor([[1, 2]]))
    ///     tensor([[1, 0],
    ///             [0, 2]])
    [method()]
    fn diagflat(g, input: Expr<'g>, offset: i64 = 0) -> Result<Expr<'g>> {
        diag_embed(g, input.reshape(&[input.numel()? as i64]), offset, -2, -1)
    }

    /// The sum of the diagonal elements of a matrix.
    ///
    /// Example:
    ///     >>> gt.trace(gt.tensor([[1.0, 2.0], [3.0, 4.0]]))
    ///     tensor(5.)
    [method()]
    fn trace(g, input: Expr<'g>) -> Result<Expr<'g>> {
        if input.rank()? != 2 {
            return Err(OpError::runtime("trace: expected a matrix"));
        }
        check_no_bools("trace", input)?;
        Ok(input.diagonal(0, 0, 1).sum(&[], false))
    }

    /// Sets the main diagonal to one number.
    ///
    /// Args:
    ///     fill_value: The number.
    ///     wrap: Whether the diagonal starts again below the square part of a tall matrix.
    ///
    /// Raises:
    ///     RuntimeError: There are fewer than two axes, or more of different lengths.
    ///
    /// Example:
    ///     >>> gt.zeros(2, 2).fill_diagonal_(5)
    ///     tensor([[5., 0.],
    ///             [0., 5.]])
    [internal().in_place_of_parts()]
    fn fill_diagonal(g, input: Expr<'g>, fill_value: Scalar, wrap: bool = false) -> Result<Expr<'g>> {
        let sizes = input.sizes()?;
        if sizes.len() < 2 {
            return Err(OpError::runtime("dimensions must larger than 1"));
        }
        if sizes.len() > 2 && sizes.iter().any(|size| *size != sizes[0]) {
            return Err(OpError::runtime("all dimensions of input must be of equal length"));
        }
        let count: i64 = sizes.iter().product();
        let apart: i64 = (1..=sizes.len()).map(|axis| sizes[axis..].iter().product::<i64>()).sum();
        let least = sizes.iter().copied().min().unwrap_or(0);
        let end = if wrap || sizes.len() > 2 { count } else { sizes[1] * least };
        let places = g.arange(count, DType::I64).reshape(&sizes);
        let dtype = input.dtype()?;
        let value = if dtype.is_inexact() { fill_value } else { Scalar::Int(fill_value.to_i64()) };
        let on = places.remainder(apart).eq(0i64) & places.lt(end);
        Ok(on.where_(g.full(&gt_ops::Shape::SCALAR, value, dtype), input))
    }

    /// A copy with the elements of a diagonal replaced by `src`.
    ///
    /// Example:
    ///     >>> gt.diagonal_scatter(gt.zeros(2, 2), gt.tensor([1.0, 2.0]))
    ///     tensor([[1., 0.],
    ///             [0., 2.]])
    [method()]
    fn diagonal_scatter(g, input: Expr<'g>, src: Expr<'g>, offset: i64 = 0, dim1: i64 = 0, dim2: i64 = 1)
        -> Result<Expr<'g>> {
        check_part(input.diagonal(offset, dim1, dim2), src)?;
        let shape = input.shape()?;
        with_diagonal(input, src, offset, shape.axis(dim1)?, shape.axis(dim2)?)
    }

    /// A copy with the slice at one index of an axis replaced by `src`.
    ///
    /// Example:
    ///     >>> gt.select_scatter(gt.zeros(2, 2), gt.tensor([1.0, 2.0]), 0, 1)
    ///     tensor([[0., 0.],
    ///             [1., 2.]])
    [method()]
    fn select_scatter(g, input: Expr<'g>, src: Expr<'g>, dim: i64, index: i64) -> Result<Expr<'g>> {
        check_part(select(g, input, dim, index)?, src)?;
        let mut at = vec![ALL; input.shape()?.axis(dim)?];
        at.push(Index::At(index));
        Ok(input.set_index(&at, src))
    }

    /// A copy with a range of an axis, `start:end:step`, replaced by `src`.
    ///
    /// Example:
    ///     >>> gt.slice_scatter(gt.zeros(4), gt.ones(2), start=1, end=3)
    ///     tensor([0., 1., 1., 0.])
    [method().out()]
    fn slice_scatter(g, input: Expr<'g>, src: Expr<'g>, dim: i64 = 0, start: Option<i64> = None,
        end: Option<i64> = None, step: i64 = 1) -> Result<Expr<'g>> {
        let mut at = vec![ALL; input.shape()?.axis(dim)?];
        at.push(Index::Range { start, stop: end, step: Some(step) });
        check_part(input.index(&at), src)?;
        Ok(input.set_index(&at, src))
    }

    /// A copy with the elements of the view `as_strided(size, stride, storage_offset)` replaced by `src`.
    [method()]
    fn as_strided_scatter(g, input: Expr<'g>, src: Expr<'g>, size: &'g [i64], stride: &'g [i64],
        storage_offset: Option<i64> = None) -> Result<Expr<'g>> {
        let (sizes, count) = (input.sizes()?, input.numel()? as i64);
        let places = g.arange(count, DType::I64).reshape(&sizes);
        let places = as_strided(g, places, size, stride, storage_offset)?;
        check_part(places, src)?;
        let flat = src.to(input.dtype()?).reshape(&[src.numel()? as i64]);
        let places = places.reshape(&[src.numel()? as i64]);
        Ok(input.reshape(&[count]).scatter(Op::Scatter, 0, places, flat).reshape(&sizes))
    }

    /// Coordinates along each axis from indices into the flattened tensor.
    ///
    /// Args:
    ///     indices: A tensor of integers.
    ///     shape: The shape that the indices refer to.
    ///
    /// Returns:
    ///     A tuple with a tensor of indices for each axis.
    ///
    /// Example:
    ///     >>> gt.unravel_index(gt.tensor([0, 5]), (2, 3))
    ///     (tensor([0, 1]), tensor([0, 2]))
    [function()]
    fn unravel_index(g, indices: Expr<'g>, shape: &'g [i64]) -> Result<Vec<Expr<'g>>> {
        let dtype = indices.dtype()?;
        if dtype.is_float() || dtype == DType::Bool {
            return Err(OpError::type_(format!("expected 'indices' to be integer dtype, but got {dtype}")));
        }
        if shape.iter().any(|size| *size < 0) {
            return Err(OpError::value(format!("'shape' cannot have negative values, but got {shape:?}")));
        }
        let mut rest = indices.to(DType::I64);
        let mut coordinates = Vec::new();
        for size in shape.iter().rev() {
            coordinates.push(rest.remainder(*size));
            rest = rest.floor_divide(*size);
        }
        coordinates.reverse();
        Ok(coordinates)
    }

    /// A copy of the tensor, as `clone` makes.
    [function().out()]
    fn alias_copy(g, input: Expr<'g>) -> Expr<'g> {
        input.copied()
    }
}

/// The sizes to which tensors broadcast.
pub(crate) fn broadcast_shape(tensors: &[Expr<'_>]) -> Result<Vec<i64>> {
    let mut all = Vec::new();
    for tensor in tensors {
        all.push(tensor.sizes()?);
    }
    let mut result = vec![1; all.iter().map(Vec::len).max().unwrap_or(0)];
    for own in &all {
        let lead = result.len() - own.len();
        for (to, size) in result[lead..].iter_mut().zip(own) {
            if *size != 1 && *size != *to && *to != 1 {
                return Err(OpError::runtime(format!(
                    "Shape mismatch: objects cannot be broadcast to a single shape: {}",
                    all.iter().map(|sizes| format!("{sizes:?}")).collect::<Vec<_>>().join(", ")
                )));
            }
            if *size != 1 {
                *to = *size;
            }
        }
    }
    Ok(result)
}
