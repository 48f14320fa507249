//! Advanced indices: `x[index]` with index tensors, arrays, lists or masks among its parts, which make the result a
//! copy. The basic parts are applied first and give a view; [`advanced_indexing`] picks the elements of it.

use crate::array_struct::{ArrayStruct, is_ndarray};
use crate::convert;
use crate::data;
use crate::error::{OrRaise, raise_op};
use crate::index::{self, IndexParts};
use crate::tensor::PyTensor;
use gt_client::{Repeats, Scope, Tensor};
use gt_functions::advanced_indexing::{self, IndexPart, Picks};
use gt_functions::declaration::TensorOrNumber;
use gt_ops::build::{self, Index};
use gt_ops::error::Result as OpResult;
use gt_ops::expr::{Builder, Expr};
use gt_ops::{DType, Meta, Scalar, Shape, Val};
use pyo3::exceptions::{PyIndexError, PyUserWarning};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyComplex, PyFloat, PyInt, PyList, PyString, PyTuple};

/// A shorter list counts as a tuple unless all its items are numbers, as in PyTorch.
const TUPLE_LEN_END: usize = 32;

/// An advanced part of an index.
enum Advanced {
    /// The tensor of this number, with indices.
    Indices(usize),
    /// The tensor of this number, a mask.
    Mask(usize),
    /// Indices that this process knows.
    Known(Vec<i64>, Shape),
    /// A mask that this process knows.
    KnownMask(Vec<bool>, Shape),
}

/// The advanced parts of an index, as tensors.
struct UploadedParts {
    tensors: Vec<Tensor>,
    /// Each with its first axis and the number of its tensor.
    parts: Vec<(usize, TensorOfPart, usize)>,
}

/// The contents of a part's tensor.
enum TensorOfPart {
    Indices,
    Mask,
    /// The numbers of elements along so many axes.
    Checked(usize),
}

/// A parsed index.
struct AdvancedIndex {
    /// The basic parts, in which `:` stands for each axis of an advanced one.
    basic: IndexParts,
    /// The advanced parts, each with its first axis in the view of the basic ones.
    parts: Vec<(usize, Advanced)>,
    tensors: Vec<Tensor>,
}

/// Any part of an index. An advanced one comes with the number of axes that it consumes.
enum AnyPart {
    Basic(Index),
    Advanced(Advanced, usize),
}

fn shape_of(dims: &[usize]) -> PyResult<Shape> {
    Shape::new(dims).map_err(raise_op)
}

fn wrong_dtype() -> PyErr {
    PyIndexError::new_err("tensors used as indices must be long, int, byte or bool tensors")
}

/// Whether `np.isscalar` is true of an object.
fn is_scalar(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    static GENERIC: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    Ok(object.is_instance_of::<PyInt>()
        || object.is_instance_of::<PyFloat>()
        || object.is_instance_of::<PyString>()
        || object.is_instance_of::<PyComplex>()
        || object.is_instance(GENERIC.import(object.py(), "numpy", "generic")?)?)
}

/// The integers of an array's memory.
fn integers(bytes: &[u8], dtype: DType) -> Option<Vec<i64>> {
    macro_rules! numbers {
        ($t:ty) => {
            bytes.as_chunks::<{ size_of::<$t>() }>().0.iter().map(|x| <$t>::from_le_bytes(*x) as i64).collect()
        };
    }
    Some(match dtype {
        DType::U8 => numbers!(u8),
        DType::I8 => numbers!(i8),
        DType::I16 => numbers!(i16),
        DType::U16 => numbers!(u16),
        DType::I32 => numbers!(i32),
        DType::U32 => numbers!(u32),
        DType::I64 => numbers!(i64),
        DType::U64 => numbers!(u64),
        _ => return None,
    })
}

impl AdvancedIndex {
    fn of(x: &Bound<'_, PyTensor>, index: &Bound<'_, PyAny>) -> PyResult<AdvancedIndex> {
        let mut parsed = AdvancedIndex { basic: IndexParts::new(), parts: Vec::new(), tensors: Vec::new() };
        let mut all = Vec::new();
        let is_short = |list: &Bound<'_, PyList>| list.len() < TUPLE_LEN_END;
        if let Ok(tuple) = index.cast::<PyTuple>() {
            for part in tuple.iter_borrowed() {
                all.push(parsed.part(&part)?);
            }
        } else if let Ok(list) = index.cast::<PyList>()
            && is_short(list)
            && !list.iter().map(|item| is_scalar(&item)).collect::<PyResult<Vec<bool>>>()?.iter().all(|scalar| *scalar)
        {
            for part in list.iter() {
                all.push(parsed.part(&part)?);
            }
        } else {
            all.push(parsed.part(index)?);
        }
        let shape = x.get().read(x.py()).meta().shape;
        parsed.place(all, &shape)?;
        Ok(parsed)
    }

