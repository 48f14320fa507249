//! Uploads and downloads: tensor bytes move through the arena, never through the rings.

use crate::blocking::blocking;
use crate::error::{ClientError, Result};
use crate::session::{ClientSession, CompletionToken};
use crate::value::TensorValue;
use gt_ops::{ErrorKind, Meta, OpError};
use gt_shm::ArenaBlock;
use gt_shm::copy::copy_nonoverlapping;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

/// Uploads travel in pieces of this size: while the daemon copies one into the tensor, past the caches, the client
/// copies the next into the arena. The few shared blocks stay in the cache, so an upload reads and writes memory once
/// each. With pieces of half the size, waiting was measured to cost more than copying; the daemon copies larger pieces
/// with several threads, which leave the client no core to copy on.
const PIECE_BYTES: usize = 512 << 10;
/// The most pieces of one upload in flight at a time.
const PIECES_MAX: usize = 8;

/// The client keeps the bytes of a value of at most this many that it has uploaded or fetched. The daemon's answer
/// takes the time of many copies of this size; larger values would double the memory that they take.
pub(crate) const HOST_COPY_BYTES_MAX: usize = 512;

/// Row-major bytes of a tensor on the host.
pub enum HostBytes {
    /// Bytes that are kept here.
    Copy(Arc<[u8]>),
    /// The bytes that the daemon has written to a block of the arena.
    Fetched(FetchedBlock),
}

/// A block of the arena that the daemon has written, and will not write again.
pub struct FetchedBlock(ArenaBlock);

impl FetchedBlock {
    /// The block, which returns to the arena when it is dropped.
    pub fn into_block(self) -> ArenaBlock {
        self.0
    }
}

impl Deref for HostBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            HostBytes::Copy(bytes) => bytes,
            // SAFETY: `ClientSession::host_bytes` makes a `FetchedBlock` of a block whose fetch is complete, and no
            // other instruction can name the block before `into_block` has consumed this one.
            HostBytes::Fetched(block) => unsafe { block.0.as_slice() },
        }
    }
}

impl From<Vec<u8>> for HostBytes {
    fn from(bytes: Vec<u8>) -> HostBytes {
        HostBytes::Copy(bytes.into())
    }
}

/// Memory of the caller to upload from.
#[derive(Clone, Copy)]
pub struct UploadSource<'a> {
    ptr: *const u8,
    len: usize,
    bytes: PhantomData<&'a [u8]>,
}

// SAFETY: the pointer is only read from, in `copy_to`. The memory stays readable and unwritten for `'a`, on every
// thread: `new` requires it, and `from` borrows a slice.
unsafe impl Send for UploadSource<'_> {}
// SAFETY: `copy_to` is the only access through `&UploadSource`, and it only reads the memory.
unsafe impl Sync for UploadSource<'_> {}

impl<'a> UploadSource<'a> {
    /// `len` bytes at `ptr`.
    ///
    /// # Safety
    /// The bytes must stay readable, and not be written, for `'a`.
    pub unsafe fn new(ptr: *const u8, len: usize) -> UploadSource<'a> {
        UploadSource { ptr, len, bytes: PhantomData }
    }

    /// A copy of the bytes.
    fn copied(&self) -> Arc<[u8]> {
        if self.len == 0 {
            return Arc::new([]);
        }
        // SAFETY: `new` requires `len` readable bytes, which nobody writes meanwhile; the pointer of an empty source,
        // which may be null, was left out above.
        unsafe { std::slice::from_raw_parts(self.ptr, self.len) }.into()
    }

    fn copy_to(&self, offset: usize, block: &ArenaBlock, len: usize) {
        assert!(offset + len <= self.len && len <= block.len());
        // SAFETY: the assertion keeps both ranges in bounds. The source stays readable for `'a`, and no command names
        // the arena's block yet, so the ranges do not overlap and nothing else writes them.
        unsafe { copy_nonoverlapping(self.ptr.add(offset), block.as_ptr(), len) };
    }
}

impl<'a> From<&'a [u8]> for UploadSource<'a> {
    fn from(bytes: &'a [u8]) -> UploadSource<'a> {
        UploadSource { ptr: bytes.as_ptr(), len: bytes.len(), bytes: PhantomData }
    }
}

