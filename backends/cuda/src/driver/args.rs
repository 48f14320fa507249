//! The arguments of a kernel, by value, as the driver takes them.

/// Bytes that the arguments of one kernel may take together.
pub const BYTES_MAX: usize = 2048;
/// Arguments that one kernel may have.
pub const COUNT_MAX: usize = 64;

/// A value that a kernel takes as it lies in memory.
///
/// # Safety
/// It has no padding, and the type in the kernel has the same layout. Its alignment is at most 16.
pub unsafe trait Param: Copy {}

macro_rules! params {
    ($($type:ty)*) => { $(
        // SAFETY: C has the same type.
        unsafe impl Param for $type {}
    )* };
}
params! { u8 i8 i16 u16 i32 u32 i64 u64 f32 f64 }
// SAFETY: an array has no padding, and lies as a struct of an array does in C.
unsafe impl<T: Param, const N: usize> Param for [T; N] {}

/// Arguments, in order.
pub struct Args {
    bytes: [u128; BYTES_MAX / 16],
    used: usize,
    places: [(u16, u16); COUNT_MAX],
    count: usize,
}

impl Default for Args {
    fn default() -> Args {
        Args::new()
    }
}

impl Args {
    /// None yet.
    #[inline]
    pub fn new() -> Args {
        Args { bytes: [0; BYTES_MAX / 16], used: 0, places: [(0, 0); COUNT_MAX], count: 0 }
    }

    /// One more.
    ///
    /// # Panics
    /// When there are more than a kernel can have; how many a kernel has, its code says.
    #[inline]
    pub fn push<T: Param>(&mut self, value: T) -> &mut Args {
        let size = size_of::<T>();
        let at = self.used.next_multiple_of(align_of::<T>());
        assert!(at + size <= BYTES_MAX && self.count < COUNT_MAX, "too many arguments for one kernel");
        // SAFETY: the place is in the buffer, and aligned as the buffer is to 16.
        unsafe { self.bytes.as_mut_ptr().cast::<u8>().add(at).cast::<T>().write(value) };
        self.places[self.count] = (at as u16, size as u16);
        self.count += 1;
        self.used = at + size;
        self
    }

    /// One more: values side by side, as a struct of arrays has them whose length the kernel's code says.
    ///
    /// # Panics
    /// As [`Args::push`].
    #[inline]
    pub fn push_all<T: Param>(&mut self, values: &[T]) -> &mut Args {
        let size = size_of_val(values);
        let at = self.used.next_multiple_of(align_of::<T>());
        assert!(at + size <= BYTES_MAX && self.count < COUNT_MAX, "too many arguments for one kernel");
        // SAFETY: the place is in the buffer, aligned as the buffer is to 16, and apart from the values.
        unsafe {
            let to = self.bytes.as_mut_ptr().cast::<u8>().add(at).cast::<T>();
            to.copy_from_nonoverlapping(values.as_ptr(), values.len());
        }
        self.places[self.count] = (at as u16, size as u16);
        self.count += 1;
        self.used = at + size;
        self
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The bytes of each.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.places[..self.count].iter().map(|(at, size)| {
            let start = self.bytes.as_ptr().cast::<u8>();
            // SAFETY: the range was written by `push`, from a value without padding.
            unsafe { std::slice::from_raw_parts(start.add(*at as usize), *size as usize) }
        })
    }

    /// Where each is.
    pub fn pointers(&self) -> [*mut std::ffi::c_void; COUNT_MAX] {
        let mut pointers = [std::ptr::null_mut(); COUNT_MAX];
        for (pointer, arg) in pointers.iter_mut().zip(self.iter()) {
            *pointer = arg.as_ptr().cast_mut().cast();
        }
        pointers
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
}
