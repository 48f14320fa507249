//! cuBLASLt.
//!
//! Its matrices are column-major: `out = a b` in rows is `outᵀ = bᵀ aᵀ` in columns, so our right operand is its A, and
//! a matrix with contiguous rows is not transposed. The algorithm is cached by [`Gemm`]: the first that its heuristics
//! name or, with autotuning, the one that was fastest in use. An activation would be an attribute of the operation, as
//! a bias is (`CUBLASLT_MATMUL_DESC_EPILOGUE`), and one more field of [`Gemm`].

use super::autotune::{AlgorithmBytes, Autotuner, CANDIDATES_MAX, Trial};
use super::gemm::{Blas, Gemm, GemmMatrix, GemmPointers};
use crate::compile::store::Store;
use crate::driver::{CudaStream, DevicePtr, Driver, DriverError, Result};
use gt_nvidia::Opened;
use gt_ops::DType;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

/// `cublasLtHandle_t` and the descriptors.
type Handle = *mut c_void;
/// `cublasStatus_t`.
type Status = c_int;

/// The library's types of handles and of numbers, each under a name of its own, so that a test compares them with its
/// header.
type RawLibrary = Handle;
type RawOperation = Handle;
type RawLayout = Handle;
type RawPreference = Handle;
type RawStream = Handle;
type ComputeType = c_int;
type DataType = c_int;
type OperationAttribute = c_int;
type LayoutAttribute = c_int;
type PreferenceAttribute = c_int;

gt_nvidia::functions! {
    /// The functions of cuBLASLt that GT uses, the same in versions 12 and 13.
    struct LtFunctions {
        create: "cublasLtCreate" (*mut RawLibrary) -> Status;
        destroy: "cublasLtDestroy" (RawLibrary) -> Status;
        version: "cublasLtGetVersion" () -> usize;
        status_text: "cublasLtGetStatusString" (Status) -> *const c_char;
        operation_create: "cublasLtMatmulDescCreate" (*mut RawOperation, ComputeType, DataType) -> Status;
        operation_destroy: "cublasLtMatmulDescDestroy" (RawOperation) -> Status;
        operation_set: "cublasLtMatmulDescSetAttribute" (RawOperation, OperationAttribute, *const c_void, usize) -> Status;
        layout_create: "cublasLtMatrixLayoutCreate" (*mut RawLayout, DataType, u64, u64, i64) -> Status;
        layout_destroy: "cublasLtMatrixLayoutDestroy" (RawLayout) -> Status;
        layout_set: "cublasLtMatrixLayoutSetAttribute" (RawLayout, LayoutAttribute, *const c_void, usize) -> Status;
        preference_create: "cublasLtMatmulPreferenceCreate" (*mut RawPreference) -> Status;
        preference_destroy: "cublasLtMatmulPreferenceDestroy" (RawPreference) -> Status;
        preference_set: "cublasLtMatmulPreferenceSetAttribute" (RawPreference, PreferenceAttribute, *const c_void, usize) -> Status;
        heuristic: "cublasLtMatmulAlgoGetHeuristic" (
            RawLibrary, RawOperation, RawLayout, RawLayout, RawLayout, RawLayout, RawPreference,
            c_int, *mut Choice, *mut c_int,
        ) -> Status;
        matmul: "cublasLtMatmul" (
            RawLibrary,
            RawOperation,
            *const c_void,
            *const c_void, RawLayout,
            *const c_void, RawLayout,
            *const c_void,
            *const c_void, RawLayout,
            *mut c_void, RawLayout,
            *const Algorithm,
            *mut c_void, usize,
            RawStream,
        ) -> Status;
    }
}

/// `cublasLtMatmulAlgo_t`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Algorithm([u64; 8]);

/// `cublasLtMatmulHeuristicResult_t`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Choice {
    algorithm: Algorithm,
    workspace_bytes: usize,
    state: Status,
    waves: f32,
    reserved: [c_int; 4],
}

