//! The driver's device queries, and the meaning of its error codes.

use crate::device::{ComputeMode, Device, NoCuda};
use crate::find::DRIVER;
use std::ffi::{CStr, c_char, c_int, c_uint};

/// The driver's types of numbers, each under a name of its own, so that a test compares them with its header.
type CudaResult = c_uint;
type DeviceAttribute = c_uint;
type Uuid = [u8; 16];

functions! {
    /// The driver's functions that describe devices. None of them makes a context.
    pub struct CudaQuery {
        init: "cuInit" (c_uint) -> CudaResult;
        driver_version: "cuDriverGetVersion" (*mut c_int) -> CudaResult;
        count: "cuDeviceGetCount" (*mut c_int) -> CudaResult;
        device: "cuDeviceGet" (*mut c_int, c_int) -> CudaResult;
        name: "cuDeviceGetName" (*mut c_char, c_int, c_int) -> CudaResult;
        uuid: "cuDeviceGetUuid_v2" (*mut Uuid, c_int) -> CudaResult;
        attribute: "cuDeviceGetAttribute" (*mut c_int, DeviceAttribute, c_int) -> CudaResult;
        total_memory: "cuDeviceTotalMem_v2" (*mut usize, c_int) -> CudaResult;
        pci: "cuDeviceGetPCIBusId" (*mut c_char, c_int, c_int) -> CudaResult;
        error_name: "cuGetErrorName" (CudaResult, *mut *const c_char) -> CudaResult;
        error_text: "cuGetErrorString" (CudaResult, *mut *const c_char) -> CudaResult;
    }
}

/// Numbers of attributes, for [`CudaQuery::attribute`]: `CU_DEVICE_ATTRIBUTE_*`.
#[expect(missing_docs, reason = "the names are those of cuda.h")]
pub mod attribute {
    pub const CLOCK_KHZ: u32 = 13;
    pub const MULTIPROCESSORS: u32 = 16;
    pub const COMPUTE_MODE: u32 = 20;
    pub const MEMORY_CLOCK_KHZ: u32 = 36;
    pub const MEMORY_BUS_BITS: u32 = 37;
    pub const THREADS_PER_MULTIPROCESSOR: u32 = 39;
    pub const CAPABILITY_MAJOR: u32 = 75;
    pub const CAPABILITY_MINOR: u32 = 76;
    pub const SHARED_BYTES_PER_BLOCK: u32 = 97;
    pub const MEMORY_POOLS: u32 = 115;
}

/// `CUDA_ERROR_NO_DEVICE`.
const NO_DEVICE: u32 = 100;

/// The remedy for a `CUresult`, where one is known.
pub fn remedy(code: u32) -> Option<&'static str> {
    Some(match code {
        34 => "libcuda.so.1 is the stub that one links with: remove its folder from LD_LIBRARY_PATH",
        46 => {
            "somebody else has the GPU for itself: end that program (gtctl doctor names it), or `nvidia-smi -c 0` as root"
        }
        100 => {
            "there is no GPU for this process: look at CUDA_VISIBLE_DEVICES and nvidia-smi; a container needs the GPUs \
             given (docker run --gpus all)"
        }
        101 => "no GPU has that number: gtctl doctor lists them",
        2 => "its memory is full: gtctl doctor names who holds it",
        3 | 4 => "the driver is being unloaded",
        200 | 209 => {
            "this GPU does not run code for its kind: remove the kernels' cache, and see that gtd is of one version"
        }
        218 | 222 => "the compiler is newer than the driver: install a newer driver, or an older NVRTC (gtctl doctor)",
        214 | 226 => {
            "the GPU's memory has failed: reset it by `nvidia-smi -r`, and replace it if `nvidia-smi -q -d ECC` counts more"
        }
        220 => "a link between GPUs has failed: `nvidia-smi nvlink -e` counts errors; restart the machine",
        802 => "the GPUs' fabric is not ready: systemctl start nvidia-fabricmanager",
        803 | 804 => "the kernel's module and libcuda are of different versions: restart the machine after an upgrade",
        719 => {
            "the GPU has failed, or is gone from its bus: dmesg names an Xid, and nvidia-smi whether it is still there"
        }
        999 => "the driver cannot say why: nvidia-modprobe -u -c 0, or dmesg, may",
        _ => return None,
    })
}

/// The name, meaning and remedy of a `CUresult`, as in `CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)`.
/// `name` and `text` come from the driver.
pub fn explain(code: u32, name: Option<&str>, text: Option<&str>) -> String {
    let name = name.map_or_else(|| format!("CUDA error {code}"), str::to_owned);
    let text = text.map(|text| format!(" ({text})")).unwrap_or_default();
    let remedy = remedy(code).map(|remedy| format!(": {remedy}")).unwrap_or_default();
    format!("{name}{text}{remedy}")
}

