//! Calls any op of the op table: checks its operands and attributes, and selects its builder.

use gt_ops::build::row_wise;
use gt_ops::build::window::{self, WindowParameters};
use gt_ops::build::{self, Index};
use gt_ops::error::Result;
use gt_ops::instruction::{LossReduction, LossSpec};
use gt_ops::row::Class;
use gt_ops::window::WindowSpec;
use gt_ops::{Arg, Attrs, DType, Graph, Op, OpError, Scalar, Shape, Val};

type G<'a> = &'a mut dyn Graph;

/// An omitted bound or step of a slice, as in Python's `a[::2]`.
pub(crate) const OMIT: i64 = i64::MIN;

/// The attributes of a call: a field for each attribute that some op reads.
#[derive(Default)]
pub(crate) struct CallAttributes<'a> {
    pub(crate) dtype: Option<DType>,
    pub(crate) reduction: Option<LossReduction>,
    pub(crate) axis: i64,
    pub(crate) keepdim: bool,
    pub(crate) causal: bool,
    pub(crate) shape: &'a [i64],
    pub(crate) axes: &'a [i64],
    pub(crate) start: &'a [i64],
    pub(crate) stop: &'a [i64],
    pub(crate) step: &'a [i64],
    pub(crate) kernel: &'a [i64],
    pub(crate) stride: &'a [i64],
    pub(crate) padding: &'a [i64],
    pub(crate) padding_end: &'a [i64],
    pub(crate) dilation: &'a [i64],
    pub(crate) groups: i64,
    pub(crate) ignore_index: Option<i64>,
    pub(crate) label_smoothing: f64,
    pub(crate) scale: f64,
}

impl CallAttributes<'_> {
    /// The names of the attributes that differ from the default.
    pub(crate) fn names_set(&self) -> impl Iterator<Item = &'static str> {
        let lists = [
            (self.shape, "shape"),
            (self.axes, "axes"),
            (self.start, "start"),
            (self.stop, "stop"),
            (self.step, "step"),
            (self.kernel, "kernel"),
            (self.stride, "stride"),
            (self.padding, "padding"),
            (self.padding_end, "padding_end"),
            (self.dilation, "dilation"),
        ];
        let others = [
            (self.dtype.is_some(), "dtype"),
            (self.reduction.is_some(), "reduction"),
            (self.axis != 0, "axis"),
            (self.keepdim, "keepdim"),
            (self.causal, "causal"),
            (self.groups != 0, "groups"),
            (self.ignore_index.is_some(), "ignore_index"),
            (self.label_smoothing != 0.0, "label_smoothing"),
            (self.scale != 0.0, "scale"),
        ];
        let lists = lists.into_iter().map(|(list, name)| (!list.is_empty(), name));
        lists.chain(others).filter(|(set, _)| *set).map(|(_, name)| name)
    }

    fn loss(&self) -> LossSpec {
        LossSpec {
            reduction: self.reduction.unwrap_or(LossReduction::Mean),
            // No class has this index.
            ignore_index: self.ignore_index.unwrap_or(i64::MIN),
            smoothing: self.label_smoothing,
        }
    }

    /// The slice that `start`, `stop` and `step` describe, one entry per axis; axes without an entry are whole.
    fn slices(&self) -> Vec<Index> {
        let count = self.start.len().max(self.stop.len()).max(self.step.len());
        let at = |list: &[i64], i: usize| list.get(i).copied().filter(|i| *i != OMIT);
        (0..count)
            .map(|i| Index::Range { start: at(self.start, i), stop: at(self.stop, i), step: at(self.step, i) })
            .collect()
    }

    /// The parameters of a window. The default stride is `stride`; the other defaults have no effect.
    fn window<'a>(&'a self, stride: &'a [i64]) -> WindowParameters<'a> {
        fn or<'a>(list: &'a [i64], default: &'a [i64]) -> &'a [i64] {
            if list.is_empty() { default } else { list }
        }
        WindowParameters {
            stride: or(self.stride, stride),
            low: or(self.padding, &[0]),
            high: or(self.padding_end, or(self.padding, &[0])),
            dilation: or(self.dilation, &[1]),
            groups: if self.groups == 0 { 1 } else { self.groups },
        }
    }
}

