//! cuDNN's functions, and its descriptors: objects with numbered attributes, of which a plan is made.

use crate::driver::DriverError;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::sync::Arc;

/// `cudnnHandle_t`, `cudnnBackendDescriptor_t` and `cudaStream_t`.
pub(super) type Raw = *mut c_void;
/// `cudnnStatus_t`.
pub(super) type Status = c_int;

/// The library's types of handles and of numbers, each under a name of its own, so that a test compares them with its
/// header.
type RawHandle = Raw;
type RawStream = Raw;
type RawDescriptor = Raw;
type DescriptorType = c_int;
type AttributeName = c_int;
type AttributeType = c_int;

gt_nvidia::functions! {
    /// The functions of cuDNN 9 that GT uses.
    pub(super) struct DnnFunctions {
        version: "cudnnGetVersion" () -> usize;
        cuda_version: "cudnnGetCudartVersion" () -> usize;
        create: "cudnnCreate" (*mut RawHandle) -> Status;
        destroy: "cudnnDestroy" (RawHandle) -> Status;
        set_stream: "cudnnSetStream" (RawHandle, RawStream) -> Status;
        status_text: "cudnnGetErrorString" (Status) -> *const c_char;
        last_error: "cudnnGetLastErrorString" (*mut c_char, usize) -> ();
        descriptor_create: "cudnnBackendCreateDescriptor" (DescriptorType, *mut RawDescriptor) -> Status;
        descriptor_destroy: "cudnnBackendDestroyDescriptor" (RawDescriptor) -> Status;
        descriptor_finalize: "cudnnBackendFinalize" (RawDescriptor) -> Status;
        descriptor_set: "cudnnBackendSetAttribute" (RawDescriptor, AttributeName, AttributeType, i64, *const c_void) -> Status;
        descriptor_get: "cudnnBackendGetAttribute" (RawDescriptor, AttributeName, AttributeType, i64, *mut i64, *mut c_void) -> Status;
        execute: "cudnnBackendExecute" (RawHandle, RawDescriptor, RawDescriptor) -> Status;
    }
}

const SUCCESS: Status = 0;
/// The statuses of one category have the same thousands.
const CATEGORY: Status = 1000;
/// `CUDNN_STATUS_NOT_SUPPORTED`, a category.
const NOT_SUPPORTED: Status = 3000;
/// `CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED` and `DEVICE_ALLOCATION_FAILED`.
const ALLOCATION_FAILED: [Status; 2] = [4003, 4004];
/// The bytes that are enough for the library's longest explanation of an error.
const MESSAGE_BYTES: usize = 1024;

/// A call that failed.
#[derive(Debug)]
pub(super) struct DnnFailure {
    call: &'static str,
    status: Status,
    what: String,
}

impl DnnFailure {
    pub(super) fn into_error(self) -> DriverError {
        match self {
            DnnFailure { status, .. } if ALLOCATION_FAILED.contains(&status) => DriverError::OutOfMemory,
            DnnFailure { call, what, .. } => DriverError::Failed { call, what },
        }
    }

    /// Whether the library says that it does not support what was asked.
    pub(super) fn is_unsupported(&self) -> bool {
        self.status / CATEGORY * CATEGORY == NOT_SUPPORTED
    }
}

impl std::fmt::Display for DnnFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.call, self.what)
    }
}

impl DnnFunctions {
    pub(super) fn check(&self, call: &'static str, status: Status) -> Result<(), DnnFailure> {
        if status == SUCCESS {
            return Ok(());
        }
        let mut message = [0u8; MESSAGE_BYTES];
        // SAFETY: the first function accepts any status and returns a static string; the second writes at most
        // `MESSAGE_BYTES` bytes, to the local `message`.
        let name = unsafe {
            (self.last_error)(message.as_mut_ptr().cast(), MESSAGE_BYTES);
            CStr::from_ptr((self.status_text)(status)).to_string_lossy()
        };
        let why = CStr::from_bytes_until_nul(&message).map(CStr::to_string_lossy).unwrap_or_default();
        let what = if why.is_empty() { format!("{name} ({status})") } else { format!("{name} ({status}): {why}") };
        Err(DnnFailure { call, status, what })
    }
}

/// The kinds of descriptors, `cudnnBackendDescriptorType_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum DescriptorKind {
    Convolution = 1,
    Engine = 2,
    EngineConfiguration = 3,
    EngineHeuristic = 4,
    ExecutionPlan = 5,
    ConvolutionForward = 10,
    ConvolutionBackwardFilter = 11,
    ConvolutionBackwardData = 12,
    OperationGraph = 15,
    VariantPack = 16,
    Tensor = 17,
}

