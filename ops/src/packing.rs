//! Typed fields in 64-bit words: one declaration gives a layout's encoder, its decoder and its documentation.
//!
//! `layout!` declares a struct whose fields have fixed bits in a sequence of words, such as a slot of the wire. Bit
//! ranges are constants, so that packing compiles to the same shifts and masks as code written by hand.

/// An error: bits that are no value of the field's type. Holds the field's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidField(pub &'static str);

/// The bits of a field: `low..high` of word `word`. A field of several words begins at `word`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BitRange {
    pub word: usize,
    pub low: u32,
    pub high: u32,
}

impl BitRange {
    pub const fn new(word: usize, low: u32, high: u32) -> BitRange {
        assert!(low < high && high <= 64);
        BitRange { word, low, high }
    }
    #[inline(always)]
    fn read(self, words: &[u64]) -> u64 {
        let bits = words[self.word] >> self.low;
        if self.high - self.low == 64 { bits } else { bits & ((1 << (self.high - self.low)) - 1) }
    }
    /// Sets the bits of a field that is still zero.
    #[inline(always)]
    fn write(self, words: &mut [u64], bits: u64) {
        words[self.word] |= bits << self.low;
    }
}

/// A field of a layout, as the documentation of the wire lists it.
#[cfg(test)]
pub(crate) struct FieldDoc {
    pub range: BitRange,
    pub words: usize,
    pub name: &'static str,
    pub meaning: &'static str,
}

/// A layout, as the documentation of the wire lists it.
#[cfg(test)]
pub(crate) struct LayoutDoc {
    pub about: &'static [&'static str],
    pub fields: &'static [FieldDoc],
}

/// Codes, as the documentation of the wire lists them.
#[cfg(test)]
pub(crate) struct CodesDoc {
    pub about: &'static [&'static str],
    pub codes: &'static [(u64, &'static str)],
}

