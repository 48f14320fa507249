//! NVIDIA's driver, `libcuda`, opened at run time.
//!
//! The signatures are those of `cuda.h`, under the names that the library exports: the header maps a name to its newest
//! version, as `_v2`. Results are integers, not an enum, since a newer driver may return unknown ones.

use super::{
    Args, CudaEvent, CudaGraph, CudaStream, DevicePtr, Driver, DriverError, GraphNode, Grid, KernelFunction, Module,
    Properties, Result,
};
use gt_nvidia::{CudaQuery, DRIVER, Missing, Opened, attribute};
use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};
use std::ops::Deref;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `CUcontext`, `CUstream` and others: opaque pointers of the driver.
type Handle = *mut c_void;
/// `CUresult`.
type Status = c_uint;

/// The driver's types of handles and of numbers, each under a name of its own, so that a test compares them with its
/// header.
type RawContext = Handle;
type RawStream = Handle;
type RawEvent = Handle;
type RawPool = Handle;
type RawModule = Handle;
type RawFunction = Handle;
type RawGraph = Handle;
type RawGraphExec = Handle;
type RawNode = Handle;
type PoolAttribute = c_uint;
type FunctionAttribute = c_uint;
type CaptureMode = c_uint;
type CaptureStatus = c_uint;

/// `CUgraphEdgeData`.
#[repr(C)]
struct EdgeData {
    from_port: u8,
    to_port: u8,
    kind: u8,
    reserved: [u8; 5],
}

/// `CUDA_KERNEL_NODE_PARAMS`.
#[repr(C)]
struct NodeParameters {
    function: RawFunction,
    x: c_uint,
    y: c_uint,
    z: c_uint,
    threads: c_uint,
    threads_y: c_uint,
    threads_z: c_uint,
    shared_bytes: c_uint,
    arguments: *mut *mut c_void,
    extra: *mut *mut c_void,
    kernel: Handle,
    context: RawContext,
}

gt_nvidia::functions! {
    /// The functions of the driver that GT uses, besides those that describe devices.
    struct DriverFunctions {
        device_pool: "cuDeviceGetDefaultMemPool" (*mut RawPool, c_int) -> Status;
        retain_context: "cuDevicePrimaryCtxRetain" (*mut RawContext, c_int) -> Status;
        release_context: "cuDevicePrimaryCtxRelease_v2" (c_int) -> Status;
        set_current: "cuCtxSetCurrent" (RawContext) -> Status;

        stream_create: "cuStreamCreate" (*mut RawStream, c_uint) -> Status;
        stream_synchronize: "cuStreamSynchronize" (RawStream) -> Status;
        stream_wait: "cuStreamWaitEvent" (RawStream, RawEvent, c_uint) -> Status;
        event_create: "cuEventCreate" (*mut RawEvent, c_uint) -> Status;
        event_destroy: "cuEventDestroy_v2" (RawEvent) -> Status;
        event_record: "cuEventRecord" (RawEvent, RawStream) -> Status;
        event_query: "cuEventQuery" (RawEvent) -> Status;
        event_synchronize: "cuEventSynchronize" (RawEvent) -> Status;
        event_elapsed: "cuEventElapsedTime" (*mut f32, RawEvent, RawEvent) -> Status;

        pool_attribute: "cuMemPoolSetAttribute" (RawPool, PoolAttribute, *mut c_void) -> Status;
        pool_trim: "cuMemPoolTrimTo" (RawPool, usize) -> Status;
        alloc_async: "cuMemAllocAsync" (*mut DevicePtr, usize, RawStream) -> Status;
        free_async: "cuMemFreeAsync" (DevicePtr, RawStream) -> Status;
        alloc: "cuMemAlloc_v2" (*mut DevicePtr, usize) -> Status;
        free: "cuMemFree_v2" (DevicePtr) -> Status;
        memory_info: "cuMemGetInfo_v2" (*mut usize, *mut usize) -> Status;
        fill: "cuMemsetD8Async" (DevicePtr, c_uchar, usize, RawStream) -> Status;
        copy: "cuMemcpyDtoDAsync_v2" (DevicePtr, DevicePtr, usize, RawStream) -> Status;
        upload: "cuMemcpyHtoDAsync_v2" (DevicePtr, *const c_void, usize, RawStream) -> Status;
        download: "cuMemcpyDtoHAsync_v2" (*mut c_void, DevicePtr, usize, RawStream) -> Status;
        host_alloc: "cuMemHostAlloc" (*mut *mut c_void, usize, c_uint) -> Status;
        host_free: "cuMemFreeHost" (*mut c_void) -> Status;
        host_register: "cuMemHostRegister_v2" (*mut c_void, usize, c_uint) -> Status;
        host_unregister: "cuMemHostUnregister" (*mut c_void) -> Status;

        module_load: "cuModuleLoadData" (*mut RawModule, *const c_void) -> Status;
        module_function: "cuModuleGetFunction" (*mut RawFunction, RawModule, *const c_char) -> Status;
        function_attribute: "cuFuncSetAttribute" (RawFunction, FunctionAttribute, c_int) -> Status;
        launch: "cuLaunchKernel" (
            RawFunction,
            c_uint, c_uint, c_uint,
            c_uint, c_uint, c_uint,
            c_uint,
            RawStream,
            *mut *mut c_void,
            *mut *mut c_void,
        ) -> Status;

        capture_begin: "cuStreamBeginCapture_v2" (RawStream, CaptureMode) -> Status;
        capture_end: "cuStreamEndCapture" (RawStream, *mut RawGraph) -> Status;
        graph_destroy: "cuGraphDestroy" (RawGraph) -> Status;
        graph_instantiate: "cuGraphInstantiateWithFlags" (*mut RawGraphExec, RawGraph, c_ulonglong) -> Status;
        graph_launch: "cuGraphLaunch" (RawGraphExec, RawStream) -> Status;
        graph_exec_destroy: "cuGraphExecDestroy" (RawGraphExec) -> Status;
    }
}

