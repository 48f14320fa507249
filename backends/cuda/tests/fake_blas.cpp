// A fake libcublasLt that multiplies on the CPU, immediately or in a captured graph. It accepts the calls of
// `blas/lt.rs` as the real library would and refuses what that would refuse. Where NVIDIA's header is installed, the
// compiler checks each function against its declaration.
#include <cstdint>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include "fake_numbers.h"
#include "fake_stream.h"

#if __has_include(<cublasLt.h>) && __has_include(<crt/host_defines.h>)
#include <cublasLt.h>
static_assert(CUBLASLT_MATMUL_DESC_TRANSA == 3 && CUBLASLT_MATMUL_DESC_TRANSB == 4 && CUBLAS_OP_T == 1);
static_assert(CUBLASLT_MATMUL_DESC_EPILOGUE == 7 && CUBLASLT_MATMUL_DESC_BIAS_POINTER == 8 && CUBLASLT_EPILOGUE_BIAS == 4);
static_assert(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT == 5 && CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET == 6);
static_assert(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES == 1 && CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK == 3);
static_assert(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES == 5 && CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES == 8);
static_assert(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE == 2 && CUBLAS_STATUS_NOT_SUPPORTED == 15 && CUBLAS_STATUS_ALLOC_FAILED == 3);
static_assert(CUBLAS_COMPUTE_32F == 68 && CUBLAS_COMPUTE_32F_FAST_TF32 == 77 && CUBLAS_COMPUTE_64F == 70);
static_assert(CUDA_R_32F == 0 && CUDA_R_64F == 1 && CUDA_R_16F == 2 && CUDA_R_16BF == 14);
static_assert(sizeof(cublasLtMatmulAlgo_t) == 64 && sizeof(cublasLtMatmulHeuristicResult_t) == 96);
static_assert(offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) == 64 && offsetof(cublasLtMatmulHeuristicResult_t, state) == 72);
#elif defined(GT_COMPARED)
#error "cublasLt.h, with which this is to be compared, is not there: make test-headers downloads it"
#else
typedef int cublasStatus_t;
typedef int cublasComputeType_t;
typedef int cudaDataType_t;
typedef int cudaDataType;
typedef int cublasLtMatmulDescAttributes_t;
typedef int cublasLtMatrixLayoutAttribute_t;
typedef int cublasLtMatmulPreferenceAttributes_t;
typedef struct cublasLtContext* cublasLtHandle_t;
typedef struct CUstream_st* cudaStream_t;
typedef void* cublasLtMatmulDesc_t;
typedef void* cublasLtMatrixLayout_t;
typedef void* cublasLtMatmulPreference_t;
struct cublasLtMatmulAlgo_t { uint64_t data[8]; };
struct cublasLtMatmulHeuristicResult_t {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
};
#endif

enum { NOT_INITIALIZED = 1, INVALID = 7, UNSUPPORTED = 15 };
static cublasStatus_t result(int status) { return cublasStatus_t(status); }

struct Operation { int compute, scale, transposed[2]; uint32_t epilogue; const void* bias; };
struct Layout { int type; uint64_t rows, columns; int64_t step; int32_t batches; int64_t batch_step; };
struct Preference { uint64_t workspace; uint32_t schemes, alignment[4]; };
static long alive, heuristics, products, biases, asked;
// The virtual time of each algorithm, nanoseconds, the products that it computed, and the one that fails.
static long long times_ns[8];
static long uses[8];
static int failing = -1, failure;

template <class T>
static cublasStatus_t take(T* into, const void* value, size_t bytes) {
    if (bytes != sizeof(T)) return result(INVALID);
    std::memcpy(into, value, bytes);
    return result(0);
}

// Whether types and shapes of a product match; `mnk` receives its m, n and k.
static bool fits(const Operation* o, const Layout* a, const Layout* b, const Layout* d, uint64_t (&mnk)[3]) {
    uint64_t am = o->transposed[0] ? a->columns : a->rows, ak = o->transposed[0] ? a->rows : a->columns;
    uint64_t bk = o->transposed[1] ? b->columns : b->rows, bn = o->transposed[1] ? b->rows : b->columns;
    mnk[0] = am, mnk[1] = bn, mnk[2] = ak;
    // The library multiplies matrices of half precision into float32 as well.
    bool wide = (a->type == 2 || a->type == 14) && d->type == 0;
    bool types = a->type == b->type && (a->type == d->type || wide) && o->scale == (a->type == 1 ? 1 : 0) &&
                 (a->type == 1 ? o->compute == 70 : o->compute == 68 || (a->type == 0 && o->compute == 77));
    bool batches = a->batches == b->batches && a->batches == d->batches;
    return types && batches && ak == bk && d->rows == am && d->columns == bn;
}