const SUCCESS: Status = 0;
const ALLOC_FAILED: Status = 3;
const NOT_SUPPORTED: Status = 15;

/// `CUBLASLT_MATMUL_DESC_TRANSA`, `TRANSB`; `CUBLAS_OP_T`.
const TRANSPOSE_A: c_int = 3;
const TRANSPOSE_B: c_int = 4;
const TRANSPOSED: i32 = 1;
/// `CUBLASLT_MATMUL_DESC_EPILOGUE` and `BIAS_POINTER`; `CUBLASLT_EPILOGUE_BIAS`.
const EPILOGUE: c_int = 7;
const BIAS_POINTER: c_int = 8;
const ADDS_BIAS: u32 = 4;
/// `CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT`, `STRIDED_BATCH_OFFSET`.
const BATCH_COUNT: c_int = 5;
const BATCH_STEP: c_int = 6;
/// `CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES`, `REDUCTION_SCHEME_MASK`, `MIN_ALIGNMENT_A_BYTES` to
/// `MIN_ALIGNMENT_D_BYTES`.
const WORKSPACE_MAX: c_int = 1;
const REDUCTION_SCHEMES: c_int = 3;
const ALIGNMENTS: [c_int; 4] = [5, 6, 7, 8];
/// `CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE`: partial sums are added in f32, without rounding them to half precision
/// first.
const IN_COMPUTE_TYPE: u32 = 2;

/// The variable that switches autotuning off.
pub const AUTOTUNE_VARIABLE: &str = "GT_CUDA_AUTOTUNE";
/// The workspace of algorithms: the size that NVIDIA recommends for Hopper.
const WORKSPACE_BYTES: usize = 32 << 20;
/// The most plans that are cached.
const PLANS_MAX: usize = 4096;

/// cuBLASLt on one device.
pub struct CublasLt {
    api: LtFunctions,
    handle: Handle,
    driver: Arc<dyn Driver>,
    /// The workspace, allocated when an algorithm first needs it. One stream uses it, in order.
    workspace: Option<(DevicePtr, CudaStream)>,
    /// Plans by product; `None` where the library has no algorithm.
    plans: HashMap<Gemm, Option<LtPlan>>,
    /// The autotuner; without one, the heuristics' first algorithm computes each product.
    tuner: Option<Autotuner>,
}

// SAFETY: any thread may use a handle of cuBLASLt, one at a time, and `multiply` takes `&mut self`.
unsafe impl Send for CublasLt {}

/// A plan: the operation, the layouts of A, B and D, and the algorithms.
struct LtPlan {
    operation: Handle,
    layouts: [Handle; 3],
    /// The heuristics' algorithms, best first; never empty.
    choices: Vec<Choice>,
    /// The algorithm of uses that no trial times.
    chosen: usize,
    trial: Option<Trial>,
}

impl LtPlan {
    fn candidates(&self) -> Vec<AlgorithmBytes> {
        let bytes = |choice: &Choice| {
            let mut bytes = [0; size_of::<AlgorithmBytes>()];
            let words = choice.algorithm.0.iter().map(|word| word.to_le_bytes());
            bytes.chunks_exact_mut(8).zip(words).for_each(|(place, word)| place.copy_from_slice(&word));
            bytes
        };
        self.choices.iter().map(bytes).collect()
    }

    /// Lets the next use time the candidate of a use that failed.
    fn repeat_use(&mut self) {
        self.trial.iter_mut().for_each(Trial::withdraw);
    }

    /// Removes an algorithm that the library refused, and ends the trial. Returns whether another is left.
    fn refused(&mut self, choice: usize) -> bool {
        self.choices.remove(choice);
        (self.chosen, self.trial) = (0, None);
        !self.choices.is_empty()
    }
}