gt_nvidia::functions! {
    /// The functions that give a launch in a graph other arguments: a driver for CUDA 12.3 has them.
    struct UpdateFunctions {
        capture_info: "cuStreamGetCaptureInfo_v3" (
            RawStream,
            *mut CaptureStatus,
            *mut u64,
            *mut RawGraph,
            *mut *const RawNode,
            *mut *const EdgeData,
            *mut usize,
        ) -> Status;
        update: "cuGraphExecKernelNodeSetParams_v2" (RawGraphExec, RawNode, *const NodeParameters) -> Status;
    }
}

/// All functions of the driver that GT uses.
struct DriverApi {
    query: CudaQuery,
    functions: DriverFunctions,
    updates: Option<UpdateFunctions>,
}

impl DriverApi {
    fn bind(opened: Opened) -> std::result::Result<DriverApi, String> {
        let updates = UpdateFunctions::bind(opened.clone()).ok();
        Ok(DriverApi { query: CudaQuery::bind(opened.clone())?, functions: DriverFunctions::bind(opened)?, updates })
    }
}

impl Deref for DriverApi {
    type Target = DriverFunctions;

    fn deref(&self) -> &DriverFunctions {
        &self.functions
    }
}

/// `CU_STREAM_NON_BLOCKING`: not ordered with the default stream.
const NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`: an event without a clock costs less.
const WITHOUT_TIME: c_uint = 2;
/// `CU_MEMHOSTALLOC_PORTABLE` and `CU_MEMHOSTREGISTER_PORTABLE`: pinned for every context. Not `WRITECOMBINED`, since
/// the host reads downloads.
const PORTABLE: c_uint = 1;
/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`: bytes that a pool does not release at a synchronisation.
const RELEASE_THRESHOLD: c_uint = 4;
/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const DYNAMIC_SHARED_BYTES: c_uint = 8;

/// `CU_STREAM_CAPTURE_STATUS_ACTIVE`.
const CAPTURE_ACTIVE: c_uint = 1;
/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: other threads may call the driver meanwhile.
const CAPTURE_THREAD: c_uint = 1;

const SUCCESS: Status = 0;
const OUT_OF_MEMORY: Status = 2;
const NOT_READY: Status = 600;

