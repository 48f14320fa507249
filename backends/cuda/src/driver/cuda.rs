//! NVIDIA's driver, `libcuda`, found and opened at run time.
//!
//! The signatures are those of `cuda.h`, by the names that the library exports: a name with `_v2` is what the header's
//! name stands for. Results are numbers, not an enum: a newer driver may say what no header of today knows.

use super::{
    Args, CudaEvent, CudaGraph, CudaStream, DevicePtr, Driver, DriverError, Function, Grid, Module, Properties, Result,
};
use gt_nvidia::{DRIVER, Missing};
use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// `CUcontext`, `CUstream`, …: the driver's own, never looked into.
type Handle = *mut c_void;
/// `CUresult`.
type Status = c_uint;

gt_nvidia::functions! {
    /// What is used of the driver.
    struct DriverFunctions {
        init: "cuInit" (c_uint) -> Status;
        version: "cuDriverGetVersion" (*mut c_int) -> Status;
        error_name: "cuGetErrorName" (Status, *mut *const c_char) -> Status;
        error_text: "cuGetErrorString" (Status, *mut *const c_char) -> Status;

        device: "cuDeviceGet" (*mut c_int, c_int) -> Status;
        device_name: "cuDeviceGetName" (*mut c_char, c_int, c_int) -> Status;
        device_attribute: "cuDeviceGetAttribute" (*mut c_int, c_uint, c_int) -> Status;
        device_memory: "cuDeviceTotalMem_v2" (*mut usize, c_int) -> Status;
        device_uuid: "cuDeviceGetUuid_v2" (*mut [u8; 16], c_int) -> Status;
        device_pool: "cuDeviceGetDefaultMemPool" (*mut Handle, c_int) -> Status;
        retain_context: "cuDevicePrimaryCtxRetain" (*mut Handle, c_int) -> Status;
        release_context: "cuDevicePrimaryCtxRelease_v2" (c_int) -> Status;
        set_current: "cuCtxSetCurrent" (Handle) -> Status;

        stream_create: "cuStreamCreate" (*mut Handle, c_uint) -> Status;
        stream_synchronize: "cuStreamSynchronize" (Handle) -> Status;
        stream_wait: "cuStreamWaitEvent" (Handle, Handle, c_uint) -> Status;
        event_create: "cuEventCreate" (*mut Handle, c_uint) -> Status;
        event_destroy: "cuEventDestroy_v2" (Handle) -> Status;
        event_record: "cuEventRecord" (Handle, Handle) -> Status;
        event_query: "cuEventQuery" (Handle) -> Status;
        event_synchronize: "cuEventSynchronize" (Handle) -> Status;
        event_elapsed: "cuEventElapsedTime" (*mut f32, Handle, Handle) -> Status;

        pool_attribute: "cuMemPoolSetAttribute" (Handle, c_uint, *mut c_void) -> Status;
        pool_trim: "cuMemPoolTrimTo" (Handle, usize) -> Status;
        alloc_async: "cuMemAllocAsync" (*mut DevicePtr, usize, Handle) -> Status;
        free_async: "cuMemFreeAsync" (DevicePtr, Handle) -> Status;
        alloc: "cuMemAlloc_v2" (*mut DevicePtr, usize) -> Status;
        free: "cuMemFree_v2" (DevicePtr) -> Status;
        memory_info: "cuMemGetInfo_v2" (*mut usize, *mut usize) -> Status;
        fill: "cuMemsetD8Async" (DevicePtr, c_uchar, usize, Handle) -> Status;
        copy: "cuMemcpyDtoDAsync_v2" (DevicePtr, DevicePtr, usize, Handle) -> Status;
        upload: "cuMemcpyHtoDAsync_v2" (DevicePtr, *const c_void, usize, Handle) -> Status;
        download: "cuMemcpyDtoHAsync_v2" (*mut c_void, DevicePtr, usize, Handle) -> Status;
        host_alloc: "cuMemHostAlloc" (*mut *mut c_void, usize, c_uint) -> Status;
        host_free: "cuMemFreeHost" (*mut c_void) -> Status;
        host_register: "cuMemHostRegister_v2" (*mut c_void, usize, c_uint) -> Status;
        host_unregister: "cuMemHostUnregister" (*mut c_void) -> Status;

        module_load: "cuModuleLoadData" (*mut Handle, *const c_void) -> Status;
        module_function: "cuModuleGetFunction" (*mut Handle, Handle, *const c_char) -> Status;
        function_attribute: "cuFuncSetAttribute" (Handle, c_uint, c_int) -> Status;
        launch: "cuLaunchKernel" (
            Handle,
            c_uint, c_uint, c_uint,
            c_uint, c_uint, c_uint,
            c_uint,
            Handle,
            *mut *mut c_void,
            *mut *mut c_void,
        ) -> Status;

        capture_begin: "cuStreamBeginCapture_v2" (Handle, c_uint) -> Status;
        capture_end: "cuStreamEndCapture" (Handle, *mut Handle) -> Status;
        graph_destroy: "cuGraphDestroy" (Handle) -> Status;
        graph_instantiate: "cuGraphInstantiateWithFlags" (*mut Handle, Handle, c_ulonglong) -> Status;
        graph_launch: "cuGraphLaunch" (Handle, Handle) -> Status;
        graph_exec_destroy: "cuGraphExecDestroy" (Handle) -> Status;
    }
}

