//! What the backend asks of a CUDA driver: the seam between its logic and the device.
//!
//! [`cuda`] is NVIDIA's; `emulated` runs the same kernels on the CPU, for tests where there is no device. A handle is a
//! number that the driver which gave it understands.

mod args;
pub mod cuda;
#[cfg(feature = "emulated")]
pub mod emulated;

pub use args::{Args, Packed, Param};

use std::ptr::NonNull;

/// An address in the device's memory.
pub type DevicePtr = u64;

/// A queue of work, done in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CudaStream(pub u64);

/// A point in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CudaEvent(pub u64);

/// Loaded code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Module(pub u64);

/// A kernel of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Function(pub u64);

/// Work that was captured, to be done as often as wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CudaGraph(pub u64);

/// What is to be known of a device.
#[derive(Clone, Debug)]
pub struct Properties {
    /// Its name.
    pub name: String,
    /// Compute capability: 90 is 9.0.
    pub capability: u32,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Threads that one of them holds.
    pub threads_per_multiprocessor: u32,
    /// Shared memory that a block may ask for, in bytes.
    pub shared_bytes_per_block: u32,
    /// Its memory.
    pub memory_bytes: usize,
    /// Which of all devices there are, if NVIDIA's libraries can use it.
    pub uuid: Option<[u8; 16]>,
}

/// What a driver says when it does not do as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// The device has no room.
    #[error("the device is out of memory")]
    OutOfMemory,
    /// The device, or this process's use of it, is beyond repair: nothing works any more, nothing can be read.
    #[error("{call}: {what}")]
    Lost {
        /// Which call said so.
        call: &'static str,
        /// What it said.
        what: String,
    },
    /// Anything else.
    #[error("{call}: {what}")]
    Failed {
        /// Which call said so.
        call: &'static str,
        /// What it said.
        what: String,
    },
}

/// What a driver returns.
pub type Result<T> = std::result::Result<T, DriverError>;

/// How many threads run a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks, along x, y and z.
    pub blocks: [u32; 3],
    /// Threads of a block, along x.
    pub threads: u32,
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
}

impl Grid {
    /// So many blocks of so many threads.
    pub fn new(blocks: u32, threads: u32) -> Grid {
        Grid { blocks: [blocks, 1, 1], threads, shared_bytes: 0 }
    }
}

/// A device. Work goes to a stream and is done there after what the stream already has; a call returns at once unless
/// it says otherwise. One thread at a time uses a driver, not always the same;
/// others may ask about events meanwhile.
pub trait Driver: Send + Sync {
    /// Makes the device the one that libraries of NVIDIA's use on this thread, and what they do come after what was
    /// asked of the driver. The driver's own calls need no such thing.
    ///
    /// # Errors
    /// See [`DriverError`]; so for all.
    fn enter(&self) -> Result<()>;

    /// The device.
    fn properties(&self) -> &Properties;

    /// A new stream, not ordered with any other.
    fn new_stream(&self) -> Result<CudaStream>;
    /// NVIDIA's own handle of a stream.
    fn raw(&self, stream: CudaStream) -> u64;
    /// Waits until the stream has done all.
    fn synchronize(&self, stream: CudaStream) -> Result<()>;

    /// A new event, which counts as passed until it is recorded.
    fn new_event(&self) -> Result<CudaEvent>;
    /// As [`Driver::new_event`], for [`Driver::elapsed_ns`].
    fn new_timer(&self) -> Result<CudaEvent>;
    /// Gives it back.
    fn drop_event(&self, event: CudaEvent);
    /// Puts the event behind what the stream has.
    fn record(&self, event: CudaEvent, stream: CudaStream) -> Result<()>;
    /// What comes to the stream from now on waits until the event has passed.
    fn wait(&self, stream: CudaStream, event: CudaEvent) -> Result<()>;
    /// Whether the event has passed.
    fn has_passed(&self, event: CudaEvent) -> Result<bool>;
    /// Waits until the event has passed.
    fn await_event(&self, event: CudaEvent) -> Result<()>;
    /// Nanoseconds from one timer that has passed to another.
    fn elapsed_ns(&self, from: CudaEvent, to: CudaEvent) -> Result<u64>;

