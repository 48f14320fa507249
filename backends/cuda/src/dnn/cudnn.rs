//! cuDNN, by its graph interface (`cudnnBackend...`): the older one is deprecated, and its algorithms lack the engines
//! that were written since.
//!
//! A convolution is a graph of one operation. The library's heuristics rank engines for it; the first that computes
//! what GT promises, and whose workspace is not too large, becomes a plan, cached by [`Conv`]. Nothing is timed, so the
//! same convolution has the same result in every run on the same device and version of the library.

use super::conv::{Conv, ConvPass, ConvPointers, Dnn};
use super::descriptors::{
    BACKWARD_DATA, BACKWARD_FILTER, CONFIGURATION_ENGINE, CONVOLUTION_AXES, CONVOLUTION_COMPUTE_TYPE,
    CONVOLUTION_CONV_MODE, CONVOLUTION_DILATIONS, CONVOLUTION_POST_PADDINGS, CONVOLUTION_PRE_PADDINGS,
    CONVOLUTION_STRIDES, Descriptor, DescriptorKind, DnnFailure, DnnFunctions, ENGINE_INDEX, ENGINE_NOTES, FORWARD,
    GRAPH_HANDLE, GRAPH_OPERATIONS, HEURISTIC_GRAPH, HEURISTIC_OF, HEURISTIC_RESULTS, PACK_IDS, PACK_POINTERS,
    PACK_WORKSPACE, PLAN_CONFIGURATION, PLAN_HANDLE, PLAN_WORKSPACE_BYTES, Raw, TENSOR_ALIGNMENT_BYTES,
    TENSOR_DATA_TYPE, TENSOR_ID, TENSOR_SIZES, TENSOR_STRIDES,
};
use crate::driver::{CudaStream, DevicePtr, Driver, Result};
use gt_nvidia::{CUBLAS_LT, Opened};
use gt_ops::DType;
use std::collections::HashMap;
use std::ffi::c_int;
use std::path::Path;
use std::sync::Arc;

/// The most workspace of a convolution. Tensor cores read channels last, so engines for them copy all three tensors.
const WORKSPACE_BYTES_MAX: usize = 1 << 30;
/// The most elements of a tensor: the indices of some engines have 32 bits.
const ELEMENTS_MAX: usize = i32::MAX as usize;
/// The most plans that are cached.
const PLANS_MAX: usize = 1024;
/// The most engine configurations that are asked of one heuristic.
const CONFIGURATIONS_MAX: usize = 128;
/// The ids of input, weight and output in a graph.
const IDS: [i64; 3] = [1, 2, 3];

/// `CUDNN_CROSS_CORRELATION`: the kernel is not flipped.
const CROSS_CORRELATION: c_int = 1;
/// `CUDNN_HEUR_MODE_A`, and `CUDNN_HEUR_MODE_FALLBACK`: engines that compute everything, if slowly.
const HEURISTICS: [c_int; 2] = [3, 2];
/// `CUDNN_NUMERICAL_NOTE_...`.
const TENSOR_CORE: c_int = 0;
const DOWN_CONVERT_INPUTS: c_int = 1;
const REDUCED_PRECISION_REDUCTION: c_int = 2;
const FFT: c_int = 3;
const NONDETERMINISTIC: c_int = 4;
const WINOGRAD: c_int = 5;
/// Room for the notes of an engine: the library knows 10.
const NOTES_MAX: usize = 32;

/// The library that cuDNN's functions lie in: without it, the first call of any of them ends the process.
const GRAPH_LIBRARY: &str = "libcudnn_graph.so.9";

/// cuDNN on one device.
pub struct Cudnn {
    /// Plans by convolution; `None` where the library has none. They are dropped before the handle.
    plans: HashMap<Conv, Option<DnnPlan>>,
    handle: LazyHandle,
    api: Arc<DnnFunctions>,
    driver: Arc<dyn Driver>,
    workspace_bytes_max: usize,
    /// The streams that convolutions were enqueued on: that of computation, and that of captures.
    streams: Vec<CudaStream>,
    /// Libraries that cuDNN opens by name, and finds since they are open: without one, it ends the process.
    _needed: Vec<Opened>,
}

