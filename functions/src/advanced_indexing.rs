//! Advanced indexing: `x[i]`, `x[:, mask]` and assignments to them, with index tensors, known indices or masks.
//!
//! The axes of the advanced parts are merged into one, and the picked elements' positions along it into one int64
//! vector. Reading is then a gather along that axis and writing a scatter, whose gradients are known.

use crate::declaration::TensorOrNumber;
use crate::indexing::true_places;
use crate::masks::masked_fill;
use gt_ops::build::{self, numbers::checked};
use gt_ops::error::Result;
use gt_ops::expr::{Builder, Expr};
use gt_ops::{DType, Op, OpError, Shape};

/// An advanced part of an index, which picks elements along one or several axes.
pub struct IndexPart<'g> {
    /// The first of the axes, in the view that the other parts of the index have made.
    pub axis: usize,
    /// The elements of these axes that it picks.
    pub picks: Picks<'g>,
}

/// The elements that a part of an index picks.
pub enum Picks<'g> {
    /// Indices of dtype int64 or int32 into one axis, which may count from the end. Only the daemon knows them.
    Indices(Expr<'g>),
    /// The numbers of elements in row-major order along so many axes, all in range.
    Checked(Expr<'g>, usize),
    /// The true elements of a tensor of bools with as many axes as it picks from.
    Mask(Expr<'g>),
}

impl Picks<'_> {
    /// The number of axes that the part picks from.
    fn axes(&self) -> Result<usize> {
        match self {
            Picks::Indices(_) => Ok(1),
            Picks::Checked(_, axes) => Ok(*axes),
            Picks::Mask(mask) => mask.rank(),
        }
    }
}

/// A view whose indexed axes are merged into one, and the positions along that axis.
struct Merged<'g> {
    flat: Expr<'g>,
    axis: usize,
    /// A vector.
    positions: Expr<'g>,
    /// The shape of the indices, which replaces the merged axis in the result.
    shape: Shape,
    /// The shape and axes of the view, in the order of `flat`; none if they are those of `flat`.
    order: Option<(Shape, Vec<usize>)>,
}

impl<'g> Merged<'g> {
    fn new(g: &'g Builder<'g>, view: Expr<'g>, parts: &[IndexPart<'g>]) -> Result<Merged<'g>> {
        if let [IndexPart { axis, picks: Picks::Indices(_) | Picks::Checked(_, 1) }] = parts {
            let positions = positions(view, &parts[0])?;
            let shape = positions.shape()?;
            return Ok(Merged { flat: view, axis: *axis, positions: vector(positions)?, shape, order: None });
        }
        let view_shape = view.shape()?;
        let mut axes = Vec::new();
        let mut merged = Vec::new();
        for part in parts {
            let own = part.axis..part.axis + part.picks.axes()?;
            merged.push(view_shape.dims()[own.clone()].iter().product::<usize>());
            axes.extend(own);
        }
        let (positions, shape) = combined(g, view, parts, &merged)?;
        // As in NumPy, the merged axis is where the parts are if they are adjacent, and otherwise the first.
        let together = axes.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        let lead = if together { axes.first().copied().unwrap_or(0) } else { 0 };
        let rest = (lead..view_shape.rank()).filter(|axis| !axes.contains(axis));
        let order: Vec<usize> = (0..lead).chain(axes.iter().copied()).chain(rest).collect();
        let moved = if order.is_sorted() {
            view
        } else {
            view.permute(&order.iter().map(|axis| *axis as i64).collect::<Vec<i64>>())
        };
        let moved_shape = moved.shape()?;
        let (before, after) = (&moved_shape.dims()[..lead], &moved_shape.dims()[lead + axes.len()..]);
        let flat = moved.with_shape(&Shape::new(&[before, &[merged.iter().product()], after].concat())?);
        Ok(Merged { flat, axis: lead, positions, shape, order: Some((moved_shape, order)) })
    }

    /// The shape of `flat` with other sizes in place of the merged axis.
    fn shape_with(&self, sizes: &[usize]) -> Result<Shape> {
        let flat = self.flat.shape()?;
        Shape::new(&[&flat.dims()[..self.axis], sizes, &flat.dims()[self.axis + 1..]].concat())
    }

    /// The positions, broadcast to the shape of the elements that they pick.
    fn index(&self) -> Result<Expr<'g>> {
        let count = self.positions.numel()?;
        let wide = self.shape_with(&[count])?;
        let mut narrow = vec![1; wide.rank()];
        narrow[self.axis] = count;
        Ok(self.positions.with_shape(&Shape::new(&narrow)?).expand_to(&wide))
    }

    /// A tensor of the shape of `flat`, in the shape and the order of axes of the view.
    fn restored(&self, flat: Expr<'g>) -> Expr<'g> {
        let Some((shape, order)) = &self.order else { return flat };
        let whole = flat.with_shape(shape);
        if order.is_sorted() {
            return whole;
        }
        let mut places = vec![0; order.len()];
        order.iter().enumerate().for_each(|(place, axis)| places[*axis] = place as i64);
        whole.permute(&places)
    }
}

