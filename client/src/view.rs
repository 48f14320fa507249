//! Views: tensors that show another one's elements, and write through to it.
//!
//! Values are functional, so a view is a recipe: the movement ops, and gathers, that lead from the base's value to the
//! view's. Reading follows it, again whenever the base has changed since; writing follows it backwards, each step
//! putting the new elements into what it had taken them from, until there is a new value for the base.

use crate::error::Result;
use crate::scope::Scope;
use crate::session::Value;
use crate::storage::{Place, Storage};
use crate::tape::{self, Node};
use gt_ops::instruction::SliceSpec;
use gt_ops::{Arg, Attrs, DType, Graph, Meta, Op, OpError, RANK_MAX, Shape, Val};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One op of a view's recipe: a movement, or a gather with its index.
#[derive(Clone)]
pub(crate) struct Step {
    pub(crate) op: Op,
    pub(crate) attrs: Attrs,
    pub(crate) index: Option<Arc<Value>>,
}

impl Step {
    fn emit(&self, scope: &mut Scope, v: Val) -> gt_ops::error::Result<Val> {
        let index = self.index.as_ref().map(|index| scope.push(index.clone(), None));
        let operands: Vec<Arg> = std::iter::once(v).chain(index).map(Arg::Val).collect();
        scope.emit(self.op, &operands, self.attrs.clone())
    }
}

/// Distances between neighbours along each axis, in elements, as PyTorch would have them in memory.
pub type Strides = [isize; RANK_MAX];

/// A recipe applied to a storage.
pub(crate) struct View {
    pub(crate) base: Arc<Storage>,
    /// Where the base stands on the tape, for the handle that the view was taken of.
    pub(crate) place: Arc<Place>,
    /// A place on the tape of the view's own: it was made a leaf.
    pub(crate) leaf: Option<Arc<Node>>,
    pub(crate) steps: Arc<[Step]>,
    pub(crate) meta: Meta,
    pub(crate) strides: Strides,
    /// What the recipe gave for the base's version.
    seen: Mutex<Seen>,
}

/// What a recipe gave.
#[derive(Clone)]
pub(crate) struct Seen {
    pub(crate) value: Arc<Value>,
    pub(crate) node: Option<Arc<Node>>,
    pub(crate) version: u64,
}