impl CublasLt {
    /// Binds the opened library, for the device of `driver`.
    ///
    /// # Errors
    /// Why it is not cuBLASLt, or does not work here.
    pub fn bind(opened: Opened, driver: Arc<dyn Driver>) -> std::result::Result<CublasLt, String> {
        let api = LtFunctions::bind(opened)?;
        driver.enter().map_err(|error| error.to_string())?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: `cublasLtCreate` writes one handle, to the local `handle`.
        let status = unsafe { (api.create)(&raw mut handle) };
        api.check("cublasLtCreate", status).map_err(|error| error.to_string())?;
        // SAFETY: `cublasLtGetVersion` has no arguments.
        let version = unsafe { (api.version)() };
        tracing::debug!(target: "gtd::cuda", version, path = %api.path.display(), "multiplies with cuBLASLt");
        Ok(CublasLt { api, handle, driver, workspace: None, plans: HashMap::new(), tuner: None })
    }

    /// The same library, which times its algorithms in use and keeps the fastest ones in `store`, unless
    /// [`AUTOTUNE_VARIABLE`] is 0.
    #[must_use]
    pub fn with_autotuning(mut self, store: Store) -> CublasLt {
        if std::env::var(AUTOTUNE_VARIABLE).is_ok_and(|value| value == "0") {
            return self;
        }
        // SAFETY: `cublasLtGetVersion` has no arguments.
        let version = unsafe { (self.api.version)() };
        self.tuner = Some(Autotuner::new(self.driver.clone(), store, &format!("cuBLASLt {version}")));
        self
    }

    /// Makes the plan of a product.
    fn add_plan(&mut self, gemm: &Gemm, bias: DevicePtr) -> Result<()> {
        if self.plans.len() >= PLANS_MAX {
            self.plans.drain().filter_map(|(_, plan)| plan).for_each(|plan| self.api.give_back(&plan));
            self.tuner.iter_mut().for_each(Autotuner::forget);
        }
        let candidates = if self.tuner.is_some() { CANDIDATES_MAX } else { 1 };
        let mut plan = self.api.plan(self.handle, gemm, bias, candidates)?;
        if let (Some(plan), Some(tuner)) = (&mut plan, &self.tuner)
            && let Some(trial) = Trial::new(gemm, plan.choices.len())
        {
            match tuner.kept(gemm, &plan.candidates()) {
                Some(kept) => plan.chosen = kept,
                None => plan.trial = Some(trial),
            }
        }
        self.plans.insert(*gemm, plan);
        Ok(())
    }

    /// Reads the timers that have passed, and ends the trials that are complete.
    fn read_timers(&mut self) -> Result<()> {
        let Some(tuner) = &mut self.tuner else { return Ok(()) };
        while let Some((gemm, candidate, ns)) = tuner.passed()? {
            let Some(Some(plan)) = self.plans.get_mut(&gemm) else { continue };
            let Some(mut trial) = plan.trial.take() else { continue };
            if trial.measured(candidate, ns) {
                plan.chosen = tuner.choose(&gemm, &plan.candidates(), &trial);
            } else {
                plan.chosen = trial.fastest();
                plan.trial = Some(trial);
            }
        }
        Ok(())
    }

    fn workspace(&mut self, stream: CudaStream) -> Result<DevicePtr> {
        if let Some((workspace, _)) = self.workspace {
            return Ok(workspace);
        }
        let workspace = self.driver.allocate(WORKSPACE_BYTES, stream)?;
        self.workspace = Some((workspace, stream));
        Ok(workspace)
    }
}

