//! Shapes of up to [`RANK_MAX`] dimensions, held inline, and NumPy broadcasting between them.

use crate::dtype::DType;
use crate::error::{OpError, Result};
use std::fmt;

/// Maximum number of dimensions of a tensor.
pub const RANK_MAX: usize = 8;
/// Maximum number of elements of a tensor: byte sizes stay far from overflow.
pub const ELEMENTS_MAX: usize = 1 << 48;

/// The parts of a complex number, along the last axis of its storage.
const PARTS: usize = 2;

/// The sizes of a tensor's dimensions, outermost first.
#[derive(Clone, Copy, Eq)]
pub struct Shape {
    // Dimensions past `rank` are 0, so that `eq` can compare the whole arrays.
    dims: [usize; RANK_MAX],
    rank: u8,
}

impl PartialEq for Shape {
    /// Every small op compares two shapes: without branches, a comparison is a few machine instructions and no call.
    #[inline(always)]
    fn eq(&self, other: &Shape) -> bool {
        let differing = self.dims.iter().zip(&other.dims).fold(0, |bits, (a, b)| bits | (a ^ b));
        differing == 0 && self.rank == other.rank
    }
}

impl std::hash::Hash for Shape {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.dims().hash(state);
    }
}

impl Shape {
    /// The shape of a scalar: no dimensions, one element.
    pub const SCALAR: Shape = Shape { dims: [0; RANK_MAX], rank: 0 };

    /// The shape with these sizes.
    ///
    /// # Errors
    /// More than [`RANK_MAX`] dimensions, or more than [`ELEMENTS_MAX`] elements.
    pub fn new(dims: &[usize]) -> Result<Shape> {
        if dims.len() > RANK_MAX {
            return Err(OpError::value(format!(
                "a tensor has at most {RANK_MAX} dimensions, but {} were asked for",
                dims.len()
            )));
        }
        let mut shape = Shape { dims: [0; RANK_MAX], rank: dims.len() as u8 };
        shape.dims[..dims.len()].copy_from_slice(dims);
        // The product of the nonzero sizes is bounded too, since strides are products of them.
        let mut elements = 1usize;
        for &d in dims.iter().filter(|d| **d > 0) {
            elements = elements.checked_mul(d).filter(|n| *n <= ELEMENTS_MAX).ok_or_else(|| {
                OpError::runtime(format!(
                    "a tensor has at most {ELEMENTS_MAX} elements, but shape {shape} was asked for"
                ))
            })?;
        }
        Ok(shape)
    }
    /// The number of dimensions.
    #[inline]
    pub fn rank(&self) -> usize {
        self.rank as usize
    }
    /// The sizes, outermost first.
    #[inline]
    pub fn dims(&self) -> &[usize] {
        &self.dims[..self.rank as usize]
    }
    /// The number of elements; 1 for a scalar.
    #[inline]
    pub fn numel(&self) -> usize {
        self.dims().iter().product()
    }
    /// The number of elements of one matrix: the product of the last two sizes.
    pub fn matrix_numel(&self) -> usize {
        self.dims().iter().rev().take(2).fold(1, |numel, size| numel.saturating_mul(*size))
    }
    /// The same shape with axis `axis` of size `size`.
    pub fn with_dim(mut self, axis: usize, size: usize) -> Shape {
        debug_assert!(axis < self.rank());
        self.dims[axis] = size;
        self
    }
    /// The same shape with size 1 of the axes whose bits are set in `mask`.
    pub fn with_ones(mut self, mask: u8) -> Shape {
        let rank = self.rank();
        for (axis, size) in self.dims[..rank].iter_mut().enumerate() {
            if mask >> axis & 1 == 1 {
                *size = 1;
            }
        }
        self
    }
    /// The shape in which a device has the elements of a tensor of this shape: for a complex dtype, the real and the
    /// imaginary part are a last axis.
    ///
    /// # Errors
    /// [`RANK_MAX`] dimensions of complex numbers.
    pub fn stored(&self, dtype: DType) -> Result<Shape> {
        if !dtype.is_complex() {
            return Ok(*self);
        }
        if self.rank() == RANK_MAX {
            return Err(OpError::value(format!(
                "a tensor of {dtype} has at most {} dimensions, but {RANK_MAX} were asked for",
                RANK_MAX - 1
            )));
        }
        let mut dims = [PARTS; RANK_MAX];
        dims[..self.rank()].copy_from_slice(self.dims());
        Shape::new(&dims[..=self.rank()])
    }
    /// Strides, in elements, of a contiguous row-major tensor; entries past the rank are 0.
    pub fn contiguous_strides(&self) -> [isize; RANK_MAX] {
        let mut strides = [0; RANK_MAX];
        let mut step = 1isize;
        for axis in (0..self.rank()).rev() {
            strides[axis] = step;
            step *= self.dims[axis].max(1) as isize;
        }
        strides
    }
    /// The shape two operands broadcast to, by NumPy's rule: align at the right; sizes agree or one of them is 1.
    ///
    /// # Errors
    /// PyTorch's message, which names the sizes and the dimension.
    #[inline]
    pub fn broadcast(&self, other: &Shape) -> Result<Shape> {
        if self == other {
            return Ok(*self);
        }
        let rank = self.rank().max(other.rank());
        let mut out = Shape { dims: [0; RANK_MAX], rank: rank as u8 };
        for from_right in 1..=rank {
            let a = if from_right <= self.rank() { self.dims[self.rank() - from_right] } else { 1 };
            let b = if from_right <= other.rank() { other.dims[other.rank() - from_right] } else { 1 };
            out.dims[rank - from_right] = match (a, b) {
                (a, b) if a == b => a,
                (1, b) => b,
                (a, 1) => a,
                (a, b) => {
                    return Err(OpError::runtime(format!(
                        "The size of tensor a ({a}) must match the size of tensor b ({b}) at non-singleton dimension {}",
                        rank - from_right
                    )));
                }
            };
        }
        // The broadcast shape can have far more elements than either operand.
        Shape::new(out.dims())
    }
    /// An axis counted from either end, as a position.
    ///
    /// # Errors
    /// `IndexError` in PyTorch's words when it is outside `-rank..rank`.
    pub fn axis(&self, axis: i64) -> Result<usize> {
        normalize_axis(axis, self.rank())
    }
}

