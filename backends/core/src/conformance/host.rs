//! Tensors of the interpreter: numbers in row-major order, wide enough for every dtype.

use gt_ops::{DType, Meta, RANK_MAX, Scalar, Shape};
use half::{bf16, f16};

/// Elements: floats as f64, all others as i64.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// Elements of a floating-point dtype.
    Float(Vec<f64>),
    /// Elements of an integer dtype or bool.
    Int(Vec<i64>),
}

/// A tensor of the interpreter.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// Its shape and dtype.
    pub meta: Meta,
    /// Its elements, each a value of the dtype.
    pub data: Data,
}

/// The nearest value of a floating-point dtype, ties to even. (`half` converts an f64 by no more than 20 bits of its
/// fraction, so it may round wrongly.)
pub fn round(dtype: DType, x: f64) -> f64 {
    let (digits, exponent_least, largest) = match dtype {
        DType::F16 => (11, -14, 65_504.0),
        DType::BF16 => (8, -126, bf16::MAX.to_f64()),
        DType::F32 => return x as f32 as f64,
        _ => return x,
    };
    if !x.is_finite() || x == 0.0 {
        return x;
    }
    let exponent = ((x.abs().to_bits() >> 52) as i32 - 1023).max(exponent_least);
    let unit = 2f64.powi(exponent - digits + 1);
    let rounded = (x / unit).round_ties_even() * unit;
    if rounded.abs() > largest { f64::INFINITY.copysign(x) } else { rounded }
}

/// The value modulo the dtype's range; for bool, whether it is not 0.
pub fn wrap(dtype: DType, x: i64) -> i64 {
    match dtype {
        DType::Bool => (x != 0) as i64,
        DType::U8 => x as u8 as i64,
        DType::I8 => x as i8 as i64,
        DType::I16 => x as i16 as i64,
        DType::I32 => x as i32 as i64,
        _ => x,
    }
}

impl Host {
    /// Floats rounded to the dtype.
    pub fn floats(meta: Meta, data: impl IntoIterator<Item = f64>) -> Host {
        Host { meta, data: Data::Float(data.into_iter().map(|x| round(meta.dtype, x)).collect()) }
    }
    /// Integers wrapped to the dtype.
    pub fn ints(meta: Meta, data: impl IntoIterator<Item = i64>) -> Host {
        Host { meta, data: Data::Int(data.into_iter().map(|x| wrap(meta.dtype, x)).collect()) }
    }
    /// A scalar operand as a tensor of rank 0, converted to `dtype`.
    pub fn scalar(scalar: Scalar, dtype: DType) -> Host {
        let meta = Meta::new(Shape::SCALAR, dtype);
        match dtype {
            DType::Bool => Host::ints(meta, [scalar.to_bool() as i64]),
            d if d.is_float() => Host::floats(meta, [scalar.to_f64()]),
            _ => Host::ints(meta, [scalar.to_i64()]),
        }
    }
    /// The number of elements.
    pub fn len(&self) -> usize {
        self.meta.shape.numel()
    }
    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Element `i` as a float.
    pub fn float(&self, i: usize) -> f64 {
        match &self.data {
            Data::Float(x) => x[i],
            Data::Int(x) => x[i] as f64,
        }
    }
    /// Element `i` as an integer.
    pub fn int(&self, i: usize) -> i64 {
        match &self.data {
            Data::Float(x) => x[i] as i64,
            Data::Int(x) => x[i],
        }
    }
    /// A tensor of `meta` (of the same dtype) whose element `i` is this one's `pick(i)`.
    pub fn picked(&self, meta: Meta, pick: impl Fn(usize) -> usize) -> Host {
        let all = 0..meta.shape.numel();
        let data = match &self.data {
            Data::Float(x) => Data::Float(all.map(|i| x[pick(i)]).collect()),
            Data::Int(x) => Data::Int(all.map(|i| x[pick(i)]).collect()),
        };
        Host { meta, data }
    }
    /// The elements as a backend stores them.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.meta.bytes());
        for i in 0..self.len() {
            match self.meta.dtype {
                DType::Bool | DType::U8 => bytes.push(self.int(i) as u8),
                DType::I8 => bytes.push(self.int(i) as i8 as u8),
                DType::I16 | DType::U16 => bytes.extend((self.int(i) as i16).to_ne_bytes()),
                DType::I32 | DType::U32 => bytes.extend((self.int(i) as i32).to_ne_bytes()),
                DType::I64 | DType::U64 => bytes.extend(self.int(i).to_ne_bytes()),
                DType::F16 => bytes.extend(f16::from_f64(self.float(i)).to_ne_bytes()),
                DType::BF16 => bytes.extend(bf16::from_f64(self.float(i)).to_ne_bytes()),
                DType::F32 | DType::C64 => bytes.extend((self.float(i) as f32).to_ne_bytes()),
                DType::F64 | DType::C128 => bytes.extend(self.float(i).to_ne_bytes()),
            }
        }
        bytes
    }
    /// A tensor whose elements are a backend's bytes. A bool keeps its byte, so that a value other than 0 and 1 is
    /// noticed.
    pub fn from_bytes(meta: Meta, bytes: &[u8]) -> Host {
        fn each<const N: usize, T>(bytes: &[u8], f: impl Fn([u8; N]) -> T) -> Vec<T> {
            bytes.chunks_exact(N).map(|c| f(std::array::from_fn(|i| c[i]))).collect()
        }
        let data = match meta.dtype {
            DType::Bool | DType::U8 => Data::Int(each(bytes, |[b]| b as i64)),
            DType::I8 => Data::Int(each(bytes, |[b]| b as i8 as i64)),
            DType::I16 | DType::U16 => Data::Int(each(bytes, |b| i16::from_ne_bytes(b) as i64)),
            DType::I32 | DType::U32 => Data::Int(each(bytes, |b| i32::from_ne_bytes(b) as i64)),
            DType::I64 | DType::U64 => Data::Int(each(bytes, i64::from_ne_bytes)),
            DType::F16 => Data::Float(each(bytes, |b| f16::from_ne_bytes(b).to_f64())),
            DType::BF16 => Data::Float(each(bytes, |b| bf16::from_ne_bytes(b).to_f64())),
            DType::F32 | DType::C64 => Data::Float(each(bytes, |b| f32::from_ne_bytes(b) as f64)),
            DType::F64 | DType::C128 => Data::Float(each(bytes, f64::from_ne_bytes)),
        };
        Host { meta, data }
    }
}

/// A multi-index: an entry for each axis, then zeros.
pub type MultiIndex = [usize; RANK_MAX];

/// The multi-index of row-major position `at`.
pub fn index_of(shape: &Shape, mut at: usize) -> MultiIndex {
    let mut index = [0; RANK_MAX];
    for (axis, size) in shape.dims().iter().enumerate().rev() {
        index[axis] = at % size;
        at /= size;
    }
    index
}

/// The row-major position of `index`.
pub fn position_of(shape: &Shape, index: &MultiIndex) -> usize {
    let mut at = 0;
    for (axis, size) in shape.dims().iter().enumerate() {
        at = at * size + index[axis];
    }
    at
}

/// The position in `from` that broadcasts to position `at` of `to`.
pub fn broadcast_position(from: &Shape, to: &Shape, at: usize) -> usize {
    if from == to {
        return at;
    }
    let (index, lead) = (index_of(to, at), to.rank() - from.rank());
    let mut at = 0;
    for (axis, size) in from.dims().iter().enumerate() {
        at = at * size + if *size == 1 { 0 } else { index[lead + axis] };
    }
    at
}