    /// Gives each part its axes.
    fn place(&mut self, all: Vec<AnyPart>, shape: &Shape) -> PyResult<()> {
        let consumed = |part: &AnyPart| match part {
            AnyPart::Basic(Index::At(_) | Index::Range { .. }) => 1,
            AnyPart::Basic(Index::NewAxis | Index::Ellipsis) => 0,
            AnyPart::Advanced(_, axes) => *axes,
        };
        let Some(free) = shape.rank().checked_sub(all.iter().map(consumed).sum()) else {
            return Err(PyIndexError::new_err(format!("too many indices for tensor of dimension {}", shape.rank())));
        };
        if all.iter().filter(|part| matches!(part, AnyPart::Basic(Index::Ellipsis))).count() > 1 {
            return Err(PyIndexError::new_err("an index can only have a single ellipsis ('...')"));
        }
        // The axis of the tensor, and that of the view.
        let (mut own, mut axis) = (0, 0);
        for part in all {
            match part {
                AnyPart::Basic(part) => {
                    let (from, to) = match part {
                        Index::Ellipsis => (free, free),
                        Index::At(_) => (1, 0),
                        Index::Range { .. } => (1, 1),
                        Index::NewAxis => (0, 1),
                    };
                    self.basic.push(part);
                    (own, axis) = (own + from, axis + to);
                }
                AnyPart::Advanced(part, 0) => {
                    // A single bool makes a new axis of size 1 or 0.
                    self.basic.push(Index::NewAxis);
                    self.parts.push((axis, part));
                    axis += 1;
                }
                AnyPart::Advanced(mut part, axes) => {
                    self.basic.extend((0..axes).map(|_| Index::Range { start: None, stop: None, step: None }));
                    if let Advanced::Known(numbers, _) = &mut part {
                        in_range(numbers, axis, shape.dims()[own])?;
                    }
                    self.parts.push((axis, part));
                    (own, axis) = (own + axes, axis + axes);
                }
            }
        }
        Ok(())
    }

    fn part(&mut self, part: &Bound<'_, PyAny>) -> PyResult<AnyPart> {
        let py = part.py();
        if let Some(basic) = index::one(part)? {
            return Ok(AnyPart::Basic(basic));
        }
        if let Ok(tensor) = part.cast::<PyTensor>() {
            return self.tensor(py, tensor.get().snapshot(py)?);
        }
        if let Ok(one) = part.cast::<PyBool>() {
            return Ok(AnyPart::Advanced(Advanced::KnownMask(vec![one.is_true()], shape_of(&[1])?), 0));
        }
        if is_ndarray(part)? || data::is_array(part) {
            return self.array(part);
        }
        if let Ok(list) = part.cast::<PyList>() {
            let plain = |kind: fn(&Bound<'_, PyAny>) -> bool| list.iter().all(|item| kind(&item));
            if plain(|item| item.is_exact_instance_of::<PyInt>()) {
                let numbers: Vec<i64> = list.extract()?;
                let shape = shape_of(&[numbers.len()])?;
                return Ok(AnyPart::Advanced(Advanced::Known(numbers, shape), 1));
            }
            if plain(|item| item.is_instance_of::<PyTensor>()) {
                return self.tensor(py, data::from_python(part, None)?);
            }
        }
        self.array(&py.import(intern!(py, "numpy"))?.call_method1(intern!(py, "array"), (part,))?)
    }

    fn tensor(&mut self, py: Python<'_>, tensor: Tensor) -> PyResult<AnyPart> {
        let meta = tensor.meta();
        let (number, rank) = (self.tensors.len(), meta.shape.rank());
        self.tensors.push(tensor);
        match meta.dtype {
            DType::I64 | DType::I32 => Ok(AnyPart::Advanced(Advanced::Indices(number), 1)),
            DType::U8 => {
                let text =
                    c"an index of dtype uint8 selects where it is not 0, as a mask does, rather than by number: \
                             convert it to bool or int64";
                PyErr::warn(py, &py.get_type::<PyUserWarning>(), text, 1)?;
                Ok(AnyPart::Advanced(Advanced::Mask(number), rank))
            }
            DType::Bool => Ok(AnyPart::Advanced(Advanced::Mask(number), rank)),
            _ => Err(wrong_dtype()),
        }
    }

    fn array(&mut self, array: &Bound<'_, PyAny>) -> PyResult<AnyPart> {
        let py = array.py();
        if !is_ndarray(array)? && data::is_foreign(array) {
            let read = py.import(intern!(py, "numpy"))?.call_method1(intern!(py, "from_dlpack"), (array,))?;
            return self.array(&read);
        }
        let memory = ArrayStruct::of(array)?;
        let dtype = memory.dtype.ok_or_else(wrong_dtype)?;
        let memory = if memory.is_contiguous { memory } else { memory.in_order(array)? };
        let bytes = memory.as_slice();
        if dtype == DType::Bool {
            let bits = bytes.iter().map(|byte| *byte != 0).collect();
            let dims: &[usize] = if memory.dims.is_empty() { &[1] } else { &memory.dims };
            return Ok(AnyPart::Advanced(Advanced::KnownMask(bits, shape_of(dims)?), memory.dims.len()));
        }
        // `np.array([])` has floats.
        let is_empty_list = dtype == DType::F64 && memory.dims[..] == [0];
        let numbers = if is_empty_list { Vec::new() } else { integers(bytes, dtype).ok_or_else(wrong_dtype)? };
        Ok(AnyPart::Advanced(Advanced::Known(numbers, shape_of(&memory.dims)?), 1))
    }

    /// The view of the basic parts.
    fn view<'py>(&self, x: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, PyTensor>> {
        let is_whole = |part: &Index| match part {
            Index::Ellipsis => true,
            Index::Range { start, stop, step } => {
                start.is_none_or(|start| start == 0)
                    && stop.is_none_or(|stop| stop == isize::MAX as i64)
                    && step.is_none_or(|step| step == 1)
            }
            Index::At(_) | Index::NewAxis => false,
        };
        if self.basic.iter().all(is_whole) {
            return Ok(x.clone());
        }
        Bound::new(x.py(), x.get().view_of(x.py(), false, |g, v| build::index(g, v, &self.basic))?)
    }