/// Whether the context or the device is lost, so that every further call fails.
fn is_final(status: Status) -> bool {
    matches!(
        status,
        // Deinitialised; device unavailable.
        4 | 46
        // ECC, NVLink, and an error contained to this process.
        | 214 | 220 | 226
        // Illegal address, timeout, context destroyed, assertion, stack, instruction, alignment, address space, program
        // counter, launch, tensor memory.
        | 700 | 702 | 709 | 710 | 714
            ..=719 | 721
        // The MPS server has ended.
        | 806 | 810
        // External device, key rotation, unknown error.
        | 911 | 916 | 999
    )
}

thread_local! {
    /// The number of the [`CudaDriver`] whose context is current in this thread.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

/// A device of NVIDIA's driver.
pub struct CudaDriver {
    api: DriverApi,
    number: u64,
    device: c_int,
    context: Handle,
    /// The pool of stream-ordered memory, if the device supports that.
    pool: Option<Handle>,
    properties: Properties,
    version: u32,
    /// The graph that each executable graph was made of, by its handle, if launches in graphs can be updated: its nodes
    /// name those of the executable graph.
    captured: Mutex<HashMap<u64, u64>>,
}

// SAFETY: any thread may call the driver, and its handles are valid in the whole process.
unsafe impl Send for CudaDriver {}
// SAFETY: the driver is thread-safe, and the fields do not change after `open`.
unsafe impl Sync for CudaDriver {}

/// The reason why a device cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// A library is missing.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// The driver refused.
    #[error("cuda:{ordinal} cannot be used: {why}")]
    Refused {
        /// The device's number.
        ordinal: u32,
        /// The driver's error.
        why: DriverError,
    },
}

impl CudaDriver {
    /// Opens the device of this number, among those in `CUDA_VISIBLE_DEVICES`.
    ///
    /// # Errors
    /// There is no driver, or it refuses.
    pub fn open(ordinal: u32) -> std::result::Result<CudaDriver, OpenError> {
        CudaDriver::with(DRIVER.open(None, DriverApi::bind)?, ordinal)
    }

    /// As [`CudaDriver::open`], with the driver's library at one of `paths`.
    ///
    /// # Errors
    /// As [`CudaDriver::open`].
    pub fn open_from(paths: &[PathBuf], ordinal: u32) -> std::result::Result<CudaDriver, OpenError> {
        CudaDriver::with(DRIVER.open_first(paths, DriverApi::bind)?, ordinal)
    }

    fn with(api: DriverApi, ordinal: u32) -> std::result::Result<CudaDriver, OpenError> {
        CudaDriver::start(api, ordinal).map_err(|why| OpenError::Refused { ordinal, why })
    }