/// An attribute, `cudnnBackendAttributeName_t`, with values of type `T`, and the number of that type,
/// `cudnnBackendAttributeType_t`.
pub(super) struct Attribute<T> {
    name: c_int,
    kind: c_int,
    values: PhantomData<T>,
}

impl<T> Attribute<T> {
    /// `T` must be the C type of the values that `kind` names.
    const fn new(name: c_int, kind: c_int) -> Attribute<T> {
        Attribute { name, kind, values: PhantomData }
    }
}

/// Attribute types: `CUDNN_TYPE_HANDLE` and so on.
const HANDLE: c_int = 0;
const DATA_TYPE: c_int = 1;
const INT64: c_int = 3;
const FLOAT: c_int = 4;
const DOUBLE: c_int = 5;
const VOID_PTR: c_int = 6;
const CONVOLUTION_MODE: c_int = 7;
const HEURISTIC_MODE: c_int = 8;
const NUMERICAL_NOTE: c_int = 11;
const DESCRIPTOR: c_int = 15;

/// `CUDNN_ATTR_CONVOLUTION_...`.
pub(super) const CONVOLUTION_COMPUTE_TYPE: Attribute<c_int> = Attribute::new(100, DATA_TYPE);
pub(super) const CONVOLUTION_CONV_MODE: Attribute<c_int> = Attribute::new(101, CONVOLUTION_MODE);
pub(super) const CONVOLUTION_DILATIONS: Attribute<i64> = Attribute::new(102, INT64);
pub(super) const CONVOLUTION_STRIDES: Attribute<i64> = Attribute::new(103, INT64);
pub(super) const CONVOLUTION_POST_PADDINGS: Attribute<i64> = Attribute::new(104, INT64);
pub(super) const CONVOLUTION_PRE_PADDINGS: Attribute<i64> = Attribute::new(105, INT64);
pub(super) const CONVOLUTION_AXES: Attribute<i64> = Attribute::new(106, INT64);
/// `CUDNN_ATTR_ENGINEHEUR_...`.
pub(super) const HEURISTIC_OF: Attribute<c_int> = Attribute::new(200, HEURISTIC_MODE);
pub(super) const HEURISTIC_GRAPH: Attribute<Raw> = Attribute::new(201, DESCRIPTOR);
pub(super) const HEURISTIC_RESULTS: Attribute<Raw> = Attribute::new(202, DESCRIPTOR);
/// `CUDNN_ATTR_ENGINECFG_ENGINE`, `CUDNN_ATTR_ENGINE_GLOBAL_INDEX`, `CUDNN_ATTR_ENGINE_NUMERICAL_NOTE`.
pub(super) const CONFIGURATION_ENGINE: Attribute<Raw> = Attribute::new(300, DESCRIPTOR);
pub(super) const ENGINE_INDEX: Attribute<i64> = Attribute::new(1301, INT64);
pub(super) const ENGINE_NOTES: Attribute<c_int> = Attribute::new(1303, NUMERICAL_NOTE);
/// `CUDNN_ATTR_EXECUTION_PLAN_...`.
pub(super) const PLAN_HANDLE: Attribute<Raw> = Attribute::new(400, HANDLE);
pub(super) const PLAN_CONFIGURATION: Attribute<Raw> = Attribute::new(401, DESCRIPTOR);
pub(super) const PLAN_WORKSPACE_BYTES: Attribute<i64> = Attribute::new(402, INT64);
/// `CUDNN_ATTR_OPERATIONGRAPH_...`.
pub(super) const GRAPH_HANDLE: Attribute<Raw> = Attribute::new(800, HANDLE);
pub(super) const GRAPH_OPERATIONS: Attribute<Raw> = Attribute::new(801, DESCRIPTOR);
/// `CUDNN_ATTR_TENSOR_...`.
pub(super) const TENSOR_ALIGNMENT_BYTES: Attribute<i64> = Attribute::new(900, INT64);
pub(super) const TENSOR_DATA_TYPE: Attribute<c_int> = Attribute::new(901, DATA_TYPE);
pub(super) const TENSOR_SIZES: Attribute<i64> = Attribute::new(902, INT64);
pub(super) const TENSOR_STRIDES: Attribute<i64> = Attribute::new(903, INT64);
pub(super) const TENSOR_ID: Attribute<i64> = Attribute::new(906, INT64);
/// `CUDNN_ATTR_VARIANT_PACK_...`.
pub(super) const PACK_IDS: Attribute<i64> = Attribute::new(1000, INT64);
pub(super) const PACK_POINTERS: Attribute<Raw> = Attribute::new(1001, VOID_PTR);
pub(super) const PACK_WORKSPACE: Attribute<Raw> = Attribute::new(1003, VOID_PTR);

