//! Element types and PyTorch's promotion between them.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

/// The type of a tensor's elements. The discriminant is the code on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DType {
    /// One byte, 0 or 1.
    Bool = 0,
    /// Unsigned 8 bit.
    U8 = 1,
    /// Signed 8 bit.
    I8 = 2,
    /// Signed 16 bit.
    I16 = 3,
    /// Signed 32 bit.
    I32 = 4,
    /// Signed 64 bit.
    I64 = 5,
    /// IEEE 754 half precision.
    F16 = 6,
    /// The upper half of an f32.
    BF16 = 7,
    /// IEEE 754 single precision, the default.
    F32 = 8,
    /// IEEE 754 double precision.
    F64 = 9,
}

use DType::*;

static DEFAULT_FLOAT: AtomicU8 = AtomicU8::new(F32 as u8);

impl DType {
    /// Every dtype, in wire order.
    pub const ALL: [DType; 10] = [Bool, U8, I8, I16, I32, I64, F16, BF16, F32, F64];
    /// The dtype of a Python float where no tensor operand decides; f32 until [`DType::set_default_float`].
    pub fn default_float() -> DType {
        Self::from_code(DEFAULT_FLOAT.load(Ordering::Relaxed)).unwrap_or(F32)
    }
    /// Sets the default float of this process. The daemon does not depend on it: its operands have dtypes.
    pub fn set_default_float(dtype: DType) {
        DEFAULT_FLOAT.store(dtype as u8, Ordering::Relaxed);
    }

    /// The dtype of a wire code.
    pub fn from_code(code: u8) -> Option<DType> {
        Self::ALL.get(code as usize).copied()
    }
    /// Bytes per element.
    pub const fn size(self) -> usize {
        match self {
            Bool | U8 | I8 => 1,
            I16 | F16 | BF16 => 2,
            I32 | F32 => 4,
            I64 | F64 => 8,
        }
    }
    /// Whether this is one of the four floating dtypes.
    pub const fn is_float(self) -> bool {
        matches!(self, F16 | BF16 | F32 | F64)
    }
    /// Whether this is an integer dtype; bool is not.
    pub const fn is_int(self) -> bool {
        matches!(self, U8 | I8 | I16 | I32 | I64)
    }
    /// PyTorch's name, as in `torch.float32`.
    pub const fn name(self) -> &'static str {
        match self {
            Bool => "bool",
            U8 => "uint8",
            I8 => "int8",
            I16 => "int16",
            I32 => "int32",
            I64 => "int64",
            F16 => "float16",
            BF16 => "bfloat16",
            F32 => "float32",
            F64 => "float64",
        }
    }
    /// PyTorch's name in some error messages, as in `Float`.
    pub const fn scalar_type_name(self) -> &'static str {
        match self {
            Bool => "Bool",
            U8 => "Byte",
            I8 => "Char",
            I16 => "Short",
            I32 => "Int",
            I64 => "Long",
            F16 => "Half",
            BF16 => "BFloat16",
            F32 => "Float",
            F64 => "Double",
        }
    }
    /// The dtype called `name`, PyTorch's aliases (`float`, `long`, `half`, …) included.
    pub fn from_name(name: &str) -> Option<DType> {
        Some(match name {
            "bool" => Bool,
            "uint8" | "u8" => U8,
            "int8" | "i8" => I8,
            "int16" | "short" | "i16" => I16,
            "int32" | "int" | "i32" => I32,
            "int64" | "long" | "i64" => I64,
            "float16" | "half" | "f16" => F16,
            "bfloat16" | "bf16" => BF16,
            "float32" | "float" | "f32" => F32,
            "float64" | "double" | "f64" => F64,
            _ => return None,
        })
    }
    /// 0 for bool, 1 for integers, 2 for floats: PyTorch's categories in order of precedence.
    pub const fn category(self) -> u8 {
        match self {
            Bool => 0,
            U8 | I8 | I16 | I32 | I64 => 1,
            _ => 2,
        }
    }
    /// The largest finite number of a floating-point dtype.
    pub fn largest_float(self) -> f64 {
        match self {
            F16 => 65504.0,
            BF16 => 255.0 * 2f64.powi(120),
            F32 => f64::from(f32::MAX),
            _ => f64::MAX,
        }
    }
    /// The least and the largest number of an integer dtype; 0 and 1 for bool.
    pub fn int_range(self) -> (i64, i64) {
        match self {
            Bool => (0, 1),
            U8 => (0, 255),
            _ => {
                let low = i64::MIN >> (64 - 8 * self.size().min(8));
                (low, !low)
            }
        }
    }
    /// Whether it is one of the two 16-bit floats.
    pub fn is_half(self) -> bool {
        matches!(self, F16 | BF16)
    }
    /// The smallest dtype both convert to, as `torch.promote_types`.
    pub fn promote(self, other: DType) -> DType {
        if self == other {
            return self;
        }
        let (low, high) = if self < other { (self, other) } else { (other, self) };
        match (low, high) {
            // No 8-bit dtype holds both.
            (U8, I8) => I16,
            // Neither half precision holds the other.
            (F16, BF16) => F32,
            _ => high,
        }
    }
    /// The dtype of an operand in a float-valued op: integers become the default float, floats stay.
    pub fn to_float(self) -> DType {
        if self.is_float() { self } else { Self::default_float() }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of dtypes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DTypeSet(u16);

impl DTypeSet {
    /// All ten dtypes.
    pub const ALL: DTypeSet = DTypeSet(0x3ff);
    /// The four floating dtypes.
    pub const FLOAT: DTypeSet = DTypeSet(0x3c0);
    /// The floating dtypes that kernels compute in directly: f32 and f64.
    pub const WHOLE_FLOAT: DTypeSet = DTypeSet(0x300);
    /// The five integer dtypes.
    pub const INT: DTypeSet = DTypeSet(0x03e);
    /// Bool alone.
    pub const BOOL: DTypeSet = DTypeSet(1);
    /// Integers and bool.
    pub const INT_BOOL: DTypeSet = DTypeSet(0x03f);
    /// Everything but bool.
    pub const NUMERIC: DTypeSet = DTypeSet(0x3fe);
    /// Whether `dtype` is in the set.
    pub const fn contains(self, dtype: DType) -> bool {
        self.0 >> dtype as u8 & 1 == 1
    }
    /// Whether any member is in `other` too.
    pub const fn intersects(self, other: DTypeSet) -> bool {
        self.0 & other.0 != 0
    }
    /// The members, in wire order.
    pub fn iter(self) -> impl Iterator<Item = DType> {
        DType::ALL.into_iter().filter(move |d| self.contains(*d))
    }
}

/// An operand of type promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promotable {
    /// A tensor with at least one dimension.
    Dimensioned(DType),
    /// A tensor of rank 0: it decides only if its category is higher.
    ZeroDim(DType),
    /// A Python number, which has a category (0 bool, 1 int, 2 float) but no width.
    Number(u8),
}