/// `CU_DEVICE_ATTRIBUTE_*`.
mod attribute {
    pub const MULTIPROCESSORS: u32 = 16;
    pub const THREADS_PER_MULTIPROCESSOR: u32 = 39;
    pub const CAPABILITY_MAJOR: u32 = 75;
    pub const CAPABILITY_MINOR: u32 = 76;
    pub const SHARED_BYTES_PER_BLOCK: u32 = 97;
    pub const MEMORY_POOLS: u32 = 115;
}

/// `CU_STREAM_NON_BLOCKING`: not ordered with the default stream.
const NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`: an event without a clock costs less.
const WITHOUT_TIME: c_uint = 2;
/// `CU_MEMHOSTALLOC_PORTABLE`, and the same of `CU_MEMHOSTREGISTER_`: pinned for every context. Without
/// `WRITECOMBINED`, as the host reads what comes down.
const PORTABLE: c_uint = 1;
/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`: what a pool keeps when it is waited for.
const RELEASE_THRESHOLD: c_uint = 4;
/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const DYNAMIC_SHARED_BYTES: c_uint = 8;

/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: other threads do what they like meanwhile.
const CAPTURE_THREAD: c_uint = 1;

const SUCCESS: Status = 0;
const OUT_OF_MEMORY: Status = 2;
const NOT_READY: Status = 600;

/// Whether every call fails from now on, whatever is done: the context is gone, or the device.
fn is_final(status: Status) -> bool {
    matches!(
        status,
        // Deinitialised; the device has become unavailable.
        4 | 46
        // ECC, NVLink, and an error that was contained to this process.
        | 214 | 220 | 226
        // Illegal address, timeout, context destroyed, assertion, stack, instruction, alignment, address space, program
        // counter, launch, tensor memory.
        | 700 | 702 | 709 | 710 | 714
            ..=719 | 721
        // The server shared by several processes has ended.
        | 806 | 810
        // An external device, key rotation, and what the driver cannot name.
        | 911 | 916 | 999
    )
}

thread_local! {
    /// The [`CudaDriver`] whose context is current here, by its number.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

/// A device behind NVIDIA's driver.
pub struct CudaDriver {
    api: DriverFunctions,
    number: u64,
    device: c_int,
    context: Handle,
    /// Where memory comes from in a stream's order, if the device can do that.
    pool: Option<Handle>,
    properties: Properties,
    version: u32,
}

// SAFETY: the driver may be called from every thread, and its handles are the process's.
unsafe impl Send for CudaDriver {}
// SAFETY: as above.
unsafe impl Sync for CudaDriver {}

/// Why a device cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// A library that it takes is not here.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// The driver refuses.
    #[error("cuda:{ordinal} cannot be used: {why}")]
    Refused {
        /// Which device.
        ordinal: u32,
        /// What the driver says.
        why: DriverError,
    },
}