/// `cudnnHandle_t`: made for the first convolution, since the library then loads hundreds of megabytes.
enum LazyHandle {
    NotMade,
    Made(Raw),
    Refused,
}

// SAFETY: any thread may use a handle of cuDNN and its descriptors, one at a time, and the methods that use them take
// `&mut self`.
unsafe impl Send for Cudnn {}

/// An algorithm for a convolution: the plan, and the descriptors that it was made of.
struct DnnPlan {
    plan: Descriptor,
    workspace_bytes: usize,
    _parts: Vec<Descriptor>,
}

impl Cudnn {
    /// Binds the opened library, for the device of `driver`, on which tensors may take `memory_bytes_limit`.
    ///
    /// # Errors
    /// Why it is not cuDNN, or would not work here.
    pub fn bind(
        opened: Opened,
        driver: Arc<dyn Driver>,
        memory_bytes_limit: usize,
    ) -> std::result::Result<Cudnn, String> {
        let graph = beside(&opened.path)?;
        let mut cudnn = Cudnn::bind_alone(opened, driver, memory_bytes_limit)?;
        // SAFETY: the functions have no arguments, and the library that they lie in is open.
        let (version, cuda) = unsafe { ((cudnn.api.version)(), (cudnn.api.cuda_version)()) };
        let major = cuda / 1000;
        let suffix = format!(".so.{major}");
        let matching = |opened: Opened| match opened.path.to_string_lossy().ends_with(&suffix) {
            true => Ok(opened),
            false => Err(format!("it is not of CUDA {major}, for which cuDNN was built")),
        };
        let blas = CUBLAS_LT.open(Some(major as u32), matching).map_err(|missing| missing.to_string())?;
        cudnn._needed = vec![graph, blas];
        let path = cudnn.api.path.display();
        tracing::debug!(target: "gtd::cuda", version, cuda, %path, "convolves with cuDNN");
        Ok(cudnn)
    }

    /// As [`Cudnn::bind`], of a library that needs no others.
    ///
    /// # Errors
    /// Why it is not cuDNN.
    pub fn bind_alone(
        opened: Opened,
        driver: Arc<dyn Driver>,
        memory_bytes_limit: usize,
    ) -> std::result::Result<Cudnn, String> {
        Ok(Cudnn {
            plans: HashMap::new(),
            handle: LazyHandle::NotMade,
            api: Arc::new(DnnFunctions::bind(opened)?),
            driver,
            workspace_bytes_max: WORKSPACE_BYTES_MAX.min(memory_bytes_limit / 8),
            streams: Vec::new(),
            _needed: Vec::new(),
        })
    }

    /// The handle; none if the library makes none.
    fn handle(&mut self) -> Result<Option<Raw>> {
        self.driver.enter()?;
        if let LazyHandle::NotMade = self.handle {
            let mut handle = std::ptr::null_mut();
            // SAFETY: `cudnnCreate` writes one handle, to the local `handle`.
            let status = unsafe { (self.api.create)(&raw mut handle) };
            self.handle = match self.api.check("cudnnCreate", status) {
                Ok(()) => LazyHandle::Made(handle),
                Err(error) => {
                    tracing::warn!(target: "gtd::cuda", %error, "convolutions are computed by GT's kernels, which are slower");
                    LazyHandle::Refused
                }
            };
        }
        Ok(if let LazyHandle::Made(handle) = self.handle { Some(handle) } else { None })
    }