impl ClientSession {
    /// A new tensor with the row-major bytes of `source`, which are copied before this returns.
    ///
    /// # Errors
    /// A full arena, a session that has ended.
    ///
    /// # Panics
    /// If the length of `source` is not that of `meta`.
    pub fn upload(self: &Arc<ClientSession>, meta: Meta, source: UploadSource<'_>) -> Result<Arc<TensorValue>> {
        assert_eq!(source.len, meta.bytes(), "the source of an upload has the tensor's bytes");
        let id = self.allocate(meta)?;
        tracing::debug!(target: "gt_client", id, shape = %meta.shape, dtype = %meta.dtype, "upload");
        let value = TensorValue::new(id, meta, self);
        if source.len <= HOST_COPY_BYTES_MAX {
            value.keep_host_copy(source.copied());
        }
        let mut in_flight: VecDeque<CompletionToken> = VecDeque::with_capacity(PIECES_MAX);
        let mut offset = 0;
        // An empty tensor has one piece of no bytes, which tells the daemon that the tensor is written.
        loop {
            let len = (source.len - offset).min(PIECE_BYTES);
            if in_flight.len() == PIECES_MAX
                && let Some(oldest) = in_flight.pop_front()
            {
                self.wait_written(&oldest)?;
            }
            let block = match self.arena_block(len) {
                // Where others hold most of the memory for arenas, the pieces of an upload take turns in a small one.
                Err(ClientError::ArenaFull(text)) => match in_flight.pop_front() {
                    Some(oldest) => {
                        self.wait_written(&oldest)?;
                        continue;
                    }
                    None => return Err(ClientError::ArenaFull(text)),
                },
                block => block?,
            };
            if len >= PIECE_BYTES {
                blocking(|| source.copy_to(offset, &block, len))?;
            } else {
                source.copy_to(offset, &block, len);
            }
            in_flight.push_back(self.write(id, offset as u64, block, len)?);
            offset += len;
            if offset == source.len {
                return Ok(value);
            }
        }
    }

    /// A block of the arena for the row-major bytes of a tensor of `meta`, to be filled and passed to
    /// [`ClientSession::upload_block`].
    ///
    /// # Errors
    /// A full arena, a session that has ended.
    pub fn block(self: &Arc<ClientSession>, meta: Meta) -> Result<ArenaBlock> {
        self.arena_block(meta.bytes())
    }

    /// A new tensor with the row-major bytes of `block`, which only the daemon copies.
    ///
    /// # Errors
    /// A session that has ended.
    ///
    /// # Panics
    /// If the length of `block` is not that of `meta`.
    pub fn upload_block(self: &Arc<ClientSession>, meta: Meta, block: ArenaBlock) -> Result<Arc<TensorValue>> {
        assert_eq!(block.len(), meta.bytes(), "the source of an upload has the tensor's bytes");
        let id = self.allocate(meta)?;
        let value = TensorValue::new(id, meta, self);
        let _read = self.write(id, 0, block, meta.bytes())?;
        Ok(value)
    }

    /// Fetches the row-major bytes of `value` into a block of the arena, which returns to the arena when dropped.
    ///
    /// # Errors
    /// A failure of an instruction that the value depends on; a full arena, a session that has ended; a value with
    /// batch axes.
    pub fn download(self: &Arc<ClientSession>, value: &TensorValue) -> Result<ArenaBlock> {
        if value.is_batched() {
            return Err(OpError::new(
                ErrorKind::NotBatched,
                "vmap: the elements of a tensor are not known within the function that vmap calls for a whole batch",
            )
            .into());
        }
        let len = value.meta().bytes();
        tracing::debug!(target: "gt_client", id = value.id(), bytes = len, "download");
        let block = self.arena_block(len)?;
        let token = self.fetch(value.id(), 0, &block, len)?;
        match self.wait(&token) {
            Ok(()) => Ok(block),
            Err(error) => {
                self.failed();
                if matches!(error, ClientError::Interrupted) {
                    // The daemon may still write the block: it must not be reused before the fetch has completed.
                    self.abandon(token, Some(block));
                }
                Err(error)
            }
        }
    }
    /// The row-major bytes of `value`: those that are known here, or fetched ones, which are kept if they are few or if
    /// `keep` is set.
    ///
    /// # Errors
    /// As [`ClientSession::download`].
    pub fn host_bytes(self: &Arc<ClientSession>, value: &TensorValue, keep: bool) -> Result<HostBytes> {
        // Where the daemon has gone, fetching says so.
        if let Some(bytes) = value.host_copy()
            && self.was_alive()
        {
            return Ok(HostBytes::Copy(bytes.clone()));
        }
        let bytes = HostBytes::Fetched(FetchedBlock(self.download(value)?));
        if bytes.len() > HOST_COPY_BYTES_MAX && !keep {
            return Ok(bytes);
        }
        let copy: Arc<[u8]> = bytes[..].into();
        value.keep_host_copy(copy.clone());
        Ok(HostBytes::Copy(copy))
    }
}
