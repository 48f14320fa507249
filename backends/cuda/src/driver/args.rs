//! Kernel arguments, by value.

use std::mem::MaybeUninit;

/// The most bytes of a kernel's arguments, by CUDA's limit for all devices.
pub const ARGS_BYTES_MAX: usize = 4096;
/// The most arguments of a kernel.
pub const COUNT_MAX: usize = 64;

/// A type that kernels take by value.
///
/// # Safety
/// The type has no padding, the kernel's type has the same layout, and the alignment is at most 16.
pub unsafe trait Param: Copy {}

macro_rules! params {
    ($($type:ty)*) => { $(
        // SAFETY: C has the same primitive type.
        unsafe impl Param for $type {}
    )* };
}
params! { u8 i8 i16 u16 i32 u32 i64 u64 f32 f64 }
// SAFETY: an array has no padding, and the layout of a C struct that holds an array.
unsafe impl<T: Param, const N: usize> Param for [T; N] {}

/// The arguments of a launch, in order.
pub struct Args {
    /// The arguments, with zeros as padding, in as many words as they take; the rest is not initialised.
    bytes: [MaybeUninit<u128>; ARGS_BYTES_MAX / 16],
    used: usize,
    places: [(u16, u16); COUNT_MAX],
    count: usize,
    /// The positions of words of 8 bytes that hold numbers, ascending.
    numbers: Vec<u16>,
}

impl Default for Args {
    fn default() -> Args {
        Args::new()
    }
}

impl Args {
    /// No arguments.
    #[inline]
    pub fn new() -> Args {
        let bytes = [const { MaybeUninit::uninit() }; ARGS_BYTES_MAX / 16];
        Args { bytes, used: 0, places: [(0, 0); COUNT_MAX], count: 0, numbers: Vec::new() }
    }

    /// Appends a place of `size` bytes, whose padding and bytes are zero, and returns its address.
    ///
    /// # Panics
    /// As [`Args::push`].
    #[inline]
    fn place(&mut self, size: usize, alignment: usize) -> *mut u8 {
        let at = self.used.next_multiple_of(alignment);
        assert!(at + size <= ARGS_BYTES_MAX && self.count < COUNT_MAX, "too many arguments for one kernel");
        for word in &mut self.bytes[self.used.div_ceil(16)..(at + size).div_ceil(16)] {
            word.write(0);
        }
        self.places[self.count] = (at as u16, size as u16);
        self.count += 1;
        self.used = at + size;
        // SAFETY: `at` was checked to be in the buffer.
        unsafe { self.bytes.as_mut_ptr().cast::<u8>().add(at) }
    }

    /// Appends an argument.
    ///
    /// # Panics
    /// If there are more than `COUNT_MAX` arguments or `ARGS_BYTES_MAX` bytes. The source of the caller fixes both.
    #[inline]
    pub fn push<T: Param>(&mut self, value: T) -> &mut Args {
        let to = self.place(size_of::<T>(), align_of::<T>());
        // SAFETY: the place has the size of a `T` and is aligned to it, since the buffer is aligned to 16.
        unsafe { to.cast::<T>().write(value) };
        self
    }

    /// Appends values side by side, as a C struct of arrays whose length is fixed in the kernel's source.
    ///
    /// # Panics
    /// As [`Args::push`].
    #[inline]
    pub fn push_all<T: Param>(&mut self, values: &[T]) -> &mut Args {
        self.push_padded(values, values.len())
    }

    /// Appends values side by side as [`Args::push_all`], with zeros behind them up to `count` values.
    ///
    /// # Panics
    /// As [`Args::push`], and if there are more than `count` values.
    #[inline]
    pub fn push_padded<T: Param>(&mut self, values: &[T], count: usize) -> &mut Args {
        assert!(values.len() <= count, "more values than the kernel takes");
        let to = self.place(count * size_of::<T>(), align_of::<T>());
        // SAFETY: the place has at least the size of `values` and is aligned as they are; they are borrowed, so that it
        // does not overlap them.
        unsafe { to.cast::<T>().copy_from_nonoverlapping(values.as_ptr(), values.len()) };
        self
    }

    /// Notes that words of 8 bytes, at these ascending positions, hold numbers that the kernel computes with and no
    /// addresses: launches that differ in these alone are the same work with other numbers.
    pub fn mark_numbers(&mut self, words: impl IntoIterator<Item = usize>) {
        self.numbers.extend(words.into_iter().map(|word| word as u16));
    }

    /// The number of arguments.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no arguments.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The bytes of each argument.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.places[..self.count].iter().map(|(at, size)| {
            let start = self.bytes.as_ptr().cast::<u8>();
            // SAFETY: `place` initialised the range, and `push` wrote a value without padding.
            unsafe { std::slice::from_raw_parts(start.add(*at as usize), *size as usize) }
        })
    }

    /// The address of each argument.
    pub fn pointers(&self) -> [*mut std::ffi::c_void; COUNT_MAX] {
        let mut pointers = [std::ptr::null_mut(); COUNT_MAX];
        for (pointer, arg) in pointers.iter_mut().zip(self.iter()) {
            *pointer = arg.as_ptr().cast_mut().cast();
        }
        pointers
    }
}