/// The elements in one row.
fn vector(tensor: Expr<'_>) -> Result<Expr<'_>> {
    Ok(tensor.with_shape(&Shape::new(&[tensor.numel()?])?))
}

/// The positions along the merged axis, as a vector, and their shape. `sizes` are the products of the sizes of each
/// part's axes.
fn combined<'g>(
    g: &'g Builder<'g>,
    view: Expr<'g>,
    parts: &[IndexPart<'g>],
    sizes: &[usize],
) -> Result<(Expr<'g>, Shape)> {
    let all = parts.iter().map(|part| positions(view, part)).collect::<Result<Vec<_>>>()?;
    let shapes = all.iter().map(|positions| positions.shape()).collect::<Result<Vec<Shape>>>()?;
    let broadcast = shapes.iter().skip(1).try_fold(shapes[0], |shape, other| shape.broadcast(other));
    let Ok(shape) = broadcast else {
        let shapes: Vec<String> = shapes.iter().map(ToString::to_string).collect();
        return Err(OpError::index(format!(
            "shape mismatch: indexing tensors could not be broadcast together with shapes {}",
            shapes.join(", ")
        )));
    };
    let mut stride: usize = sizes.iter().product();
    let mut sum: Option<Expr<'g>> = None;
    for ((part, size), mut own) in parts.iter().zip(sizes).zip(all.iter().copied()) {
        stride /= (*size).max(1);
        if parts.len() > 1 {
            if matches!(part.picks, Picks::Indices(_)) {
                own = looked_up(g, own, part.axis, *size)?;
            }
            if stride != 1 {
                own = own * stride as i64;
            }
        }
        sum = Some(sum.map_or(own, |sum| sum + own));
    }
    let sum = sum.ok_or_else(|| OpError::index("an index without parts"))?;
    Ok((vector(sum)?, shape))
}

/// The indices that a part picks along the axes that it consumes. Those of a tensor may count from the end.
fn positions<'g>(view: Expr<'g>, part: &IndexPart<'g>) -> Result<Expr<'g>> {
    match &part.picks {
        Picks::Indices(indices) if view.shape()?.dims()[part.axis] == 0 && indices.numel()? > 0 => {
            Err(OpError::index("index is out of bounds for dimension with size 0"))
        }
        Picks::Indices(indices) => Ok(indices.to(DType::I64)),
        Picks::Checked(positions, _) => Ok(*positions),
        Picks::Mask(mask) => {
            check_mask(&view.shape()?, part.axis, &mask.shape()?)?;
            true_places(*mask)
        }
    }
}

/// The indices, looked up in the numbers below `size`: negative ones become nonnegative, and one that is out of range
/// fails. Once merged, these could pick an element of another row instead.
fn looked_up<'g>(g: &'g Builder<'g>, positions: Expr<'g>, axis: usize, size: usize) -> Result<Expr<'g>> {
    let along = |count: usize| Shape::new(&[vec![1; axis], vec![count]].concat());
    let (table, line) = (g.arange(size as i64, DType::I64), positions.with_shape(&along(positions.numel()?)?));
    Ok(table.with_shape(&along(size)?).gather_wrapped(axis as i64, line).with_shape(&positions.shape()?))
}

