//! The dtype and sizes of a result in two words of an event, so that the tape tells shapes without a word more.

use crate::dtype::DType;
use crate::shape::{Meta, RANK_MAX, Shape};
use std::fmt;
use std::str::FromStr;

/// The bits of each size, by the number of dimensions: 112 are left beside the dtype and the rank.
const SIZE_BITS: [u32; RANK_MAX + 1] = [0, 64, 56, 37, 28, 22, 18, 16, 14];
/// The rank of a shape whose sizes do not fit: the number of elements stands in their place.
const ELEMENTS_ALONE: u8 = 15;
/// The bit at which the sizes begin, behind eight bits of dtype and eight of rank.
const SIZES_AT: u32 = 16;

/// The result of an instruction, as its event tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultMeta {
    /// Its sizes and dtype.
    Whole(Meta),
    /// Its number of elements and dtype, where a size is too large for its bits.
    Elements(u64, DType),
}

impl ResultMeta {
    /// The words of the result of this dtype and these sizes; the first is never zero.
    #[inline]
    pub fn words_of(meta: &Meta) -> [u64; 2] {
        let dims = meta.shape.dims();
        let bits = SIZE_BITS[dims.len()];
        let (mut sizes, mut all) = (0u128, 0u64);
        for &size in dims.iter().rev() {
            sizes = sizes << bits | size as u128;
            all |= size as u64;
        }
        let mut rank = dims.len() as u8;
        if bits < u64::BITS && all >> bits != 0 {
            (sizes, rank) = (meta.shape.numel() as u128, ELEMENTS_ALONE);
        }
        packed(sizes, rank, meta.dtype)
    }

    /// Its words.
    pub fn words(&self) -> [u64; 2] {
        match self {
            ResultMeta::Whole(meta) => ResultMeta::words_of(meta),
            ResultMeta::Elements(elements, dtype) => packed(u128::from(*elements), ELEMENTS_ALONE, *dtype),
        }
    }

    /// The result of two words; none if they are zero, or of a newer version.
    pub fn from_words([low, high]: [u64; 2]) -> Option<ResultMeta> {
        let words = u128::from(high) << u64::BITS | u128::from(low);
        let dtype = *DType::ALL.get(usize::from(words as u8).checked_sub(1)?)?;
        let (rank, sizes) = ((words >> 8) as u8, words >> SIZES_AT);
        if rank == ELEMENTS_ALONE {
            return Some(ResultMeta::Elements(sizes as u64, dtype));
        }
        let bits = *SIZE_BITS.get(usize::from(rank))?;
        let size = |axis: u32| (sizes >> (axis * bits)) as u64 & (u64::MAX >> (u64::BITS - bits));
        let dims: Vec<usize> = (0..u32::from(rank)).map(|axis| size(axis) as usize).collect();
        Some(ResultMeta::Whole(Meta::new(Shape::new(&dims).ok()?, dtype)))
    }

    /// The bytes of its elements.
    pub fn bytes(&self) -> u64 {
        match self {
            ResultMeta::Whole(meta) => meta.bytes() as u64,
            ResultMeta::Elements(elements, dtype) => elements.saturating_mul(dtype.size() as u64),
        }
    }
}

#[inline]
fn packed(sizes: u128, rank: u8, dtype: DType) -> [u64; 2] {
    let words = sizes << SIZES_AT | u128::from(rank) << 8 | u128::from(dtype as u8 + 1);
    [words as u64, (words >> u64::BITS) as u64]
}

impl fmt::Display for ResultMeta {
    /// As in `float32[64,784]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResultMeta::Whole(meta) => {
                write!(f, "{}[", meta.dtype)?;
                for (axis, size) in meta.shape.dims().iter().enumerate() {
                    write!(f, "{}{size}", if axis == 0 { "" } else { "," })?;
                }
                f.write_str("]")
            }
            ResultMeta::Elements(elements, dtype) => write!(f, "{dtype}[elements:{elements}]"),
        }
    }
}

impl FromStr for ResultMeta {
    type Err = ();

    fn from_str(text: &str) -> Result<ResultMeta, ()> {
        let (dtype, sizes) = text.strip_suffix(']').and_then(|text| text.split_once('[')).ok_or(())?;
        let dtype = DType::ALL.into_iter().find(|known| known.to_string() == dtype).ok_or(())?;
        if let Some(elements) = sizes.strip_prefix("elements:") {
            return elements.parse().map(|elements| ResultMeta::Elements(elements, dtype)).map_err(|_| ());
        }
        let dims = sizes.split(',').filter(|_| !sizes.is_empty()).map(str::parse);
        let dims: Vec<usize> = dims.collect::<Result<_, _>>().map_err(|_| ())?;
        Shape::new(&dims).map(|shape| ResultMeta::Whole(Meta::new(shape, dtype))).map_err(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(dims: &[usize], dtype: DType) -> ResultMeta {
        let meta = Meta::new(Shape::new(dims).unwrap(), dtype);
        let words = ResultMeta::words_of(&meta);
        assert_ne!(words[0], 0, "{meta:?}");
        let kept = ResultMeta::from_words(words).unwrap();
        assert_eq!(kept.words(), words);
        assert_eq!(kept.bytes(), meta.bytes() as u64);
        assert_eq!(kept.to_string().parse(), Ok(kept));
        kept
    }

    #[test]
    fn sizes_survive_two_words() {
        let shapes: [&[usize]; 9] = [
            &[],
            &[0],
            &[1 << 48],
            &[1 << 28, 1 << 20],
            &[3, 1 << 36, 5],
            &[64, 3, 224, 224],
            &[1, 2, 3, 4, 5],
            &[2, 3, 4, 5, 6, 7],
            &[1, 1, 1, 1, 1, 1, 1, 16_383],
        ];
        for dims in shapes {
            for dtype in DType::ALL {
                assert_eq!(kept(dims, dtype), ResultMeta::Whole(Meta::new(Shape::new(dims).unwrap(), dtype)));
            }
        }
        assert_eq!(kept(&[64, 784], DType::F32).to_string(), "float32[64,784]");
        assert_eq!(kept(&[], DType::Bool).to_string(), "bool[]");
    }

    #[test]
    fn of_sizes_that_do_not_fit_the_number_of_elements_is_kept() {
        let meta = kept(&[1, 1, 1, 1, 1, 1, 2, 16_384], DType::F16);
        assert_eq!(meta, ResultMeta::Elements(32_768, DType::F16));
        assert_eq!(meta.to_string(), "float16[elements:32768]");
        assert_eq!(kept(&[1 << 28, 1, 1, 2], DType::I8), ResultMeta::Elements(1 << 29, DType::I8));
    }

    #[test]
    fn foreign_words_and_texts_are_refused() {
        for words in [[0, 0], [0, 5], [99, 0], [0x0901, 0], [u64::MAX, u64::MAX]] {
            assert_eq!(ResultMeta::from_words(words), None, "{words:x?}");
        }
        for text in ["", "float32", "float32[", "float32[1,]", "float33[1]", "float32[elements:x]", "float32[-1]"] {
            assert_eq!(text.parse::<ResultMeta>(), Err(()), "{text}");
        }
    }
}
