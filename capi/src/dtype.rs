//! Dtypes: the instruction set's numbers plus 1, so that 0 can mean the default.

use crate::status::{CallError, Result, value_or};
use gt_ops::DType;
use std::ffi::{CStr, c_char};

/// The type of a tensor's elements: one of the constants GT_BOOL to GT_COMPLEX128.
pub type gt_dtype = i32;

/// The dtype of a constant; none for 0.
pub(crate) fn optional(dtype: gt_dtype) -> Result<Option<DType>> {
    if dtype == 0 {
        return Ok(None);
    }
    let found = usize::try_from(dtype.wrapping_sub(1)).ok().and_then(|code| DType::ALL.get(code).copied());
    found.map(Some).ok_or_else(|| CallError::argument(format!("{dtype} is no dtype")))
}

/// The dtype of a constant, which must not be 0.
pub(crate) fn required(dtype: gt_dtype) -> Result<DType> {
    optional(dtype)?.ok_or_else(|| CallError::argument("a dtype is needed, GT_BOOL to GT_COMPLEX128"))
}

/// The constant for `dtype`.
pub(crate) fn constant(dtype: DType) -> gt_dtype {
    dtype as gt_dtype + 1
}

fn name(dtype: DType) -> &'static CStr {
    match dtype {
        DType::Bool => c"bool",
        DType::U8 => c"uint8",
        DType::I8 => c"int8",
        DType::I16 => c"int16",
        DType::I32 => c"int32",
        DType::I64 => c"int64",
        DType::F16 => c"float16",
        DType::BF16 => c"bfloat16",
        DType::F32 => c"float32",
        DType::F64 => c"float64",
        DType::U16 => c"uint16",
        DType::U32 => c"uint32",
        DType::U64 => c"uint64",
        DType::C64 => c"complex64",
        DType::C128 => c"complex128",
    }
}

/// The bytes of an element; 0 for an unknown dtype.
#[unsafe(no_mangle)]
pub extern "C" fn gt_dtype_size(dtype: gt_dtype) -> usize {
    value_or(0, || required(dtype).map(DType::size))
}

/// The name of a dtype, for example "float32"; NULL for an unknown dtype. The text is static.
#[unsafe(no_mangle)]
pub extern "C" fn gt_dtype_name(dtype: gt_dtype) -> *const c_char {
    value_or(std::ptr::null(), || required(dtype).map(|dtype| name(dtype).as_ptr()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_has_a_constant_and_its_name() {
        for dtype in DType::ALL {
            assert!(required(constant(dtype)).is_ok_and(|found| found == dtype));
            assert_eq!(name(dtype).to_str(), Ok(dtype.name()));
        }
        assert!(required(0).is_err() && optional(0).is_ok_and(|none| none.is_none()));
        for wrong in [-1, 16, i32::MIN, i32::MAX] {
            assert!(optional(wrong).is_err());
        }
    }
}
