//! Tiles: scratch buffers of a fixed number of elements, small enough that a few stay in L1 together.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

/// The number of elements in a tile: a few tiles of 8-byte elements fit in L1 together.
pub const TILE: usize = 512;

/// Scratch memory for [`TILE`] elements of any dtype. Several pointers to it may be alive at once.
#[repr(C, align(64))]
pub struct Tile(UnsafeCell<[MaybeUninit<u64>; TILE]>);

impl Tile {
    /// An uninitialised tile.
    #[inline(always)]
    pub const fn new() -> Tile {
        Tile(UnsafeCell::new([MaybeUninit::uninit(); TILE]))
    }
    /// The address of the first element.
    #[inline(always)]
    pub fn start(&self) -> *mut u8 {
        self.0.get().cast()
    }
}
