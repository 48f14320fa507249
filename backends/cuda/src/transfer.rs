//! Bytes between host and device, on streams of their own.
//!
//! The device copies by itself from and to host memory that it knows (`Driver::register`: the clients' arenas, where
//! the system allows it). Anything else goes by way of two pinned buffers in turn: while the device copies one, the
//! host copies the other. A transfer has ended when the call returns, as the client may do with its memory what it
//! likes then; the device computes meanwhile.

use crate::driver::Args;
use crate::driver::{DevicePtr, Driver, Event, Stream};
use crate::kernels::{Key, Template};
use crate::{CudaBackend, Result, Tensor, driver, failed};
use gt_backend::HostRange;
use gt_ops::DType;
use std::ptr::NonNull;
use std::sync::Arc;

/// Each of the pinned buffers.
const BOUNCE_BYTES: usize = 4 << 20;

/// Bools are 0 or 1 whatever byte came.
static TRUTH: Template = Template {
    name: "truth",
    includes: &["types.cuh", "walk.cuh"],
    code: |key| {
        format!(
            "GT_KERNEL(256) {}(u8* bytes, i64 count) {{ GT_FOR_EACH(i, count) bytes[i] = bytes[i] != 0; }}",
            key.name()
        )
    },
    catalogue: || vec![truth_key()],
};

/// The templates of this file.
pub(crate) static TEMPLATES: &[&Template] = &[&TRUTH];

fn truth_key() -> Key {
    Key::new(&TRUTH, None, Some(DType::Bool), 0)
}

/// The streams and buffers of transfers.
pub(crate) struct Transfers {
    driver: Arc<dyn Driver>,
    up: Stream,
    down: Stream,
    /// When computation has come to where a transfer may begin, and the other way round.
    computed: Event,
    copied: Event,
    bounce: [(NonNull<u8>, Event); 2],
    /// What the device copies from and to by itself.
    registered: Vec<HostRange>,
}

// SAFETY: the buffers are ours alone.
unsafe impl Send for Transfers {}

impl Transfers {
    pub(crate) fn new(driver: Arc<dyn Driver>) -> driver::Result<Transfers> {
        let buffer = || Ok((driver.allocate_host(BOUNCE_BYTES)?, driver.new_event()?));
        Ok(Transfers {
            up: driver.new_stream()?,
            down: driver.new_stream()?,
            computed: driver.new_event()?,
            copied: driver.new_event()?,
            bounce: [buffer()?, buffer()?],
            registered: Vec::new(),
            driver,
        })
    }

    /// As [`gt_backend::Backend::host_memory`].
    pub(crate) unsafe fn host_memory(&mut self, range: HostRange, present: bool) {
        let Some(start) = NonNull::new(range.as_ptr()) else { return };
        if present {
            // SAFETY: the caller's promise.
            match unsafe { self.driver.register(start, range.len()) } {
                Ok(()) => self.registered.push(range),
                // Transfers then go by way of the buffers.
                Err(error) => tracing::debug!(target: "gtd::cuda", %error, "memory could not be registered"),
            }
        } else if let Some(at) = self.registered.iter().position(|known| known.as_ptr() == range.as_ptr()) {
            self.registered.swap_remove(at);
            // SAFETY: it was registered; transfers have ended when their calls return.
            if let Err(error) = unsafe { self.driver.unregister(start) } {
                tracing::warn!(target: "gtd::cuda", %error, "memory could not be unregistered");
            }
        }
    }

    fn is_registered(&self, range: &HostRange) -> bool {
        let start = range.as_ptr() as usize;
        self.registered.iter().any(|known| {
            let from = known.as_ptr() as usize;
            from <= start && start + range.len() <= from + known.len()
        })
    }