    fn plan(&self, handle: Raw, conv: &Conv) -> Option<DnnPlan> {
        let dtype = data_type(conv.dtype)?;
        let fits = |shape: &Vec<usize>| {
            let count = shape.iter().try_fold(1usize, |all, size| all.checked_mul(*size));
            count.is_some_and(|count| (1..=ELEMENTS_MAX).contains(&count))
        };
        if !conv.shapes().iter().all(fits) {
            return None;
        }
        let unsupported = |error: DnnFailure| {
            tracing::debug!(target: "gtd::cuda", ?conv, %error, "cuDNN does not support a convolution");
        };
        let mut parts = self.graph(handle, conv, dtype).map_err(unsupported).ok()?;
        for mode in HEURISTICS {
            let graph = &parts[0];
            let configurations = match self.configurations(graph, mode) {
                Ok(configurations) => configurations,
                Err(error) => {
                    unsupported(error);
                    continue;
                }
            };
            for configuration in configurations {
                match self.plan_of(handle, conv, &configuration) {
                    Ok(Some((plan, workspace_bytes))) => {
                        parts.push(configuration);
                        return Some(DnnPlan { plan, workspace_bytes, _parts: parts });
                    }
                    Ok(None) => {}
                    Err(error) => unsupported(error),
                }
            }
        }
        tracing::debug!(target: "gtd::cuda", ?conv, "cuDNN has no algorithm");
        None
    }

    /// The graph, and the descriptors of its parts.
    fn graph(&self, handle: Raw, conv: &Conv, dtype: c_int) -> std::result::Result<Vec<Descriptor>, DnnFailure> {
        let new = |kind| Descriptor::new(&self.api, kind);
        let of = |sizes: &[usize; 3]| sizes[conv.unused()..].iter().map(|size| *size as i64).collect::<Vec<_>>();
        let window = &conv.window;
        let convolution = new(DescriptorKind::Convolution)?;
        let compute = if conv.dtype == DType::F64 { DType::F64 } else { DType::F32 };
        convolution.set(&CONVOLUTION_COMPUTE_TYPE, &[data_type(compute).unwrap_or(dtype)])?;
        convolution.set(&CONVOLUTION_CONV_MODE, &[CROSS_CORRELATION])?;
        convolution.set(&CONVOLUTION_AXES, &[of(&window.kernel).len() as i64])?;
        convolution.set(&CONVOLUTION_DILATIONS, &of(&window.dilation))?;
        convolution.set(&CONVOLUTION_STRIDES, &of(&window.stride))?;
        convolution.set(&CONVOLUTION_PRE_PADDINGS, &of(&window.low))?;
        convolution.set(&CONVOLUTION_POST_PADDINGS, &of(&window.high))?;
        let convolution = convolution.finalized()?;
        let attributes = match conv.pass {
            ConvPass::Forward => &FORWARD,
            ConvPass::Input => &BACKWARD_DATA,
            ConvPass::Weight => &BACKWARD_FILTER,
        };
        let operation = new(attributes.kind)?;
        operation.set(&attributes.convolution, &[convolution.raw()])?;
        let mut parts = vec![convolution];
        for (axis, shape) in conv.shapes().iter().enumerate() {
            let sizes: Vec<i64> = shape.iter().map(|size| *size as i64).collect();
            let mut strides = vec![1; sizes.len()];
            for i in (1..sizes.len()).rev() {
                strides[i - 1] = strides[i] * sizes[i];
            }
            let tensor = new(DescriptorKind::Tensor)?;
            tensor.set(&TENSOR_ID, &[IDS[axis]])?;
            tensor.set(&TENSOR_DATA_TYPE, &[dtype])?;
            tensor.set(&TENSOR_ALIGNMENT_BYTES, &[i64::from(conv.alignments[axis])])?;
            tensor.set(&TENSOR_SIZES, &sizes)?;
            tensor.set(&TENSOR_STRIDES, &strides)?;
            let tensor = tensor.finalized()?;
            operation.set(&attributes.tensors[axis], &[tensor.raw()])?;
            parts.push(tensor);
        }
        // The result replaces what its memory holds.
        for (i, scale) in [1f32, 0.0].into_iter().enumerate() {
            match conv.dtype {
                DType::F64 => operation.set(&attributes.wide_scales[i], &[scale.into()])?,
                _ => operation.set(&attributes.scales[i], &[scale])?,
            }
        }
        let operation = operation.finalized()?;
        let graph = new(DescriptorKind::OperationGraph)?;
        graph.set(&GRAPH_HANDLE, &[handle])?;
        graph.set(&GRAPH_OPERATIONS, &[operation.raw()])?;
        let graph = graph.finalized()?;
        parts.push(operation);
        parts.insert(0, graph);
        Ok(parts)
    }