const WINDOWS: &[&str] = &["stride", "padding", "padding_end", "dilation"];

/// The names of the attributes that an op reads.
pub(crate) fn reads(op: Op) -> Vec<&'static str> {
    let windows = |more: &[&'static str]| WINDOWS.iter().chain(more).copied().collect();
    match (op.row().class, op) {
        (Class::Reduction | Class::ArgReduction, _) => vec!["axes", "keepdim"],
        (_, Op::Cast | Op::Reinterpret | Op::Bitcast) => vec!["dtype"],
        (_, Op::Reshape | Op::Expand) => vec!["shape"],
        (_, Op::Permute) => vec!["axes"],
        (_, Op::Slice | Op::SliceScatter) => vec!["start", "stop", "step"],
        (Class::Concatenation | Class::Gather | Class::Scatter | Class::Scan | Class::Sort, _) => vec!["axis"],
        (_, Op::Softmax | Op::LogSoftmax) => vec!["axis"],
        (Class::Convolution, Op::ConvolutionInput) => windows(&["groups", "shape"]),
        (Class::Convolution, Op::ConvolutionWeight) => windows(&["groups", "kernel"]),
        (Class::Convolution, _) => windows(&["groups"]),
        (Class::Pooling, Op::SumPoolInput) => windows(&["kernel", "shape"]),
        (Class::Pooling, _) => windows(&["kernel"]),
        (Class::Creation | Class::Random, _) => vec!["shape", "dtype"],
        (_, Op::CrossEntropy | Op::CrossEntropyBackward) => vec!["reduction", "ignore_index", "label_smoothing"],
        (_, Op::NllLoss | Op::NllLossBackward) => vec!["reduction", "ignore_index"],
        (_, Op::Attention | Op::AttentionBackward | Op::AttentionGradients) => vec!["causal", "scale"],
        _ => Vec::new(),
    }
}

/// The operands, all of which must be tensors.
fn tensors(op: Op, operands: &[Arg]) -> Result<Vec<Val>> {
    let tensor = |(i, arg): (usize, &Arg)| match arg {
        Arg::Val(v) => Ok(*v),
        Arg::Scalar(_) => Err(OpError::type_(format!("{}: operand {i} must be a tensor", op.name()))),
    };
    operands.iter().enumerate().map(tensor).collect()
}

fn numbers(op: Op, operands: &[Arg]) -> Result<Vec<Scalar>> {
    let number = |(i, arg): (usize, &Arg)| match arg {
        Arg::Scalar(s) => Ok(*s),
        Arg::Val(_) => Err(OpError::type_(format!("{}: operand {i} must be a number", op.name()))),
    };
    operands.iter().enumerate().map(number).collect()
}

/// The shape of a tensor that is made of nothing. One that is impossible is an invalid value.
pub(crate) fn created_shape(sizes: &[i64]) -> Result<Shape> {
    build::shape_of(sizes).map_err(|error| OpError::value(error.message))
}

/// Whether an op is a class loss, whose last operand, the weights, is optional.
fn is_class_loss(op: Op) -> bool {
    matches!(op, Op::CrossEntropy | Op::NllLoss)
}

/// Checks the number of operands of an op.
///
/// # Errors
/// Fewer or more operands than the op takes.
pub(crate) fn check_count(op: Op, count: usize) -> Result<()> {
    let row = op.row();
    let (least, most) = match op {
        Op::Cat => (1, usize::MAX),
        _ if is_class_loss(op) => (2, 3),
        // The number of indices is an operand, and the other operands of a sort are tensors.
        _ if row.class == Class::Sort => (1, 1),
        _ => (row.operands as usize, (row.operands + row.optional) as usize),
    };
    if count < least || count > most {
        return Err(OpError::type_(format!("{}: takes {least} operands, but {count} were given", row.name)));
    }
    Ok(())
}

