/*
 * ort_observe.c — the operator Observe: a pass-through that shows its tensor to a callback of ours.
 * ObserveHalf is the same for float16 only: an operator that takes float32 too may be run in it by
 * the runtime, which then leaves out the rounding in between, and what is observed would not be the
 * tensor. ObserveGroup shows any number of tensors, one after the other, and gives out an empty one
 * for the next group to wait for.
 *
 * The output of Observe is declared an alias of its input (get_alias_map), so the runtime gives
 * both one buffer: nothing is copied and the tensor lives as long as it would without the observer.
 * Where the runtime must keep them apart the bytes are copied. A callback that fails stops the run;
 * its error is kept in the session's ort_observe, because the runtime's own status carries only a
 * text.
 */
#include "engine/ort_private.h"

#define MAX_RANK  64
#define ALIGNMENT 8 /* no element needs more */

typedef struct kernel {
    ort_observe *owner;
    size_t n;
    int64_t index[]; /* of the inputs to show, among the observer's names */
} kernel;

/* Of the run on this thread. Runs do not nest. */
static _Thread_local ort_observe *running;

void oq_ort_observe_begin(ort_observe *o) {
    running = o;
}

static const char *get_name(const oq_ort_custom_op *op) {
    (void)op;
    return OQ_OBSERVE_OP;
}

static const char *get_half_name(const oq_ort_custom_op *op) {
    (void)op;
    return OQ_OBSERVE_HALF_OP;
}

static const char *get_group_name(const oq_ort_custom_op *op) {
    (void)op;
    return OQ_OBSERVE_GROUP_OP;
}

static const char *get_provider(const oq_ort_custom_op *op) {
    (void)op;
    return NULL; /* CPU */
}

/* Any type; the output's follows from the input's. */
static int get_type(const oq_ort_custom_op *op OQ_UNUSED, size_t i OQ_UNUSED) {
    return 0;
}

static int get_token_type(const oq_ort_custom_op *op OQ_UNUSED, size_t i OQ_UNUSED) {
    return OQ_FLOAT;
}

static int get_half_type(const oq_ort_custom_op *op OQ_UNUSED, size_t i OQ_UNUSED) {
    return OQ_FLOAT16; /* the runtime's number is ONNX's */
}

static size_t get_count(const oq_ort_custom_op *op OQ_UNUSED) {
    return 1;
}

static int get_variadic(const oq_ort_custom_op *op OQ_UNUSED, size_t i OQ_UNUSED) {
    return OQ_ORT_VARIADIC;
}

static int get_zero(const oq_ort_custom_op *op OQ_UNUSED, size_t i OQ_UNUSED) {
    return 0; /* a required input or output; the default memory */
}

static int get_one(const oq_ort_custom_op *op OQ_UNUSED) {
    return 1;
}

static int get_false(const oq_ort_custom_op *op OQ_UNUSED) {
    return 0;
}

static int get_last_version(const oq_ort_custom_op *op OQ_UNUSED) {
    return INT32_MAX;
}

static size_t kernel_bytes(size_t n) {
    return sizeof(kernel) + n * sizeof(int64_t);
}

static void destroy(void *p) {
    kernel *k = p;
    if (k != NULL)
        oq_free(k->owner->alloc, k, kernel_bytes(k->n));
}

static OrtStatus *create(const oq_ort_custom_op *op, const void *api_table OQ_UNUSED,
                         const OrtKernelInfo *info, void **out) {
    ort_observe *owner = ((const ort_observe_op *)(const void *)op)->owner;
    const oq_ort_api *api = owner->api;
    size_t n = 0;
    OrtStatus *s = api->KernelInfoGetAttributeArray_int64(info, "i", NULL, &n);
    if (s != NULL)
        return s;
    kernel *k = oq_alloc(owner->alloc, kernel_bytes(n));
    if (k == NULL)
        return api->CreateStatus(OQ_ORT_FAIL, "bad_alloc: out of memory");
    k->owner = owner;
    k->n = n;
    s = api->KernelInfoGetAttributeArray_int64(info, "i", k->index, &n);
    if (s != NULL)
        destroy(k);
    else
        *out = k;
    return s;
}