    /// Engine configurations for a graph, as a heuristic ranks them.
    fn configurations(&self, graph: &Descriptor, mode: c_int) -> std::result::Result<Vec<Descriptor>, DnnFailure> {
        let heuristic = Descriptor::new(&self.api, DescriptorKind::EngineHeuristic)?;
        heuristic.set(&HEURISTIC_GRAPH, &[graph.raw()])?;
        heuristic.set(&HEURISTIC_OF, &[mode])?;
        let heuristic = heuristic.finalized()?;
        let count = heuristic.get(&HEURISTIC_RESULTS, &mut [])?.min(CONFIGURATIONS_MAX);
        if count == 0 {
            return Ok(Vec::new());
        }
        let empty = (0..count).map(|_| Descriptor::new(&self.api, DescriptorKind::EngineConfiguration));
        let mut configurations = empty.collect::<std::result::Result<Vec<_>, _>>()?;
        // The library fills the descriptors that it is given.
        let mut raw: Vec<Raw> = configurations.iter().map(Descriptor::raw).collect();
        configurations.truncate(heuristic.get(&HEURISTIC_RESULTS, &mut raw)?);
        Ok(configurations)
    }

    /// The plan for a configuration and its workspace; none if it does not compute what it should, or takes too much.
    fn plan_of(
        &self,
        handle: Raw,
        conv: &Conv,
        configuration: &Descriptor,
    ) -> std::result::Result<Option<(Descriptor, usize)>, DnnFailure> {
        let engine = Descriptor::new(&self.api, DescriptorKind::Engine)?;
        if configuration.get(&CONFIGURATION_ENGINE, &mut [engine.raw()])? != 1 {
            return Ok(None);
        }
        let mut notes = [0; NOTES_MAX];
        let count = engine.get(&ENGINE_NOTES, &mut notes)?;
        if notes[..count].iter().any(|note| is_refused(conv, *note)) {
            return Ok(None);
        }
        let plan = Descriptor::new(&self.api, DescriptorKind::ExecutionPlan)?;
        plan.set(&PLAN_HANDLE, &[handle])?;
        plan.set(&PLAN_CONFIGURATION, &[configuration.raw()])?;
        let plan = plan.finalized()?;
        let mut bytes = [0];
        plan.get(&PLAN_WORKSPACE_BYTES, &mut bytes)?;
        let bytes = usize::try_from(bytes[0]).unwrap_or(usize::MAX);
        if bytes > self.workspace_bytes_max {
            return Ok(None);
        }
        let mut index = [0];
        engine.get(&ENGINE_INDEX, &mut index)?;
        let (engine, notes) = (index[0], &notes[..count]);
        tracing::debug!(target: "gtd::cuda", ?conv, engine, ?notes, workspace_bytes = bytes, "cuDNN has a plan");
        Ok(Some((plan, bytes)))
    }

    fn execute(&self, handle: Raw, plan: &DnnPlan, at: &ConvPointers) -> std::result::Result<(), DnnFailure> {
        let address = |address: DevicePtr| address as usize as Raw;
        let pack = Descriptor::new(&self.api, DescriptorKind::VariantPack)?;
        pack.set(&PACK_IDS, &IDS)?;
        pack.set(&PACK_POINTERS, &[at.input, at.weight, at.output].map(address))?;
        pack.set(&PACK_WORKSPACE, &[address(at.workspace)])?;
        let pack = pack.finalized()?;
        // SAFETY: the plan and the pack are alive; the pointers are those of tensors of the plan's shapes and of its
        // workspace, by the contract of `convolve`.
        let status = unsafe { (self.api.execute)(handle, plan.plan.raw(), pack.raw()) };
        self.api.check("cudnnBackendExecute", status)
    }
}

