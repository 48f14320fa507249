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
        DType::U16 => "uint16_t",
        DType::U32 => "uint32_t",
        DType::U64 => "uint64_t",
        DType::C64 => "c10::complex<float>",
        DType::C128 => "c10::complex<double>",
    }
}

/// Whether a number is in the range of a dtype, by PyTorch's rule: infinities and NaN are floating-point numbers, every
/// number is true or false, floats are truncated, the negative of an unsigned integer stands for its two's complement,
/// and a complex number without an imaginary part is a real one.
pub fn fits(number: Scalar, dtype: DType) -> bool {
    match (dtype, number) {
        (DType::Bool, _) | (_, Scalar::Bool(_)) => true,
        (dtype, Scalar::Complex(re, im)) => {
            let fits_as_part = |part| fits(Scalar::Float(part), dtype);
            fits_as_part(re) && if dtype.is_complex() { fits_as_part(im) } else { im == 0.0 }
        }
        (dtype, number) if dtype.is_inexact() => {
            let magnitude = number.to_f64().abs();
            !magnitude.is_finite() || magnitude <= dtype.largest_float()
        }
        (dtype, Scalar::Float(f)) => {
            let (low, high) = dtype.int_range();
            low as f64 <= f && f < (high + 1) as f64
        }
        (dtype, integer) => {
            let (low, high) = dtype.int_range();
            (if low == 0 { -high..=high } else { low..=high }).contains(&integer.to_i128())
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
            dtype if dtype.is_inexact() => format!("its largest number is {:?}", dtype.largest_float()),
            dtype => format!("its range is {} to {}", dtype.int_range().0, dtype.int_range().1),
        };
        return Err(OpError::runtime(format!(
            "value cannot be converted to type {} without overflow: it is {number}, and {range}",
            cpp_name(dtype)
        )));
    }
    Ok(match dtype {
        DType::Bool => Scalar::Bool(number.to_bool()),
        dtype if dtype.is_complex() => number.for_dtype(dtype),
        dtype if dtype.is_float() => number.as_real().unwrap_or(number).for_dtype(dtype),
        _ => Scalar::integer(number.to_i128()),
    })
}

/// As [`checked`], but a number beyond a half precision becomes infinite there.
///
/// # Errors
/// A number out of range.
pub fn rounded(number: Scalar, dtype: DType) -> Result<Scalar> {
    if dtype.is_half() && number.category() < 3 { Ok(number.for_dtype(dtype)) } else { checked(number, dtype) }
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
    let integer = number.to_i128();
    if if lower { integer > high } else { integer < low } {
        return Err(OpError::runtime(format!(
            "Clamp {} value {number} is outside the representable range of {}: {low} to {high}",
            if lower { "min" } else { "max" },
            dtype.scalar_type_name()
        )));
    }
    Ok(Scalar::integer(integer.clamp(low, high)))
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
            (Scalar::Int(-65535), DType::U16),
            (Scalar::Unsigned(u64::MAX), DType::U64),
            (Scalar::Float(1.8e19), DType::U64),
            (Scalar::Complex(1.0, 0.0), DType::I8),
            (Scalar::Complex(1.0, -2.0), DType::C64),
            (Scalar::Complex(1e300, f64::INFINITY), DType::C128),
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
            (Scalar::Int(65536), DType::U16),
            (Scalar::Float(2e19), DType::U64),
            (Scalar::Complex(1.0, 2.0), DType::F64),
            (Scalar::Complex(0.0, 1e39), DType::C64),
        ];
        for (number, dtype) in beyond {
            assert!(checked(number, dtype).is_err(), "{number} as {dtype}");
        }
        assert_eq!(checked(Scalar::Float(2f64.powi(63)), DType::U64), Ok(Scalar::Unsigned(1 << 63)));
        assert_eq!(checked(Scalar::Complex(3.0, 0.0), DType::F32), Ok(Scalar::Float(3.0)));
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
