/*
 * model.h — open, save and own a model.
 *
 * A model owns one mapping (its file), one arena (everything decoded or added) and the
 * external-data files it opened. Nodes, names and tensors are views that live as long as it does.
 * Reading a const model is safe from several threads once oq_model_data was called for what they
 * read; edits are single-threaded.
 *
 * Saving: an untouched model saved in the same layout is a copy of its file. Otherwise it is
 * encoded field by field; large payloads go from file to file, or from their producers, which
 * workers run ahead of the writer (oq_pool_pipeline), so that memory is a few tensors, not the
 * model.
 */
#pragma once

#include "base/env.h"
#include "base/map.h"
#include "base/system/file.h"
#include "onnx/codec/message.h"

typedef struct oq_ext_file {
    oq_str location;
    oq_file file;
} oq_ext_file;

/* External data of the caller's: 0 and the bytes of `location`, which stay as long as the model
 * does; anything else when there are none. */
typedef struct oq_open_data {
    int (*fn)(void *ctx, const char *location, const void **data, size_t *size);
    void *ctx;
} oq_open_data;

typedef struct oq_model {
    onq_env *env;
    const char *path; /* as given; for a model from memory its label, "<memory>" when it has none */
    oq_arena arena;
    oq_file file;      /* file.p == NULL for a model from memory */
    oq_span bytes;     /* what was decoded */
    oq_dir dir;        /* where external data lies */
    oq_dir root;       /* --data-root, or fd -1 */
    oq_open_data open; /* gives external data before the folder does; fn NULL: none */
    OQ_VEC(oq_ext_file *) ext;
    oq_map ext_map;
    oq_model_proto *proto;
    bool touched;
} oq_model;

typedef struct oq_open_options {
    const char *data_root; /* a further folder that external data may lie in, or NULL */
    const char *base_dir;  /* from memory: where external data lies, or NULL */
    const char *label;     /* from memory: its name in messages, or NULL */
    oq_open_data open;     /* from memory */
} oq_open_options;

/* Opens `path`; opts may be NULL. External data is not opened until it is asked for. */
onq_code oq_model_open(onq_env *env, const char *path, const oq_open_options *opts, oq_model **out,
                       onq_error *err);
/* The same over bytes that the caller keeps alive. */
onq_code oq_model_open_memory(onq_env *env, const void *p, size_t n, const oq_open_options *opts,
                              oq_model **out, onq_error *err);
/* An empty model with a graph, of the given IR version and default-domain opset. */
onq_code oq_model_new(onq_env *env, int64_t ir_version, int64_t opset, oq_model **out,
                      onq_error *err);
void oq_model_free(oq_model *m);
/* To be called before the first edit. */
static inline void oq_model_touch(oq_model *m) {
    m->touched = true;
}

/* The tensor's bytes as they would be in raw_data (little-endian, 4- and 2-bit types packed),
 * wherever they live: raw_data, a typed field (converted into the arena once), external data
 * (mapped), a producer (made into the arena once). Checked: the size equals dims x type.
 * Strings: not here. Not aligned: read with memcpy. */
onq_code oq_model_data(oq_model *m, oq_tensor *t, oq_span *out, onq_error *err);
/* The opened external-data file of a tensor and the range in it; range checked. */
onq_code oq_model_external(oq_model *m, const oq_tensor *t, const oq_file **file, uint64_t *offset,
                           uint64_t *length, onq_error *err);
/* The model's file, or that of external data, whose mapping p points into; NULL: none. */
const oq_file *oq_model_file_of(const oq_model *m, const uint8_t *p);
/* TensorProto.DataLocation */
enum { OQ_LOCATION_DEFAULT = 0, OQ_LOCATION_EXTERNAL = 1 };
static inline bool oq_tensor_is_external(const oq_tensor *t) {
    return t->data_location.v == OQ_LOCATION_EXTERNAL;
}

/* Lets the kernel take back pages of the model's files that were read; call it between large
 * tensors to keep resident memory small. Views stay valid. */
void oq_model_drop_pages(const oq_model *m);

/* Version of an opset domain ("" and "ai.onnx" are one), or 0 when not imported. */
int64_t oq_model_opset(const oq_model *m, oq_str domain);
/* Sets or adds it. */
onq_code oq_model_set_opset(oq_model *m, oq_str domain, int64_t version, onq_error *err);
/* An IR version of at least this. */
onq_code oq_model_raise_ir(oq_model *m, int64_t least, onq_error *err);
/* The value of a metadata_props key; p == NULL when absent. */
oq_str oq_model_metadata(const oq_model *m, oq_str key);
onq_code oq_model_set_metadata(oq_model *m, oq_str key, oq_str value, onq_error *err);

/* Files that are kept in memory, by name. */
typedef struct oq_files {
    oq_arena arena;
    OQ_VEC(oq_file) all;
} oq_files;

void oq_files_init(oq_files *f, const onq_allocator *alloc);
void oq_files_release(oq_files *f);
/* Ends an output in memory and adds its bytes. */
onq_code oq_files_take(oq_files *f, oq_out *out, onq_error *err);

typedef enum oq_external_mode {
    OQ_EXTERNAL_KEEP = 0, /* inline, unless past 2 GB: then one file, with a message */
    OQ_EXTERNAL_ONE,      /* one file for all */
    OQ_EXTERNAL_EACH,     /* one file for each tensor */
} oq_external_mode;

typedef struct oq_save_options {
    oq_external_mode external;
    const char *location; /* ONE: file name in the model's folder; NULL: <model>.data */
    uint64_t threshold;   /* tensors of fewer bytes stay inline */
    bool attributes;      /* tensors in attributes too */
    oq_files *memory;     /* files go there instead: the model, then its data; NULL: to the disk */
} oq_save_options;

/* Writes the model to `path` (its name, when it stays in memory), whole or not at all; opts may be
 * NULL (inline). */
onq_code oq_model_save(oq_model *m, const char *path, const oq_save_options *opts, onq_error *err);

/* Encodes into memory (alloc: the environment's). Tensors with a `place` are written as external
 * data there; producers are run. */
onq_code oq_model_encode(oq_model *m, oq_buf *out, onq_error *err);
