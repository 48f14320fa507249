//! Bytes in and out: through the arena, never through the rings.

use crate::blocking::blocking;
use crate::error::Result;
use crate::session::{Session, Token, Value};
use gt_ops::Meta;
use gt_shm::ArenaBlock;
use std::collections::VecDeque;
use std::sync::Arc;

/// Uploads travel in pieces of this size: the daemon copies one out while the next is copied in, and the few blocks
/// they share stay in the cache. Measured: at half the size waiting costs more than copying, and larger pieces are
/// copied out by several threads, which then have no core left to copy in.
const PIECE_BYTES: usize = 512 << 10;
/// Pieces of one upload under way at a time.
const PIECES_MAX: usize = 8;

/// Memory to upload from.
#[derive(Clone, Copy)]
pub struct Source {
    ptr: *const u8,
    len: usize,
}

// SAFETY: a Source is only read, and whoever made it promised that the memory stays and is not written meanwhile.
unsafe impl Send for Source {}
// SAFETY: as above.
unsafe impl Sync for Source {}

impl Source {
    /// `len` bytes at `ptr`.
    ///
    /// # Safety
    /// They stay readable until the upload returns.
    pub unsafe fn new(ptr: *const u8, len: usize) -> Source {
        Source { ptr, len }
    }

    fn copy_to(&self, offset: usize, block: &ArenaBlock, len: usize) {
        assert!(offset + len <= self.len && len <= block.len());
        // SAFETY: inside both by the assertion; the source stays by `new`'s contract and the block is ours alone.
        unsafe { std::ptr::copy_nonoverlapping(self.ptr.add(offset), block.as_ptr(), len) };
    }
}

impl From<&[u8]> for Source {
    fn from(bytes: &[u8]) -> Source {
        Source { ptr: bytes.as_ptr(), len: bytes.len() }
    }
}

impl Session {
    /// A new tensor with the row-major bytes of `source`, which is copied before this returns.
    ///
    /// # Errors
    /// A full arena, a session that has ended.
    ///
    /// # Panics
    /// If `source` has not the bytes of `meta`.
    pub fn upload(self: &Arc<Session>, meta: Meta, source: Source) -> Result<Arc<Value>> {
        assert_eq!(source.len, meta.bytes(), "the source of an upload has the tensor's bytes");
        let id = self.allocate(meta)?;
        tracing::debug!(target: "gt_client", id, shape = %meta.shape, dtype = %meta.dtype, "upload");
        let value = Value::new(id, meta, self);
        let mut under_way: VecDeque<Token> = VecDeque::with_capacity(PIECES_MAX);
        let mut offset = 0;
        // An empty tensor still has one piece, of no bytes: it says that all have come.
        loop {
            let len = (source.len - offset).min(PIECE_BYTES);
            if under_way.len() == PIECES_MAX
                && let Some(oldest) = under_way.pop_front()
            {
                self.wait_written(&oldest)?;
            }
            let block = self.arena_block(len)?;
            if len >= PIECE_BYTES {
                blocking(|| source.copy_to(offset, &block, len))?;
            } else {
                source.copy_to(offset, &block, len);
            }
            under_way.push_back(self.write(id, offset as u64, block, len)?);
            offset += len;
            if offset == source.len {
                return Ok(value);
            }
        }
    }

    /// A block of the arena for the row-major bytes of a tensor of `meta`, to be filled for [`Session::upload_block`].
    ///
    /// # Errors
    /// A full arena, a session that has ended.
    pub fn block(&self, meta: Meta) -> Result<ArenaBlock> {
        self.arena_block(meta.bytes())
    }

    /// A new tensor with the row-major bytes of `block`, which nobody copies before the daemon does.
    ///
    /// # Errors
    /// A session that has ended.
    ///
    /// # Panics
    /// If `block` has not the bytes of `meta`.
    pub fn upload_block(self: &Arc<Session>, meta: Meta, block: ArenaBlock) -> Result<Arc<Value>> {
        assert_eq!(block.len(), meta.bytes(), "the source of an upload has the tensor's bytes");
        let id = self.allocate(meta)?;
        let value = Value::new(id, meta, self);
        let _read = self.write(id, 0, block, meta.bytes())?;
        Ok(value)
    }

    /// The row-major bytes of `value`, in a block of the arena that is the caller's until dropped.
    ///
    /// # Errors
    /// What went wrong in computing the value; a full arena, a session that has ended.
    pub fn download(self: &Arc<Session>, value: &Value) -> Result<ArenaBlock> {
        let len = value.meta().bytes();
        tracing::debug!(target: "gt_client", id = value.id(), bytes = len, "download");
        let block = self.arena_block(len)?;
        let token = self.fetch(value.id(), 0, &block, len)?;
        match self.wait(&token) {
            Ok(()) => Ok(block),
            Err(error) => {
                if matches!(error, crate::Error::Interrupted) {
                    // The daemon may still write the block: it must not be handed out again before it has.
                    self.abandon(token, block);
                }
                Err(error)
            }
        }
    }
}
