//! How a Python number joins operands of a dtype: converted with a check where PyTorch checks, wrapped where it wraps.

use crate::dtype::DType;
use crate::error::{OpError, Result};
use crate::instruction::Scalar;

/// The name that PyTorch's errors have for a dtype of numbers: C++'s.
const fn cpp_name(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "bool",
        DType::U8 => "uint8_t",
        DType::I8 => "int8_t",
        DType::I16 => "int16_t",
        DType::I32 => "int",
        DType::I64 => "int64_t",
        DType::F16 => "c10::Half",
        DType::BF16 => "c10::BFloat16",
        DType::F32 => "float",
        DType::F64 => "double",
    }
}

/// Whether a number is in the range of a dtype, by PyTorch's rule: infinities and NaN are floating-point numbers, every
/// number is true or false, floats are truncated, and the negative of an unsigned integer stands for its two's
/// complement.
pub fn fits(number: Scalar, dtype: DType) -> bool {
    match (dtype, number) {
        (DType::Bool, _) | (_, Scalar::Bool(_)) => true,
        (dtype, number) if dtype.is_float() => {
            let magnitude = number.to_f64().abs();
            !magnitude.is_finite() || magnitude <= dtype.largest_float()
        }
        (_, Scalar::Unsigned(_)) => false,
        (dtype, Scalar::Int(i)) => {
            let (low, high) = dtype.int_range();
            (if low == 0 { -high } else { low }) <= i && i <= high
        }
        (DType::I64, Scalar::Float(f)) => (-2f64.powi(63)..2f64.powi(63)).contains(&f),
        (dtype, Scalar::Float(f)) => {
            let (low, high) = dtype.int_range();
            low as f64 <= f && f < high as f64 + 1.0
        }
    }
}

/// A number in the category of a dtype, for a tensor that is filled with it: what an operand that is compared or added
/// would wrap to is an error.
///
/// # Errors
/// A number out of the dtype's range.
pub fn checked(number: Scalar, dtype: DType) -> Result<Scalar> {
    if !fits(number, dtype) {
        let range = match dtype {
            dtype if dtype.is_float() => format!("its largest number is {:?}", dtype.largest_float()),
            dtype => format!("its range is {} to {}", dtype.int_range().0, dtype.int_range().1),
        };
        return Err(OpError::runtime(format!(
            "value cannot be converted to type {} without overflow: it is {number}, and {range}",
            cpp_name(dtype)
        )));
    }
    Ok(match dtype {
        DType::Bool => Scalar::Bool(number.to_bool()),
        dtype if dtype.is_float() => number.for_dtype(dtype),
        _ => Scalar::Int(number.to_i64()),
    })
}

/// As [`checked`], but a number beyond a half precision becomes infinite there.
///
/// # Errors
/// A number out of range.
pub fn rounded(number: Scalar, dtype: DType) -> Result<Scalar> {
    if dtype.is_half() { Ok(number.for_dtype(dtype)) } else { checked(number, dtype) }
}

/// A number that fills `count` elements: one that a half precision does not have is an error as in [`checked`], but a
/// single element becomes infinite, as in [`rounded`]. Both are PyTorch's.
///
/// # Errors
/// A number out of range.
pub fn filling(number: Scalar, count: usize, dtype: DType) -> Result<Scalar> {
    if count == 1 { rounded(number, dtype) } else { checked(number, dtype) }
}

/// A bound of `clamp` on elements of `dtype`: one that no element lies beyond is moved into the dtype's range.
///
/// # Errors
/// A bound that every element lies beyond.
pub fn bound(number: Scalar, dtype: DType, lower: bool) -> Result<Scalar> {
    if !dtype.is_int() {
        return checked(number, dtype);
    }
    let (low, high) = dtype.int_range();
    let integer = match number {
        Scalar::Unsigned(_) => i64::MAX,
        number => number.to_i64(),
    };
    let above = integer > high || matches!(number, Scalar::Unsigned(_));
    if if lower { above } else { integer < low } {
        return Err(OpError::runtime(format!(
            "Clamp {} value {number} is outside the representable range of {}: {low} to {high}",
            if lower { "min" } else { "max" },
            dtype.scalar_type_name()
        )));
    }
    Ok(Scalar::Int(integer.clamp(low, high)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_as_in_pytorch() {
        let fitting = [
            (Scalar::Int(255), DType::U8),
            (Scalar::Int(-255), DType::U8),
            (Scalar::Int(-128), DType::I8),
            (Scalar::Int(i64::MIN), DType::I64),
            (Scalar::Float(0.5), DType::U8),
            (Scalar::Float(255.5), DType::U8),
            (Scalar::Float(f64::NAN), DType::F16),
            (Scalar::Float(65504.0), DType::F16),
            (Scalar::Unsigned(u64::MAX), DType::F32),
            (Scalar::Int(300), DType::Bool),
            (Scalar::Float(f64::NAN), DType::Bool),
        ];
        for (number, dtype) in fitting {
            assert!(checked(number, dtype).is_ok(), "{number} as {dtype}");
        }
        let beyond = [
            (Scalar::Int(256), DType::U8),
            (Scalar::Int(-256), DType::U8),
            (Scalar::Int(128), DType::I8),
            (Scalar::Int(1 << 31), DType::I32),
            (Scalar::Unsigned(1 << 63), DType::I64),
            (Scalar::Float(-0.5), DType::U8),
            (Scalar::Float(f64::NAN), DType::I64),
            (Scalar::Float(f64::INFINITY), DType::I16),
            (Scalar::Float(1e20), DType::I64),
            (Scalar::Float(65505.0), DType::F16),
            (Scalar::Int(70000), DType::F16),
            (Scalar::Float(1e39), DType::F32),
        ];
        for (number, dtype) in beyond {
            assert!(checked(number, dtype).is_err(), "{number} as {dtype}");
        }
        assert_eq!(rounded(Scalar::Float(1e6), DType::F16), Ok(Scalar::Float(1e6)));
        assert!(rounded(Scalar::Float(1e39), DType::F32).is_err());
    }

    #[test]
    fn bounds_beyond_all_elements_are_moved_into_range() {
        assert_eq!(bound(Scalar::Int(-1), DType::U8, true), Ok(Scalar::Int(0)));
        assert_eq!(bound(Scalar::Int(300), DType::U8, false), Ok(Scalar::Int(255)));
        assert_eq!(bound(Scalar::Unsigned(1 << 63), DType::I64, false), Ok(Scalar::Int(i64::MAX)));
        assert!(bound(Scalar::Int(300), DType::U8, true).is_err());
        assert!(bound(Scalar::Int(-1), DType::U8, false).is_err());
        assert!(bound(Scalar::Unsigned(1 << 63), DType::I64, true).is_err());
    }
}