/* Type and dims of a tensor, from a runtime that has no view of them. */
static OrtStatus *copy_shape(const oq_ort_api *api, const OrtValue *v, oq_datum *d, int *type,
                             int64_t *dims) {
    OrtTensorTypeAndShapeInfo *info = NULL;
    OrtStatus *s = api->GetTensorTypeAndShape(v, &info);
    if (s == NULL)
        s = api->GetTensorElementType(info, type);
    if (s == NULL)
        s = api->GetDimensionsCount(info, &d->rank);
    if (s == NULL && d->rank > MAX_RANK)
        s = api->CreateStatus(OQ_ORT_FAIL, "the tensor has more than 64 axes");
    if (s == NULL)
        s = api->GetDimensions(info, dims, d->rank);
    if (info != NULL)
        api->ReleaseTensorTypeAndShapeInfo(info);
    d->dims = dims;
    return s;
}

/* Type and dims of a tensor; `dims` has room for those that must be copied. */
static OrtStatus *read_shape(const oq_ort_api *api, const OrtValue *v, oq_datum *d, int64_t *dims) {
    int type = 0;
    OrtStatus *s =
        api->GetTensorElementTypeAndShapeDataReference != NULL
            ? api->GetTensorElementTypeAndShapeDataReference(v, &type, &d->dims, &d->rank)
            : copy_shape(api, v, d, &type, dims);
    d->dtype = oq_ort_dtype(type);
    d->count = 1;
    for (size_t i = 0; s == NULL && i < d->rank; i++)
        if (d->dims[i] < 0 || !oq_mul(d->count, (uint64_t)d->dims[i], &d->count))
            s = api->CreateStatus(OQ_ORT_FAIL, "the tensor's size does not fit");
    return s;
}

/* Data of a tensor, which the runtime only gives out as mutable. */
static OrtStatus *read_data(const oq_ort_api *api, const OrtValue *v, void **out) {
    OrtValue *value = NULL;
    memcpy(&value, &v, sizeof value);
    return api->GetTensorMutableData(value, out);
}

static OrtStatus *pass_through(const kernel *k, OrtKernelContext *c, const oq_datum *d) {
    const oq_ort_api *api = k->owner->api;
    OrtValue *out = NULL;
    void *p = NULL;
    OrtStatus *s = api->KernelContext_GetOutput(c, 0, d->dims, d->rank, &out);
    if (s == NULL && out != NULL)
        s = api->GetTensorMutableData(out, &p);
    if (s == NULL && p != NULL && p != d->data && d->size_bytes > 0)
        memcpy(p, d->data, d->size_bytes);
    return s;
}

/* Calls the observer with a tensor that is aligned. Initializers may not be: the runtime leaves them
 * where the bytes of the model have them. */
static onq_code see(ort_observe *o, size_t index, const oq_datum *d) {
    const oq_observer *v = o->observer;
    oq_datum aligned = *d;
    if ((uintptr_t)d->data % ALIGNMENT == 0 || d->size_bytes == 0)
        return v->seen(v->ctx, index, d, &o->error);
    void *copy = oq_alloc(o->alloc, d->size_bytes);
    OQ_TRY_ALLOC(copy != NULL, &o->error);
    memcpy(copy, d->data, d->size_bytes);
    aligned.data = copy;
    const onq_code rc = v->seen(v->ctx, index, &aligned, &o->error);
    oq_free(o->alloc, copy, d->size_bytes);
    return rc;
}

/* Shows input `at` to the observer of the session that runs on this thread. */
static OrtStatus *show(const kernel *k, OrtKernelContext *c, size_t at, oq_datum *d,
                       int64_t *dims) {
    ort_observe *o = running;
    assert(o != NULL); /* the runtime runs a graph's nodes on the thread that calls it */
    const oq_ort_api *api = o->api;
    const OrtValue *in = NULL;
    void *data = NULL;
    OrtStatus *s = api->KernelContext_GetInput(c, at, &in);
    *d = (oq_datum){.kind = OQ_DATUM_TENSOR};
    if (s == NULL)
        s = read_shape(api, in, d, dims);
    if (s != NULL)
        return s;
    if (!oq_dtype_bytes(d->dtype, d->count, &d->size_bytes))
        return api->CreateStatus(OQ_ORT_FAIL, "only numeric tensors can be observed");
    s = read_data(api, in, &data);
    if (s != NULL)
        return s;
    d->data = data;
    const onq_code rc = see(o, (size_t)k->index[at], d);
    if (rc == ONQ_OK)
        return NULL;
    o->failed = true;
    o->code = rc;
    return api->CreateStatus(OQ_ORT_FAIL, "stopped by the observer");
}

