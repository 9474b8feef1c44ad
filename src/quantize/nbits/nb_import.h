/*
 * nb_import.h — weights of a GGUF file for the graph of an ONNX model (--weights).
 *
 * Each float initializer of the main graph gets the values of the tensor that the file has for it,
 * by its own name, by a table of names for models like Llama, or by a map. Blocks of Q4_0, Q4_1,
 * Q4_K and Q8_0 become blocks of MatMulNBits as they are, those of Q5_0, Q5_1 and Q5_K as well, with
 * 8 bits; what has another type is dequantized, and quantized anew by the method that is asked for,
 * Q6_K with 8 bits.
 *
 * llama.cpp keeps the rows of the query and key projections in the order of its own rotary
 * embedding: (0, half), (1, half + 1) ... of each head. They are put back into the order of the
 * export. Gemma's norms have 1 more there than in its checkpoints: where the graph adds the 1, it
 * is taken off.
 */
#pragma once

#include "onnx/gguf/gguf.h"
#include "quantize/nbits/nbits.h"

/* A tensor of the file as an initializer has it: rows of `k` numbers. */
typedef struct oq_nb_source {
    const oq_gguf_tensor *tensor;
    const char *path; /* of the file */
    uint64_t k, rows;
    uint64_t heads; /* of rows in llama.cpp's order; 0: they are in their own */
    bool turned;    /* the initializer has them as columns */
    float less;     /* is taken from every number */
    oq_dtype real;
    oq_producer producer;
    oq_str name; /* of the initializer */
} oq_nb_source;

typedef struct oq_nb_import {
    oq_gguf file;
    oq_arena *arena;
    OQ_VEC(oq_nb_source *) all;
    oq_map map;  /* name of an initializer -> index */
    oq_map used; /* names of tensors of the file that an initializer has */
    bool exact;  /* blocks stay as they are where that is possible */
    /* counts of tensors: */
    size_t n_taken, n_exact, n_anew;
    size_t n_wider; /* of both: those of 5 and 6 bits, which take 8 */
} oq_nb_import;

/* Opens the file and gives the model its values. `names` is a JSON file {"initializer": "tensor"}
 * or NULL. ONQ_E_CONFIG where a weight has no tensor, or one of another size. */
onq_code oq_nb_import_open(oq_nb_import *im, oq_model *m, const char *path, const char *names,
                           onq_error *err);
void oq_nb_import_close(oq_nb_import *im);
/* How many tensors of the file no initializer has, and the first of them. */
size_t oq_nb_import_unused(const oq_nb_import *im, oq_str *first);
/* Where an initializer comes from, or NULL. */
const oq_nb_source *oq_nb_import_find(const oq_nb_import *im, oq_str initializer);
/* The method that keeps the blocks of the tensor, or NULL: there is none. `bits` becomes what keeps
 * the weight as good as it is, and stays where any number does. */
const oq_nb_method *oq_nb_import_method(const oq_nb_source *s, unsigned *bits);

/* Numbers k0 to k0 + n of column (or row) `at` of the initializer. */
void oq_nb_source_read(const oq_nb_source *s, uint64_t at, uint64_t k0, uint64_t n, float *out);
