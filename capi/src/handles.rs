//! The handles that a C program holds: a freed handle, one of another type, and a pointer that GT never returned are
//! errors and not crashes.
//!
//! The address of each live handle is listed by type, and looked up before it is read. An allocator gives the address
//! of what was freed last to the next allocation, for which a freed handle would then be taken. So the memory of a
//! freed handle is kept until many others were freed.

use crate::status::{CallError, Result};
use std::collections::{HashSet, VecDeque};
use std::fmt::Display;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::mem::MaybeUninit;
use std::sync::{PoisonError, RwLock};

/// A type whose values C programs hold by address.
pub(crate) trait Handle: Sized + 'static {
    /// The name of the type in errors.
    const NAME: &'static str;
    /// The live handles of this type.
    fn live() -> &'static LiveHandles;
}

/// Threads that use different handles rarely wait for each other's look-up.
const SHARDS: usize = 16;
/// The allocator's alignment: these low bits of all addresses are equal.
const ALIGNMENT_BITS: u32 = 4;

/// The freed handles of a shard whose memory is kept.
const FREED_KEPT: usize = 64;

/// A part of the addresses of one type.
struct Shard {
    live: HashSet<usize, BuildHasherDefault<DefaultHasher>>,
    /// Addresses whose memory is kept, the oldest first.
    freed: VecDeque<usize>,
}

/// The addresses of the live handles of one type.
pub(crate) struct LiveHandles {
    shards: [RwLock<Shard>; SHARDS],
}

impl LiveHandles {
    pub(crate) const fn new() -> LiveHandles {
        LiveHandles {
            shards: [const {
                let live = HashSet::with_hasher(BuildHasherDefault::new());
                RwLock::new(Shard { live, freed: VecDeque::new() })
            }; SHARDS],
        }
    }

    fn shard(&self, address: usize) -> &RwLock<Shard> {
        &self.shards[(address >> ALIGNMENT_BITS) % SHARDS]
    }

    fn insert(&self, address: usize) {
        self.shard(address).write().unwrap_or_else(PoisonError::into_inner).live.insert(address);
    }

    fn remove(&self, address: usize) -> bool {
        self.shard(address).write().unwrap_or_else(PoisonError::into_inner).live.remove(&address)
    }

    fn contains(&self, address: usize) -> bool {
        self.shard(address).read().unwrap_or_else(PoisonError::into_inner).live.contains(&address)
    }

    /// Keeps the memory of a freed handle; returns an address whose memory was kept long enough.
    fn keep(&self, address: usize) -> Option<usize> {
        let mut shard = self.shard(address).write().unwrap_or_else(PoisonError::into_inner);
        shard.freed.push_back(address);
        if shard.freed.len() > FREED_KEPT { shard.freed.pop_front() } else { None }
    }
}

/// Gives a value to the C program: its handle.
pub(crate) fn give<T: Handle>(value: T) -> *mut T {
    let handle = Box::into_raw(Box::new(value));
    T::live().insert(handle.expose_provenance());
    handle
}

fn unknown<T: Handle>(handle: *const T, name: impl Display) -> CallError {
    CallError::argument(if handle.is_null() {
        format!("{name} is NULL")
    } else {
        format!("{name} is no handle of a {}: it was freed, or GT did not return it", T::NAME)
    })
}

/// The value of a handle; `name` is the handle's name in errors.
///
/// # Safety
/// No thread frees the handle while the result lives.
pub(crate) unsafe fn held<'a, T: Handle>(handle: *const T, name: impl Display) -> Result<&'a T> {
    if !T::live().contains(handle.addr()) {
        return Err(unknown(handle, name));
    }
    // SAFETY: the address is listed, so `give` made it of a `T` that `take` has not freed; no thread frees it
    // meanwhile, which this function requires.
    Ok(unsafe { &*handle })
}

/// Takes a value back from the C program, for which the handle is gone.
///
/// # Safety
/// No other thread uses the handle.
pub(crate) unsafe fn take<T: Handle>(handle: *mut T, name: &str) -> Result<T> {
    if !T::live().remove(handle.addr()) {
        return Err(unknown(handle, name));
    }
    // SAFETY: the address was listed, so `give` made it of a `T`; it is listed no more, so the value is read once.
    let value = unsafe { handle.read() };
    if let Some(old) = T::live().keep(handle.addr()) {
        let old: *mut MaybeUninit<T> = std::ptr::with_exposed_provenance_mut(old);
        // SAFETY: `give` made the memory with `Box::into_raw`, and an earlier call has read its value and kept it.
        drop(unsafe { Box::from_raw(old) });
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Number(i32);

    impl Handle for Number {
        const NAME: &'static str = "number";
        fn live() -> &'static LiveHandles {
            static LIVE: LiveHandles = LiveHandles::new();
            &LIVE
        }
    }

    #[test]
    fn a_handle_is_known_until_it_is_taken_back() {
        let handle = give(Number(7));
        // SAFETY: only this thread uses the handle.
        assert!(unsafe { held(handle, "it") }.is_ok_and(|number| number.0 == 7));
        // SAFETY: only this thread uses the handle.
        assert!(unsafe { take(handle, "it") }.is_ok_and(|number| number.0 == 7));
        // SAFETY: only this thread uses the handle.
        assert!(unsafe { take(handle, "it") }.is_err());
        for foreign in [handle, std::ptr::null_mut(), std::ptr::without_provenance_mut(3)] {
            // SAFETY: only this thread uses the handle.
            assert!(unsafe { held(foreign, "it") }.is_err());
        }
    }

    #[test]
    fn a_freed_handle_is_not_given_out_again_soon() {
        let first = give(Number(0));
        // SAFETY: only this thread uses the handle.
        assert!(unsafe { take(first, "it") }.is_ok());
        for i in 0..FREED_KEPT as i32 {
            let next = give(Number(i));
            assert_ne!(first, next);
            // SAFETY: only this thread uses the handle.
            assert!(unsafe { take(next, "it") }.is_ok_and(|number| number.0 == i));
        }
    }
}
