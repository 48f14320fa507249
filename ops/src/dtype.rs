//! Element types and PyTorch's promotion between them.
//!
//! Devices know ten dtypes, [`DType::STORED`]. The others are *composed*: a client stores their elements in one of the
//! ten ([`DType::storage`]) and computes with instructions on these, see [`crate::composed`]. So complex numbers and
//! wide unsigned integers need no kernels, on no device.

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
    /// Unsigned 16 bit, stored as [`DType::I16`].
    U16 = 10,
    /// Unsigned 32 bit, stored as [`DType::I32`].
    U32 = 11,
    /// Unsigned 64 bit, stored as [`DType::I64`].
    U64 = 12,
    /// A complex number of two [`DType::F32`], the real part first.
    C64 = 13,
    /// A complex number of two [`DType::F64`], the real part first.
    C128 = 14,
}

use DType::*;

static DEFAULT_FLOAT: AtomicU8 = AtomicU8::new(F32 as u8);

impl DType {
    /// Every dtype, in the order of the codes.
    pub const ALL: [DType; 15] = [Bool, U8, I8, I16, I32, I64, F16, BF16, F32, F64, U16, U32, U64, C64, C128];
    /// The dtypes that devices store and compute in, in wire order.
    pub const STORED: [DType; 10] = [Bool, U8, I8, I16, I32, I64, F16, BF16, F32, F64];
    /// The dtype of a Python float where no tensor operand decides; f32 until [`DType::set_default_float`].
    pub fn default_float() -> DType {
        Self::from_code(DEFAULT_FLOAT.load(Ordering::Relaxed)).unwrap_or(F32)
    }
    /// Sets the default float of this process. The daemon does not depend on it: its operands have dtypes.
    pub fn set_default_float(dtype: DType) {
        DEFAULT_FLOAT.store(dtype as u8, Ordering::Relaxed);
    }

    /// The default dtype's complex counterpart: the dtype of a Python complex number.
    pub fn default_complex() -> DType {
        Self::default_float().to_complex()
    }

    /// The dtype of a wire code: one of those that devices store.
    pub fn from_code(code: u8) -> Option<DType> {
        Self::STORED.get(code as usize).copied()
    }
    /// The dtype in which a device stores the elements: the signed one of the same size for an unsigned one, that of
    /// the two parts for a complex one, and any other itself.
    #[inline]
    pub const fn storage(self) -> DType {
        match self {
            U16 => I16,
            U32 => I32,
            U64 => I64,
            C64 => F32,
            C128 => F64,
            stored => stored,
        }
    }
    /// Whether devices do not know the dtype: its operations are composed of those on [`DType::storage`].
    #[inline]
    pub const fn is_composed(self) -> bool {
        self as u8 > F64 as u8
    }
    /// Whether it is one of the two complex dtypes.
    #[inline]
    pub const fn is_complex(self) -> bool {
        matches!(self, C64 | C128)
    }
    /// Whether it is floating or complex: the dtypes that gradients flow through.
    #[inline]
    pub const fn is_inexact(self) -> bool {
        self.is_float() || self.is_complex()
    }
    /// Whether it is one of the unsigned dtypes of more than 8 bits.
    pub const fn is_wide_unsigned(self) -> bool {
        matches!(self, U16 | U32 | U64)
    }
    /// The complex dtype whose parts are of this dtype, or hold it.
    pub const fn to_complex(self) -> DType {
        match self {
            F64 | C128 => C128,
            _ => C64,
        }
    }
    /// The dtype of the absolute value: that of the parts of a complex dtype, and any other itself.
    pub const fn to_real(self) -> DType {
        if self.is_complex() { self.storage() } else { self }
    }
    /// Bytes per element.
    pub const fn size(self) -> usize {
        match self {
            Bool | U8 | I8 => 1,
            I16 | F16 | BF16 | U16 => 2,
            I32 | F32 | U32 => 4,
            I64 | F64 | U64 | C64 => 8,
            C128 => 16,
        }
    }
    /// Whether this is one of the four floating dtypes.
    pub const fn is_float(self) -> bool {
        matches!(self, F16 | BF16 | F32 | F64)
    }
    /// Whether this is an integer dtype; bool is not.
    pub const fn is_int(self) -> bool {
        matches!(self, U8 | I8 | I16 | I32 | I64 | U16 | U32 | U64)
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
            U16 => "uint16",
            U32 => "uint32",
            U64 => "uint64",
            C64 => "complex64",
            C128 => "complex128",
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
            U16 => "UInt16",
            U32 => "UInt32",
            U64 => "UInt64",
            C64 => "ComplexFloat",
            C128 => "ComplexDouble",
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
            "uint16" | "u16" => U16,
            "uint32" | "u32" => U32,
            "uint64" | "u64" => U64,
            "complex64" | "cfloat" | "c64" => C64,
            "complex128" | "cdouble" | "c128" => C128,
            _ => return None,
        })
    }
    /// 0 for bool, 1 for integers, 2 for floats, 3 for complex numbers: PyTorch's categories in order of precedence.
    pub const fn category(self) -> u8 {
        match self {
            Bool => 0,
            U8 | I8 | I16 | I32 | I64 | U16 | U32 | U64 => 1,
            F16 | BF16 | F32 | F64 => 2,
            C64 | C128 => 3,
        }
    }
    /// The largest finite number of a floating-point dtype.
    pub fn largest_float(self) -> f64 {
        match self {
            F16 => 65504.0,
            BF16 => 255.0 * 2f64.powi(120),
            F32 | C64 => f64::from(f32::MAX),
            _ => f64::MAX,
        }
    }
    /// The least and the largest number of an integer dtype; 0 and 1 for bool.
    pub fn int_range(self) -> (i128, i128) {
        let bits = 8 * self.size().min(8);
        match self {
            Bool => (0, 1),
            U8 | U16 | U32 | U64 => (0, (1 << bits) - 1),
            _ => (-1 << (bits - 1), (1 << (bits - 1)) - 1),
        }
    }
    /// Whether it is one of the two 16-bit floats.
    pub fn is_half(self) -> bool {
        matches!(self, F16 | BF16)
    }
    /// The smallest dtype both convert to, as `torch.promote_types`. PyTorch has no promotion of the unsigned dtypes
    /// of more than 8 bits; here they follow the Python array API standard, and uint64 with a signed integer gives
    /// float64, as in NumPy.
    pub fn promote(self, other: DType) -> DType {
        if self == other {
            return self;
        }
        let (low, high) = if self.category() < other.category() { (self, other) } else { (other, self) };
        if low.category() != high.category() {
            // The parts of a complex number hold a float64.
            return if high == C64 && low == F64 { C128 } else { high };
        }
        match (low, high) {
            // Neither half precision holds the other.
            (F16, BF16) | (BF16, F16) => F32,
            (low, high) if low.category() != 1 => low.max(high),
            (low, high) => promote_integers(low, high),
        }
    }
    /// The dtype of an operand in a float-valued op: integers become the default float; other numbers stay.
    pub fn to_float(self) -> DType {
        if self.is_inexact() { self } else { Self::default_float() }
    }
}