    fn start(api: DriverApi, ordinal: u32) -> Result<CudaDriver> {
        let (mut version, mut device) = (0, 0);
        // SAFETY: 0 is the only valid flag of `cuInit`; the other functions write one int each, to locals.
        unsafe {
            api.check("cuInit", (api.query.init)(0))?;
            api.check("cuDriverGetVersion", (api.query.driver_version)(&raw mut version))?;
            api.check("cuDeviceGet", (api.query.device)(&raw mut device, ordinal as c_int))?;
        }
        let properties = api.properties(device)?;
        let mut context = std::ptr::null_mut();
        // SAFETY: the function writes one handle, to the local `context`.
        api.check("cuDevicePrimaryCtxRetain", unsafe { (api.retain_context)(&raw mut context, device) })?;
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Relaxed);
        // Dropping `cuda` releases the context from here on.
        let mut cuda = CudaDriver {
            api,
            number,
            device,
            context,
            pool: None,
            properties,
            version: version.max(0) as u32,
            captured: Mutex::default(),
        };
        if cuda.api.attribute(device, attribute::MEMORY_POOLS)? != 0 {
            let mut pool = std::ptr::null_mut();
            let mut keep = u64::MAX;
            let api = cuda.api()?;
            // SAFETY: the first function writes one handle to a local; the second reads a number of the type of this
            // attribute.
            unsafe {
                api.check("cuDeviceGetDefaultMemPool", (api.device_pool)(&raw mut pool, device))?;
                let set = (api.pool_attribute)(pool, RELEASE_THRESHOLD, (&raw mut keep).cast());
                api.check("cuMemPoolSetAttribute", set)?;
            }
            cuda.pool = Some(pool);
        }
        Ok(cuda)
    }

    /// The newest CUDA version that the driver supports, major and minor.
    pub fn version(&self) -> (u32, u32) {
        (self.version / 1000, self.version % 1000 / 10)
    }

    /// The newest CUDA major version that the driver supports: 13 for 13.x.
    pub fn version_major(&self) -> u32 {
        self.version / 1000
    }

    /// The functions, after making the context current in this thread.
    #[inline]
    fn api(&self) -> Result<&DriverApi> {
        if CURRENT.get() != self.number {
            // SAFETY: `cuDevicePrimaryCtxRetain` gave the context, and it is released only in `drop`.
            self.api.check("cuCtxSetCurrent", unsafe { (self.api.set_current)(self.context) })?;
            CURRENT.set(self.number);
        }
        Ok(&self.api)
    }

    fn captured(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        self.captured.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CudaDriver {
    fn drop(&mut self) {
        // The last release destroys the context with all its resources. SAFETY: the context was retained once, and this
        // is the only release.
        let status = unsafe { (self.api.release_context)(self.device) };
        if let Err(error) = self.api.check("cuDevicePrimaryCtxRelease", status) {
            tracing::debug!(target: "gtd::cuda", %error, "the context could not be given back");
        }
    }
}

impl DriverApi {
    fn updates(&self) -> Result<&UpdateFunctions> {
        let none = || DriverError::Failed { call: "an update of a graph", what: "the driver is too old".into() };
        self.updates.as_ref().ok_or_else(none)
    }

    #[inline]
    fn check(&self, call: &'static str, status: Status) -> Result<()> {
        if status == SUCCESS { Ok(()) } else { Err(self.error(call, status)) }
    }

    #[cold]
    fn error(&self, call: &'static str, status: Status) -> DriverError {
        if status == OUT_OF_MEMORY {
            return DriverError::OutOfMemory;
        }
        let text = |of: unsafe extern "C" fn(Status, *mut *const c_char) -> Status| {
            let mut text = std::ptr::null();
            // SAFETY: the function writes a pointer to a static string, or null, to a local.
            unsafe {
                (of(status, &raw mut text) == SUCCESS && !text.is_null())
                    .then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
            }
        };
        let what =
            gt_nvidia::explain(status, text(self.query.error_name).as_deref(), text(self.query.error_text).as_deref());
        if is_final(status) { DriverError::Lost { call, what } } else { DriverError::Failed { call, what } }
    }

    fn attribute(&self, device: c_int, which: c_uint) -> Result<u32> {
        let mut value = 0;
        // SAFETY: the function writes one int, to the local `value`.
        self.check("cuDeviceGetAttribute", unsafe { (self.query.attribute)(&raw mut value, which, device) })?;
        Ok(value.max(0) as u32)
    }

    fn properties(&self, device: c_int) -> Result<Properties> {
        let mut name = [0; 256];
        let (mut memory_bytes, mut uuid) = (0, [0; 16]);
        // SAFETY: the first function writes at most `name.len()` bytes, the last of them 0; the others write one size
        // and 16 bytes, to locals.
        let name = unsafe {
            self.check("cuDeviceGetName", (self.query.name)(name.as_mut_ptr(), name.len() as c_int, device))?;
            self.check("cuDeviceTotalMem", (self.query.total_memory)(&raw mut memory_bytes, device))?;
            self.check("cuDeviceGetUuid", (self.query.uuid)(&raw mut uuid, device))?;
            CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned()
        };
        let attribute = |which| self.attribute(device, which);
        Ok(Properties {
            name,
            capability: 10 * attribute(attribute::CAPABILITY_MAJOR)? + attribute(attribute::CAPABILITY_MINOR)?,
            multiprocessors: attribute(attribute::MULTIPROCESSORS)?,
            threads_per_multiprocessor: attribute(attribute::THREADS_PER_MULTIPROCESSOR)?,
            shared_bytes_per_block: attribute(attribute::SHARED_BYTES_PER_BLOCK)?,
            memory_bytes,
            uuid: Some(uuid),
        })
    }
}

#[inline]
fn handle(number: u64) -> Handle {
    number as usize as Handle
}

#[inline]
fn number(handle: Handle) -> u64 {
    handle as usize as u64
}

// In every method below, `self.api()` has made the context current, and by the contract of [`Driver`] each handle came
// from this driver and has not been destroyed.
impl Driver for CudaDriver {
    fn enter(&self) -> Result<()> {
        // A library may have made another context current in this thread. SAFETY: the context is retained until `drop`.
        self.api.check("cuCtxSetCurrent", unsafe { (self.api.set_current)(self.context) })
    }

    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn checks_addresses(&self) -> bool {
        false
    }

    fn new_stream(&self) -> Result<CudaStream> {
        let api = self.api()?;
        let mut stream = std::ptr::null_mut();
        // SAFETY: the context is current; the function writes one handle, to a local.
        api.check("cuStreamCreate", unsafe { (api.stream_create)(&raw mut stream, NON_BLOCKING) })?;
        Ok(CudaStream(number(stream)))
    }

    fn raw(&self, stream: CudaStream) -> u64 {
        stream.0
    }

    fn synchronize(&self, stream: CudaStream) -> Result<()> {
        let api = self.api()?;
        // SAFETY: the context is current, and the handles are valid; see the head of this impl.
        api.check("cuStreamSynchronize", unsafe { (api.stream_synchronize)(handle(stream.0)) })
    }

    fn new_event(&self) -> Result<CudaEvent> {
        let api = self.api()?;
        let mut event = std::ptr::null_mut();
        // SAFETY: the context is current; the function writes one handle, to a local.
        api.check("cuEventCreate", unsafe { (api.event_create)(&raw mut event, WITHOUT_TIME) })?;
        Ok(CudaEvent(number(event)))
    }

    fn new_timer(&self) -> Result<CudaEvent> {
        let api = self.api()?;
        let mut event = std::ptr::null_mut();
        // SAFETY: the context is current; the function writes one handle, to a local.
        api.check("cuEventCreate", unsafe { (api.event_create)(&raw mut event, 0) })?;
        Ok(CudaEvent(number(event)))
    }

    fn drop_event(&self, event: CudaEvent) {
        // A lost device has freed its events already.
        if let Ok(api) = self.api() {
            // SAFETY: the context is current, and the event is valid; the driver keeps a pending event until it has
            // passed.
            unsafe { (api.event_destroy)(handle(event.0)) };
        }
    }

    fn record(&self, event: CudaEvent, stream: CudaStream) -> Result<()> {
        let api = self.api()?;
        // SAFETY: the context is current, and the handles are valid; see the head of this impl.
        api.check("cuEventRecord", unsafe { (api.event_record)(handle(event.0), handle(stream.0)) })
    }

    fn wait(&self, stream: CudaStream, event: CudaEvent) -> Result<()> {
        let api = self.api()?;
        // SAFETY: the context is current, the handles are valid, and 0 is the only valid flag.
        api.check("cuStreamWaitEvent", unsafe { (api.stream_wait)(handle(stream.0), handle(event.0), 0) })
    }

    fn has_passed(&self, event: CudaEvent) -> Result<bool> {
        let api = self.api()?;
        // SAFETY: the context is current, and the handles are valid; see the head of this impl.
        match unsafe { (api.event_query)(handle(event.0)) } {
            NOT_READY => Ok(false),
            status => api.check("cuEventQuery", status).map(|()| true),
        }
    }

    fn await_event(&self, event: CudaEvent) -> Result<()> {
        let api = self.api()?;
        // SAFETY: the context is current, and the handles are valid; see the head of this impl.
        api.check("cuEventSynchronize", unsafe { (api.event_synchronize)(handle(event.0)) })
    }

    fn elapsed_ns(&self, from: CudaEvent, to: CudaEvent) -> Result<u64> {
        let api = self.api()?;
        let mut milliseconds = 0.0;
        // SAFETY: the context is current, both timers have passed, and the function writes one float, to a local.
        let status = unsafe { (api.event_elapsed)(&raw mut milliseconds, handle(from.0), handle(to.0)) };
        api.check("cuEventElapsedTime", status)?;
        Ok((f64::from(milliseconds) * 1e6) as u64)
    }

    fn allocate(&self, bytes: usize, stream: CudaStream) -> Result<DevicePtr> {
        let api = self.api()?;
        let (mut ptr, bytes) = (0, bytes.max(1));
        match self.pool {
            Some(_) => {
                // SAFETY: the context is current, the stream is valid, and the function writes one address, to a local.
                let status = unsafe { (api.alloc_async)(&raw mut ptr, bytes, handle(stream.0)) };
                api.check("cuMemAllocAsync", status)?;
            }
            // SAFETY: the context is current, and the function writes one address, to a local.
            None => api.check("cuMemAlloc", unsafe { (api.alloc)(&raw mut ptr, bytes) })?,
        }
        Ok(ptr)
    }

    unsafe fn free(&self, ptr: DevicePtr, stream: CudaStream) -> Result<()> {
        let api = self.api()?;
        match self.pool {
            // SAFETY: `ptr` came from `allocate`, and no stream uses it after the current work of this one (contract of
            // `free`).
            Some(_) => api.check("cuMemFreeAsync", unsafe { (api.free_async)(ptr, handle(stream.0)) }),
            None => {
                self.synchronize(stream)?;
                // SAFETY: the stream was synchronised, and no other uses `ptr` (contract of `free`).
                api.check("cuMemFree", unsafe { (api.free)(ptr) })
            }
        }
    }

    fn trim(&self) -> Result<()> {
        let api = self.api()?;
        // SAFETY: the context is current, and the handles are valid; see the head of this impl.
        self.pool.map_or(Ok(()), |pool| api.check("cuMemPoolTrimTo", unsafe { (api.pool_trim)(pool, 0) }))
    }

    fn free_bytes(&self) -> Result<usize> {
        let api = self.api()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the context is current; the function writes two sizes, to locals.
        api.check("cuMemGetInfo", unsafe { (api.memory_info)(&raw mut free, &raw mut total) })?;
        Ok(free)
    }

    unsafe fn fill(&self, to: DevicePtr, byte: u8, bytes: usize, stream: CudaStream) -> Result<()> {
        let api = self.api()?;
        // SAFETY: the range is allocated for the stream and nobody else uses it meanwhile (contract of `fill`).
        api.check("cuMemsetD8Async", unsafe { (api.fill)(to, byte, bytes, handle(stream.0)) })
    }

    unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: usize, stream: CudaStream) -> Result<()> {
        let api = self.api()?;
        // SAFETY: both ranges are allocated for the stream and nobody else writes them meanwhile (contract of `copy`).
        api.check("cuMemcpyDtoDAsync", unsafe { (api.copy)(to, from, bytes, handle(stream.0)) })
    }

    unsafe fn upload(&self, to: DevicePtr, from: *const u8, bytes: usize, stream: CudaStream) -> Result<()> {
        let api = self.api()?;
        // SAFETY: `to` is allocated for the stream, and `from` stays readable until the copy is done (contract of
        // `upload`).
        api.check("cuMemcpyHtoDAsync", unsafe { (api.upload)(to, from.cast(), bytes, handle(stream.0)) })
    }

    unsafe fn download(&self, to: *mut u8, from: DevicePtr, bytes: usize, stream: CudaStream) -> Result<()> {
        let api = self.api()?;
        // SAFETY: `from` is allocated for the stream, and `to` stays writable until the copy is done (contract of
        // `download`).
        api.check("cuMemcpyDtoHAsync", unsafe { (api.download)(to.cast(), from, bytes, handle(stream.0)) })
    }

    fn allocate_host(&self, bytes: usize) -> Result<NonNull<u8>> {
        let api = self.api()?;
        let failed = |what: &str| DriverError::Failed { call: "cuMemHostAlloc", what: what.into() };
        let (mut start, bytes) = (std::ptr::null_mut(), bytes.max(1));
        // SAFETY: the function writes one pointer, to a local. With unified addressing, which every device with 64-bit
        // code has, the device uses the same address.
        match api.check("cuMemHostAlloc", unsafe { (api.host_alloc)(&raw mut start, bytes, PORTABLE) }) {
            Err(DriverError::OutOfMemory) => return Err(failed("no memory of the host can be pinned")),
            other => other?,
        }
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(|| failed("it gave nothing"))?;
        // SAFETY: the memory is new and `bytes` long.
        unsafe { start.as_ptr().write_bytes(0, bytes) };
        Ok(start)
    }

    unsafe fn free_host(&self, start: NonNull<u8>) {
        let Ok(api) = self.api() else { return };
        // SAFETY: `start` came from `allocate_host`, and nobody uses it any more (contract of `free_host`).
        if let Err(error) = api.check("cuMemFreeHost", unsafe { (api.host_free)(start.as_ptr().cast()) }) {
            tracing::debug!(target: "gtd::cuda", %error, "pinned memory could not be given back");
        }
    }

    unsafe fn register(&self, start: NonNull<u8>, bytes: usize) -> Result<()> {
        let api = self.api()?;
        // SAFETY: the range stays mapped until `unregister` (contract of `register`).
        let status = unsafe { (api.host_register)(start.as_ptr().cast(), bytes, PORTABLE) };
        match api.check("cuMemHostRegister", status) {
            Err(DriverError::OutOfMemory) => {
                Err(DriverError::Failed { call: "cuMemHostRegister", what: "so much memory cannot be pinned".into() })
            }
            other => other,
        }
    }

    unsafe fn unregister(&self, start: NonNull<u8>) -> Result<()> {
        let api = self.api()?;
        // SAFETY: `start` was registered, and no copy is in flight (contract of `unregister`).
        api.check("cuMemHostUnregister", unsafe { (api.host_unregister)(start.as_ptr().cast()) })
    }

    fn load(&self, image: &[u8]) -> Result<Module> {
        let api = self.api()?;
        let mut module = std::ptr::null_mut();
        // SAFETY: the driver reads the image only during the call. A cubin's header contains its length, and PTX ends
        // with a zero byte: `Nvrtc` makes them so, and `Prebuilt` checks it.
        api.check("cuModuleLoadData", unsafe { (api.module_load)(&raw mut module, image.as_ptr().cast()) })?;
        Ok(Module(number(module)))
    }

    fn function(&self, module: Module, name: &str) -> Result<KernelFunction> {
        let api = self.api()?;
        let failed = |_| DriverError::Failed { call: "cuModuleGetFunction", what: "a name with a zero byte".into() };
        let name = CString::new(name).map_err(failed)?;
        let mut function = std::ptr::null_mut();
        // SAFETY: the context is current, `name` is a C string, and the function writes one handle, to a local.
        let status = unsafe { (api.module_function)(&raw mut function, handle(module.0), name.as_ptr()) };
        api.check("cuModuleGetFunction", status)?;
        Ok(KernelFunction(number(function)))
    }

    fn allow_shared(&self, function: KernelFunction, bytes: u32) -> Result<()> {
        let api = self.api()?;
        let function = handle(function.0);
        // SAFETY: the context is current, and the handles are valid; see the head of this impl.
        let status = unsafe { (api.function_attribute)(function, DYNAMIC_SHARED_BYTES, bytes as c_int) };
        api.check("cuFuncSetAttribute", status)
    }

    #[inline]
    unsafe fn launch(&self, function: KernelFunction, grid: Grid, args: &Args, stream: CudaStream) -> Result<()> {
        let api = self.api()?;
        let Grid { blocks: [x, y, z], threads, shared_bytes } = grid;
        let mut pointers = args.pointers();
        // SAFETY: the arguments match the kernel, and its accesses are valid (contract of `launch`); the driver copies
        // the arguments during the call.
        let status = unsafe {
            (api.launch)(
                handle(function.0),
                x,
                y,
                z,
                threads,
                1,
                1,
                shared_bytes,
                handle(stream.0),
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        api.check("cuLaunchKernel", status)
    }

    fn begin_capture(&self, stream: CudaStream) -> Result<()> {
        let api = self.api()?;
        // SAFETY: the context is current, and the handles are valid; see the head of this impl.
        api.check("cuStreamBeginCapture", unsafe { (api.capture_begin)(handle(stream.0), CAPTURE_THREAD) })
    }

    fn end_capture(&self, stream: CudaStream) -> Result<CudaGraph> {
        let api = self.api()?;
        let (mut graph, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: each function writes one handle, to a local; the graph is destroyed here, or by `drop_graph`.
        unsafe {
            api.check("cuStreamEndCapture", (api.capture_end)(handle(stream.0), &raw mut graph))?;
            let made = (api.graph_instantiate)(&raw mut exec, graph, 0);
            if made == SUCCESS && api.updates.is_some() {
                self.captured().insert(number(exec), number(graph));
            } else {
                let destroyed = (api.graph_destroy)(graph);
                api.check("cuGraphInstantiate", made)?;
                api.check("cuGraphDestroy", destroyed)?;
            }
        }
        Ok(CudaGraph(number(exec)))
    }

    fn updates_graphs(&self) -> bool {
        self.api.updates.is_some()
    }

    fn captured_launch(&self, stream: CudaStream) -> Result<GraphNode> {
        let api = self.api()?;
        let updates = api.updates()?;
        let (mut status, mut nodes, mut count) = (0, std::ptr::null(), 0);
        let none = std::ptr::null_mut();
        // SAFETY: the function writes to locals; it takes null for what is not asked for.
        let said = unsafe {
            (updates.capture_info)(
                handle(stream.0),
                &raw mut status,
                none,
                none.cast(),
                &raw mut nodes,
                none.cast(),
                &raw mut count,
            )
        };
        api.check("cuStreamGetCaptureInfo", said)?;
        if status != CAPTURE_ACTIVE || count != 1 {
            let what = format!("{count} nodes are last in a capture of status {status}");
            return Err(DriverError::Failed { call: "cuStreamGetCaptureInfo", what });
        }
        // SAFETY: the driver's array has `count` nodes, until the stream is used again.
        Ok(GraphNode(number(unsafe { *nodes })))
    }

    unsafe fn update_launch(
        &self,
        graph: CudaGraph,
        node: GraphNode,
        function: KernelFunction,
        grid: Grid,
        args: &Args,
    ) -> Result<()> {
        let api = self.api()?;
        let updates = api.updates()?;
        let Grid { blocks: [x, y, z], threads, shared_bytes } = grid;
        let mut pointers = args.pointers();
        let parameters = NodeParameters {
            function: handle(function.0),
            x,
            y,
            z,
            threads,
            threads_y: 1,
            threads_z: 1,
            shared_bytes,
            arguments: pointers.as_mut_ptr(),
            extra: std::ptr::null_mut(),
            kernel: std::ptr::null_mut(),
            context: std::ptr::null_mut(),
        };
        // SAFETY: the node is of the graph, which `captured` keeps, and the arguments match its kernel (contract of
        // `update_launch`); the driver copies them during the call.
        let status = unsafe { (updates.update)(handle(graph.0), handle(node.0), &raw const parameters) };
        api.check("cuGraphExecKernelNodeSetParams", status)
    }

    unsafe fn launch_graph(&self, graph: CudaGraph, stream: CudaStream) -> Result<()> {
        let api = self.api()?;
        // SAFETY: everything that was captured may run again (contract of `launch_graph`).
        api.check("cuGraphLaunch", unsafe { (api.graph_launch)(handle(graph.0), handle(stream.0)) })
    }

    fn drop_graph(&self, graph: CudaGraph) {
        // A lost device has freed its graphs already.
        if let Ok(api) = self.api() {
            let captured = self.captured().remove(&graph.0);
            // SAFETY: the graphs are valid; the driver completes a launch that is in flight.
            unsafe {
                (api.graph_exec_destroy)(handle(graph.0));
                if let Some(graph) = captured {
                    (api.graph_destroy)(handle(graph));
                }
            }
        }
    }
}
