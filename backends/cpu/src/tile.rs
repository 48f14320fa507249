//! Tiles: scratch buffers of a fixed number of elements, small enough that a few stay in L1 together.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

/// Elements of a tile: a few tiles of 8-byte elements fit in L1 together.
pub const TILE: usize = 512;

/// Room for [`TILE`] elements of any dtype. Its pointer stays valid while others are taken.
#[repr(C, align(64))]
pub struct Tile(UnsafeCell<[MaybeUninit<u64>; TILE]>);

impl Tile {
    /// Uninitialised room.
    #[inline(always)]
    pub const fn new() -> Tile {
        Tile(UnsafeCell::new([MaybeUninit::uninit(); TILE]))
    }
    /// Its start.
    #[inline(always)]
    pub fn start(&self) -> *mut u8 {
        self.0.get().cast()
    }
}