/// The driver's version number as text: `10.2` for 10020.
pub fn version_text(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

impl CudaQuery {
    /// Opens the driver's library and initialises it.
    ///
    /// # Errors
    /// [`NoCuda`]: there is no driver, or it does not work.
    pub fn start() -> Result<CudaQuery, NoCuda> {
        let cuda = DRIVER.open(None, CudaQuery::bind).map_err(|missing| NoCuda::NoDriver(missing.to_string()))?;
        // SAFETY: `cuInit` may be called at any time, and 0 is its only valid flag.
        match unsafe { (cuda.init)(0) } {
            0 => Ok(cuda),
            NO_DEVICE => Err(NoCuda::NoDevice(cuda.explain(NO_DEVICE))),
            code => Err(NoCuda::Failed { what: "cuInit".into(), why: cuda.explain(code) }),
        }
    }

    fn explain(&self, code: u32) -> String {
        let text = |of: unsafe extern "C" fn(c_uint, *mut *const c_char) -> c_uint| {
            let mut text = std::ptr::null();
            // SAFETY: both functions write a pointer to a static string, or null, to the local `text`.
            unsafe { (of(code, &raw mut text) == 0 && !text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy()) }
        };
        explain(code, text(self.error_name).as_deref(), text(self.error_text).as_deref())
    }

    fn check(&self, what: &str, code: u32) -> Result<(), NoCuda> {
        if code == 0 { Ok(()) } else { Err(NoCuda::Failed { what: what.into(), why: self.explain(code) }) }
    }

    /// The newest CUDA version that the driver supports, as in 13000.
    pub fn version(&self) -> Result<i32, NoCuda> {
        let mut version = 0;
        // SAFETY: `cuDriverGetVersion` writes one int, to the local `version`.
        self.check("cuDriverGetVersion", unsafe { (self.driver_version)(&raw mut version) })?;
        Ok(version)
    }

    /// All devices that are visible to this process, by number.
    pub fn devices(&self) -> Result<Vec<Device>, NoCuda> {
        let mut count = 0;
        // SAFETY: `cuDeviceGetCount` writes one int, to the local `count`.
        self.check("cuDeviceGetCount", unsafe { (self.count)(&raw mut count) })?;
        (0..count).map(|number| self.describe(number)).collect()
    }

    fn describe(&self, number: c_int) -> Result<Device, NoCuda> {
        let mut device = 0;
        // SAFETY: `cuDeviceGet` writes one int, to the local `device`.
        self.check("cuDeviceGet", unsafe { (self.device)(&raw mut device, number) })?;
        let text = |what, of: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_uint| {
            let mut text = [0; 256];
            // SAFETY: the function writes at most `text.len()` bytes, the last of them 0.
            self.check(what, unsafe { of(text.as_mut_ptr(), text.len() as c_int, device) })?;
            // SAFETY: `text` was zeroed, and its last byte stays 0.
            Ok::<_, NoCuda>(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
        };
        // A driver may not know an attribute; the device is usable all the same.
        let attribute = |which| {
            let mut value = 0;
            // SAFETY: `cuDeviceGetAttribute` writes one int, to the local `value`.
            let code = unsafe { (self.attribute)(&raw mut value, which, device) };
            if code == 0 { value.max(0) as u32 } else { 0 }
        };
        let name = text("cuDeviceGetName", self.name)?;
        let mut uuid = [0; 16];
        // SAFETY: `cuDeviceGetUuid` writes 16 bytes, to the local `uuid` of 16 bytes.
        self.check("cuDeviceGetUuid", unsafe { (self.uuid)(&raw mut uuid, device) })?;
        let mut memory_bytes = 0;
        // SAFETY: `cuDeviceTotalMem` writes one size, to the local `memory_bytes`.
        self.check("cuDeviceTotalMem", unsafe { (self.total_memory)(&raw mut memory_bytes, device) })?;
        let mig = name.contains(" MIG ");
        Ok(Device {
            number: number as u32,
            uuid: uuid_text(if mig { "MIG" } else { "GPU" }, uuid),
            capability: (attribute(attribute::CAPABILITY_MAJOR), attribute(attribute::CAPABILITY_MINOR)),
            memory_bytes: memory_bytes as u64,
            pci: text("cuDeviceGetPCIBusId", self.pci)?,
            mig,
            compute_mode: ComputeMode::from_number(attribute(attribute::COMPUTE_MODE)),
            multiprocessors: attribute(attribute::MULTIPROCESSORS),
            clock_khz: attribute(attribute::CLOCK_KHZ),
            memory_clock_khz: attribute(attribute::MEMORY_CLOCK_KHZ),
            memory_bus_bits: attribute(attribute::MEMORY_BUS_BITS),
            link_gbytes_per_s: None,
            free_bytes: None,
            holders: Vec::new(),
            name,
        })
    }
}

/// A UUID as NVIDIA writes it: `GPU-8d2a…`.
pub fn uuid_text(kind: &str, uuid: [u8; 16]) -> String {
    let mut text = format!("{kind}-");
    for (at, byte) in uuid.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_to_do() {
        let text = explain(802, Some("CUDA_ERROR_SYSTEM_NOT_READY"), Some("system not yet initialized"));
        assert_eq!(
            text,
            "CUDA_ERROR_SYSTEM_NOT_READY (system not yet initialized): the GPUs' fabric is not ready: \
             systemctl start nvidia-fabricmanager"
        );
        assert_eq!(explain(77777, None, None), "CUDA error 77777");
        // Memory that fails, a GPU that is gone from its bus, and code of a newer compiler than the driver's.
        for (code, part) in [(214, "`nvidia-smi -r`"), (719, "dmesg names an Xid"), (222, "install a newer driver")] {
            assert!(explain(code, None, None).contains(part), "{code}");
        }
    }

    #[test]
    fn versions_and_names_are_as_nvidia_writes_them() {
        assert_eq!((version_text(13000), version_text(12080)), ("13.0".into(), "12.8".into()));
        let uuid = std::array::from_fn(|at| at as u8);
        assert_eq!(uuid_text("GPU", uuid), "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