    fn upload(&mut self, to: DevicePtr, src: HostRange) -> driver::Result<()> {
        if self.is_registered(&src) {
            // SAFETY: the range is the caller's for the length of this call, which waits below.
            unsafe { self.driver.upload(to, src.as_ptr(), src.len(), self.up) }?;
            self.driver.record(self.copied, self.up)?;
            return self.driver.await_event(self.copied);
        }
        for (i, at) in (0..src.len()).step_by(BOUNCE_BYTES).enumerate() {
            let (buffer, free) = self.bounce[i % 2];
            let len = BOUNCE_BYTES.min(src.len() - at);
            self.driver.await_event(free)?;
            // SAFETY: the buffer is ours, and the device has read what it held; the range is the caller's.
            unsafe {
                buffer.as_ptr().copy_from_nonoverlapping(src.as_ptr().add(at), len);
                self.driver.upload(to + at as u64, buffer.as_ptr(), len, self.up)?;
            }
            self.driver.record(free, self.up)?;
        }
        // The source has been read; computation waits for the copies by itself.
        self.driver.record(self.copied, self.up)
    }

    fn download(&mut self, from: DevicePtr, dst: HostRange) -> driver::Result<()> {
        if self.is_registered(&dst) {
            // SAFETY: the range is the caller's for the length of this call, which waits below.
            unsafe { self.driver.download(dst.as_ptr(), from, dst.len(), self.down) }?;
            self.driver.record(self.copied, self.down)?;
            return self.driver.await_event(self.copied);
        }
        let pieces = dst.len().div_ceil(BOUNCE_BYTES);
        let piece = |i: usize| (i * BOUNCE_BYTES, BOUNCE_BYTES.min(dst.len() - i * BOUNCE_BYTES));
        for i in 0..pieces + 1 {
            if i < pieces {
                let (at, len) = piece(i);
                let (buffer, done) = self.bounce[i % 2];
                // SAFETY: the buffer is ours, and what it held has been copied on.
                unsafe { self.driver.download(buffer.as_ptr(), from + at as u64, len, self.down) }?;
                self.driver.record(done, self.down)?;
            }
            if i > 0 {
                let (at, len) = piece(i - 1);
                let (buffer, done) = self.bounce[(i - 1) % 2];
                self.driver.await_event(done)?;
                // SAFETY: the device has filled the buffer; the range is the caller's.
                unsafe { buffer.as_ptr().copy_to_nonoverlapping(dst.as_ptr().add(at), len) };
            }
        }
        Ok(())
    }
}

impl Drop for Transfers {
    fn drop(&mut self) {
        for (buffer, event) in self.bounce {
            // SAFETY: every transfer that used the buffer has ended, or the device is lost.
            unsafe {
                if self.driver.await_event(event).is_ok() {
                    self.driver.free_host(buffer);
                }
            }
            self.driver.drop_event(event);
        }
        self.driver.drop_event(self.computed);
        self.driver.drop_event(self.copied);
    }
}

impl CudaBackend {
    /// Copies `src` into a contiguous tensor that nobody else sees.
    pub(crate) fn upload(&mut self, tensor: &Tensor, offset_bytes: usize, src: HostRange) -> Result<()> {
        if src.is_empty() {
            return Ok(());
        }
        let to = tensor.ptr() + offset_bytes as u64;
        let transfers = &mut self.transfers;
        let copied = (|| {
            // Whoever had the memory before may still be at it.
            self.driver.record(transfers.computed, self.stream)?;
            self.driver.wait(transfers.up, transfers.computed)?;
            transfers.upload(to, src)?;
            self.driver.wait(self.stream, transfers.copied)
        })();
        copied.map_err(failed)?;
        if tensor.meta.dtype == DType::Bool {
            let function = self.kernels.get(&truth_key())?;
            let mut args = Args::new();
            args.push(to).push(src.len() as i64);
            let grid = self.grid_stride(src.len());
            // SAFETY: the arguments are the kernel's, and the bytes lie in the tensor.
            unsafe { self.launch(function, grid, &args) }?;
        }
        Ok(())
    }

    /// Copies from a contiguous tensor to `dst`, once it has been computed.
    pub(crate) fn download(&mut self, tensor: &Tensor, offset_bytes: usize, dst: HostRange) -> Result<()> {
        let from = tensor.ptr() + offset_bytes as u64;
        let transfers = &mut self.transfers;
        let copied = (|| {
            self.driver.record(transfers.computed, self.stream)?;
            self.driver.wait(transfers.down, transfers.computed)?;
            if dst.is_empty() {
                return self.driver.await_event(transfers.computed);
            }
            transfers.download(from, dst)
        })();
        copied.map_err(failed)
    }
}