impl Dnn for Cudnn {
    fn prepare(&mut self, conv: &Conv) -> Result<Option<usize>> {
        if let Some(plan) = self.plans.get(conv) {
            return Ok(plan.as_ref().map(|plan| plan.workspace_bytes));
        }
        let Some(handle) = self.handle()? else { return Ok(None) };
        let plan = self.plan(handle, conv);
        let workspace_bytes = plan.as_ref().map(|plan| plan.workspace_bytes);
        self.plans.insert(*conv, plan);
        Ok(workspace_bytes)
    }

    unsafe fn convolve(&mut self, conv: &Conv, pointers: &ConvPointers, stream: CudaStream) -> Result<bool> {
        let Some(handle) = self.handle()? else { return Ok(false) };
        let Some(Some(plan)) = self.plans.get(conv) else { return Ok(false) };
        // SAFETY: the handle and the stream are alive.
        let status = unsafe { (self.api.set_stream)(handle, stream.0 as usize as Raw) };
        self.api.check("cudnnSetStream", status).map_err(DnnFailure::into_error)?;
        if !self.streams.contains(&stream) {
            self.streams.push(stream);
        }
        match self.execute(handle, plan, pointers) {
            Ok(()) => Ok(true),
            // An engine may turn out not to support what the heuristics chose it for: the convolution goes to GT's
            // kernels.
            Err(error) if error.is_unsupported() => {
                tracing::debug!(target: "gtd::cuda", ?conv, %error, "cuDNN does not support its own plan");
                self.plans.insert(*conv, None);
                Ok(false)
            }
            Err(error) => Err(error.into_error()),
        }
    }

    fn is_full(&self, conv: &Conv) -> bool {
        self.plans.len() >= PLANS_MAX && !self.plans.contains_key(conv)
    }

    fn clear(&mut self) {
        self.plans.clear();
    }
}

impl Drop for Cudnn {
    fn drop(&mut self) {
        // Kernels that were compiled for a plan go with it, so what was issued has to end first. A lost device does
        // nothing any more.
        for stream in &self.streams {
            let _ = self.driver.synchronize(*stream);
        }
        self.plans.clear();
        if let LazyHandle::Made(handle) = self.handle {
            // SAFETY: `cudnnCreate` made the handle, and it is destroyed only here.
            unsafe { (self.api.destroy)(handle) };
        }
    }
}

/// Whether GT does not take an engine with this `cudnnBackendNumericalNote_t`: results are reproducible, and differ
/// from those of exact sums by the rounding of operands and partial sums in their own dtypes.
fn is_refused(conv: &Conv, note: c_int) -> bool {
    match note {
        NONDETERMINISTIC | DOWN_CONVERT_INPUTS | REDUCED_PRECISION_REDUCTION | FFT | WINOGRAD => true,
        // Tensor cores round f32 to tf32.
        TENSOR_CORE => conv.dtype == DType::F32 && !conv.tf32,
        _ => false,
    }
}

/// `cudnnDataType_t`.
fn data_type(dtype: DType) -> Option<c_int> {
    Some(match dtype {
        DType::F32 => 0,
        DType::F64 => 1,
        DType::F16 => 2,
        DType::BF16 => 9,
        _ => return None,
    })
}

/// Opens the library that cuDNN's functions lie in, from the folder of `path` or, for a bare name, by the loader.
fn beside(path: &Path) -> std::result::Result<Opened, String> {
    let path = path.with_file_name(GRAPH_LIBRARY);
    // SAFETY: the initialisers of NVIDIA's libraries have no requirements.
    let library = unsafe { libloading::Library::new(&path) };
    library
        .map(|library| Opened { library: Arc::new(library), path: path.clone() })
        .map_err(|error| format!("{}: {error}", path.display()))
}