/// Applies `op` to `operands`, with PyTorch's promotion, broadcasting and negative axes.
///
/// # Errors
/// Operands or attributes that the op does not take, and errors of its builder.
pub(crate) fn call(g: G<'_>, op: Op, operands: &[Arg], attributes: &CallAttributes<'_>) -> Result<Val> {
    let row = op.row();
    let reads = reads(op);
    if let Some(name) = attributes.names_set().find(|name| !reads.contains(name)) {
        return Err(OpError::type_(format!("{}: takes no attribute {name}", row.name)));
    }
    check_count(op, operands.len())?;
    match row.class {
        Class::Elementwise => build::elementwise(g, op, operands),
        Class::Select => match operands {
            [Arg::Val(condition), yes, no] => build::where_(g, *condition, *yes, *no),
            _ => Err(OpError::type_(format!("{}: the condition must be a tensor", row.name))),
        },
        Class::Creation | Class::Random => create(g, op, &numbers(op, operands)?, attributes),
        Class::SliceScatter => match operands {
            [Arg::Val(base), source] => build::set_index(g, *base, &attributes.slices(), *source),
            _ => Err(OpError::type_(format!("{}: operand 0 must be a tensor", row.name))),
        },
        Class::RowWise if !is_class_loss(op) && !matches!(op, Op::Softmax | Op::LogSoftmax | Op::Attention) => {
            let attrs = row_wise_attrs(g, op, operands, attributes);
            g.emit(op, operands, attrs)
        }
        _ => call_on_tensors(g, op, &tensors(op, operands)?, attributes),
    }
}

/// Applies an op whose operands are all tensors.
fn call_on_tensors(g: G<'_>, op: Op, v: &[Val], attributes: &CallAttributes<'_>) -> Result<Val> {
    let axes = Some(attributes.axes).filter(|axes| !axes.is_empty());
    match (op.row().class, op) {
        (Class::Cast, _) => match attributes.dtype {
            Some(dtype) => build::cast(g, v[0], dtype),
            None => Err(OpError::type_("cast: needs the attribute dtype")),
        },
        (Class::Reduction, _) => build::reduce(g, op, v[0], axes, attributes.keepdim),
        (Class::ArgReduction, _) => match attributes.axes {
            [] => build::arg_reduce(g, op, v[0], None, attributes.keepdim),
            [axis] => build::arg_reduce(g, op, v[0], Some(*axis), attributes.keepdim),
            _ => Err(OpError::value(format!("{}: reduces one axis, or all", op.name()))),
        },
        (_, Op::Reinterpret) => match attributes.dtype {
            Some(dtype) => build::reinterpret(g, v[0], dtype),
            None => Err(OpError::type_("reinterpret: needs the attribute dtype")),
        },
        (_, Op::Bitcast) => match attributes.dtype {
            Some(dtype) => build::bitcast(g, v[0], dtype),
            None => Err(OpError::type_("bitcast: needs the attribute dtype")),
        },
        (_, Op::Reshape) => build::reshape(g, v[0], attributes.shape),
        (_, Op::Expand) => build::expand(g, v[0], attributes.shape),
        (_, Op::Permute) => build::permute(g, v[0], attributes.axes),
        (_, Op::Slice) => build::index(g, v[0], &attributes.slices()),
        (_, Op::Cat) => build::cat(g, v, attributes.axis),
        (_, Op::Matmul) => build::matmul(g, v[0], v[1]),
        (_, Op::Affine) => build::affine(g, v[0], v[1], v[2]),
        (_, Op::MatmulWide) => g.emit(op, &[v[0].into(), v[1].into()], Attrs::None),
        (Class::Convolution | Class::Pooling, _) => windows(g, op, v, attributes),
        (Class::Gather | Class::Scatter | Class::Scan | Class::Sort, _) => build::along(g, op, attributes.axis, v),
        (_, Op::Softmax | Op::LogSoftmax) => row_wise::softmax(g, op, v[0], attributes.axis),
        (_, Op::CrossEntropy | Op::NllLoss) => {
            row_wise::class_loss(g, op, v[0], v[1], v.get(2).copied(), attributes.loss())
        }
        (_, Op::Attention) => {
            let scale = Some(attributes.scale).filter(|scale| *scale != 0.0);
            row_wise::attention(g, [v[0], v[1], v[2]], v.get(3).copied(), attributes.causal, scale)
        }
        _ => {
            let operands: Vec<Arg> = v.iter().map(|v| Arg::Val(*v)).collect();
            g.emit(op, &operands, Attrs::None)
        }
    }
}