impl Blas for CublasLt {
    unsafe fn multiply(
        &mut self,
        gemm: &Gemm,
        pointers: GemmPointers,
        stream: CudaStream,
        is_captured: bool,
    ) -> Result<bool> {
        let GemmPointers { out, a, b, bias } = pointers;
        self.driver.enter()?;
        if !self.plans.contains_key(gemm) {
            self.add_plan(gemm, bias)?;
        }
        if !is_captured && !self.is_settled(gemm) {
            self.read_timers()?;
        }
        // The factors alpha and beta, in the compute type.
        let (one, zero) = ((1f32, 1f64), (0f32, 0f64));
        let scale = |of: &(f32, f64)| -> *const c_void {
            if gemm.dtype == DType::F64 { (&raw const of.1).cast() } else { (&raw const of.0).cast() }
        };
        let at = |address: DevicePtr| address as usize as *mut c_void;
        loop {
            let Some(Some(plan)) = self.plans.get_mut(gemm) else { return Ok(false) };
            let timed = plan.trial.as_mut().filter(|_| !is_captured).and_then(Trial::next);
            let which = timed.unwrap_or(plan.chosen);
            let algorithm = plan.choices[which].algorithm;
            let (operation, [layout_a, layout_b, layout_out]) = (plan.operation, plan.layouts);
            let needs_workspace = plan.choices.iter().any(|choice| choice.workspace_bytes > 0);
            let workspace = if needs_workspace { self.workspace(stream)? } else { 0 };
            if gemm.bias.is_some() {
                self.api.set_bias(operation, bias)?;
            }
            let mut tuner = self.tuner.as_mut().filter(|_| timed.is_some());
            let begun = tuner.as_mut().map(|tuner| tuner.begins(stream)).transpose()?;
            // SAFETY: the descriptors describe this product, `pointers` are valid by the contract of `multiply`, and
            // the library reads the factors and the algorithm during the call.
            let status = unsafe {
                (self.api.matmul)(
                    self.handle,
                    operation,
                    scale(&one),
                    at(b),
                    layout_a,
                    at(a),
                    layout_b,
                    scale(&zero),
                    at(out),
                    layout_out,
                    at(out),
                    layout_out,
                    &raw const algorithm,
                    at(workspace),
                    if needs_workspace { WORKSPACE_BYTES } else { 0 },
                    stream.0 as usize as *mut c_void,
                )
            };
            if let (Some(tuner), Some(begun)) = (tuner, begun) {
                if status == SUCCESS {
                    tuner.ends(gemm, which, begun, stream)?;
                } else {
                    tuner.withdraw(begun);
                    self.plans.get_mut(gemm).into_iter().flatten().for_each(LtPlan::repeat_use);
                }
            }
            if status == NOT_SUPPORTED {
                // The heuristics may name an algorithm that fails. If no other is left, the plan is dropped, and the
                // product goes to GT's kernels.
                if let Some(Some(plan)) = self.plans.get_mut(gemm)
                    && !plan.refused(which)
                    && let Some(Some(plan)) = self.plans.insert(*gemm, None)
                {
                    self.api.give_back(&plan);
                }
                continue;
            }
            return self.api.check("cublasLtMatmul", status).map(|()| true);
        }
    }

    fn is_settled(&self, gemm: &Gemm) -> bool {
        self.plans.get(gemm).is_none_or(|plan| plan.as_ref().is_none_or(|plan| plan.trial.is_none()))
    }

    fn let_go(&mut self) -> Result<()> {
        self.read_timers()?;
        self.tuner.iter_mut().for_each(Autotuner::log);
        Ok(())
    }

    fn stop_tuning(&mut self) -> bool {
        if self.tuner.take().is_none() {
            return false;
        }
        for plan in self.plans.values_mut().flatten() {
            (plan.chosen, plan.trial) = (0, None);
        }
        true
    }
}

impl Drop for CublasLt {
    fn drop(&mut self) {
        for plan in self.plans.drain().filter_map(|(_, plan)| plan) {
            self.api.give_back(&plan);
        }
        if let Some((workspace, stream)) = self.workspace {
            // SAFETY: `&mut self` in `drop` means that no product is being issued, and the workspace came from this
            // driver and stream. A lost device has freed its memory already.
            let _ = unsafe { self.driver.free(workspace, stream) };
        }
        // SAFETY: `cublasLtCreate` made the handle, and it is destroyed only here.
        unsafe { (self.api.destroy)(self.handle) };
    }
}

