//! GT's declarations of NVIDIA's functions, numbers and structs are those of NVIDIA's headers.
//!
//! The declarations are read from the sources that have them, and g++ compares them with the headers. The headers are
//! in the folders that `GT_NVIDIA_HEADERS` lists (`make test-headers` downloads all of them); without that variable,
//! those of the driver and of NVRTC are beside the libraries of `GT_CUDA_LIBRARIES`, as `make test-rust` sets it.
//! Headers that are not there are an error where a variable says that they are.
#![expect(clippy::print_stdout, reason = "a test that is skipped says why")]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The sources with declarations, and the header of each.
const SOURCES: [Source; 10] = [
    Source {
        file: "nvidia/src/cuda.rs",
        header: "cuda.h",
        numbers: &[
            ("const NO_DEVICE", &["CUDA_ERROR_NO_DEVICE"]),
            ("const CLOCK_KHZ", &["CU_DEVICE_ATTRIBUTE_CLOCK_RATE"]),
            ("const MULTIPROCESSORS", &["CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT"]),
            ("const COMPUTE_MODE", &["CU_DEVICE_ATTRIBUTE_COMPUTE_MODE"]),
            ("const MEMORY_CLOCK_KHZ", &["CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE"]),
            ("const MEMORY_BUS_BITS", &["CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH"]),
            ("const THREADS_PER_MULTIPROCESSOR", &["CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR"]),
            ("const CAPABILITY_MAJOR", &["CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR"]),
            ("const CAPABILITY_MINOR", &["CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR"]),
            ("const SHARED_BYTES_PER_BLOCK", &["CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"]),
            ("const MEMORY_POOLS", &["CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED"]),
        ],
        types: &[
            ("CudaResult", "CUresult", &[]),
            ("DeviceAttribute", "CUdevice_attribute", &[]),
            ("Uuid", "CUuuid", &[]),
        ],
        own: &[],
    },
    Source {
        file: "backends/cuda/src/driver/cuda.rs",
        header: "cuda.h",
        numbers: &[
            ("const NON_BLOCKING", &["CU_STREAM_NON_BLOCKING"]),
            ("const WITHOUT_TIME", &["CU_EVENT_DISABLE_TIMING"]),
            ("const PORTABLE", &["CU_MEMHOSTALLOC_PORTABLE"]),
            ("const PORTABLE", &["CU_MEMHOSTREGISTER_PORTABLE"]),
            ("const RELEASE_THRESHOLD", &["CU_MEMPOOL_ATTR_RELEASE_THRESHOLD"]),
            ("const DYNAMIC_SHARED_BYTES", &["CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"]),
            ("const CAPTURE_ACTIVE", &["CU_STREAM_CAPTURE_STATUS_ACTIVE"]),
            ("const CAPTURE_THREAD", &["CU_STREAM_CAPTURE_MODE_THREAD_LOCAL"]),
            ("const SUCCESS", &["CUDA_SUCCESS"]),
            ("const OUT_OF_MEMORY", &["CUDA_ERROR_OUT_OF_MEMORY"]),
            ("const NOT_READY", &["CUDA_ERROR_NOT_READY"]),
            ("// Deinitialised; device unavailable.", &["CUDA_ERROR_DEINITIALIZED", "CUDA_ERROR_DEVICE_UNAVAILABLE"]),
            (
                "// ECC, NVLink, and an error contained to this process.",
                &["CUDA_ERROR_ECC_UNCORRECTABLE", "CUDA_ERROR_NVLINK_UNCORRECTABLE", "CUDA_ERROR_CONTAINED"],
            ),
            (
                "// counter, launch, tensor memory.",
                &[
                    "CUDA_ERROR_ILLEGAL_ADDRESS",
                    "CUDA_ERROR_LAUNCH_TIMEOUT",
                    "CUDA_ERROR_CONTEXT_IS_DESTROYED",
                    "CUDA_ERROR_ASSERT",
                    "CUDA_ERROR_HARDWARE_STACK_ERROR",
                    "CUDA_ERROR_LAUNCH_FAILED",
                    "CUDA_ERROR_TENSOR_MEMORY_LEAK",
                ],
            ),
            ("// The MPS server has ended.", &["CUDA_ERROR_MPS_RPC_FAILURE", "CUDA_ERROR_MPS_CLIENT_TERMINATED"]),
            (
                "// External device, key rotation, unknown error.",
                &["CUDA_ERROR_EXTERNAL_DEVICE", "CUDA_ERROR_KEY_ROTATION", "CUDA_ERROR_UNKNOWN"],
            ),
        ],
        types: &[
            ("Status", "CUresult", &[]),
            ("DevicePtr", "CUdeviceptr", &[]),
            ("RawContext", "CUcontext", &[]),
            ("RawStream", "CUstream", &[]),
            ("RawEvent", "CUevent", &[]),
            ("RawPool", "CUmemoryPool", &[]),
            ("RawModule", "CUmodule", &[]),
            ("RawFunction", "CUfunction", &[]),
            ("RawGraph", "CUgraph", &[]),
            ("RawGraphExec", "CUgraphExec", &[]),
            ("RawNode", "CUgraphNode", &[]),
            ("CaptureStatus", "CUstreamCaptureStatus", &[]),
            ("EdgeData", "CUgraphEdgeData", &["from_port", "to_port", "type", "reserved"]),
            (
                "NodeParameters",
                "CUDA_KERNEL_NODE_PARAMS_v2",
                &[
                    "func",
                    "gridDimX",
                    "gridDimY",
                    "gridDimZ",
                    "blockDimX",
                    "blockDimY",
                    "blockDimZ",
                    "sharedMemBytes",
                    "kernelParams",
                    "extra",
                    "kern",
                    "ctx",
                ],
            ),
            ("PoolAttribute", "CUmemPool_attribute", &[]),
            ("FunctionAttribute", "CUfunction_attribute", &[]),
            ("CaptureMode", "CUstreamCaptureMode", &[]),
        ],
        own: &[],
    },
    Source {
        file: "backends/cuda/src/compile/nvrtc.rs",
        header: "nvrtc.h",
        numbers: &[],
        types: &[("Program", "nvrtcProgram", &[]), ("NvrtcResult", "nvrtcResult", &[])],
        own: &[],
    },
    Source {
        file: "backends/cuda/src/blas/lt.rs",
        header: "cublasLt.h",
        numbers: &[
            ("const SUCCESS", &["CUBLAS_STATUS_SUCCESS"]),
            ("const ALLOC_FAILED", &["CUBLAS_STATUS_ALLOC_FAILED"]),
            ("const NOT_SUPPORTED", &["CUBLAS_STATUS_NOT_SUPPORTED"]),
            ("const TRANSPOSE_A", &["CUBLASLT_MATMUL_DESC_TRANSA"]),
            ("const TRANSPOSE_B", &["CUBLASLT_MATMUL_DESC_TRANSB"]),
            ("const TRANSPOSED", &["CUBLAS_OP_T"]),
            ("const EPILOGUE", &["CUBLASLT_MATMUL_DESC_EPILOGUE"]),
            ("const BIAS_POINTER", &["CUBLASLT_MATMUL_DESC_BIAS_POINTER"]),
            ("const ADDS_BIAS", &["CUBLASLT_EPILOGUE_BIAS"]),
            ("const BATCH_COUNT", &["CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT"]),
            ("const BATCH_STEP", &["CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET"]),
            ("const WORKSPACE_MAX", &["CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES"]),
            ("const REDUCTION_SCHEMES", &["CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK"]),
            (
                "const ALIGNMENTS: [c_int; 4]",
                &[
                    "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES",
                    "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES",
                    "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES",
                    "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES",
                ],
            ),
            ("const IN_COMPUTE_TYPE", &["CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE"]),
            ("fn data_type(", &["CUDA_R_32F", "CUDA_R_64F", "CUDA_R_16F", "CUDA_R_16BF"]),
            (
                "let (f32_exact, f32_fast, f64_exact) =",
                &["CUBLAS_COMPUTE_32F", "CUBLAS_COMPUTE_32F_FAST_TF32", "CUBLAS_COMPUTE_64F"],
            ),
        ],
        types: &[
            ("Status", "cublasStatus_t", &[]),
            ("RawLibrary", "cublasLtHandle_t", &[]),
            ("RawOperation", "cublasLtMatmulDesc_t", &[]),
            ("RawLayout", "cublasLtMatrixLayout_t", &[]),
            ("RawPreference", "cublasLtMatmulPreference_t", &[]),
            ("RawStream", "cudaStream_t", &[]),
            ("ComputeType", "cublasComputeType_t", &[]),
            ("DataType", "cudaDataType_t", &[]),
            ("OperationAttribute", "cublasLtMatmulDescAttributes_t", &[]),
            ("LayoutAttribute", "cublasLtMatrixLayoutAttribute_t", &[]),
            ("PreferenceAttribute", "cublasLtMatmulPreferenceAttributes_t", &[]),
            ("Algorithm", "cublasLtMatmulAlgo_t", &["data"]),
            (
                "Choice",
                "cublasLtMatmulHeuristicResult_t",
                &["algo", "workspaceSize", "state", "wavesCount", "reserved"],
            ),
        ],
        own: &["PLANS_MAX"],
    },
    Source {
        file: "backends/cuda/src/dnn/descriptors.rs",
        header: "cudnn_graph.h",
        numbers: &[
            ("const SUCCESS", &["CUDNN_STATUS_SUCCESS"]),
            ("const NOT_SUPPORTED", &["CUDNN_STATUS_NOT_SUPPORTED"]),
            (
                "const ALLOCATION_FAILED: [Status; 2]",
                &[
                    "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
                    "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
                ],
            ),
            ("    Convolution =", &["CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR"]),
            ("    Engine =", &["CUDNN_BACKEND_ENGINE_DESCRIPTOR"]),
            ("    EngineConfiguration =", &["CUDNN_BACKEND_ENGINECFG_DESCRIPTOR"]),
            ("    EngineHeuristic =", &["CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR"]),
            ("    ExecutionPlan =", &["CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR"]),
            ("    ConvolutionForward =", &["CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR"]),
            ("    ConvolutionBackwardFilter =", &["CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR"]),
            ("    ConvolutionBackwardData =", &["CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR"]),
            ("    OperationGraph =", &["CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR"]),
            ("    VariantPack =", &["CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR"]),
            ("    Tensor =", &["CUDNN_BACKEND_TENSOR_DESCRIPTOR"]),
            ("const HANDLE", &["CUDNN_TYPE_HANDLE"]),
            ("const DATA_TYPE", &["CUDNN_TYPE_DATA_TYPE"]),
            ("const INT64", &["CUDNN_TYPE_INT64"]),
            ("const FLOAT", &["CUDNN_TYPE_FLOAT"]),
            ("const DOUBLE", &["CUDNN_TYPE_DOUBLE"]),
            ("const VOID_PTR", &["CUDNN_TYPE_VOID_PTR"]),
            ("const CONVOLUTION_MODE", &["CUDNN_TYPE_CONVOLUTION_MODE"]),
            ("const HEURISTIC_MODE", &["CUDNN_TYPE_HEUR_MODE"]),
            ("const NUMERICAL_NOTE", &["CUDNN_TYPE_NUMERICAL_NOTE"]),
            ("const DESCRIPTOR", &["CUDNN_TYPE_BACKEND_DESCRIPTOR"]),
            ("const CONVOLUTION_COMPUTE_TYPE", &["CUDNN_ATTR_CONVOLUTION_COMP_TYPE"]),
            ("const CONVOLUTION_CONV_MODE", &["CUDNN_ATTR_CONVOLUTION_CONV_MODE"]),
            ("const CONVOLUTION_DILATIONS", &["CUDNN_ATTR_CONVOLUTION_DILATIONS"]),
            ("const CONVOLUTION_STRIDES", &["CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES"]),
            ("const CONVOLUTION_POST_PADDINGS", &["CUDNN_ATTR_CONVOLUTION_POST_PADDINGS"]),
            ("const CONVOLUTION_PRE_PADDINGS", &["CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS"]),
            ("const CONVOLUTION_AXES", &["CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS"]),
            ("const HEURISTIC_OF", &["CUDNN_ATTR_ENGINEHEUR_MODE"]),
            ("const HEURISTIC_GRAPH", &["CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH"]),
            ("const HEURISTIC_RESULTS", &["CUDNN_ATTR_ENGINEHEUR_RESULTS"]),
            ("const CONFIGURATION_ENGINE", &["CUDNN_ATTR_ENGINECFG_ENGINE"]),
            ("const ENGINE_INDEX", &["CUDNN_ATTR_ENGINE_GLOBAL_INDEX"]),
            ("const ENGINE_NOTES", &["CUDNN_ATTR_ENGINE_NUMERICAL_NOTE"]),
            ("const PLAN_HANDLE", &["CUDNN_ATTR_EXECUTION_PLAN_HANDLE"]),
            ("const PLAN_CONFIGURATION", &["CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG"]),
            ("const PLAN_WORKSPACE_BYTES", &["CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE"]),
            ("const GRAPH_HANDLE", &["CUDNN_ATTR_OPERATIONGRAPH_HANDLE"]),
            ("const GRAPH_OPERATIONS", &["CUDNN_ATTR_OPERATIONGRAPH_OPS"]),
            ("const TENSOR_ALIGNMENT_BYTES", &["CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT"]),
            ("const TENSOR_DATA_TYPE", &["CUDNN_ATTR_TENSOR_DATA_TYPE"]),
            ("const TENSOR_SIZES", &["CUDNN_ATTR_TENSOR_DIMENSIONS"]),
            ("const TENSOR_STRIDES", &["CUDNN_ATTR_TENSOR_STRIDES"]),
            ("const TENSOR_ID", &["CUDNN_ATTR_TENSOR_UNIQUE_ID"]),
            ("const PACK_IDS", &["CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS"]),
            ("const PACK_POINTERS", &["CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS"]),
            ("const PACK_WORKSPACE", &["CUDNN_ATTR_VARIANT_PACK_WORKSPACE"]),
            // Alpha, the convolution, input, weight and output; beta is the number after alpha's.
            (
                "const FORWARD: OperationAttributes",
                &[
                    "CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA",
                    "CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC",
                    "CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X",
                    "CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W",
                    "CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y",
                ],
            ),
            ("const FORWARD: OperationAttributes", &["CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA - 1"]),
            (
                "const BACKWARD_DATA: OperationAttributes",
                &[
                    "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA",
                    "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC",
                    "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX",
                    "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W",
                    "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY",
                ],
            ),
            ("const BACKWARD_DATA: OperationAttributes", &["CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA - 1"]),
            (
                "const BACKWARD_FILTER: OperationAttributes",
                &[
                    "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA",
                    "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC",
                    "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X",
                    "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW",
                    "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY",
                ],
            ),
            ("const BACKWARD_FILTER: OperationAttributes", &["CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA - 1"]),
        ],
        types: &[
            ("Status", "cudnnStatus_t", &[]),
            ("RawHandle", "cudnnHandle_t", &[]),
            ("RawStream", "cudaStream_t", &[]),
            ("RawDescriptor", "cudnnBackendDescriptor_t", &[]),
            ("DescriptorType", "cudnnBackendDescriptorType_t", &[]),
            ("AttributeName", "cudnnBackendAttributeName_t", &[]),
            ("AttributeType", "cudnnBackendAttributeType_t", &[]),
        ],
        own: &["CATEGORY", "MESSAGE_BYTES"],
    },
    Source {
        file: "backends/cuda/src/dnn/cudnn.rs",
        header: "cudnn_graph.h",
        numbers: &[
            ("const CROSS_CORRELATION", &["CUDNN_CROSS_CORRELATION"]),
            ("const HEURISTICS: [c_int; 2]", &["CUDNN_HEUR_MODE_A", "CUDNN_HEUR_MODE_FALLBACK"]),
            ("const TENSOR_CORE", &["CUDNN_NUMERICAL_NOTE_TENSOR_CORE"]),
            ("const DOWN_CONVERT_INPUTS", &["CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS"]),
            ("const REDUCED_PRECISION_REDUCTION", &["CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION"]),
            ("const FFT", &["CUDNN_NUMERICAL_NOTE_FFT"]),
            ("const NONDETERMINISTIC", &["CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC"]),
            ("const WINOGRAD", &["CUDNN_NUMERICAL_NOTE_WINOGRAD"]),
            ("fn data_type(", &["CUDNN_DATA_FLOAT", "CUDNN_DATA_DOUBLE", "CUDNN_DATA_HALF", "CUDNN_DATA_BFLOAT16"]),
        ],
        types: &[],
        own: &["PLANS_MAX", "CONFIGURATIONS_MAX", "NOTES_MAX"],
    },
    Source {
        file: "collectives/src/nccl/library.rs",
        header: "nccl.h",
        numbers: &[
            ("const SUCCESS", &["ncclSuccess"]),
            ("const IN_PROGRESS", &["ncclInProgress"]),
            ("const UNIQUE_ID_BYTES", &["NCCL_UNIQUE_ID_BYTES"]),
            ("const CONFIG_MAGIC", &["ncclConfig_t NCCL_CONFIG_INITIALIZER.magic"]),
        ],
        types: &[
            ("NcclResult", "ncclResult_t", &[]),
            ("ElementKind", "ncclDataType_t", &[]),
            ("ReduceKind", "ncclRedOp_t", &[]),
            ("CommHandle", "ncclComm_t", &[]),
            ("StreamHandle", "cudaStream_t", &[]),
            ("UniqueId", "ncclUniqueId", &["internal"]),
            (
                "NcclConfig",
                "ncclConfig_t",
                &[
                    "size",
                    "magic",
                    "version",
                    "blocking",
                    "cgaClusterSize",
                    "minCTAs",
                    "maxCTAs",
                    "netName",
                    "splitShare",
                    "...",
                ],
            ),
        ],
        own: &["VERSION_MIN", "CONFIG_VERSION"],
    },
    Source {
        file: "collectives/src/nccl/device.rs",
        header: "nccl.h",
        numbers: &[
            (
                "let kind = match dtype",
                &[
                    "ncclInt8",
                    "ncclUint8",
                    "ncclInt32",
                    "ncclInt64",
                    "ncclFloat16",
                    "ncclFloat32",
                    "ncclFloat64",
                    "ncclBfloat16",
                ],
            ),
            ("let how = match", &["ncclMax", "ncclMin", "ncclSum", "ncclProd"]),
            ("if dtype.is_float() && self.size() ==", &["1", "ncclSum"]),
            ("(Reduce::Mean, _) if dtype.is_float() =>", &["ncclAvg"]),
            ("fn byte_kind()", &["ncclUint8"]),
        ],
        types: &[],
        own: &["SPINS"],
    },
    Source {
        file: "collectives/src/ucx/library.rs",
        header: "ucp/api/ucp.h",
        numbers: &[
            ("const OK", &["UCS_OK"]),
            ("pub const BUSY: Status = -", &["-UCS_ERR_BUSY"]),
            ("const LAST: Status = -", &["-UCS_ERR_LAST"]),
            ("const CONTEXT_HAS_FEATURES", &["UCP_PARAM_FIELD_FEATURES"]),
            ("const FEATURE_TAG", &["UCP_FEATURE_TAG"]),
            ("const FEATURE_WAKEUP", &["UCP_FEATURE_WAKEUP"]),
            ("const WORKER_HAS_THREAD_MODE", &["UCP_WORKER_PARAM_FIELD_THREAD_MODE"]),
            ("const SERIALIZED", &["UCS_THREAD_MODE_SERIALIZED"]),
            ("const ENDPOINT_HAS_ADDRESS", &["UCP_EP_PARAM_FIELD_REMOTE_ADDRESS"]),
            ("const ENDPOINT_HAS_ERROR_MODE", &["UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE"]),
            ("const ENDPOINT_HAS_ERROR_HANDLER", &["UCP_EP_PARAM_FIELD_ERR_HANDLER"]),
            ("const ERRORS_OF_PEERS", &["UCP_ERR_HANDLING_MODE_PEER"]),
            ("const REQUEST_HAS_CALLBACK", &["UCP_OP_ATTR_FIELD_CALLBACK"]),
            ("const REQUEST_HAS_DATA", &["UCP_OP_ATTR_FIELD_USER_DATA"]),
            ("const REQUEST_HAS_FLAGS", &["UCP_OP_ATTR_FIELD_FLAGS"]),
            ("const CLOSE_BY_FORCE", &["UCP_EP_CLOSE_FLAG_FORCE"]),
        ],
        types: &[
            ("Status", "ucs_status_t", &[]),
            ("RawContext", "ucp_context_h", &[]),
            ("RawConfig", "ucp_config_t*", &[]),
            ("RawConstConfig", "const ucp_config_t*", &[]),
            ("RawWorker", "ucp_worker_h", &[]),
            ("RawAddress", "ucp_address_t*", &[]),
            ("RawEndpoint", "ucp_ep_h", &[]),
            ("RawMessage", "ucp_tag_message_h", &[]),
            (
                "ContextParams",
                "ucp_params_t",
                &[
                    "field_mask",
                    "features",
                    "request_size",
                    "request_init",
                    "request_cleanup",
                    "tag_sender_mask",
                    "mt_workers_shared",
                    "estimated_num_eps",
                    "estimated_num_ppn",
                    "name",
                    "node_local_id",
                ],
            ),
            (
                "WorkerParams",
                "ucp_worker_params_t",
                &[
                    "field_mask",
                    "thread_mode",
                    "cpu_mask",
                    "events",
                    "user_data",
                    "event_fd",
                    "flags",
                    "name",
                    "am_alignment",
                    "client_id",
                ],
            ),
            (
                "EndpointParams",
                "ucp_ep_params_t",
                &[
                    "field_mask",
                    "address",
                    "err_mode",
                    "err_handler.cb",
                    "err_handler.arg",
                    "user_data",
                    "flags",
                    "sockaddr",
                    "conn_request",
                    "name",
                    "local_sockaddr",
                ],
            ),
            ("MessageInfo", "ucp_tag_recv_info_t", &["sender_tag", "length"]),
            (
                "RequestParams",
                "ucp_request_param_t",
                &[
                    "op_attr_mask",
                    "flags",
                    "request",
                    "cb",
                    "datatype",
                    "user_data",
                    "reply_buffer",
                    "memory_type",
                    "recv_info",
                    "memh",
                    "remote_datatype",
                    "remote",
                    "remote_count",
                ],
            ),
        ],
        own: &["API_MAJOR", "API_MINOR"],
    },
    Source {
        file: "nvidia/src/nvml.rs",
        header: "nvml.h",
        numbers: &[("const NVLINKS_MAX", &["NVML_NVLINK_MAX_LINKS"])],
        types: &[
            ("RawDevice", "nvmlDevice_t", &[]),
            ("NvmlReturn", "nvmlReturn_t", &[]),
            ("EnableState", "nvmlEnableState_t", &[]),
            ("NvmlMemory", "nvmlMemory_t", &["total", "free", "used"]),
            ("Process", "nvmlProcessInfo_t", &["pid", "usedGpuMemory", "gpuInstanceId", "computeInstanceId"]),
        ],
        own: &["PROCESSES_MAX"],
    },
];