/// The attributes of an operation, `CUDNN_ATTR_OPERATION_CONVOLUTION_...`; the scales are double for f64.
pub(super) struct OperationAttributes {
    pub(super) kind: DescriptorKind,
    pub(super) convolution: Attribute<Raw>,
    /// Input, weight and output.
    pub(super) tensors: [Attribute<Raw>; 3],
    /// The factors of the result and of what the result's memory holds: alpha and beta.
    pub(super) scales: [Attribute<f32>; 2],
    pub(super) wide_scales: [Attribute<f64>; 2],
}

const fn operation(kind: DescriptorKind, alpha: c_int, convolution: c_int, tensors: [c_int; 3]) -> OperationAttributes {
    let [input, weight, output] = tensors;
    OperationAttributes {
        kind,
        convolution: Attribute::new(convolution, DESCRIPTOR),
        tensors: [
            Attribute::new(input, DESCRIPTOR),
            Attribute::new(weight, DESCRIPTOR),
            Attribute::new(output, DESCRIPTOR),
        ],
        scales: [Attribute::new(alpha, FLOAT), Attribute::new(alpha + 1, FLOAT)],
        wide_scales: [Attribute::new(alpha, DOUBLE), Attribute::new(alpha + 1, DOUBLE)],
    }
}

pub(super) const FORWARD: OperationAttributes =
    operation(DescriptorKind::ConvolutionForward, 700, 702, [704, 703, 705]);
pub(super) const BACKWARD_DATA: OperationAttributes =
    operation(DescriptorKind::ConvolutionBackwardData, 706, 708, [710, 709, 711]);
pub(super) const BACKWARD_FILTER: OperationAttributes =
    operation(DescriptorKind::ConvolutionBackwardFilter, 712, 714, [716, 715, 717]);

/// A descriptor, destroyed when dropped.
pub(super) struct Descriptor {
    api: Arc<DnnFunctions>,
    raw: Raw,
}

impl Descriptor {
    /// An empty descriptor.
    pub(super) fn new(api: &Arc<DnnFunctions>, kind: DescriptorKind) -> Result<Descriptor, DnnFailure> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the function writes one descriptor, to the local `raw`.
        let status = unsafe { (api.descriptor_create)(kind as c_int, &raw mut raw) };
        api.check("cudnnBackendCreateDescriptor", status)?;
        Ok(Descriptor { api: api.clone(), raw })
    }

    pub(super) fn raw(&self) -> Raw {
        self.raw
    }

    pub(super) fn set<T>(&self, attribute: &Attribute<T>, values: &[T]) -> Result<(), DnnFailure> {
        let (count, at) = (values.len() as i64, values.as_ptr().cast());
        // SAFETY: the descriptor is alive, and the function reads `count` values of the attribute's type during the
        // call.
        let status = unsafe { (self.api.descriptor_set)(self.raw, attribute.name, attribute.kind, count, at) };
        self.api.check("cudnnBackendSetAttribute", status)
    }

    /// Reads values of the attribute into `values`, and returns how many it read; the number that there is if `values`
    /// is empty.
    pub(super) fn get<T>(&self, attribute: &Attribute<T>, values: &mut [T]) -> Result<usize, DnnFailure> {
        let (most, mut count) = (values.len() as i64, 0);
        let at = if values.is_empty() { std::ptr::null_mut() } else { values.as_mut_ptr().cast() };
        // SAFETY: the descriptor is alive, and the function writes at most `most` values of the attribute's type, and
        // their number, to a local.
        let status =
            unsafe { (self.api.descriptor_get)(self.raw, attribute.name, attribute.kind, most, &raw mut count, at) };
        self.api.check("cudnnBackendGetAttribute", status)?;
        let count = usize::try_from(count).unwrap_or(0);
        Ok(if values.is_empty() { count } else { count.min(values.len()) })
    }

    /// The descriptor with the attributes that were set, which cannot be changed any more.
    pub(super) fn finalized(self) -> Result<Descriptor, DnnFailure> {
        // SAFETY: the descriptor is alive.
        let status = unsafe { (self.api.descriptor_finalize)(self.raw) };
        self.api.check("cudnnBackendFinalize", status).map(|()| self)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: `Descriptor::new` made the descriptor, and it is destroyed only here.
        unsafe { (self.api.descriptor_destroy)(self.raw) };
    }
}