/// `cudaDataType`.
fn data_type(dtype: DType) -> Option<c_int> {
    Some(match dtype {
        DType::F32 => 0,
        DType::F64 => 1,
        DType::F16 => 2,
        DType::BF16 => 14,
        _ => return None,
    })
}

/// `cublasComputeType_t`, and the `cudaDataType` of its scales.
fn compute_type(gemm: &Gemm) -> (c_int, c_int) {
    let (f32_exact, f32_fast, f64_exact) = (68, 77, 70);
    match gemm.dtype {
        DType::F64 => (f64_exact, 1),
        DType::F32 if gemm.tf32 => (f32_fast, 0),
        _ => (f32_exact, 0),
    }
}

/// The descriptors of a plan under construction.
struct Parts<'a> {
    api: &'a LtFunctions,
    made: Vec<(unsafe extern "C" fn(Handle) -> Status, Handle)>,
}

impl Parts<'_> {
    fn keep(&mut self, destroy: unsafe extern "C" fn(Handle) -> Status, handle: Handle) -> Handle {
        self.made.push((destroy, handle));
        handle
    }

    fn layout(&mut self, dtype: c_int, side: &GemmMatrix, rows: u64, columns: u64, batches: u64) -> Result<Handle> {
        let api = self.api;
        let (rows, columns) = if side.turned { (rows, columns) } else { (columns, rows) };
        let mut layout = std::ptr::null_mut();
        // SAFETY: the function writes one handle, to the local `layout`.
        let status = unsafe { (api.layout_create)(&raw mut layout, dtype, rows, columns, side.step as i64) };
        api.check("cublasLtMatrixLayoutCreate", status)?;
        let layout = self.keep(api.layout_destroy, layout);
        if batches > 1 {
            api.set("cublasLtMatrixLayoutSetAttribute", api.layout_set, layout, BATCH_COUNT, batches as i32)?;
            api.set("cublasLtMatrixLayoutSetAttribute", api.layout_set, layout, BATCH_STEP, side.batch_step as i64)?;
        }
        Ok(layout)
    }
}

impl Drop for Parts<'_> {
    fn drop(&mut self) {
        for (destroy, handle) in self.made.drain(..) {
            // SAFETY: the matching `create` made the handle, and it is destroyed only here.
            unsafe { destroy(handle) };
        }
    }
}

impl LtFunctions {
    fn check(&self, call: &'static str, status: Status) -> Result<()> {
        match status {
            SUCCESS => Ok(()),
            ALLOC_FAILED => Err(DriverError::OutOfMemory),
            status => {
                // SAFETY: the function accepts any status and returns a static string.
                let what = unsafe { CStr::from_ptr((self.status_text)(status)) }.to_string_lossy().into_owned();
                Err(DriverError::Failed { call, what })
            }
        }
    }

    fn set<T>(
        &self,
        call: &'static str,
        setter: unsafe extern "C" fn(Handle, c_int, *const c_void, usize) -> Status,
        of: Handle,
        attribute: c_int,
        value: T,
    ) -> Result<()> {
        // SAFETY: `value` has the attribute's type `T`, and the function reads it during the call.
        self.check(call, unsafe { setter(of, attribute, (&raw const value).cast(), size_of::<T>()) })
    }

    /// Sets the address of the bias that an operation adds.
    fn set_bias(&self, operation: Handle, bias: DevicePtr) -> Result<()> {
        self.set("cublasLtMatmulDescSetAttribute", self.operation_set, operation, BIAS_POINTER, bias)
    }