impl CudaDriver {
    /// The device of this number, among those that `CUDA_VISIBLE_DEVICES` leaves.
    ///
    /// # Errors
    /// There is no driver, or it refuses.
    pub fn open(ordinal: u32) -> std::result::Result<CudaDriver, OpenError> {
        CudaDriver::with(DRIVER.open(None, DriverFunctions::bind)?, ordinal)
    }

    /// As [`CudaDriver::open`], the driver being one of these files.
    ///
    /// # Errors
    /// As [`CudaDriver::open`].
    pub fn open_from(paths: &[PathBuf], ordinal: u32) -> std::result::Result<CudaDriver, OpenError> {
        CudaDriver::with(DRIVER.open_first(paths, DriverFunctions::bind)?, ordinal)
    }

    fn with(api: DriverFunctions, ordinal: u32) -> std::result::Result<CudaDriver, OpenError> {
        CudaDriver::start(api, ordinal).map_err(|why| OpenError::Refused { ordinal, why })
    }

    fn start(api: DriverFunctions, ordinal: u32) -> Result<CudaDriver> {
        let (mut version, mut device) = (0, 0);
        // SAFETY: the only flags there are; the others write one int.
        unsafe {
            api.check("cuInit", (api.init)(0))?;
            api.check("cuDriverGetVersion", (api.version)(&raw mut version))?;
            api.check("cuDeviceGet", (api.device)(&raw mut device, ordinal as c_int))?;
        }
        let properties = api.properties(device)?;
        let mut context = std::ptr::null_mut();
        // SAFETY: it writes one handle.
        api.check("cuDevicePrimaryCtxRetain", unsafe { (api.retain_context)(&raw mut context, device) })?;
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Relaxed);
        // From here on what is dropped gives the context back.
        let mut cuda =
            CudaDriver { api, number, device, context, pool: None, properties, version: version.max(0) as u32 };
        if cuda.api.attribute(device, attribute::MEMORY_POOLS)? != 0 {
            let mut pool = std::ptr::null_mut();
            let mut keep = u64::MAX;
            let api = cuda.api()?;
            // SAFETY: the one writes a handle, the other reads the number that this attribute has.
            unsafe {
                api.check("cuDeviceGetDefaultMemPool", (api.device_pool)(&raw mut pool, device))?;
                let set = (api.pool_attribute)(pool, RELEASE_THRESHOLD, (&raw mut keep).cast());
                api.check("cuMemPoolSetAttribute", set)?;
            }
            cuda.pool = Some(pool);
        }
        Ok(cuda)
    }

    /// The newest CUDA that the driver is for: 13 is 13.x.
    pub fn version_major(&self) -> u32 {
        self.version / 1000
    }

    /// The functions, for a thread in which the context is current.
    #[inline]
    fn api(&self) -> Result<&DriverFunctions> {
        if CURRENT.get() != self.number {
            // SAFETY: the context is retained.
            self.api.check("cuCtxSetCurrent", unsafe { (self.api.set_current)(self.context) })?;
            CURRENT.set(self.number);
        }
        Ok(&self.api)
    }
}

impl Drop for CudaDriver {
    fn drop(&mut self) {
        // What was made in the context goes with it, if nobody else in the process retains it.
        // SAFETY: it was retained once.
        let status = unsafe { (self.api.release_context)(self.device) };
        if let Err(error) = self.api.check("cuDevicePrimaryCtxRelease", status) {
            tracing::debug!(target: "gtd::cuda", %error, "the context could not be given back");
        }
    }
}

