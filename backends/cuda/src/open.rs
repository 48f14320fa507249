//! Opening a backend on a device of this machine.

use crate::backend::CudaBackend;
use crate::blas::lt::CublasLt;
use crate::compile::nvrtc::{Nvrtc, base_options};
use crate::compile::prebuilt::Prebuilt;
use crate::compile::store::Store;
use crate::dnn::cudnn::Cudnn;
use crate::driver::cuda::{CudaDriver, OpenError};
use crate::graphs::Graphs;
use gt_nvidia::{CUBLAS_LT, CUDNN, NVRTC};
use std::sync::Arc;

/// Device memory that the libraries and the driver use: workspaces, modules, local memory.
const RESERVE_BYTES: usize = 512 << 20;

impl CudaBackend {
    /// Opens the device of this number, among those in `CUDA_VISIBLE_DEVICES`. Tensors may take the device's free
    /// memory less a reserve, and at most `memory_bytes_limit`. Compiled kernels are kept in `store`.
    ///
    /// # Errors
    /// There is no driver, no compiler, or no such device; [`gt_nvidia::probe`] says more.
    pub fn open(ordinal: u32, memory_bytes_limit: Option<usize>, store: Store) -> Result<CudaBackend, OpenError> {
        let cuda = CudaDriver::open(ordinal)?;
        let capability = crate::driver::Driver::properties(&cuda).capability;
        let version = cuda.version();
        let compiler = NVRTC.open(Some(version.0), |opened| Nvrtc::for_device(opened, capability, version))?;
        let free = crate::driver::Driver::free_bytes(&cuda).map_err(|why| OpenError::Refused { ordinal, why })?;
        let memory_bytes_limit = memory_bytes_limit.unwrap_or(usize::MAX).min(free - RESERVE_BYTES.min(free / 2));
        let driver = Arc::new(cuda);
        let mut backend = CudaBackend::new(driver.clone(), Box::new(compiler), store.clone(), memory_bytes_limit)
            .map_err(|why| OpenError::Refused { ordinal, why })?;
        if let Some(prebuilt) = Prebuilt::installed(capability, version, &base_options()) {
            backend = backend.with_prebuilt(prebuilt);
        }
        // A switch that is set and not empty is off if it is 0, and on otherwise.
        let switch = |name| std::env::var(name).ok().filter(|value| !value.is_empty()).map(|value| value != "0");
        let graphs = match (switch("GT_CUDA_TIMES"), switch("GT_CUDA_GRAPHS")) {
            (Some(true), _) => Some(Graphs::Timed),
            (_, Some(false)) => Some(Graphs::Never),
            _ => None,
        };
        if let Some(graphs) = graphs {
            backend.set_graphs(graphs).map_err(|why| OpenError::Refused { ordinal, why })?;
        }
        backend = match CUBLAS_LT.open(Some(version.0), |opened| CublasLt::bind(opened, driver.clone())) {
            Ok(blas) => backend.with_blas(Box::new(blas.with_autotuning(store))),
            Err(error) => {
                tracing::warn!(target: "gtd::cuda", %error, "matrices are multiplied by kernels of GT's own, which are slower");
                backend
            }
        };
        if switch("GT_CUDNN") == Some(false) {
            return Ok(backend);
        }
        Ok(match CUDNN.open(Some(version.0), |opened| Cudnn::bind(opened, driver.clone(), memory_bytes_limit)) {
            Ok(dnn) => backend.with_dnn(Box::new(dnn)),
            Err(error) => {
                tracing::info!(target: "gtd::cuda", %error, "convolutions are computed without cuDNN, which takes longer");
                backend
            }
        })
    }
}