/// `axis` in `-rank..rank` as a position; a scalar counts as having one axis, as in PyTorch.
///
/// # Errors
/// `IndexError` in PyTorch's words.
pub fn normalize_axis(axis: i64, rank: usize) -> Result<usize> {
    let n = rank.max(1) as i64;
    if axis < -n || axis >= n {
        return Err(OpError::index(format!(
            "Dimension out of range (expected to be in range of [{}, {}], but got {axis})",
            -n,
            n - 1
        )));
    }
    Ok(if axis < 0 { axis + n } else { axis } as usize)
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.dims())
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The metadata of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The sizes of its dimensions.
    pub shape: Shape,
    /// The type of its elements.
    pub dtype: DType,
}

impl Meta {
    /// The metadata of a tensor of `shape` and `dtype`.
    pub fn new(shape: Shape, dtype: DType) -> Meta {
        Meta { shape, dtype }
    }
    /// The bytes of its data, contiguous.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.shape.numel() * self.dtype.size()
    }
    /// The tensor that a device has for this one: for a composed dtype, one of its storage, with as many bytes.
    ///
    /// # Errors
    /// A complex tensor of [`RANK_MAX`] dimensions: its storage has one more.
    #[inline]
    pub fn stored(&self) -> Result<Meta> {
        match self.dtype.is_composed() {
            false => Ok(*self),
            true => Ok(Meta::new(self.shape.stored(self.dtype)?, self.dtype.storage())),
        }
    }
    /// The result of reading the bits of the elements as those of `dtype`: the last axis has as many bytes as before.
    ///
    /// # Errors
    /// Composed dtypes, whose storage has the bits; bool, most of whose bits mean nothing; a last axis whose bytes are
    /// no whole number of elements, or none where the sizes differ.
    pub fn bits_as(&self, dtype: DType) -> Result<Meta> {
        if self.dtype.is_composed() || dtype.is_composed() || dtype == DType::Bool {
            return Err(OpError::runtime(format!("bitcast: the bits of {} are none of {dtype}", self.dtype)));
        }
        self.resized_as(dtype)
    }
    /// The shape of a tensor whose bytes are read as those of `dtype`: the last axis has as many bytes as before.
    ///
    /// # Errors
    /// PyTorch's, for a last axis whose bytes are no whole number of elements, or none where the sizes differ.
    pub fn resized_as(&self, dtype: DType) -> Result<Meta> {
        let (old, new) = (self.dtype.size(), dtype.size());
        if old == new {
            return Ok(Meta::new(self.shape, dtype));
        }
        let names = (self.dtype.scalar_type_name(), dtype.scalar_type_name());
        let of_sizes = format!("to view {} as {} (different element sizes)", names.0, names.1);
        let Some(last) = self.shape.dims().last() else {
            return Err(OpError::runtime(format!("self.dim() cannot be 0 {of_sizes}")));
        };
        if last * old % new != 0 {
            let ratio = new / old;
            return Err(OpError::runtime(format!(
                "self.size(-1) must be divisible by {ratio} {of_sizes}, but got {last}"
            )));
        }
        let mut dims = self.shape.dims().to_vec();
        dims[self.shape.rank() - 1] = last * old / new;
        Ok(Meta::new(Shape::new(&dims)?, dtype))
    }
    /// The result of seeing this tensor as one of `dtype`: one of the two is stored as the other.
    ///
    /// # Errors
    /// Dtypes of which neither is the other's storage; parts of complex numbers that are not a last axis of size 2.
    pub fn reinterpreted(&self, dtype: DType) -> Result<Meta> {
        if self.dtype.is_composed() && self.dtype.storage() == dtype {
            return self.stored();
        }
        if !dtype.is_composed() || dtype.storage() != self.dtype {
            return Err(OpError::runtime(format!("a tensor of {} cannot be seen as one of {dtype}", self.dtype)));
        }
        match (dtype.is_complex(), self.shape.dims()) {
            (false, _) => Ok(Meta::new(self.shape, dtype)),
            (true, [outer @ .., PARTS]) => Ok(Meta::new(Shape::new(outer)?, dtype)),
            (true, _) => Err(OpError::runtime(format!(
                "Tensor must have a last dimension of size {PARTS}, but its shape is {}",
                self.shape
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(dims: &[usize]) -> Shape {
        Shape::new(dims).unwrap()
    }

    #[test]
    fn broadcasting_follows_numpy() {
        assert_eq!(shape(&[3, 1]).broadcast(&shape(&[4])).unwrap(), shape(&[3, 4]));
        assert_eq!(shape(&[]).broadcast(&shape(&[2, 0])).unwrap(), shape(&[2, 0]));
        assert_eq!(shape(&[1]).broadcast(&shape(&[0])).unwrap(), shape(&[0]));
        let error = shape(&[2, 3]).broadcast(&shape(&[2, 4])).unwrap_err();
        assert_eq!(
            &*error.message,
            "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1"
        );
    }

    #[test]
    fn sizes_are_bounded_even_around_a_zero() {
        assert!(Shape::new(&[1; 9]).is_err());
        assert!(Shape::new(&[1 << 40, 1 << 40]).is_err());
        assert!(Shape::new(&[0, 1 << 40, 1 << 40]).is_err());
        assert!(shape(&[1 << 40, 1]).broadcast(&shape(&[1, 1 << 40])).is_err());
        assert_eq!(shape(&[5, 0, 3]).numel(), 0);
        assert_eq!(shape(&[]).numel(), 1);
    }

    #[test]
    fn complex_tensors_are_stored_as_pairs_and_unsigned_ones_as_their_bits() {
        let stored_dims = |dims: &[usize], dtype| {
            let meta = Meta::new(shape(dims), dtype).stored().unwrap();
            (meta.shape.dims().to_vec(), meta.dtype)
        };
        assert_eq!(stored_dims(&[3], DType::C64), (vec![3, 2], DType::F32));
        assert_eq!(stored_dims(&[], DType::C128), (vec![2], DType::F64));
        assert_eq!(stored_dims(&[3], DType::U16), (vec![3], DType::I16));
        assert_eq!(stored_dims(&[3], DType::F32), (vec![3], DType::F32));
        let error = Meta::new(shape(&[1; RANK_MAX]), DType::C64).stored().unwrap_err();
        assert_eq!(&*error.message, "a tensor of complex64 has at most 7 dimensions, but 8 were asked for");
        for dtype in DType::ALL {
            let meta = Meta::new(shape(&[4, 3]), dtype);
            assert_eq!(meta.stored().unwrap().bytes(), meta.bytes(), "{dtype}");
            assert!(!dtype.storage().is_composed());
        }
    }

    #[test]
    fn a_tensor_is_seen_as_its_storage_and_back() {
        for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_composed()) {
            let meta = Meta::new(shape(&[4, 3]), dtype);
            let seen = meta.reinterpreted(dtype.storage()).unwrap();
            assert_eq!(seen, meta.stored().unwrap());
            assert_eq!(seen.reinterpreted(dtype).unwrap(), meta);
        }
        let pairs = Meta::new(shape(&[2, 3]), DType::F32);
        assert!(pairs.reinterpreted(DType::C64).is_err(), "the last axis has size 3");
        assert!(pairs.reinterpreted(DType::C128).is_err());
        assert!(pairs.reinterpreted(DType::F32).is_err());
    }
}
