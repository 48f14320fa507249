//! Streams and staging buffers for transfers between host and device.
//!
//! The device copies directly from and to pinned host memory (`crate::pinning`: the clients' arenas, where the system
//! allows it). Other memory goes through pinned staging buffers in turn: while the device copies one, the host
//! copies another. A transfer is enqueued, and ends when the event recorded after it has passed; device and host
//! continue meanwhile. The memory of a tensor that is read is lent to the transfer (`crate::memory`), so that later
//! instructions can neither overwrite nor reuse it.

use crate::checks::Checks;
use crate::driver::{self, CudaEvent, CudaStream, DevicePtr, Driver};
use crate::memory::Loan;
use crate::pinning::PinnedMemory;
use gt_backend::HostRange;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes of a staging buffer.
const BOUNCE_BYTES: usize = 2 << 20;
/// Staging buffers for each direction.
const BUFFERS: usize = 4;
/// Smaller transfers are not timed.
const TIMED_BYTES_MIN: usize = 64 << 10;

/// The streams and staging buffers of transfers.
pub(crate) struct Transfers {
    driver: Arc<dyn Driver>,
    pub(crate) up: CudaStream,
    pub(crate) down: CudaStream,
    /// The staging buffers of uploads, each with the event that ends its last use, and the number of uses so far.
    upload_buffers: [(NonNull<u8>, CudaEvent); BUFFERS],
    uploaded: usize,
    /// The staging buffers of downloads; download piece `i` uses buffer `i % BUFFERS`.
    download_buffers: [(NonNull<u8>, CudaEvent); BUFFERS],
    downloaded: usize,
    /// The destinations of the download pieces that the host has not copied yet, in order.
    pieces: VecDeque<HostRange>,
    /// The host memory that the device copies directly.
    pinned: PinnedMemory,
    events: Vec<CudaEvent>,
    spare: Vec<CudaEvent>,
}

/// A transfer that has been enqueued.
pub(crate) struct Transfer {
    pub(crate) begin: Option<CudaEvent>,
    pub(crate) end: CudaEvent,
    /// The number of download pieces enqueued up to its last one.
    pub(crate) pieces: usize,
    /// The memory of the tensor that it reads, if any.
    pub(crate) lent: Option<Loan>,
    /// The checks of the tensor that it reads.
    pub(crate) checks: Checks,
    /// The step that it waits for; `None` if the device had already done it.
    pub(crate) point: Option<u64>,
}

// SAFETY: the pointers are those of the staging buffers, which only this struct uses.
unsafe impl Send for Transfers {}

impl Transfers {
    pub(crate) fn new(driver: Arc<dyn Driver>) -> driver::Result<Transfers> {
        let buffers = || {
            let buffer = || Ok((driver.allocate_host(BOUNCE_BYTES)?, driver.new_event()?));
            Ok([buffer()?, buffer()?, buffer()?, buffer()?])
        };
        Ok(Transfers {
            up: driver.new_stream()?,
            down: driver.new_stream()?,
            upload_buffers: buffers()?,
            uploaded: 0,
            download_buffers: buffers()?,
            downloaded: 0,
            pieces: VecDeque::new(),
            pinned: PinnedMemory::new(driver.clone()),
            events: Vec::new(),
            spare: Vec::new(),
            driver,
        })
    }

    /// As [`gt_backend::Backend::register_host_memory`], once transfers with withdrawn memory have ended.
    pub(crate) unsafe fn register_host_memory(&mut self, range: HostRange, present: bool) {
        if present {
            // SAFETY: `range` stays mapped until it is withdrawn, by the contract of this method.
            unsafe { self.pinned.add(range) };
        } else {
            self.pinned.withdraw(range);
        }
    }

    /// Waits until the host memory that was registered is pinned, as far as it can be.
    pub(crate) fn await_pinned(&self) {
        self.pinned.settle();
    }

    fn event(&mut self) -> driver::Result<CudaEvent> {
        if let Some(event) = self.spare.pop() {
            return Ok(event);
        }
        let event = self.driver.new_timer()?;
        self.events.push(event);
        Ok(event)
    }

    /// Records the start of a transfer that is enqueued next, if it is timed.
    fn begin(&mut self, bytes: usize, stream: CudaStream) -> driver::Result<Option<CudaEvent>> {
        if bytes < TIMED_BYTES_MIN {
            return Ok(None);
        }
        let event = self.event()?;
        self.driver.record(event, stream)?;
        Ok(Some(event))
    }

    fn end(&mut self, begin: Option<CudaEvent>, stream: CudaStream) -> driver::Result<Transfer> {
        let end = self.event()?;
        self.driver.record(end, stream)?;
        Ok(Transfer { begin, end, pieces: self.downloaded, lent: None, checks: Checks::default(), point: None })
    }