/// The common dtype of operands, by PyTorch's rule (`torch.result_type`): dimensioned tensors decide; rank-0 tensors,
/// then Python numbers, only raise the category.
pub fn result_type(operands: impl IntoIterator<Item = Promotable>) -> DType {
    let (mut dim, mut zero, mut number): (Option<DType>, Option<DType>, Option<DType>) = (None, None, None);
    let join = |a: Option<DType>, b: DType| Some(a.map_or(b, |a| a.promote(b)));
    for operand in operands {
        match operand {
            Promotable::Dimensioned(d) => dim = join(dim, d),
            Promotable::ZeroDim(d) => zero = join(zero, d),
            Promotable::Number(0) => number = join(number, Bool),
            Promotable::Number(1) => number = join(number, I64),
            Promotable::Number(_) => number = join(number, DType::default_float()),
        }
    }
    let raise = |high: Option<DType>, low: Option<DType>| match (high, low) {
        (Some(h), Some(l)) if l.category() > h.category() => Some(l),
        (Some(h), _) => Some(h),
        (None, l) => l,
    };
    raise(raise(dim, zero), number).unwrap_or(DType::default_float())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promotion_is_commutative_associative_where_torch_is_and_idempotent() {
        for a in DType::ALL {
            assert_eq!(a.promote(a), a);
            for b in DType::ALL {
                assert_eq!(a.promote(b), b.promote(a));
                assert!(a.promote(b).category() == a.category().max(b.category()));
            }
        }
        assert_eq!(U8.promote(I8), I16);
        assert_eq!(U8.promote(I16), I16);
        assert_eq!(I64.promote(F16), F16);
        assert_eq!(F16.promote(BF16), F32);
    }

    #[test]
    fn numbers_and_rank_zero_tensors_only_raise_the_category() {
        use Promotable::*;
        assert_eq!(result_type([Dimensioned(I32), Number(1)]), I32);
        assert_eq!(result_type([Dimensioned(I32), Number(2)]), F32);
        assert_eq!(result_type([Dimensioned(F16), Number(2)]), F16);
        assert_eq!(result_type([Dimensioned(F16), ZeroDim(F64)]), F16);
        assert_eq!(result_type([Dimensioned(I8), ZeroDim(F64)]), F64);
        assert_eq!(result_type([ZeroDim(I8), ZeroDim(I32)]), I32);
        assert_eq!(result_type([ZeroDim(I8), Number(1)]), I8);
        assert_eq!(result_type([Dimensioned(Bool), Number(1)]), I64);
    }
}
