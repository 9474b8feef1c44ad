/*
 * nb_task.h — one weight to be quantized to 2, 3, 4 or 8 bits, and the methods that can do it.
 *
 * A weight is a matrix of K rows (what a MatMul sums over) and N columns, or a batch of such
 * matrices. A block is `block` elements of one column, the last one may be shorter; it has one
 * scale and one zero point. A method gives for each block unsigned integers of `bits` bits, the
 * scale and the zero point; `(integer - zero) * scale` is the weight again. In symmetric form the
 * zero point is 2^(bits-1) and not stored. How integers are packed and where a block's parameters
 * go is the business of nb_task.c, so that a method is one function (nb_panel.h) and one row in
 * oq_nb_methods.
 */
#pragma once

#include "onnx/model.h"
#include "onnx/tensor.h"

typedef enum oq_nb_zero {
    OQ_NB_ZERO_NONE, /* symmetric */
    OQ_NB_ZERO_INT,
    OQ_NB_ZERO_REAL, /* not rounded, in the weight's type */
    OQ_NB_ZERO_SUMS  /* as what a block adds for each unit of its inputs' sum: blocks x N values of
                      * (2^(bits-1) - zero) * scale */
} oq_nb_zero;

/* The arithmetic that the reference has for each operator. */
typedef enum oq_nb_rule {
    OQ_NB_MATMUL, /* MlasQuantizeBlockwise */
    OQ_NB_QDQ,    /* MlasQDQQuantizeBlockwise */
    OQ_NB_GATHER, /* DefaultWeightOnlyQuantizer.quantize_ndarray */
    OQ_NB_BNB4    /* QuantizeBlockwiseBnb4 */
} oq_nb_rule;

struct oq_nb_method;
struct oq_nb_sink;

typedef struct oq_nb_task {
    /* the weight: element (i, k, n) is number i * K * N + k * stride_k + n * stride_n. One of the
     * strides is 1. */
    oq_str name;
    oq_dtype real;
    oq_span data;
    const oq_file *file;             /* the mapping `data` lies in, or NULL */
    const struct oq_nb_source *from; /* --weights: read in place of `data`, column by column */
    uint64_t batch, k, n, stride_k, stride_n;

    /* how it is quantized */
    const struct oq_nb_method *method;
    oq_nb_rule rule;
    unsigned bits;
    uint64_t block;
    bool symmetric;
    double ratio;      /* rtn: of the range */
    uint64_t every;    /* oq_nb_panels: only each so many-th panel, to measure; 0: all */
    const float *mean; /* awq and measuring: of the squares of the K inputs; NULL: not known */
    /* gptq, while the weight is made; NULL: nothing is known */
    const struct oq_nb_learned *learned;
    const onq_allocator *alloc;

    /* what is written */
    bool by_columns;       /* [N][blocks][block * bits / 8] as MatMulNBits has it; else flat: */
    uint64_t out_k, out_n; /* strides of an element in its matrix */
    bool is_signed;        /* integers are stored minus 2^(bits-1) */
    uint64_t per_k, per_n; /* strides of a block's parameters */
    oq_nb_zero zero;
    uint64_t blocks;  /* of one column */
    uint64_t size[3]; /* bytes of the integers, scales and zero points */
    unsigned wide; /* bits of an integer as MatMulNBits takes it; more than `bits`: they are packed
                       * (nb_widen.c), and no integer stands for 0: see oq_nb_is_centred */
    oq_dtype stored; /* type of scales and offsets in the file: that of the weight, or FLOAT16 */
} oq_nb_task;

/* The parts of a result, indices of oq_nb_task.size. */
enum { OQ_NB_Q, OQ_NB_SCALE, OQ_NB_ZEROS, OQ_NB_PARTS };

/* Finds the tensor's bytes and sets K, N, batch and strides: `turned` means that it is stored as
 * [N, K]. The rest is the caller's, then oq_nb_task_measure. Not thread-safe. */
onq_code oq_nb_task_init(oq_nb_task *t, oq_model *m, oq_tensor *w, uint64_t batch, uint64_t k,
                         uint64_t n, bool turned, onq_error *err);
/* True where the zero point is the middle between two integers: weights of 2 and 3 bits in packed
 * form have the values -3, -1, 1, 3 and -7 to 7 times half a scale. */
static inline bool oq_nb_is_centred(const oq_nb_task *t) {
    return t->wide > t->bits;
}
/* Sets blocks and sizes; `wide` and `stored` too where they are 0. */
onq_code oq_nb_task_measure(oq_nb_task *t, onq_error *err);

typedef struct oq_nb_method {
    const char *name;
    unsigned bits;  /* that it can do, 1 << bits for each */
    bool pads;      /* sees and stores zeros after the last row, up to a whole block */
    bool keeps_odd; /* what is left in a byte after an odd number of rows stays as in MLAS */
    /* The result is what Intel's neural compressor makes of a model, which the reference calls for
     * this method: the order and the names of new nodes, weights of 4 bits, matrices of the main
     * graph only. Else new nodes are where the old ones were. */
    bool as_intel;
    bool has_gather;
    bool real_zero;     /* zero points are not rounded */
    bool always_zero;   /* stores zero points though it was asked for symmetric form */
    bool needs_samples; /* oq_nb_task.mean or learned; range uses a mean that is known */
    bool by_hessian;    /* of these: learned, by Hessians of the inputs; else mean */
    onq_code (*quantize)(const oq_nb_task *t, const struct oq_nb_sink *s, onq_error *err);
} oq_nb_method;

enum {
    OQ_NB_DEFAULT,
    OQ_NB_RTN,
    OQ_NB_K_QUANT,
    OQ_NB_HQQ,
    OQ_NB_GPTQ,
    OQ_NB_GPTQ_HQQ,
    OQ_NB_AWQ,
    OQ_NB_RANGE, /* these two --target_bits chooses between, and options do not */
    OQ_NB_RANGE_REAL,
    OQ_NB_METHODS
};
extern const oq_nb_method oq_nb_methods[OQ_NB_METHODS];
/* What stands for a method before samples have run: it leaves more noise, but in proportion. */
const oq_nb_method *oq_nb_without_samples(const oq_nb_method *m);
/* Those of MatMulBnb4, by its quant_type. */
enum { OQ_NB_FP4 = 0, OQ_NB_NF4 = 1, OQ_NB_BNB4_METHODS };
extern const oq_nb_method oq_nb_bnb4_methods[OQ_NB_BNB4_METHODS];