/// The smallest integer dtype that holds both of two different ones.
fn promote_integers(a: DType, b: DType) -> DType {
    let unsigned = |dtype| matches!(dtype, U8 | U16 | U32 | U64);
    let (larger, smaller) = if a.size() >= b.size() { (a, b) } else { (b, a) };
    if unsigned(a) == unsigned(b) || (!unsigned(larger) && larger.size() > smaller.size()) {
        return larger;
    }
    // An unsigned dtype and a signed one that is not larger need the next larger signed one.
    match larger.size() {
        1 => I16,
        2 => I32,
        4 => I64,
        _ => F64,
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
    /// The ten dtypes that devices store.
    pub const STORED: DTypeSet = DTypeSet(0x3ff);
    /// The four floating dtypes.
    pub const FLOAT: DTypeSet = DTypeSet(0x3c0);
    /// The floating dtypes that kernels compute in directly: f32 and f64.
    pub const WHOLE_FLOAT: DTypeSet = DTypeSet(0x300);
    /// The half precisions.
    pub const HALF: DTypeSet = DTypeSet(0x0c0);
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
    /// A Python number, which has a category (0 bool, 1 int, 2 float, 3 complex) but no width.
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
            Promotable::Number(2) => number = join(number, DType::default_float()),
            Promotable::Number(_) => number = join(number, DType::default_complex()),
        }
    }
    let raise = |high: Option<DType>, low: Option<DType>| match (high, low) {
        // A float keeps its width among complex numbers without one.
        (Some(h), Some(l)) if h.is_float() && l.is_complex() => Some(h.to_complex()),
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
                let category = a.promote(b).category();
                let of_both = a.category().max(b.category());
                // No integer dtype holds both uint64 and the negative integers.
                let exception = [a, b].contains(&U64) && a.promote(b) == F64;
                assert!(category == of_both || exception, "{a} {b}");
            }
        }
        assert_eq!(U8.promote(I8), I16);
        assert_eq!(U8.promote(I16), I16);
        assert_eq!(I64.promote(F16), F16);
        assert_eq!(F16.promote(BF16), F32);
        assert_eq!(U16.promote(U8), U16);
        assert_eq!(U16.promote(I16), I32);
        assert_eq!(U16.promote(I64), I64);
        assert_eq!(U32.promote(I8), I64);
        assert_eq!(U64.promote(U32), U64);
        assert_eq!(U64.promote(F16), F16);
        assert_eq!(C64.promote(F64), C128);
        assert_eq!(C64.promote(BF16), C64);
        assert_eq!(C64.promote(I64), C64);
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
        assert_eq!(result_type([Dimensioned(F64), Number(3)]), C128);
        assert_eq!(result_type([Dimensioned(F32), ZeroDim(C128)]), C64);
        assert_eq!(result_type([Dimensioned(I32), Number(3)]), C64);
        assert_eq!(result_type([Dimensioned(U16), Number(1)]), U16);
    }
}