/// The libraries that take the place of NVIDIA's in tests, and the header of each.
const STAND_INS: [(&str, &str); 4] = [
    ("backends/cuda/tests/fake_driver.cpp", "cuda.h"),
    ("backends/cuda/tests/fake_blas.cpp", "cublasLt.h"),
    ("backends/cuda/tests/fake_cudnn.cpp", "cudnn_graph.h"),
    ("collectives/tests/fake_nccl.cpp", "nccl.h"),
];

/// The headers that the packages of `make test-rust` bring. UCX, which is not of a toolkit, has its own.
const OF_TOOLKIT: [&str; 2] = ["cuda.h", "nvrtc.h"];

/// A source with declarations of one library.
struct Source {
    file: &'static str,
    header: &'static str,
    /// A text that is in the source, and the names in the header of the numbers that follow it.
    numbers: &'static [(&'static str, &'static [&'static str])],
    /// A struct, its name in the header, and those of its fields in order; or an opaque handle, which has no fields.
    /// After the fields, `...` stands for those that the header's struct has besides.
    types: &'static [(&'static str, &'static str, &'static [&'static str])],
    /// Constants that are GT's own.
    own: &'static [&'static str],
}

fn path_of(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file)
}

fn text_of(file: &str) -> String {
    let path = path_of(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The text without comments, in which numbers are sought.
fn without_comments(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The first `count` numbers in the text.
fn numbers_in(text: &str, count: usize) -> Vec<u64> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c: char| !is_word(c)).filter(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    words
        .map(|word| {
            let word = word.replace('_', "");
            let number = word.strip_prefix("0x").map_or_else(|| word.parse(), |hex| u64::from_str_radix(hex, 16));
            number.unwrap_or_else(|_| panic!("{word} is no number"))
        })
        .take(count)
        .collect()
}

/// A C++ description of a Rust type: what of it a call passes.
fn described(rust: &str, source: &Source, text: &str) -> String {
    let rust = rust.trim();
    if let Some((_, name, _)) = source.types.iter().find(|(known, ..)| *known == rust) {
        return format!("Exactly<{name}>");
    }
    if let Some(pointee) = rust.strip_prefix("*mut ") {
        return format!("Pointer<{}>", described(pointee, source, text));
    }
    if let Some(pointee) = rust.strip_prefix("*const ") {
        return format!("Pointer<const {}>", described(pointee, source, text));
    }
    if let Some(array) = rust.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let (_, count) = array.split_once(';').unwrap_or_else(|| panic!("{rust} has no length"));
        return format!("Bytes<{}>", count.trim());
    }
    let known = match rust {
        "()" | "c_void" => "void",
        "c_char" => "Exactly<char>",
        "c_uchar" | "u8" => "Exactly<unsigned char>",
        "c_int" | "i32" => "Exactly<int>",
        "c_uint" | "u32" => "Exactly<unsigned>",
        "c_ulonglong" => "Exactly<unsigned long long>",
        "usize" => "Exactly<std::size_t>",
        // C has two types of 64 bits.
        "u64" => "Whole<8, false>",
        "i64" => "Whole<8, true>",
        "f32" => "Exactly<float>",
        _ => "",
    };
    if !known.is_empty() {
        return known.into();
    }
    let alias = format!("type {rust} = ");
    let (_, rest) = text.split_once(&alias).unwrap_or_else(|| panic!("{rust} is a type that this test does not know"));
    described(rest.split(';').next().unwrap_or_default(), source, text)
}

/// The functions that a source declares: name, types of the arguments, and the result's.
fn functions(text: &str) -> Vec<(String, Vec<String>, String)> {
    let mut found = Vec::new();
    for block in text.split("functions! {").skip(1) {
        let block = &block[..block.find("\n}").expect("the end of the macro")];
        for declaration in without_comments(block).split(";\n") {
            let Some((_, rest)) = declaration.split_once(": \"") else { continue };
            let (name, rest) = rest.split_once('"').expect("a name in quotes");
            let (arguments, result) = rest.rsplit_once("->").expect("a result");
            let arguments = arguments.trim().trim_start_matches('(').trim_end_matches(')');
            let arguments = arguments.split(',').map(str::trim).filter(|argument| !argument.is_empty());
            found.push((name.into(), arguments.map(str::to_owned).collect(), result.trim().into()));
        }
    }
    found
}

/// The fields of a struct, as C++ declares their types.
fn fields(text: &str, name: &str) -> Vec<String> {
    let in_cpp = |rust: &str| match rust {
        "u64" | "c_ulonglong" | "usize" => "unsigned long long",
        "c_int" | "Status" => "int",
        "c_uint" => "unsigned",
        "u8" => "unsigned char",
        "f32" => "float",
        "*const c_char" => "const char*",
        "*const c_void" => "const void*",
        "RawFunction" | "RawContext" | "Handle" => "void*",
        "*mut *mut c_void" => "void**",
        "Algorithm" => "Rust_Algorithm",
        other => panic!("{name} has a field of {other}, which this test does not know"),
    };
    let text = without_comments(text);
    let types: Vec<String> = match text.split_once(&format!("struct {name}(")) {
        Some((_, rest)) => vec![rest[..rest.find(");").expect("its end")].into()],
        None => {
            let (_, rest) = text.split_once(&format!("struct {name} {{")).expect("the struct");
            let body = &rest[..rest.find('}').expect("its end")];
            body.split(",\n").filter_map(|field| field.split_once(": ")).map(|(_, of)| of.trim().to_owned()).collect()
        }
    };
    let count_of = |count: &str| match count.parse::<u64>() {
        Ok(count) => count,
        Err(_) => {
            let (_, rest) = text.split_once(&format!("const {count}: usize =")).expect("the constant of a length");
            numbers_in(rest, 1)[0]
        }
    };
    let declared = |(i, of): (usize, &String)| {
        let of = of.trim_end_matches(',').trim_start_matches("pub ");
        match of.strip_prefix('[').and_then(|array| array.strip_suffix(']')?.split_once("; ")) {
            Some((element, count)) => format!("{} f{i}[{}];", in_cpp(element), count_of(count)),
            None => format!("{} f{i};", in_cpp(of)),
        }
    };
    types.iter().enumerate().map(declared).collect()
}

/// C++ that compares descriptions of types.
const TEMPLATES: &str = "
#include <cstddef>
#include <type_traits>
template <int, bool> struct Whole; template <int> struct Bytes; template <class> struct Pointer; template <class> struct Exactly;
template <class, class C> struct Is : std::false_type {};
template <> struct Is<void, void> : std::true_type {};
template <class C> struct Is<Exactly<C>, C> : std::true_type {};
template <int N, bool S, class C>
struct Is<Whole<N, S>, C> : std::bool_constant<std::is_integral_v<C> && std::is_signed_v<C> == S && sizeof(C) == N> {};
template <int N, class C> struct Is<Bytes<N>, C> : std::bool_constant<std::is_class_v<C> && sizeof(C) == N> {};
template <class P, class C>
struct Points : std::bool_constant<std::is_const_v<P> == std::is_const_v<C> && Is<std::remove_const_t<P>, std::remove_const_t<C>>::value> {};
template <class P, class C> struct Is<Pointer<P>, C*> : Points<P, C> {};
template <class F, class Result, class... Arguments> struct Same : std::false_type {};
template <class R, class... A, class Result, class... Arguments>
struct Same<R (*)(A...), Result, Arguments...>
    : std::bool_constant<sizeof...(A) == sizeof...(Arguments) && Is<Result, R>::value> {};
template <class F, class... Arguments> struct Taken : std::false_type {};
template <class R, class... A, class... Arguments>
struct Taken<R (*)(A...), Arguments...> {
    template <bool, class = void> struct All : std::false_type {};
    template <class Unused> struct All<true, Unused> : std::bool_constant<(Is<Arguments, A>::value && ...)> {};
    static constexpr bool value = All<sizeof...(A) == sizeof...(Arguments)>::value;
};
";

/// C++ that compiles if the declarations of a source are those of its header.
fn comparison(source: &Source, text: &str) -> String {
    let mut cpp = String::new();
    // CUDA's header then declares older versions of functions too, under the names that the library exports.
    let _ = writeln!(cpp, "#define __CUDA_API_VERSION_INTERNAL\n#include <{}>{TEMPLATES}", source.header);
    // The headers call older versions of some functions by their bare names.
    for (name, ..) in functions(text) {
        let _ = writeln!(cpp, "#undef {name}");
    }
    for (name, arguments, result) in functions(text) {
        let arguments: String =
            arguments.iter().map(|argument| format!(", {}", described(argument, source, text))).collect();
        let of = format!("decltype(&{name})");
        let _ = writeln!(
            cpp,
            "static_assert(Same<{of}, {}{arguments}>::value, \"the result of {name}\");",
            described(&result, source, text)
        );
        let _ = writeln!(cpp, "static_assert(Taken<{of}{arguments}>::value, \"the arguments of {name}\");");
    }
    for (anchor, names) in source.numbers {
        let at = text.find(anchor).unwrap_or_else(|| panic!("{} has no {anchor}", source.file));
        let rest = without_comments(&text[at + anchor.len()..]);
        for (name, number) in names.iter().zip(numbers_in(&rest, names.len())) {
            let _ = writeln!(cpp, "static_assert({name} == {number}, \"{anchor} of {}\");", source.file);
        }
    }
    for (rust, name, of_header) in source.types.iter().filter(|(.., fields)| !fields.is_empty()) {
        let fields = fields(text, rust);
        let (of_header, at_most) = match of_header.split_last() {
            Some((&"...", of_header)) => (of_header, "<="),
            _ => (*of_header, "=="),
        };
        assert_eq!(fields.len(), of_header.len(), "{rust} has as many fields as {name}");
        let _ = writeln!(cpp, "struct Rust_{rust} {{ {} }};", fields.join(" "));
        let _ = writeln!(cpp, "static_assert(sizeof(Rust_{rust}) {at_most} sizeof({name}), \"the size of {name}\");");
        for (i, field) in of_header.iter().enumerate() {
            let _ = writeln!(
                cpp,
                "static_assert(offsetof(Rust_{rust}, f{i}) == offsetof({name}, {field}) && sizeof(Rust_{rust}::f{i}) == \
                 sizeof(static_cast<{name}*>(nullptr)->{field}), \"{field} of {name}\");"
            );
        }
    }
    cpp
}

/// The errors of g++ in a file; empty if it compiles.
fn refused_file(file: &Path, folders: &[PathBuf]) -> String {
    let mut gxx = Command::new("g++");
    gxx.args(["-std=c++17", "-fsyntax-only", "-w", "-DGT_COMPARED"]);
    for folder in folders {
        gxx.arg("-isystem").arg(folder);
    }
    let output = gxx.arg(file).output().expect("g++ runs: apt install g++");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.success(), !said.contains("error: "), "{said}");
    said
}