    pub(crate) fn upload(&mut self, to: DevicePtr, src: HostRange) -> driver::Result<Transfer> {
        let begin = self.begin(src.len(), self.up)?;
        if let Some(parts) = self.pinned.parts(src) {
            let mut at = 0;
            for len in parts {
                // SAFETY: `to` lies in the tensor, the parts lie in `src`, and the caller keeps `src` readable until
                // the transfer has ended.
                unsafe { self.driver.upload(to + at as u64, src.as_ptr().add(at), len, self.up) }?;
                at += len;
            }
            return self.end(begin, self.up);
        }
        for at in (0..src.len()).step_by(BOUNCE_BYTES) {
            let (buffer, free) = self.upload_buffers[self.uploaded % BUFFERS];
            self.uploaded += 1;
            let len = BOUNCE_BYTES.min(src.len() - at);
            self.driver.await_event(free)?;
            // SAFETY: the event says that the device has read the buffer's last piece; `at + len` is at most
            // `src.len()`.
            unsafe {
                buffer.as_ptr().copy_from_nonoverlapping(src.as_ptr().add(at), len);
                self.driver.upload(to + at as u64, buffer.as_ptr(), len, self.up)?;
            }
            self.driver.record(free, self.up)?;
        }
        self.end(begin, self.up)
    }

    pub(crate) fn download(&mut self, from: DevicePtr, dst: HostRange) -> driver::Result<Transfer> {
        let begin = self.begin(dst.len(), self.down)?;
        if let Some(parts) = self.pinned.parts(dst) {
            let mut at = 0;
            for len in parts {
                // SAFETY: `from` lies in the tensor, the parts lie in `dst`, and the caller keeps `dst` writable until
                // the transfer has ended.
                unsafe { self.driver.download(dst.as_ptr().add(at), from + at as u64, len, self.down) }?;
                at += len;
            }
            return self.end(begin, self.down);
        }
        for at in (0..dst.len()).step_by(BOUNCE_BYTES) {
            let (buffer, filled) = self.download_buffers[self.downloaded % BUFFERS];
            if self.pieces.len() == BUFFERS {
                self.hand_out(self.downloaded + 1 - BUFFERS, true)?;
            }
            let len = BOUNCE_BYTES.min(dst.len() - at);
            // SAFETY: the host has copied the buffer's last piece; `at + len` is at most `dst.len()`, so the piece lies
            // in `dst`.
            let piece = unsafe {
                self.driver.download(buffer.as_ptr(), from + at as u64, len, self.down)?;
                HostRange::new(NonNull::new_unchecked(dst.as_ptr().add(at)), len)
            };
            self.driver.record(filled, self.down)?;
            self.pieces.push_back(piece);
            self.downloaded += 1;
        }
        self.end(begin, self.down)
    }

    /// Copies the first `count` download pieces to their destinations, as far as the device has filled their buffers;
    /// if `wait`, blocks until it has filled them. Returns whether all are copied.
    fn hand_out(&mut self, count: usize, wait: bool) -> driver::Result<bool> {
        while self.downloaded - self.pieces.len() < count
            && let Some(dst) = self.pieces.front()
        {
            let (buffer, filled) = self.download_buffers[(self.downloaded - self.pieces.len()) % BUFFERS];
            if wait {
                self.driver.await_event(filled)?;
            } else if !self.driver.has_passed(filled)? {
                return Ok(false);
            }
            // SAFETY: the event says that the device has filled the buffer; the caller keeps the destination writable
            // until the transfer has ended.
            unsafe { buffer.as_ptr().copy_to_nonoverlapping(dst.as_ptr(), dst.len()) };
            self.pieces.pop_front();
        }
        Ok(true)
    }

    /// Whether a transfer has ended; blocks until then if `wait`.
    pub(crate) fn has_ended(&mut self, transfer: &Transfer, wait: bool) -> driver::Result<bool> {
        if !self.hand_out(transfer.pieces, wait)? {
            return Ok(false);
        }
        if wait {
            self.driver.await_event(transfer.end)?;
            return Ok(true);
        }
        self.driver.has_passed(transfer.end)
    }

    /// The duration of a transfer that has ended, nanoseconds, and its checks.
    pub(crate) fn finish(&mut self, transfer: Transfer) -> driver::Result<(u64, Checks)> {
        let took_ns = match transfer.begin {
            Some(begin) => self.driver.elapsed_ns(begin, transfer.end)?,
            None => 0,
        };
        self.spare.extend(transfer.begin);
        self.spare.push(transfer.end);
        Ok((took_ns, transfer.checks))
    }
}

impl Drop for Transfers {
    fn drop(&mut self) {
        let at_rest = self.driver.synchronize(self.up).and_then(|()| self.driver.synchronize(self.down)).is_ok();
        for (buffer, event) in self.upload_buffers.into_iter().chain(self.download_buffers) {
            if at_rest {
                // SAFETY: both streams are synchronised, so no transfer uses the buffer.
                unsafe { self.driver.free_host(buffer) };
            }
            self.driver.drop_event(event);
        }
        self.events.drain(..).for_each(|event| self.driver.drop_event(event));
    }
}
