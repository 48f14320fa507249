//! The [`Driver`] trait: the CUDA driver calls that the backend makes.
//!
//! [`cuda`] calls NVIDIA's driver; `emulated` runs the same kernels on the CPU, for tests without a device. Handles are
//! opaque numbers, valid only for the driver that returned them.

mod args;
pub mod cuda;
#[cfg(feature = "emulated")]
pub mod emulated;

pub use args::{ARGS_BYTES_MAX, Args, Packed, Param};

use std::ptr::NonNull;

/// An address in the device's memory.
pub type DevicePtr = u64;

/// A stream: work in it runs in the order in which it was enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CudaStream(pub u64);

/// An event: a point in a stream that can be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CudaEvent(pub u64);

/// A loaded module of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Module(pub u64);

/// A kernel of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelFunction(pub u64);

/// An instantiated graph of captured work, which can be launched repeatedly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CudaGraph(pub u64);

/// A kernel's launch in a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GraphNode(pub u64);

/// The properties of a device.
#[derive(Clone, Debug)]
pub struct Properties {
    /// The device's name.
    pub name: String,
    /// The compute capability times ten: 90 is 9.0.
    pub capability: u32,
    /// The number of multiprocessors.
    pub multiprocessors: u32,
    /// The most resident threads of a multiprocessor.
    pub threads_per_multiprocessor: u32,
    /// The most shared memory of a block, in bytes.
    pub shared_bytes_per_block: u32,
    /// The device's memory, in bytes.
    pub memory_bytes: usize,
    /// The device's UUID; none if NVIDIA's libraries cannot use the device.
    pub uuid: Option<[u8; 16]>,
}

/// An error of a driver call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// The device is out of memory.
    #[error("the device is out of memory")]
    OutOfMemory,
    /// The context is corrupt or the device is gone: every further call fails, and no memory can be read.
    #[error("{call}: {what}")]
    Lost {
        /// The call that failed.
        call: &'static str,
        /// The driver's error name and description.
        what: String,
    },
    /// Any other error.
    #[error("{call}: {what}")]
    Failed {
        /// The call that failed.
        call: &'static str,
        /// The driver's error name and description.
        what: String,
    },
}

/// The result of a driver call.
pub type Result<T> = std::result::Result<T, DriverError>;

/// The launch configuration of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// The number of blocks along x, y and z.
    pub blocks: [u32; 3],
    /// The threads of a block, along x.
    pub threads: u32,
    /// The dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
}

impl Grid {
    /// A one-dimensional grid without dynamic shared memory.
    pub fn new(blocks: u32, threads: u32) -> Grid {
        Grid { blocks: [blocks, 1, 1], threads, shared_bytes: 0 }
    }
}

/// A device. Work is enqueued on a stream and runs after the stream's earlier work; a call returns at once unless its
/// documentation says otherwise. One thread at a time uses a driver, not always the same one; other threads may query
/// events meanwhile.
pub trait Driver: Send + Sync {
    /// Makes the device's context current in this thread for NVIDIA's libraries, and orders their work after earlier
    /// calls of the driver. The driver's own methods do not need it.
    ///
    /// # Errors
    /// A [`DriverError`], here and in all methods.
    fn enter(&self) -> Result<()>;

    /// The properties of the device.
    fn properties(&self) -> &Properties;

    /// Whether the device finds accesses outside of allocations, so that each tensor should have one of its own size.
    fn checks_addresses(&self) -> bool;

    /// Creates a stream, not ordered with any other.
    fn new_stream(&self) -> Result<CudaStream>;
    /// The `CUstream` of a stream, for NVIDIA's libraries.
    fn raw(&self, stream: CudaStream) -> u64;
    /// Blocks until the stream has completed all its work.
    fn synchronize(&self, stream: CudaStream) -> Result<()>;

    /// Creates an event without timing; it counts as passed until it is recorded.
    fn new_event(&self) -> Result<CudaEvent>;
    /// Creates an event with timing, for [`Driver::elapsed_ns`].
    fn new_timer(&self) -> Result<CudaEvent>;
    /// Destroys an event.
    fn drop_event(&self, event: CudaEvent);
    /// Records the event after the stream's current work.
    fn record(&self, event: CudaEvent, stream: CudaStream) -> Result<()>;
    /// Makes later work of the stream wait until the event has passed.
    fn wait(&self, stream: CudaStream, event: CudaEvent) -> Result<()>;
    /// Whether the event has passed.
    fn has_passed(&self, event: CudaEvent) -> Result<bool>;
    /// Blocks until the event has passed.
    fn await_event(&self, event: CudaEvent) -> Result<()>;
    /// The nanoseconds between two timers that have passed.
    fn elapsed_ns(&self, from: CudaEvent, to: CudaEvent) -> Result<u64>;