    /// The advanced parts. What this process knows of them is uploaded; masks as such, if `masks`, or as the numbers of
    /// their true elements. This comes before the view is read: an upload is published, and what reads the view has to
    /// be published together with what writes it.
    fn upload(self, view: &Bound<'_, PyTensor>, masks: bool) -> PyResult<UploadedParts> {
        let (meta, session) = {
            let view = view.get().read(view.py());
            (view.meta(), view.session())
        };
        let upload = |shape: &Shape, dtype: DType, bytes: &[u8]| {
            let value = session.upload(Meta::new(*shape, dtype), bytes.into()).or_raise()?;
            Ok::<_, PyErr>(Tensor::new(value, None))
        };
        let ints =
            |numbers: &[i64]| numbers.iter().map(|number| number.to_le_bytes()).collect::<Vec<_>>().into_flattened();
        let mut uploaded = UploadedParts { tensors: self.tensors, parts: Vec::new() };
        for (axis, part) in self.parts {
            let (kind, tensor) = match part {
                Advanced::Indices(number) => {
                    uploaded.parts.push((axis, TensorOfPart::Indices, number));
                    continue;
                }
                Advanced::Mask(number) => {
                    uploaded.parts.push((axis, TensorOfPart::Mask, number));
                    continue;
                }
                Advanced::Known(numbers, shape) => {
                    (TensorOfPart::Checked(1), upload(&shape, DType::I64, &ints(&numbers))?)
                }
                Advanced::KnownMask(bits, shape) => {
                    advanced_indexing::check_mask(&meta.shape, axis, &shape).map_err(raise_op)?;
                    if masks {
                        let bytes: Vec<u8> = bits.into_iter().map(u8::from).collect();
                        (TensorOfPart::Mask, upload(&shape, DType::Bool, &bytes)?)
                    } else {
                        let places: Vec<i64> =
                            (0..).zip(bits).filter(|(_, bit)| *bit).map(|(place, _)| place).collect();
                        let tensor = upload(&shape_of(&[places.len()])?, DType::I64, &ints(&places))?;
                        (TensorOfPart::Checked(shape.rank()), tensor)
                    }
                }
            };
            uploaded.parts.push((axis, kind, uploaded.tensors.len()));
            uploaded.tensors.push(tensor);
        }
        Ok(uploaded)
    }
}