fn create(g: G<'_>, op: Op, numbers: &[Scalar], attributes: &CallAttributes<'_>) -> Result<Val> {
    let shape = created_shape(attributes.shape)?;
    let operands: Vec<Arg> = numbers.iter().map(|number| Arg::Scalar(*number)).collect();
    // The default dtype is that of the number of the highest category.
    let natural = numbers.iter().copied().max_by_key(|number| number.category()).map(Scalar::natural_dtype);
    match op {
        Op::Rand | Op::Randn | Op::Randint => {
            let dtype = attributes.dtype.or(natural).unwrap_or_else(DType::default_float);
            build::random(g, op, &operands, shape, dtype)
        }
        _ => {
            let dtype = attributes.dtype.or(natural).unwrap_or_else(DType::default_float);
            g.emit(op, &operands, Attrs::Create { shape, dtype })
        }
    }
}

/// The spatial sizes: those of all axes after the batch and the channels.
fn spatial_sizes(g: G<'_>, v: Val) -> Vec<usize> {
    g.meta(v).shape.dims().iter().skip(2).copied().collect()
}

fn checked_sizes(op: Op, name: &str, list: &[i64]) -> Result<Vec<usize>> {
    let wrong = |_| OpError::value(format!("{}: {name} {list:?} has a negative size", op.name()));
    list.iter().map(|size| usize::try_from(*size).map_err(wrong)).collect()
}

fn windows(g: G<'_>, op: Op, v: &[Val], attributes: &CallAttributes<'_>) -> Result<Val> {
    let convolution = attributes.window(&[1]);
    // By default the windows of a pool do not overlap.
    let pool = attributes.window(attributes.kernel);
    let kernel = || checked_sizes(op, "kernel", attributes.kernel);
    if op.row().class == Class::Pooling && attributes.kernel.is_empty() {
        return Err(OpError::type_(format!("{}: needs the attribute kernel", op.name())));
    }
    let spec: WindowSpec = match op {
        Op::Convolution => return window::convolution(g, v[0], v[1], v.get(2).copied(), &convolution),
        Op::ConvolutionInput => return window::transposed_convolution(g, v[0], v[1], attributes.shape, &convolution),
        Op::ConvolutionWeight => convolution.spec(&spatial_sizes(g, v[1]), &kernel()?)?,
        Op::MaxPoolInput => pool.spec(&spatial_sizes(g, v[1]), &kernel()?)?,
        Op::SumPoolInput => pool.spec(&checked_sizes(op, "shape", attributes.shape)?, &kernel()?)?,
        _ => return window::pool(g, op, v[0], attributes.kernel, &pool),
    };
    let operands: Vec<Arg> = v.iter().map(|v| Arg::Val(*v)).collect();
    g.emit(op, &operands, Attrs::Window(Box::new(spec)))
}

/// The attributes of a row-wise op that is emitted without a builder.
fn row_wise_attrs(g: G<'_>, op: Op, operands: &[Arg], attributes: &CallAttributes<'_>) -> Attrs {
    match op {
        Op::CrossEntropyBackward | Op::NllLossBackward => Attrs::Loss(attributes.loss()),
        Op::AttentionBackward | Op::AttentionGradients => {
            let features = match operands.get(1) {
                Some(Arg::Val(query)) => g.meta(*query).shape.dims().last().copied().unwrap_or(1),
                _ => 1,
            };
            let scale = if attributes.scale == 0.0 { 1.0 / (features as f64).sqrt() } else { attributes.scale };
            Attrs::Attention { causal: attributes.causal, scale }
        }
        _ => Attrs::None,
    }
}