/// A type that fields of a layout can have.
pub(crate) trait PackedField: Sized {
    /// How many words it takes.
    #[cfg(test)]
    const WORDS: usize = 1;
    fn write(self, words: &mut [u64], at: BitRange);
    /// Reads the field called `name`.
    fn read(words: &[u64], at: BitRange, name: &'static str) -> Result<Self, InvalidField>;
}

impl PackedField for u64 {
    #[inline(always)]
    fn write(self, words: &mut [u64], at: BitRange) {
        at.write(words, self);
    }
    #[inline(always)]
    fn read(words: &[u64], at: BitRange, _: &'static str) -> Result<u64, InvalidField> {
        Ok(at.read(words))
    }
}

impl PackedField for i64 {
    #[inline(always)]
    fn write(self, words: &mut [u64], at: BitRange) {
        at.write(words, self as u64);
    }
    #[inline(always)]
    fn read(words: &[u64], at: BitRange, _: &'static str) -> Result<i64, InvalidField> {
        Ok(at.read(words) as i64)
    }
}

impl PackedField for f64 {
    #[inline(always)]
    fn write(self, words: &mut [u64], at: BitRange) {
        at.write(words, self.to_bits());
    }
    #[inline(always)]
    fn read(words: &[u64], at: BitRange, _: &'static str) -> Result<f64, InvalidField> {
        Ok(f64::from_bits(at.read(words)))
    }
}

impl PackedField for bool {
    #[inline(always)]
    fn write(self, words: &mut [u64], at: BitRange) {
        at.write(words, self as u64);
    }
    #[inline(always)]
    fn read(words: &[u64], at: BitRange, _: &'static str) -> Result<bool, InvalidField> {
        Ok(at.read(words) != 0)
    }
}

impl PackedField for i8 {
    #[inline(always)]
    fn write(self, words: &mut [u64], at: BitRange) {
        at.write(words, self as i64 as u64);
    }
    #[inline(always)]
    fn read(words: &[u64], at: BitRange, name: &'static str) -> Result<i8, InvalidField> {
        i8::try_from(at.read(words) as i64).map_err(|_| InvalidField(name))
    }
}

macro_rules! unsigned_fields {
    ($($type:ty)*) => {$(
        impl PackedField for $type {
            #[inline(always)]
            fn write(self, words: &mut [u64], at: BitRange) {
                at.write(words, self as u64);
            }
            #[inline(always)]
            fn read(words: &[u64], at: BitRange, name: &'static str) -> Result<$type, InvalidField> {
                <$type>::try_from(at.read(words)).map_err(|_| InvalidField(name))
            }
        }
    )*};
}
unsigned_fields! { u8 u16 u32 usize }

/// One whole word for each element.
impl<T: PackedField + Copy, const N: usize> PackedField for [T; N] {
    #[cfg(test)]
    const WORDS: usize = N;
    #[inline(always)]
    fn write(self, words: &mut [u64], at: BitRange) {
        for (i, element) in self.into_iter().enumerate() {
            element.write(words, BitRange { word: at.word + i, ..at });
        }
    }
    #[inline(always)]
    fn read(words: &[u64], at: BitRange, name: &'static str) -> Result<[T; N], InvalidField> {
        let mut elements = [T::read(words, at, name)?; N];
        for (i, element) in elements.iter_mut().enumerate() {
            *element = T::read(words, BitRange { word: at.word + i, ..at }, name)?;
        }
        Ok(elements)
    }
}

/// A struct that [`layout`] declares.
pub(crate) trait PackedLayout: Sized {
    /// The bits of the fields, in order.
    const FIELDS: &'static [BitRange];
    /// The layout in the documentation of the wire.
    #[cfg(test)]
    const DOC: LayoutDoc;
    /// Sets the bits of the fields in words that are zero there.
    fn write(self, words: &mut [u64]);
    /// Extracts the fields.
    fn read(words: &[u64]) -> Result<Self, InvalidField>;
}

/// Declares a struct by the bits of its fields.
///
/// `write` sets the bits of the fields in words that are zero there, so that several layouts can share a slot; `read`
/// extracts the fields. A field is a whole word unless its bits are given.
macro_rules! layout {
    (@range $word:literal) => { $crate::packing::BitRange::new($word, 0, 64) };
    (@range $word:literal $low:literal $high:literal) => { $crate::packing::BitRange::new($word, $low, $high) };
    (
        $(#[doc = $about:literal])+
        struct $name:ident {
            $($field:ident: $type:ty, word $word:literal $(bits $low:literal .. $high:literal)?, $meaning:literal;)+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $name {
            $(#[doc = $meaning] pub $field: $type,)+
        }

        impl $crate::packing::PackedLayout for $name {
            const FIELDS: &'static [$crate::packing::BitRange] = &[$(layout!(@range $word $($low $high)?)),+];

            #[cfg(test)]
            const DOC: $crate::packing::LayoutDoc = $crate::packing::LayoutDoc {
                about: &[$($about),+],
                fields: &[$($crate::packing::FieldDoc {
                    range: layout!(@range $word $($low $high)?),
                    words: <$type as $crate::packing::PackedField>::WORDS,
                    name: stringify!($field),
                    meaning: $meaning,
                }),+],
            };

            #[inline(always)]
            fn write(self, words: &mut [u64]) {
                $($crate::packing::PackedField::write(self.$field, words, const { layout!(@range $word $($low $high)?) });)+
            }

            #[inline(always)]
            fn read(words: &[u64]) -> Result<$name, $crate::packing::InvalidField> {
                Ok($name {
                    $($field: $crate::packing::PackedField::read(
                        words,
                        const { layout!(@range $word $($low $high)?) },
                        stringify!($field),
                    )?,)+
                })
            }
        }
    };
}
pub(crate) use layout;

/// Declares the numbers that stand for the cases of a field: a module of constants.
macro_rules! codes {
    (
        $(#[doc = $about:literal])+
        mod $name:ident: $type:ty {
            $($code:ident = $value:literal, $meaning:literal;)+
        }
    ) => {
        $(#[doc = $about])+
        pub(crate) mod $name {
            $(#[doc = $meaning] pub const $code: $type = $value;)+
            #[cfg(test)]
            pub const DOC: $crate::packing::CodesDoc =
                $crate::packing::CodesDoc { about: &[$($about),+], codes: &[$(($value, $meaning)),+] };
        }
    };
}
pub(crate) use codes;