/// Checks that a mask has the sizes of a view's axes from `axis` on.
///
/// # Errors
/// PyTorch's, if it has not.
pub fn check_mask(view: &Shape, axis: usize, mask: &Shape) -> Result<()> {
    match mask.dims().iter().zip(&view.dims()[axis..]).position(|(own, size)| own != size) {
        Some(at) => Err(OpError::index(format!(
            "The shape of the mask {mask} at index {at} does not match the shape of the indexed tensor {view} at index {}",
            axis + at
        ))),
        None => Ok(()),
    }
}

/// The elements of `view` that the parts pick: a copy. Waits for a mask, whose number of true elements decides the
/// shape of the result.
///
/// # Errors
/// Indices that do not broadcast with each other; a mask of another shape; a failed wait.
pub fn get<'g>(g: &'g Builder<'g>, view: Expr<'g>, parts: &[IndexPart<'g>]) -> Result<Expr<'g>> {
    let merged = Merged::new(g, view, parts)?;
    let found = merged.flat.gather_wrapped(merged.axis as i64, merged.index()?);
    Ok(found.with_shape(&merged.shape_with(merged.shape.dims())?))
}

/// A copy of `view` with `source` written, or added if `accumulate`, where the parts pick. An index that occurs several
/// times adds each of its values. The source is a tensor of the view's dtype, or a number, which is converted to it; a
/// single element that a mask selects the places of may have any dtype.
///
/// # Errors
/// Those of [`get`]; a source of another dtype, or that does not broadcast to the picked elements; a number that the
/// dtype does not have.
pub fn put<'g>(
    g: &'g Builder<'g>,
    view: Expr<'g>,
    parts: &[IndexPart<'g>],
    source: TensorOrNumber<'g>,
    accumulate: bool,
) -> Result<Expr<'g>> {
    let (dtype, number) = (view.dtype()?, source.as_number());
    let number = number.map(|number| checked(number, dtype)).transpose()?;
    let (given, count, rank) = match number {
        Some(_) => (dtype, 1, 0),
        None => (source.dtype()?, source.numel()?, source.rank()?),
    };
    let fitted = |source: Expr<'g>, wanted: Shape| match g.finish(source) {
        Ok(source) => g.run(|graph| build::fit_source(graph, source, dtype, wanted)),
        Err(error) => g.fail(error),
    };
    let mask = match parts {
        [IndexPart { axis, picks: Picks::Mask(mask) }] if !accumulate => Some((*axis, *mask)),
        _ => None,
    };
    if given != dtype && !(mask.is_some() && count == 1) {
        return Err(OpError::runtime(format!(
            "Index put requires the source and destination dtypes match, got {} for the destination and {} for the \
             source.",
            dtype.scalar_type_name(),
            given.scalar_type_name()
        )));
    }
    if let Some((axis, mask)) = mask {
        let own = mask.shape()?;
        check_mask(&view.shape()?, axis, &own)?;
        let trail = Shape::new(&view.shape()?.dims()[axis + own.rank()..])?;
        // A source that does not vary along the masked axes needs no indices: `where` selects by the mask.
        if count == 1 || rank <= trail.rank() {
            let wide = mask.with_shape(&Shape::new(&[own.dims(), &vec![1; trail.rank()]].concat())?);
            return match (number, count) {
                (Some(_), _) => masked_fill(g, view, wide, source),
                (None, 1) => masked_fill(g, view, wide, TensorOrNumber(source.with_shape(&Shape::SCALAR))),
                _ => Ok(wide.where_(fitted(source.0, trail), view)),
            };
        }
    }
    let merged = Merged::new(g, view, parts)?;
    let (index, axis) = (merged.index()?, merged.axis as i64);
    let wide = index.shape()?;
    let source = match (number, count) {
        (Some(number), _) => g.full(&wide, number, dtype),
        (None, 1) => source.with_shape(&Shape::SCALAR).expand_to(&wide),
        _ => fitted(source.0, merged.shape_with(merged.shape.dims())?).with_shape(&wide),
    };
    Ok(match accumulate {
        // The sum of bools is a logical or.
        true if dtype == DType::Bool => {
            let sums = merged.flat.to(DType::U8).scatter(Op::IndexPutAdd, axis, index, source.to(DType::U8));
            merged.restored(sums).to(DType::Bool)
        }
        true => merged.restored(merged.flat.scatter(Op::IndexPutAdd, axis, index, source)),
        false => merged.restored(merged.flat.scatter(Op::IndexPut, axis, index, source)),
    })
}