static OrtStatus *compute(void *p, OrtKernelContext *c) {
    oq_datum d;
    int64_t dims[MAX_RANK];
    OrtStatus *s = show(p, c, 0, &d, dims);
    return s == NULL ? pass_through(p, c, &d) : s;
}

static OrtStatus *compute_group(void *p, OrtKernelContext *c) {
    const kernel *k = p;
    oq_datum d;
    int64_t dims[MAX_RANK];
    OrtStatus *s = NULL;
    for (size_t i = 0; s == NULL && i < k->n; i++)
        s = show(k, c, i, &d, dims);
    OrtValue *token = NULL;
    return s == NULL ? k->owner->api->KernelContext_GetOutput(c, 0, (int64_t[]){0}, 1, &token) : s;
}

/* True if every axis is a number or a name. (A shape that is not known at all comes as rank 0.) */
static bool is_whole_shape(const oq_ort_api *api, const OrtTensorTypeAndShapeInfo *info) {
    size_t rank = 0;
    int64_t dims[MAX_RANK];
    const char *names[MAX_RANK] = {0};
    OrtStatus *s = api->GetDimensionsCount(info, &rank);
    if (s == NULL && (rank == 0 || rank > MAX_RANK))
        return false;
    if (s == NULL)
        s = api->GetDimensions(info, dims, rank);
    if (s == NULL)
        s = api->GetSymbolicDimensions(info, names, rank);
    bool whole = s == NULL;
    for (size_t i = 0; whole && i < rank; i++)
        whole = dims[i] >= 0 || (names[i] != NULL && names[i][0] != '\0');
    if (s != NULL)
        api->ReleaseStatus(s);
    return whole;
}

/* The output has the input's type, which the runtime knows, and shape. */
static OrtStatus *infer_shape(const oq_ort_custom_op *op, OrtShapeInferContext *c) {
    const ort_observe *o = ((const ort_observe_op *)(const void *)op)->owner;
    OrtTensorTypeAndShapeInfo *info = NULL; /* the context's; not to be released */
    OrtStatus *s = o->api->ShapeInferContext_GetInputTypeShape(c, 0, &info);
    if (s != NULL || !is_whole_shape(o->api, info))
        return s;
    return o->api->ShapeInferContext_SetOutputTypeShape(c, 0, info);
}

/* Output 0 is input 0. The runtime only reads the arrays. */
static size_t get_alias_map(int **in, int **out) {
    static const int zero[1] = {0};
    const int *p = zero;
    memcpy(in, &p, sizeof p);
    memcpy(out, &p, sizeof p);
    return 1;
}

static void release_alias_map(int *in OQ_UNUSED, int *out OQ_UNUSED) {
}

void oq_ort_observe_init(ort_observe *o, const oq_ort_api *api, const onq_allocator *alloc,
                         const oq_observer *observer) {
    *o = (ort_observe){.api = api, .alloc = alloc, .observer = observer};
    o->any.owner = o->half.owner = o->group.owner = o;
    o->any.table = (oq_ort_custom_op){
        .version = OQ_ORT_API,
        .get_name = get_name,
        .get_provider = get_provider,
        .get_input_type = get_type,
        .get_input_count = get_count,
        .get_output_type = get_type,
        .get_output_count = get_count,
        .destroy = destroy,
        .get_input_characteristic = get_zero,
        .get_output_characteristic = get_zero,
        .get_input_memory_type = get_zero,
        .get_variadic_input_min = get_one,
        .get_variadic_input_same = get_one,
        .get_variadic_output_min = get_one,
        .get_variadic_output_same = get_one,
        .create_v2 = create,
        .compute_v2 = compute,
        .infer_shape = infer_shape,
        .get_start_version = get_one,
        .get_end_version = get_last_version,
        .get_alias_map = get_alias_map,
        .release_alias_map = release_alias_map,
    };
    o->half.table = o->any.table;
    o->half.table.get_name = get_half_name;
    o->half.table.get_input_type = o->half.table.get_output_type = get_half_type;
    o->group.table = o->any.table;
    o->group.table.get_name = get_group_name;
    o->group.table.get_input_characteristic = get_variadic;
    o->group.table.get_variadic_input_same = get_false;
    o->group.table.get_output_type = get_token_type;
    o->group.table.compute_v2 = compute_group;
    o->group.table.infer_shape = NULL;
    o->group.table.get_alias_map = NULL;
    o->group.table.release_alias_map = NULL;
}