impl View {
    pub(crate) fn new(base: Arc<Storage>, place: Arc<Place>, steps: Arc<[Step]>, strides: Strides, seen: Seen) -> View {
        let meta = *seen.value.meta();
        View { base, place, leaf: None, steps, meta, strides, seen: Mutex::new(seen) }
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same view with a place on the tape of its own, where there is nothing.
    pub(crate) fn detached(&self, silent: bool) -> View {
        let seen = Seen { node: None, ..self.seen() };
        let (base, steps) = (self.base.clone(), self.steps.clone());
        View::new(base, Place::apart(silent), steps, self.strides, seen)
    }

    /// Another handle on the same view.
    pub(crate) fn same(&self) -> View {
        let (base, place, steps) = (self.base.clone(), self.place.clone(), self.steps.clone());
        View { leaf: self.leaf.clone(), ..View::new(base, place, steps, self.strides, self.seen()) }
    }

    /// What was seen last, of the base's present state or not.
    pub(crate) fn seen(&self) -> Seen {
        self.lock().clone()
    }

    /// The view's present value and place on the tape.
    pub(crate) fn read(&self) -> Result<Seen> {
        let mut seen = self.seen();
        let (value, version) = self.base.read();
        if seen.version != version {
            // Whoever reads next may want the gradient that this reader does not.
            let epoch = self.base.epoch();
            let recording = tape::set_grad_enabled(true);
            let replayed = self.replay(value, version);
            tape::set_grad_enabled(recording);
            seen = replayed?;
            seen.value.history().view_of(epoch);
            let old = std::mem::replace(&mut *self.lock(), seen.clone());
            // Freeing a tensor may wait: not under the lock.
            drop(old);
        }
        if self.leaf.is_some() {
            seen.node = self.leaf.clone();
        }
        Ok(seen)
    }

    fn replay(&self, base: Arc<Value>, version: u64) -> Result<Seen> {
        let mut scope = Scope::new(base.session());
        let mut v = scope.push(base, self.place.node());
        let outcome = self.steps.iter().try_for_each(|step| {
            v = step.emit(&mut scope, v)?;
            Ok(())
        });
        scope.finish(outcome, |scope, ()| {
            let (value, node) = scope.parts(v);
            Seen { value, node, version }
        })
    }

    /// The base's value with the view's elements replaced by `new`.
    ///
    /// # Errors
    /// A view in which one element of the base is seen several times.
    pub(crate) fn put(&self, new: (Arc<Value>, Option<Arc<Node>>)) -> Result<(Arc<Value>, Option<Arc<Node>>)> {
        if repeats_elements(&self.meta.shape, &self.strides) {
            return Err(OpError::runtime(
                "unsupported operation: more than one element of the written-to tensor refers to a single memory \
                 location. Please clone() the tensor before performing the operation.",
            )
            .into());
        }
        let base = self.base.read().0;
        let mut scope = Scope::new(base.session());
        let first = scope.push(base, self.place.node());
        let mut v = scope.push(new.0, new.1);
        let outcome = (|| {
            if self.steps.iter().any(|step| matches!(step.op, Op::Expand | Op::Gather)) {
                v = self.scatter(&mut scope, first, v)?;
                return Ok(());
            }
            let mut parents = vec![first];
            for step in &self.steps[..self.steps.len().saturating_sub(1)] {
                let parent = parents[parents.len() - 1];
                parents.push(step.emit(&mut scope, parent)?);
            }
            for (step, parent) in self.steps.iter().zip(&parents).rev() {
                v = put_back(&mut scope, step, *parent, v)?;
            }
            Ok(())
        })();
        scope.finish(outcome, |scope, ()| scope.parts(v))
    }

    /// `base` with `new` where the recipe takes its elements from, looked up by following it with their positions: of
    /// what an expansion or a gather repeats, the rest of the recipe may keep one, and the last stays if it does not.
    fn scatter(&self, scope: &mut Scope, base: Val, new: Val) -> gt_ops::error::Result<Val> {
        let shape = scope.meta(base).shape;
        let flat = |v: Val, scope: &mut Scope| gt_ops::build::reshape(scope, v, &[-1]);
        let create = Attrs::Create { shape: Shape::new(&[shape.numel()])?, dtype: DType::I64 };
        let counted = scope.emit(Op::Arange, &[0i64.into(), 1i64.into()], create)?;
        let mut places = scope.emit(Op::Reshape, &[counted.into()], Attrs::Shape(shape))?;
        for step in self.steps.iter() {
            places = step.emit(scope, places)?;
        }
        let operands = [flat(base, scope)?.into(), flat(places, scope)?.into(), flat(new, scope)?.into()];
        let written = scope.emit(Op::Scatter, &operands, Attrs::Axis(0))?;
        scope.emit(Op::Reshape, &[written.into()], Attrs::Shape(shape))
    }
}

/// `parent` with what the step took from it replaced by `v`.
fn put_back(scope: &mut Scope, Step { op, attrs, .. }: &Step, parent: Val, v: Val) -> gt_ops::error::Result<Val> {
    let shape = scope.meta(parent).shape;
    match (op, attrs) {
        (Op::Slice, Attrs::Slice(_)) => scope.emit(Op::SliceScatter, &[Arg::Val(parent), v.into()], attrs.clone()),
        (Op::Permute, Attrs::Permutation(permutation)) => {
            let inverse = gt_ops::grad::inverse_permutation(permutation, shape.rank());
            scope.emit(Op::Permute, &[v.into()], Attrs::Permutation(inverse))
        }
        _ => scope.emit(Op::Reshape, &[v.into()], Attrs::Shape(shape)),
    }
}

/// The strides after one step; none if it cannot be had without a copy.
pub(crate) fn step_strides(from: &Shape, strides: &Strides, Step { op, attrs, .. }: &Step) -> Option<Strides> {
    let mut out = [0; RANK_MAX];
    match (op, attrs) {
        (Op::Permute, Attrs::Permutation(permutation)) => {
            for (to, axis) in out.iter_mut().zip(permutation).take(from.rank()) {
                *to = strides[*axis as usize];
            }
            Some(out)
        }
        (Op::Slice, Attrs::Slice(spec)) => {
            let SliceSpec { step, .. } = **spec;
            for axis in 0..from.rank() {
                out[axis] = strides[axis] * step[axis] as isize;
            }
            Some(out)
        }
        (Op::Expand, Attrs::Shape(to)) => {
            let lead = to.rank() - from.rank();
            for (axis, size) in from.dims().iter().enumerate() {
                out[lead + axis] = if to.dims()[lead + axis] == *size { strides[axis] } else { 0 };
            }
            Some(out)
        }
        (Op::Reshape, Attrs::Shape(to)) => reshape_strides(from, strides, to),
        _ => None,
    }
}

/// The strides under which the same memory has shape `to`; none if there are none. Axes of the old shape that lie
/// behind one another in memory are joined, and the joined ones cut into the new sizes.
fn reshape_strides(from: &Shape, strides: &Strides, to: &Shape) -> Option<Strides> {
    if from.numel() == 0 || from.numel() == 1 {
        return Some(to.contiguous_strides());
    }
    // Runs of axes that can be walked as one: (elements, stride of the innermost).
    let mut runs: Vec<(usize, isize)> = Vec::with_capacity(RANK_MAX);
    for (axis, &size) in from.dims().iter().enumerate().filter(|(_, size)| **size != 1) {
        match runs.last_mut() {
            Some((elements, stride)) if *stride == strides[axis] * size as isize => {
                (*elements, *stride) = (*elements * size, strides[axis]);
            }
            _ => runs.push((size, strides[axis])),
        }
    }
    let mut out = [0; RANK_MAX];
    let mut axis = to.rank();
    while let Some((elements, mut stride)) = runs.pop() {
        let mut left = elements;
        while left > 1 {
            axis = axis.checked_sub(1)?;
            let size = to.dims()[axis];
            if left % size != 0 {
                return None;
            }
            out[axis] = stride;
            stride *= size as isize;
            left /= size;
        }
    }
    // What remains are sizes of 1.
    for axis in (0..axis).rev() {
        out[axis] = if axis + 1 < to.rank() { out[axis + 1] * to.dims()[axis + 1] as isize } else { 1 };
    }
    Some(out)
}

/// Whether elements lie in row-major order without gaps.
pub(crate) fn is_contiguous(shape: &Shape, strides: &Strides) -> bool {
    let expected = shape.contiguous_strides();
    shape.numel() == 0
        || shape.dims().iter().enumerate().all(|(axis, size)| *size == 1 || strides[axis] == expected[axis])
}

/// Whether one element is seen at several places.
pub(crate) fn repeats_elements(shape: &Shape, strides: &Strides) -> bool {
    shape.numel() > 0 && shape.dims().iter().zip(strides).any(|(size, stride)| *size > 1 && *stride == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(dims: &[usize]) -> Shape {
        Shape::new(dims).unwrap()
    }
    fn strides(values: &[isize]) -> Strides {
        let mut all = [0; RANK_MAX];
        all[..values.len()].copy_from_slice(values);
        all
    }

    #[test]
    fn a_reshape_needs_no_copy_where_axes_lie_behind_one_another() {
        let whole = shape(&[2, 3, 4]);
        let row_major = whole.contiguous_strides();
        assert_eq!(reshape_strides(&whole, &row_major, &shape(&[6, 4])), Some(strides(&[4, 1])));
        assert_eq!(reshape_strides(&whole, &row_major, &shape(&[2, 1, 12])), Some(strides(&[12, 12, 1])));
        assert_eq!(reshape_strides(&whole, &row_major, &shape(&[24, 1])), Some(strides(&[1, 1])));
        // The same memory with the first two axes exchanged: they cannot be joined, the last can be cut.
        let turned = strides(&[4, 12, 1]);
        assert_eq!(reshape_strides(&shape(&[3, 2, 4]), &turned, &shape(&[6, 4])), None);
        assert_eq!(reshape_strides(&shape(&[3, 2, 4]), &turned, &shape(&[3, 2, 2, 2])), Some(strides(&[4, 12, 2, 1])));
    }

    #[test]
    fn contiguity_ignores_axes_of_size_one_and_emptiness() {
        assert!(is_contiguous(&shape(&[2, 1, 3]), &strides(&[3, 77, 1])));
        assert!(is_contiguous(&shape(&[0, 3]), &strides(&[9, 9])));
        assert!(!is_contiguous(&shape(&[2, 3]), &strides(&[1, 2])));
    }
}