    /// Allocates device memory for later work of the stream, aligned to 256 bytes.
    fn allocate(&self, bytes: usize, stream: CudaStream) -> Result<DevicePtr>;
    /// Frees memory once the stream has completed its current work.
    ///
    /// # Safety
    /// `ptr` came from `allocate`, and no stream uses it after the current work of this one.
    unsafe fn free(&self, ptr: DevicePtr, stream: CudaStream) -> Result<()>;
    /// Returns the memory that the driver's pool keeps for reuse to the system.
    fn trim(&self) -> Result<()>;
    /// The bytes of device memory that no process has allocated.
    fn free_bytes(&self) -> Result<usize>;

    /// Sets bytes of device memory.
    ///
    /// # Safety
    /// The range is allocated for the stream, and nothing else accesses it until the stream has completed this.
    unsafe fn fill(&self, to: DevicePtr, byte: u8, bytes: usize, stream: CudaStream) -> Result<()>;
    /// Copies within the device.
    ///
    /// # Safety
    /// Both ranges are as for [`Driver::fill`].
    unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: usize, stream: CudaStream) -> Result<()>;
    /// Copies from the host to the device.
    ///
    /// # Safety
    /// `to` is as for [`Driver::fill`]; `from` stays readable and unchanged until the stream has completed the copy.
    unsafe fn upload(&self, to: DevicePtr, from: *const u8, bytes: usize, stream: CudaStream) -> Result<()>;
    /// Copies from the device to the host.
    ///
    /// # Safety
    /// `from` is as for [`Driver::fill`]; `to` stays writable, and nothing reads it, until the stream has completed the
    /// copy.
    unsafe fn download(&self, to: *mut u8, from: DevicePtr, bytes: usize, stream: CudaStream) -> Result<()>;

    /// Allocates pinned host memory, which has the same address on the device. Zeroed.
    fn allocate_host(&self, bytes: usize) -> Result<NonNull<u8>>;
    /// Frees pinned host memory.
    ///
    /// # Safety
    /// `start` came from `allocate_host`, and neither the host nor the device uses the memory any more.
    unsafe fn free_host(&self, start: NonNull<u8>);
    /// Pins host memory (`cuMemHostRegister`), so that the device copies to and from it at full speed.
    ///
    /// # Safety
    /// The memory stays mapped until `unregister`.
    unsafe fn register(&self, start: NonNull<u8>, bytes: usize) -> Result<()>;
    /// Unpins memory that [`Driver::register`] pinned.
    ///
    /// # Safety
    /// No copy of it is in flight.
    unsafe fn unregister(&self, start: NonNull<u8>) -> Result<()>;

    /// Loads the image that a [`crate::compile::compiler::Compiler`] compiled for this device.
    fn load(&self, image: &[u8]) -> Result<Module>;
    /// The kernel of this name in the module.
    fn function(&self, module: Module, name: &str) -> Result<KernelFunction>;
    /// Allows a kernel more than 48 KiB of dynamic shared memory.
    fn allow_shared(&self, function: KernelFunction, bytes: u32) -> Result<()>;
    /// Launches a kernel.
    ///
    /// # Safety
    /// The arguments are those of the kernel, and its accesses are as for [`Driver::fill`].
    unsafe fn launch(&self, function: KernelFunction, grid: Grid, args: &Args, stream: CudaStream) -> Result<()>;

    /// Begins a capture: later work of the stream is recorded instead of run, until [`Driver::end_capture`].
    fn begin_capture(&self, stream: CudaStream) -> Result<()>;
    /// Ends the capture and instantiates the graph of the recorded work. The stream runs work again even if this fails.
    fn end_capture(&self, stream: CudaStream) -> Result<CudaGraph>;
    /// Whether launches in a graph can get other arguments, by [`Driver::update_launch`].
    fn updates_graphs(&self) -> bool;
    /// The launch that the capture of the stream has recorded last.
    fn captured_launch(&self, stream: CudaStream) -> Result<GraphNode>;
    /// Gives a launch in the graph other arguments, from the next launch of the graph on.
    ///
    /// # Safety
    /// As [`Driver::launch`]; the function and the grid are those that were captured.
    unsafe fn update_launch(
        &self,
        graph: CudaGraph,
        node: GraphNode,
        function: KernelFunction,
        grid: Grid,
        args: &Args,
    ) -> Result<()>;
    /// Launches the captured work, in its order, with one call.
    ///
    /// # Safety
    /// Each captured call's contract holds again.
    unsafe fn launch_graph(&self, graph: CudaGraph, stream: CudaStream) -> Result<()>;
    /// Destroys a graph; a launch that is in flight completes.
    fn drop_graph(&self, graph: CudaGraph);
}