    /// The library's plan for a product, with this many algorithms at most; none if it has no algorithm. The library
    /// derives the alignment of the bias from its address.
    fn plan(&self, library: Handle, gemm: &Gemm, bias: DevicePtr, most: usize) -> Result<Option<LtPlan>> {
        let (compute, scale) = compute_type(gemm);
        let (Some(dtype), Some(out_dtype)) = (data_type(gemm.dtype), data_type(gemm.out_dtype)) else {
            return Ok(None);
        };
        // The library takes these counts as 32-bit integers.
        if [gemm.m, gemm.n, gemm.k, gemm.batches].iter().any(|count| *count > i32::MAX as u64) {
            return Ok(None);
        }
        let mut parts = Parts { api: self, made: Vec::new() };
        let (mut operation, mut preference) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: each function writes one handle, to a local.
        unsafe {
            let status = (self.operation_create)(&raw mut operation, compute, scale);
            self.check("cublasLtMatmulDescCreate", status)?;
            parts.keep(self.operation_destroy, operation);
        }
        for (attribute, side) in [(TRANSPOSE_A, &gemm.b), (TRANSPOSE_B, &gemm.a)] {
            if side.turned {
                self.set("cublasLtMatmulDescSetAttribute", self.operation_set, operation, attribute, TRANSPOSED)?;
            }
        }
        if gemm.bias.is_some() {
            self.set("cublasLtMatmulDescSetAttribute", self.operation_set, operation, EPILOGUE, ADDS_BIAS)?;
            self.set_bias(operation, bias)?;
        }
        let layouts = [
            parts.layout(dtype, &gemm.b, gemm.k, gemm.n, gemm.batches)?,
            parts.layout(dtype, &gemm.a, gemm.m, gemm.k, gemm.batches)?,
            parts.layout(out_dtype, &gemm.out, gemm.m, gemm.n, gemm.batches)?,
        ];
        // SAFETY: the function writes one handle, to the local `preference`.
        self.check("cublasLtMatmulPreferenceCreate", unsafe { (self.preference_create)(&raw mut preference) })?;
        let preferences = Parts { api: self, made: vec![(self.preference_destroy, preference)] };
        let prefer = "cublasLtMatmulPreferenceSetAttribute";
        self.set(prefer, self.preference_set, preference, WORKSPACE_MAX, WORKSPACE_BYTES as u64)?;
        if gemm.dtype.size() < 4 {
            self.set(prefer, self.preference_set, preference, REDUCTION_SCHEMES, IN_COMPUTE_TYPE)?;
        }
        for (attribute, side) in ALIGNMENTS.into_iter().zip([&gemm.b, &gemm.a, &gemm.out, &gemm.out]) {
            self.set(prefer, self.preference_set, preference, attribute, side.alignment)?;
        }
        let [layout_a, layout_b, layout_out] = layouts;
        let (mut choices, mut found) = (vec![Choice::default(); most], 0);
        // SAFETY: all descriptors are alive; the function writes at most `most` results to `choices`, which has this
        // length, and their number to a local.
        let status = unsafe {
            (self.heuristic)(
                library,
                operation,
                layout_a,
                layout_b,
                layout_out,
                layout_out,
                preference,
                most as c_int,
                choices.as_mut_ptr(),
                &raw mut found,
            )
        };
        drop(preferences);
        choices.truncate(usize::try_from(found).unwrap_or(0));
        choices.retain(|choice| choice.state == SUCCESS);
        if status == NOT_SUPPORTED || (status == SUCCESS && choices.is_empty()) {
            tracing::debug!(target: "gtd::cuda", ?gemm, "cuBLASLt has no algorithm");
            return Ok(None);
        }
        self.check("cublasLtMatmulAlgoGetHeuristic", status)?;
        parts.made.clear();
        Ok(Some(LtPlan { operation, layouts, choices, chosen: 0, trial: None }))
    }

    fn give_back(&self, plan: &LtPlan) {
        // SAFETY: a plan owns its descriptors and is dropped once.
        unsafe {
            (self.operation_destroy)(plan.operation);
            for layout in plan.layouts {
                (self.layout_destroy)(layout);
            }
        }
    }
}