impl UploadedParts {
    /// The tensor that `compute` makes of the view, the parts and other tensors.
    fn computed(
        &self,
        view: &Bound<'_, PyTensor>,
        others: &[Tensor],
        compute: impl for<'g> FnOnce(&'g Builder<'g>, Expr<'g>, &[IndexPart<'g>], &[Expr<'g>]) -> OpResult<Expr<'g>>,
    ) -> PyResult<Tensor> {
        let py = view.py();
        let mut scope = Scope::new(&view.get().read(py).session());
        let of_view = scope.add(&view.get().read(py)).or_raise()?;
        let add = |tensor: &Tensor| scope.add(tensor);
        let vals = self.tensors.iter().chain(others).map(add).collect::<gt_client::Result<Vec<Val>>>().or_raise()?;
        let (own, others) = vals.split_at(self.tensors.len());
        let outcome = {
            let g = Builder::new(&mut scope);
            let others: Vec<Expr<'_>> = others.iter().map(|val| g.tensor(*val)).collect();
            compute(&g, g.tensor(of_view), &self.of_graph(&g, own), &others).and_then(|found| g.finish(found))
        };
        scope.finish(outcome, |scope, found| scope.tensor(found)).or_raise()
    }

    /// The parts for the function that picks; `vals` are the tensors.
    fn of_graph<'g>(&self, g: &'g Builder<'g>, vals: &[Val]) -> Vec<IndexPart<'g>> {
        let parts = self.parts.iter().map(|(axis, kind, number)| {
            let tensor = g.tensor(vals[*number]);
            let picks = match kind {
                TensorOfPart::Indices => Picks::Indices(tensor),
                TensorOfPart::Checked(axes) => Picks::Checked(tensor, *axes),
                TensorOfPart::Mask if self.tensors[*number].meta().shape.rank() == 0 => {
                    Picks::Mask(tensor.to(DType::Bool).reshape(&[1]))
                }
                TensorOfPart::Mask => Picks::Mask(tensor.to(DType::Bool)),
            };
            IndexPart { axis: *axis, picks }
        });
        parts.collect()
    }
}

/// Makes the indices of an axis nonnegative.
///
/// # Errors
/// PyTorch's, for one that is out of range.
fn in_range(numbers: &mut [i64], axis: usize, size: usize) -> PyResult<()> {
    let len = size as i64;
    for number in numbers {
        if !(-len..len).contains(number) {
            return Err(PyIndexError::new_err(if size == 0 {
                "index is out of bounds for dimension with size 0".into()
            } else {
                format!("index {number} is out of bounds for dimension {axis} with size {size}")
            }));
        }
        *number = if *number < 0 { *number + len } else { *number };
    }
    Ok(())
}

/// `x[index]` for an advanced index.
pub fn get<'py>(x: &Bound<'py, PyTensor>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTensor>> {
    let py = x.py();
    let index = AdvancedIndex::of(x, index)?;
    let view = index.view(x)?;
    if index.parts.is_empty() {
        return Ok(view);
    }
    let found =
        index.upload(&view, false)?.computed(&view, &[], |g, view, parts, _| advanced_indexing::get(g, view, parts))?;
    Bound::new(py, PyTensor::wrap(found))
}

/// A copy of `view` with `source` written, or added if `accumulate`, at the advanced parts of an index.
fn written(
    view: &Bound<'_, PyTensor>,
    index: AdvancedIndex,
    source: &Result<Tensor, Scalar>,
    accumulate: bool,
) -> PyResult<Tensor> {
    let is_one = source.as_ref().map_or(true, |source| source.meta().shape.numel() == 1);
    index.upload(view, is_one && !accumulate)?.computed(
        view,
        source.as_ref().map_or(&[], std::slice::from_ref),
        |g, view, parts, others| {
            let source = source.as_ref().map_or_else(|number| g.number(*number), |_| others[0]);
            advanced_indexing::put(g, view, parts, TensorOrNumber(source), accumulate)
        },
    )
}

/// `x[index] = value` for an advanced index. If `x` is a view, its base changes, too.
pub fn set(x: &Bound<'_, PyTensor>, index: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = x.py();
    let index = AdvancedIndex::of(x, index)?;
    let view = index.view(x)?;
    if index.parts.is_empty() {
        return PyTensor::copy_(&view, value, false).map(drop);
    }
    let source = match value.cast::<PyTensor>() {
        Ok(tensor) => Ok(tensor.get().snapshot(py)?),
        Err(_) => match convert::number(value)? {
            Some(number @ (Scalar::Int(_) | Scalar::Float(_) | Scalar::Bool(_))) => Err(number),
            _ => Ok(data::from_python(value, Some(view.get().read(py).meta().dtype))?),
        },
    };
    view.get().read(py).check_in_place().or_raise()?;
    let _operation = view.get().read(py).begin_in_place();
    let result = written(&view, index, &source, false)?;
    view.get().rebind_with(py, result, None, Repeats::Changed)
}

/// A copy of the input after `copy[indices] = values`, or after `copy[indices] += values` if `accumulate`. `None` keeps
/// an axis.
#[pyfunction]
pub fn index_put(
    input: &Bound<'_, PyTensor>,
    indices: &Bound<'_, PyAny>,
    values: &Bound<'_, PyTensor>,
    accumulate: bool,
) -> PyResult<PyTensor> {
    let py = input.py();
    let whole = pyo3::types::PySlice::full(py).into_any();
    let parts = indices.try_iter()?.map(|part| part.map(|part| if part.is_none() { whole.clone() } else { part }));
    let index = PyTuple::new(py, parts.collect::<PyResult<Vec<_>>>()?)?;
    let index = AdvancedIndex::of(input, &index)?;
    written(&index.view(input)?, index, &Ok(values.get().snapshot(py)?), accumulate).map(PyTensor::wrap)
}