extern "C" {
long fake_alive() { return alive; }
long fake_heuristics() { return heuristics; }
long fake_products() { return products; }
long fake_biases() { return biases; }
long fake_asked() { return asked; }
long fake_uses(int algorithm) { return uses[algorithm]; }
void fake_time(int algorithm, long long ns) { times_ns[algorithm] = ns, uses[algorithm] = 0, asked = 0, failing = -1; }
void fake_fail(int algorithm, int status) { failing = algorithm, failure = status; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { alive++; *handle = (cublasLtHandle_t)&alive; return result(0); }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { alive--; return result((void*)handle == &alive ? 0 : NOT_INITIALIZED); }
size_t cublasLtGetVersion() { return 130000; }
const char* cublasLtGetStatusString(cublasStatus_t status) { return status == 7 ? "an invalid value" : "another status"; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation, cublasComputeType_t compute, cudaDataType_t scale) {
    alive++;
    *operation = (cublasLtMatmulDesc_t) new Operation{int(compute), int(scale), {0, 0}, 1, nullptr};
    return result(0);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) { alive--; delete (Operation*)operation; return result(0); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t which, const void* value, size_t bytes) {
    if (which == 7) return take(&((Operation*)operation)->epilogue, value, bytes);
    if (which == 8) return take(&((Operation*)operation)->bias, value, bytes);
    if (which != 3 && which != 4) return result(INVALID);
    return take(&((Operation*)operation)->transposed[int(which) - 3], value, bytes);
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows, uint64_t columns, int64_t step) {
    alive++;
    *layout = (cublasLtMatrixLayout_t) new Layout{int(type), rows, columns, step, 1, 0};
    return result(step >= int64_t(rows) && rows > 0 && columns > 0 ? 0 : INVALID);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) { alive--; delete (Layout*)layout; return result(0); }
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t which, const void* value, size_t bytes) {
    if (which == 5) return take(&((Layout*)layout)->batches, value, bytes);
    if (which == 6) return take(&((Layout*)layout)->batch_step, value, bytes);
    return result(INVALID);
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
    alive++;
    *preference = (cublasLtMatmulPreference_t) new Preference{0, 7, {256, 256, 256, 256}};
    return result(0);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) { alive--; delete (Preference*)preference; return result(0); }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t which, const void* value, size_t bytes) {
    auto p = (Preference*)preference;
    if (which == 1) return take(&p->workspace, value, bytes);
    if (which == 3) return take(&p->schemes, value, bytes);
    if (which >= 5 && which <= 8) return take(&p->alignment[int(which) - 5], value, bytes);
    return result(INVALID);
}
// An algorithm records the alignments that it relies on and its number, and requires a workspace.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
    uint64_t mnk[3];
    auto p = (Preference*)preference;
    auto A = (Layout*)a;
    if ((void*)handle != &alive || c != d || wanted < 1 || !fits((Operation*)operation, A, (Layout*)b, (Layout*)d, mnk)) return result(INVALID);
    heuristics++;
    // The real library may find no algorithm for a product; the fake finds none for f16 products with k = 1.
    // It may lack an algorithm that adds a bias; the fake has none for float64.
    auto o = (Operation*)operation;
    if (o->epilogue != 1 && (o->epilogue != 4 || !o->bias)) return result(INVALID);
    *found = !(mnk[2] == 1 && A->type == 2) && !(o->epilogue == 4 && A->type == 1);
    asked = wanted;
    *found *= wanted < 8 ? wanted : 8;
    for (int j = 0; j < *found; j++) {
        results[j] = {};
        for (int i = 0; i < 4; i++) results[j].algo.data[i] = p->alignment[i];
        results[j].algo.data[4] = uint64_t(j);
        results[j].workspaceSize = p->workspace / 2;
    }
    return result(*found ? 0 : UNSUPPORTED);
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    auto o = (Operation*)operation;
    auto A = (Layout*)a_layout, B = (Layout*)b_layout, D = (Layout*)d_layout;
    uint64_t mnk[3];
    if ((void*)handle != &alive || c != d || c_layout != d_layout || !stream || !fits(o, A, B, D, mnk)) return result(INVALID);
    const void* pointers[3] = {a, b, d};
    for (int i = 0; i < 3; i++)
        if (uintptr_t(pointers[i]) % algorithm->data[i]) return result(INVALID);
    if (o->epilogue == 4 && (!o->bias || uintptr_t(o->bias) % 2 || D->batches != 1 || A->type != D->type)) return result(INVALID);
    biases += o->epilogue == 4;
    if (!workspace || workspace_bytes < 16 << 20) return result(INVALID);
    if (get(alpha, o->scale, 0) != 1 || get(beta, o->scale, 0) != 0) return result(INVALID);
    const auto number = algorithm->data[4];
    if (number > 7) return result(INVALID);
    if (int(number) == failing) return result(failure);
    products++;
    uses[number]++;
    Operation operation_now = *o;
    Layout layouts[3] = {*A, *B, *D};
    const uint64_t m = mnk[0], n = mnk[1], k = mnk[2];
    ((FakeStream*)stream)->take([=] {
        const Operation* o = &operation_now;
        const Layout *A = &layouts[0], *B = &layouts[1], *D = &layouts[2];
        std::memset(workspace, 0x5a, 1 << 10);
        auto at = [](const Layout* l, int64_t batch, uint64_t row, uint64_t column, int transposed) {
            return batch * l->batch_step + int64_t(transposed ? row * l->step + column : column * l->step + row);
        };
        for (int64_t batch = 0; batch < D->batches; batch++)
            for (uint64_t j = 0; j < n; j++)
                for (uint64_t i = 0; i < m; i++) {
                    double sum = 0;
                    for (uint64_t t = 0; t < k; t++)
                        sum += get(a, A->type, at(A, batch, i, t, o->transposed[0])) * get(b, B->type, at(B, batch, t, j, o->transposed[1]));
                    if (o->epilogue == 4) sum += get(o->bias, D->type, i);
                    put(d, D->type, at(D, batch, i, j, 0), sum);
                }
    }, times_ns[number]);
    return result(0);
}
}