/// Arguments in a compact form, for storage.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Packed {
    bytes: Vec<u128>,
    used: usize,
    places: Vec<(u16, u16)>,
    numbers: Vec<u16>,
}

/// The words without numbers.
fn without_numbers<'a>(words: &'a [u128], numbers: &'a [u16]) -> impl Iterator<Item = u64> + 'a {
    let mut numbers = numbers.iter().copied().peekable();
    let halves = words.iter().flat_map(|word| [*word as u64, (*word >> 64) as u64]);
    halves.zip(0..).map(move |(word, at)| if numbers.next_if_eq(&at).is_some() { 0 } else { word })
}

impl Args {
    /// The bytes of all arguments, with zeros as padding.
    #[inline]
    fn words(&self) -> &[u128] {
        let words = &self.bytes[..self.used.div_ceil(16)];
        // SAFETY: `place` has initialised the words up to `used`.
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len()) }
    }

    /// A hash of the arguments, whatever their numbers are.
    #[inline]
    pub fn hash(&self) -> u64 {
        let mix = |hash: u64, word: u64| (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let start = (self.used as u64) << 8 | self.count as u64;
        if !self.numbers.is_empty() {
            return without_numbers(self.words(), &self.numbers).fold(start, mix);
        }
        self.words().iter().fold(start, |hash, word| mix(mix(hash, *word as u64), (*word >> 64) as u64))
    }
}

impl Packed {
    /// Replaces the stored arguments, reusing the memory.
    #[inline]
    pub fn pack(&mut self, args: &Args) {
        self.bytes.clear();
        self.bytes.extend_from_slice(args.words());
        self.places.clear();
        self.places.extend_from_slice(&args.places[..args.count]);
        self.used = args.used;
        self.numbers.clone_from(&args.numbers);
    }

    /// The arguments in their original form.
    pub fn unpack(&self) -> Args {
        let mut args = Args::new();
        for (to, word) in args.bytes.iter_mut().zip(&self.bytes) {
            to.write(*word);
        }
        args.places[..self.places.len()].copy_from_slice(&self.places);
        (args.used, args.count) = (self.used, self.places.len());
        args.numbers.clone_from(&self.numbers);
        args
    }

    /// Whether the arguments are equal, whatever their numbers are.
    #[inline]
    pub fn is(&self, args: &Args) -> bool {
        if !self.is_like(args) || self.numbers != args.numbers {
            return false;
        }
        match self.numbers.is_empty() {
            true => self.bytes == args.words(),
            false => without_numbers(&self.bytes, &self.numbers).eq(without_numbers(args.words(), &args.numbers)),
        }
    }

    /// Whether arguments that are equal otherwise have equal numbers.
    #[inline]
    pub fn has_numbers_of(&self, args: &Args) -> bool {
        self.numbers.is_empty() || self.bytes == args.words()
    }

    /// Whether any argument is a number.
    pub fn has_numbers(&self) -> bool {
        !self.numbers.is_empty()
    }

    /// Whether the arguments have equal sizes and positions, whatever their values.
    #[inline]
    pub fn is_like(&self, args: &Args) -> bool {
        self.used == args.used && self.places == args.places[..args.count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_lie_aligned_one_behind_the_other() {
        let mut args = Args::new();
        args.push(1u8).push(2u64).push([3i32, 4]).push(0.5f32);
        let bytes: Vec<Vec<u8>> = args.iter().map(<[u8]>::to_vec).collect();
        assert_eq!(
            bytes,
            [
                vec![1],
                2u64.to_le_bytes().to_vec(),
                [3i32, 4].map(i32::to_le_bytes).concat(),
                0.5f32.to_le_bytes().to_vec()
            ]
        );
        assert!(args.pointers()[..args.len()].iter().all(|pointer| !pointer.is_null()));
        assert_eq!(args.pointers()[1] as usize % 8, 0);
    }

    #[test]
    fn arguments_that_are_kept_are_told_from_others() {
        let (mut first, mut second, mut third) = (Args::new(), Args::new(), Args::new());
        first.push(1u8).push(2u64);
        second.push(1u8).push(3u64);
        third.push(1u64).push(2u64);
        let mut kept = Packed::default();
        kept.pack(&first);
        assert!(kept.is(&first) && kept.is(&kept.unpack()) && kept.unpack().hash() == first.hash());
        assert!(kept.is_like(&second) && !kept.is(&second) && second.hash() != first.hash());
        assert!(!kept.is_like(&third));
    }

    #[test]
    fn arguments_that_differ_in_numbers_alone_are_the_same_with_other_numbers() {
        let with = |address: u64, number: u64| {
            let mut args = Args::new();
            args.push([address, number]);
            args.mark_numbers([1]);
            args
        };
        let mut kept = Packed::default();
        kept.pack(&with(7, 1));
        assert!(kept.has_numbers() && kept.is(&with(7, 1)) && kept.has_numbers_of(&with(7, 1)));
        assert!(kept.is(&with(7, 2)) && !kept.has_numbers_of(&with(7, 2)));
        assert_eq!(with(7, 1).hash(), with(7, 2).hash());
        assert!(!kept.is(&with(8, 1)) && with(8, 1).hash() != with(7, 1).hash());
    }
}