/// The errors of g++ in a comparison; empty if it compiles.
fn refused(cpp: &str, folders: &[PathBuf]) -> String {
    let name = format!("gt-headers-{}-{:x}.cpp", std::process::id(), cpp.len());
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, cpp).expect("a folder for temporary files");
    let said = refused_file(&file, folders);
    let _ = std::fs::remove_file(&file);
    said
}

/// The folders of headers that a variable names; and whether all headers are to be there.
fn folders() -> Option<(Vec<PathBuf>, bool)> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(folders) = set("GT_NVIDIA_HEADERS") {
        return Some((std::env::split_paths(&folders).collect(), true));
    }
    let libraries = set("GT_CUDA_LIBRARIES")?;
    Some((std::env::split_paths(&libraries).map(|folder| folder.join("../include")).collect(), false))
}

/// Calls `refused` with each file whose header is there; asserts that it says nothing, and that the headers are there
/// that have to be.
fn compare<'a>(files: impl Iterator<Item = (&'a str, &'a str)>, refused: impl Fn(&str, &[PathBuf]) -> String) {
    let Some((folders, all)) = folders() else {
        return println!("skipped: neither GT_NVIDIA_HEADERS nor GT_CUDA_LIBRARIES names NVIDIA's headers");
    };
    let mut wrong = Vec::new();
    for (file, header) in files {
        let is_there = folders.iter().any(|folder| folder.join(header).exists());
        if !is_there && !all && !OF_TOOLKIT.contains(&header) {
            println!("skipped: {file} with {header}: `make test-headers` compares it");
            continue;
        }
        assert!(is_there, "{header} is in none of {folders:?}: `make test-headers` downloads it");
        let said = refused(file, &folders);
        if !said.is_empty() {
            wrong.push(format!("{file}:\n{said}"));
        }
        println!("compared: {file} with {header}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_declarations_are_those_of_the_headers() {
    compare(SOURCES.iter().map(|source| (source.file, source.header)), |file, folders| {
        let source = SOURCES.iter().find(|source| source.file == file).expect("a file of the list");
        refused(&comparison(source, &text_of(file)), folders)
    });
}

#[test]
fn the_stand_ins_are_declared_as_in_the_headers() {
    compare(STAND_INS.into_iter(), |file, folders| refused_file(&path_of(file), folders));
}

#[test]
fn every_number_is_one_of_a_header_or_our_own() {
    for source in &SOURCES {
        let text = without_comments(&text_of(source.file));
        for line in text.lines().map(str::trim) {
            let Some((name, rest)) = line.split_once("const ").and_then(|(_, rest)| rest.split_once(": ")) else {
                continue;
            };
            let is_number =
                rest.split_once("= ").is_some_and(|(_, value)| value.starts_with(|c: char| c.is_ascii_digit()));
            if !is_number || rest.contains("<<") || source.own.contains(&name) {
                continue;
            }
            let listed = source.numbers.iter().any(|(anchor, _)| *anchor == format!("const {name}"));
            assert!(listed, "{}: {name} has no name of {} in this test", source.file, source.header);
        }
    }
}

#[test]
fn each_function_is_declared_once() {
    let mut declared = BTreeMap::<String, Vec<&str>>::new();
    for source in &SOURCES {
        for (name, ..) in functions(&text_of(source.file)) {
            declared.entry(name).or_default().push(source.file);
        }
    }
    assert!(declared.len() > 100, "{declared:?}");
    declared.retain(|_, files| files.len() > 1);
    assert!(declared.is_empty(), "{declared:?}");
}

#[test]
fn a_declaration_that_differs_is_refused() {
    let header = "typedef int Status; typedef struct Opaque* Handle; typedef struct Other* OtherHandle; enum { LIMIT = 7 };\n\
        typedef struct { unsigned long long size; int kind; } Pair;\n\
        typedef struct { char name[4]; const char* text; int later; } Named;\n\
        extern \"C\" Status make(Handle* to, size_t bytes, const Pair* pair, float scale);\n\
        extern \"C\" Status name(Named named, OtherHandle other);\n\
        typedef enum { FIRST } Kind; extern \"C\" Status send(Handle to, const void* data, Kind kind, unsigned flags);\n";
    let folder = std::env::temp_dir().join(format!("gt-headers-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for temporary files");
    std::fs::write(folder.join("a.h"), format!("#include <cstddef>\n{header}")).expect("a file");
    let source = Source {
        file: "a.rs",
        header: "a.h",
        numbers: &[("const LIMIT: u32", &["LIMIT"])],
        types: &[
            ("Process", "Pair", &["size", "kind"]),
            ("Label", "Named", &["name", "text", "..."]),
            ("Raw", "Handle", &[]),
            ("OtherRaw", "OtherHandle", &[]),
            ("Sort", "Kind", &[]),
        ],
        own: &[],
    };
    let right = "functions! {\n struct A {\n make: \"make\" (*mut Raw, usize, *const Process, f32) -> c_int;\n \
        name: \"name\" (Label, OtherRaw) -> c_int;\n send: \"send\" (Raw, *const c_void, Sort, c_uint) -> c_int;\n }\n}\n\
        const LIMIT: u32 = 0x7;\nstruct Process {\n    size: u64,\n    kind: c_int,\n}\n\
        const LENGTH: usize = 4;\npub struct Label {\n    name: [u8; LENGTH],\n    text: *const c_char,\n}\n";
    let folders = [folder.clone()];
    assert_eq!(refused(&comparison(&source, right), &folders), "");
    for (ours, wrong, named) in [
        ("usize, *const", "c_int, *const", "the arguments of make"),
        ("*mut Raw", "*mut u64", "the arguments of make"),
        (", f32)", ")", "the arguments of make"),
        ("-> c_int", "-> i64", "the result of make"),
        ("*const Process", "*const Label", "the arguments of make"),
        ("(Label, OtherRaw)", "(Label, Raw)", "the arguments of name"),
        ("(Label, OtherRaw)", "(Process, OtherRaw)", "the arguments of name"),
        ("(Raw, *const c_void", "(OtherRaw, *const c_void", "the arguments of send"),
        ("(Raw, *const c_void", "(*mut c_void, *const c_void", "the arguments of send"),
        ("*const c_void", "*mut c_void", "the arguments of send"),
        ("*const c_void", "*const u8", "the arguments of send"),
        ("Sort, c_uint", "c_int, c_uint", "the arguments of send"),
        ("Sort, c_uint", "Sort, c_int", "the arguments of send"),
        ("Sort, c_uint) -> c_int", "Sort, c_uint) -> c_uint", "the result of send"),
        ("LENGTH: usize = 4", "LENGTH: usize = 3", "name of Named"),
        ("text: *const c_char", "text: c_int", "text of Named"),
        ("= 0x7", "= 0x8", "const LIMIT"),
        ("size: u64", "size: c_int", "size of Pair"),
        ("kind: c_int", "kind: u64", "kind of Pair"),
    ] {
        let said = refused(&comparison(&source, &right.replacen(ours, wrong, 1)), &folders);
        assert!(said.contains(named), "{wrong}: {said}");
    }
    std::fs::remove_dir_all(folder).expect("a folder of ours");
}
