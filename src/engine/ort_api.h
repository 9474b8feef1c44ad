/*
 * ort_api.h — ONNX Runtime's C interface as far as onq uses it: no header comes with the library.
 *
 * The runtime hands out one table of function pointers. The slots are in ort_api.def; oq_ort_api
 * has one member for each, by the runtime's own name, filled by oq_ort_load. Handles are opaque
 * types of the runtime's names. Private to the files ort*.c.
 */
#pragma once

#include "engine/ort.h"

/* The lowest version of the table with everything onq calls, and with GetAliasMap in the table of a
 * custom operator: ONNX Runtime 1.18. Later runtimes serve it too. */
#define OQ_ORT_API      18
#define OQ_ORT_API_TEXT "1.18"
/* Earlier runtimes do not find external data of a model from memory (session.model_external_...):
 * there the weights go into the graph. */
#define OQ_ORT_FOLDER_FROM 21
/* What set-up installs and the tests run with. */
#define OQ_ORT_RELEASE_TEXT "1.31.1"

typedef struct OrtStatus OrtStatus;
typedef struct OrtEnv OrtEnv;
typedef struct OrtSession OrtSession;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtRunOptions OrtRunOptions;
typedef struct OrtValue OrtValue;
typedef struct OrtAllocator OrtAllocator;
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtTensorTypeAndShapeInfo OrtTensorTypeAndShapeInfo;
typedef struct OrtCustomOpDomain OrtCustomOpDomain;
typedef struct OrtKernelInfo OrtKernelInfo;
typedef struct OrtKernelContext OrtKernelContext;
typedef struct OrtShapeInferContext OrtShapeInferContext;
typedef struct OrtCUDAProviderOptionsV2 OrtCUDAProviderOptionsV2;
typedef struct OrtTensorRTProviderOptionsV2 OrtTensorRTProviderOptionsV2;

/* Numbers of the runtime's enumerations. */
enum {
    OQ_ORT_FAIL = 1,      /* OrtErrorCode */
    OQ_ORT_LOG_FATAL = 4, /* OrtLoggingLevel */
    OQ_ORT_DEVICE_ALLOCATOR = 0,
    OQ_ORT_MEM_DEFAULT = 0,
    OQ_ORT_IS_TENSOR = 1, /* ONNXType */
    OQ_ORT_IS_SEQUENCE = 2,
    OQ_ORT_IS_MAP = 3,
    OQ_ORT_IS_OPTIONAL = 6,
    OQ_ORT_VARIADIC = 2, /* OrtCustomOpInputOutputCharacteristic */
};

typedef void (*oq_ort_log_fn)(void *ctx, int severity, const char *category, const char *id,
                              const char *place, const char *text);

/* How the runtime has threads made and ended for it. */
typedef struct OrtCustomHandleType OrtCustomHandleType;
typedef const OrtCustomHandleType *(*oq_ort_create_thread_fn)(void *ctx, void (*work)(void *),
                                                              void *param);
typedef void (*oq_ort_join_thread_fn)(const OrtCustomHandleType *thread);

/* The table by which the runtime sees an operator of ours, as of version 18. */
typedef struct oq_ort_custom_op oq_ort_custom_op;
struct oq_ort_custom_op {
    uint32_t version;
    void *(*create)(const oq_ort_custom_op *op, const void *api, const OrtKernelInfo *info);
    const char *(*get_name)(const oq_ort_custom_op *op);
    const char *(*get_provider)(const oq_ort_custom_op *op);
    int (*get_input_type)(const oq_ort_custom_op *op, size_t i);
    size_t (*get_input_count)(const oq_ort_custom_op *op);
    int (*get_output_type)(const oq_ort_custom_op *op, size_t i);
    size_t (*get_output_count)(const oq_ort_custom_op *op);
    void (*compute)(void *kernel, OrtKernelContext *context);
    void (*destroy)(void *kernel);
    int (*get_input_characteristic)(const oq_ort_custom_op *op, size_t i);
    int (*get_output_characteristic)(const oq_ort_custom_op *op, size_t i);
    int (*get_input_memory_type)(const oq_ort_custom_op *op, size_t i);
    int (*get_variadic_input_min)(const oq_ort_custom_op *op);
    int (*get_variadic_input_same)(const oq_ort_custom_op *op);
    int (*get_variadic_output_min)(const oq_ort_custom_op *op);
    int (*get_variadic_output_same)(const oq_ort_custom_op *op);
    OrtStatus *(*create_v2)(const oq_ort_custom_op *op, const void *api, const OrtKernelInfo *info,
                            void **kernel);
    OrtStatus *(*compute_v2)(void *kernel, OrtKernelContext *context);
    OrtStatus *(*infer_shape)(const oq_ort_custom_op *op, OrtShapeInferContext *context);
    int (*get_start_version)(const oq_ort_custom_op *op);
    int (*get_end_version)(const oq_ort_custom_op *op);
    size_t (*get_may_inplace)(int **in, int **out);
    void (*release_may_inplace)(int *in, int *out);
    size_t (*get_alias_map)(int **in, int **out);
    void (*release_alias_map)(int *in, int *out);
};

typedef struct oq_ort_api {
#define OQ_ORT(slot, name, params)               OrtStatus *(*name)params;
#define OQ_ORT_RELEASE(slot, name, type)         void (*name)(type *);
#define OQ_ORT_OTHER(slot, result, name, params) result(*name) params;
#define OQ_ORT_LATER(from, slot, name, params)   OrtStatus *(*name)params;
#include "engine/ort_api.def"
#undef OQ_ORT
#undef OQ_ORT_RELEASE
#undef OQ_ORT_OTHER
#undef OQ_ORT_LATER
    const char *path;    /* the library, in the loader's arena */
    const char *version; /* "1.31.1"; the library's own text */
    long minor;          /* 31; -1 if it is not known */
} oq_ort_api;

/* Finds and opens the library and fills `api`; texts go to the arena. The library stays loaded
 * until the process ends: the runtime's threads and tables outlive any handle. */
onq_code oq_ort_load(oq_arena *arena, const char *path, oq_ort_api *api, onq_error *err);

/* Turns a status of the runtime into an error of ours, and releases it; NULL is ONQ_OK. The text is
 * the runtime's, on one line, without source places, after what was being done. */
onq_code oq_ort_check(const oq_ort_api *api, OrtStatus *s, onq_error *err, const char *fmt, ...)
    OQ_PRINTF(4, 5);

/* Element types: the runtime's number to ours and back; OQ_UNDEFINED / 0 when there is none. */
oq_dtype oq_ort_dtype(int number);
int oq_ort_dtype_number(oq_dtype dt);

/* Names of libraries: "libonnxruntime.so", "libonnxruntime.so.1.31.1"; and which of two to take:
 * the later version, and the longer has the full one. */
bool oq_ort_is_library(const char *name);
bool oq_ort_is_later(const char *a, const char *b);