    /// Device memory, for what comes to the stream from now on. Aligned to 256 bytes.
    fn allocate(&self, bytes: usize, stream: CudaStream) -> Result<DevicePtr>;
    /// Gives memory back once the stream has done what it has.
    ///
    /// # Safety
    /// It came from `allocate`, and no stream uses it after what this one has now.
    unsafe fn free(&self, ptr: DevicePtr, stream: CudaStream) -> Result<()>;
    /// Gives memory that is only kept for reuse back to the system.
    fn trim(&self) -> Result<()>;
    /// Bytes of the device that nobody holds, this process or another.
    fn free_bytes(&self) -> Result<usize>;

    /// Sets bytes of device memory.
    ///
    /// # Safety
    /// As for every access: the range is allocated for the stream, and nobody else uses it meanwhile.
    unsafe fn fill(&self, to: DevicePtr, byte: u8, bytes: usize, stream: CudaStream) -> Result<()>;
    /// Copies within the device.
    ///
    /// # Safety
    /// As [`Driver::fill`].
    unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: usize, stream: CudaStream) -> Result<()>;
    /// Copies to the device.
    ///
    /// # Safety
    /// As [`Driver::fill`]; `from` stays readable and as it is until the stream has done it.
    unsafe fn upload(&self, to: DevicePtr, from: *const u8, bytes: usize, stream: CudaStream) -> Result<()>;
    /// Copies from the device.
    ///
    /// # Safety
    /// As [`Driver::fill`]; `to` stays writable, and nobody reads it, until the stream has done it.
    unsafe fn download(&self, to: *mut u8, from: DevicePtr, bytes: usize, stream: CudaStream) -> Result<()>;

    /// Host memory that the device reaches at the same address and copies from at full speed. Zeroed.
    fn allocate_host(&self, bytes: usize) -> Result<NonNull<u8>>;
    /// Gives it back.
    ///
    /// # Safety
    /// It came from `allocate_host`, and nobody uses it any more.
    unsafe fn free_host(&self, start: NonNull<u8>);
    /// Makes the device copy to and from this memory of ours at full speed.
    ///
    /// # Safety
    /// It stays mapped until `unregister`.
    unsafe fn register(&self, start: NonNull<u8>, bytes: usize) -> Result<()>;
    /// Takes [`Driver::register`] back.
    ///
    /// # Safety
    /// No copy is on its way.
    unsafe fn unregister(&self, start: NonNull<u8>) -> Result<()>;

    /// Loads what a [`crate::compile::compiler::Compiler`] made for this device.
    fn load(&self, image: &[u8]) -> Result<Module>;
    /// The kernel of this name.
    fn function(&self, module: Module, name: &str) -> Result<Function>;
    /// Allows a kernel more dynamic shared memory than 48 KiB.
    fn allow_shared(&self, function: Function, bytes: u32) -> Result<()>;
    /// Runs a kernel.
    ///
    /// # Safety
    /// The arguments are those of the kernel; what it accesses is as for [`Driver::fill`].
    unsafe fn launch(&self, function: Function, grid: Grid, args: &Args, stream: CudaStream) -> Result<()>;

    /// What comes to the stream from now on is not done but kept, until [`Driver::end_capture`].
    fn begin_capture(&self, stream: CudaStream) -> Result<()>;
    /// What came since [`Driver::begin_capture`]; also after an error, so that the stream does again as it is asked.
    fn end_capture(&self, stream: CudaStream) -> Result<CudaGraph>;
    /// Does what was captured, in the order in which it came, with one call.
    ///
    /// # Safety
    /// As for each thing that was captured.
    unsafe fn launch_graph(&self, graph: CudaGraph, stream: CudaStream) -> Result<()>;
    /// Gives it back; a launch of it that is under way goes on.
    fn drop_graph(&self, graph: CudaGraph);
}