impl DriverFunctions {
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
            // SAFETY: it writes a pointer to a static string, or null.
            unsafe {
                (of(status, &raw mut text) == SUCCESS && !text.is_null())
                    .then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
            }
        };
        let what = gt_nvidia::explain(status, text(self.error_name).as_deref(), text(self.error_text).as_deref());
        if is_final(status) { DriverError::Lost { call, what } } else { DriverError::Failed { call, what } }
    }

    fn attribute(&self, device: c_int, which: c_uint) -> Result<u32> {
        let mut value = 0;
        // SAFETY: it writes one int.
        self.check("cuDeviceGetAttribute", unsafe { (self.device_attribute)(&raw mut value, which, device) })?;
        Ok(value.max(0) as u32)
    }

    fn properties(&self, device: c_int) -> Result<Properties> {
        let mut name = [0; 256];
        let (mut memory_bytes, mut uuid) = (0, [0; 16]);
        // SAFETY: the one writes so many bytes at most, the last of them 0; the others one size, and 16 bytes.
        let name = unsafe {
            self.check("cuDeviceGetName", (self.device_name)(name.as_mut_ptr(), name.len() as c_int, device))?;
            self.check("cuDeviceTotalMem", (self.device_memory)(&raw mut memory_bytes, device))?;
            self.check("cuDeviceGetUuid", (self.device_uuid)(&raw mut uuid, device))?;
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

// SAFETY of all calls below: the context is current, and handles are those that the driver gave, as the trait asks.
impl Driver for CudaDriver {
    fn enter(&self) -> Result<()> {
        // A library may have made another context current since.
        // SAFETY: the context is retained.
        self.api.check("cuCtxSetCurrent", unsafe { (self.api.set_current)(self.context) })
    }

    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn new_stream(&self) -> Result<CudaStream> {
        let api = self.api()?;
        let mut stream = std::ptr::null_mut();
        // SAFETY: it writes one handle.
        api.check("cuStreamCreate", unsafe { (api.stream_create)(&raw mut stream, NON_BLOCKING) })?;
        Ok(CudaStream(number(stream)))
    }

    fn raw(&self, stream: CudaStream) -> u64 {
        stream.0
    }

    fn synchronize(&self, stream: CudaStream) -> Result<()> {
        let api = self.api()?;
        // SAFETY: see above.
        api.check("cuStreamSynchronize", unsafe { (api.stream_synchronize)(handle(stream.0)) })
    }

    fn new_event(&self) -> Result<CudaEvent> {
        let api = self.api()?;
        let mut event = std::ptr::null_mut();
        // SAFETY: it writes one handle.
        api.check("cuEventCreate", unsafe { (api.event_create)(&raw mut event, WITHOUT_TIME) })?;
        Ok(CudaEvent(number(event)))
    }

    fn new_timer(&self) -> Result<CudaEvent> {
        let api = self.api()?;
        let mut event = std::ptr::null_mut();
        // SAFETY: it writes one handle.
        api.check("cuEventCreate", unsafe { (api.event_create)(&raw mut event, 0) })?;
        Ok(CudaEvent(number(event)))
    }

    fn drop_event(&self, event: CudaEvent) {
        // A device that is lost took its events with it.
        if let Ok(api) = self.api() {
            // SAFETY: see above; the driver lets an event end that has not passed.
            unsafe { (api.event_destroy)(handle(event.0)) };
        }
    }

    fn record(&self, event: CudaEvent, stream: CudaStream) -> Result<()> {
        let api = self.api()?;
        // SAFETY: see above.
        api.check("cuEventRecord", unsafe { (api.event_record)(handle(event.0), handle(stream.0)) })
    }

    fn wait(&self, stream: CudaStream, event: CudaEvent) -> Result<()> {
        let api = self.api()?;
        // SAFETY: see above; there are no flags for this.
        api.check("cuStreamWaitEvent", unsafe { (api.stream_wait)(handle(stream.0), handle(event.0), 0) })
    }

    fn has_passed(&self, event: CudaEvent) -> Result<bool> {
        let api = self.api()?;
        // SAFETY: see above.
        match unsafe { (api.event_query)(handle(event.0)) } {
            NOT_READY => Ok(false),
            status => api.check("cuEventQuery", status).map(|()| true),
        }
    }

    fn await_event(&self, event: CudaEvent) -> Result<()> {
        let api = self.api()?;
        // SAFETY: see above.
        api.check("cuEventSynchronize", unsafe { (api.event_synchronize)(handle(event.0)) })
    }

    fn elapsed_ns(&self, from: CudaEvent, to: CudaEvent) -> Result<u64> {
        let api = self.api()?;
        let mut milliseconds = 0.0;
        // SAFETY: see above; it writes one float.
        let status = unsafe { (api.event_elapsed)(&raw mut milliseconds, handle(from.0), handle(to.0)) };
        api.check("cuEventElapsedTime", status)?;
        Ok((f64::from(milliseconds) * 1e6) as u64)
    }

    fn allocate(&self, bytes: usize, stream: CudaStream) -> Result<DevicePtr> {
        let api = self.api()?;
        let (mut ptr, bytes) = (0, bytes.max(1));
        match self.pool {
            Some(_) => {
                // SAFETY: see above; it writes one address.
                let status = unsafe { (api.alloc_async)(&raw mut ptr, bytes, handle(stream.0)) };
                api.check("cuMemAllocAsync", status)?;
            }
            // SAFETY: as above.
            None => api.check("cuMemAlloc", unsafe { (api.alloc)(&raw mut ptr, bytes) })?,
        }
        Ok(ptr)
    }

    unsafe fn free(&self, ptr: DevicePtr, stream: CudaStream) -> Result<()> {
        let api = self.api()?;
        match self.pool {
            // SAFETY: see above, and the caller's promise.
            Some(_) => api.check("cuMemFreeAsync", unsafe { (api.free_async)(ptr, handle(stream.0)) }),
            None => {
                self.synchronize(stream)?;
                // SAFETY: as above; nobody uses it any more.
                api.check("cuMemFree", unsafe { (api.free)(ptr) })
            }
        }
    }

    fn trim(&self) -> Result<()> {
        let api = self.api()?;
        // SAFETY: see above.
        self.pool.map_or(Ok(()), |pool| api.check("cuMemPoolTrimTo", unsafe { (api.pool_trim)(pool, 0) }))
    }

    fn free_bytes(&self) -> Result<usize> {
        let api = self.api()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: it writes two sizes.
        api.check("cuMemGetInfo", unsafe { (api.memory_info)(&raw mut free, &raw mut total) })?;
        Ok(free)
    }

    unsafe fn fill(&self, to: DevicePtr, byte: u8, bytes: usize, stream: CudaStream) -> Result<()> {
        let api = self.api()?;
        // SAFETY: the caller's promise.
        api.check("cuMemsetD8Async", unsafe { (api.fill)(to, byte, bytes, handle(stream.0)) })
    }

    unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: usize, stream: CudaStream) -> Result<()> {
        let api = self.api()?;
        // SAFETY: the caller's promise.
        api.check("cuMemcpyDtoDAsync", unsafe { (api.copy)(to, from, bytes, handle(stream.0)) })
    }

    unsafe fn upload(&self, to: DevicePtr, from: *const u8, bytes: usize, stream: CudaStream) -> Result<()> {
        let api = self.api()?;
        // SAFETY: the caller's promise.
        api.check("cuMemcpyHtoDAsync", unsafe { (api.upload)(to, from.cast(), bytes, handle(stream.0)) })
    }

    unsafe fn download(&self, to: *mut u8, from: DevicePtr, bytes: usize, stream: CudaStream) -> Result<()> {
        let api = self.api()?;
        // SAFETY: the caller's promise.
        api.check("cuMemcpyDtoHAsync", unsafe { (api.download)(to.cast(), from, bytes, handle(stream.0)) })
    }

    fn allocate_host(&self, bytes: usize) -> Result<NonNull<u8>> {
        let api = self.api()?;
        let failed = |what: &str| DriverError::Failed { call: "cuMemHostAlloc", what: what.into() };
        let (mut start, bytes) = (std::ptr::null_mut(), bytes.max(1));
        // SAFETY: it writes one pointer. Where addresses are unified, as on every device with 64-bit code, the device
        // reaches the memory by the same.
        match api.check("cuMemHostAlloc", unsafe { (api.host_alloc)(&raw mut start, bytes, PORTABLE) }) {
            Err(DriverError::OutOfMemory) => return Err(failed("no memory of the host can be pinned")),
            other => other?,
        }
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(|| failed("it gave nothing"))?;
        // SAFETY: the memory is new, and so long.
        unsafe { start.as_ptr().write_bytes(0, bytes) };
        Ok(start)
    }

    unsafe fn free_host(&self, start: NonNull<u8>) {
        let Ok(api) = self.api() else { return };
        // SAFETY: the caller's promise.
        if let Err(error) = api.check("cuMemFreeHost", unsafe { (api.host_free)(start.as_ptr().cast()) }) {
            tracing::debug!(target: "gtd::cuda", %error, "pinned memory could not be given back");
        }
    }

    unsafe fn register(&self, start: NonNull<u8>, bytes: usize) -> Result<()> {
        let api = self.api()?;
        // SAFETY: the caller's promise.
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
        // SAFETY: the caller's promise.
        api.check("cuMemHostUnregister", unsafe { (api.host_unregister)(start.as_ptr().cast()) })
    }

    fn load(&self, image: &[u8]) -> Result<Module> {
        let api = self.api()?;
        let mut module = std::ptr::null_mut();
        // SAFETY: the image says itself how long it is, and is only read during the call.
        api.check("cuModuleLoadData", unsafe { (api.module_load)(&raw mut module, image.as_ptr().cast()) })?;
        Ok(Module(number(module)))
    }

    fn function(&self, module: Module, name: &str) -> Result<Function> {
        let api = self.api()?;
        let failed = |_| DriverError::Failed { call: "cuModuleGetFunction", what: "a name with a zero byte".into() };
        let name = CString::new(name).map_err(failed)?;
        let mut function = std::ptr::null_mut();
        // SAFETY: see above; it writes one handle.
        let status = unsafe { (api.module_function)(&raw mut function, handle(module.0), name.as_ptr()) };
        api.check("cuModuleGetFunction", status)?;
        Ok(Function(number(function)))
    }

    fn allow_shared(&self, function: Function, bytes: u32) -> Result<()> {
        let api = self.api()?;
        let function = handle(function.0);
        // SAFETY: see above.
        let status = unsafe { (api.function_attribute)(function, DYNAMIC_SHARED_BYTES, bytes as c_int) };
        api.check("cuFuncSetAttribute", status)
    }

    #[inline]
    unsafe fn launch(&self, function: Function, grid: Grid, args: &Args, stream: CudaStream) -> Result<()> {
        let api = self.api()?;
        let Grid { blocks: [x, y, z], threads, shared_bytes } = grid;
        let mut pointers = args.pointers();
        // SAFETY: see above, and the caller's promise; the arguments are copied during the call.
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
        // SAFETY: see above.
        api.check("cuStreamBeginCapture", unsafe { (api.capture_begin)(handle(stream.0), CAPTURE_THREAD) })
    }

    fn end_capture(&self, stream: CudaStream) -> Result<CudaGraph> {
        let api = self.api()?;
        let (mut graph, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: see above; each writes one handle, and the graph is destroyed once.
        unsafe {
            api.check("cuStreamEndCapture", (api.capture_end)(handle(stream.0), &raw mut graph))?;
            let made = (api.graph_instantiate)(&raw mut exec, graph, 0);
            let destroyed = (api.graph_destroy)(graph);
            api.check("cuGraphInstantiate", made)?;
            api.check("cuGraphDestroy", destroyed)?;
        }
        Ok(CudaGraph(number(exec)))
    }

    unsafe fn launch_graph(&self, graph: CudaGraph, stream: CudaStream) -> Result<()> {
        let api = self.api()?;
        // SAFETY: see above, and the caller's promise.
        api.check("cuGraphLaunch", unsafe { (api.graph_launch)(handle(graph.0), handle(stream.0)) })
    }

    fn drop_graph(&self, graph: CudaGraph) {
        // A device that is lost took its graphs with it.
        if let Ok(api) = self.api() {
            // SAFETY: see above; the driver lets a launch end that is under way.
            unsafe { (api.graph_exec_destroy)(handle(graph.0)) };
        }
    }
}
