/*
 * nb_lazy.c — quantized weights as payloads: all parts of a weight are made when the first of them
 * is written; the others wait in memory for their turn.
 */
#include "quantize/nbits/nb_lazy.h"
#include "quantize/nbits/nb_panel.h"

#include <pthread.h>

typedef struct part {
    oq_producer producer;
    oq_nb_lazy *owner;
    uint8_t *waiting; /* made with another part, not yet taken */
} part;

struct oq_nb_lazy {
    oq_nb_task task;
    pthread_mutex_t lock; /* of what is waiting */
    bool kept;            /* what is waiting cannot be made again: it is copied, not taken */
    oq_file file;         /* large parts that are kept wait there; p NULL: in memory */
    part parts[OQ_NB_PARTS];
};

#define LARGE (64u << 10) /* bytes of a weight whose parts are kept in a file */

static void forget(oq_nb_lazy *z, uint8_t **made) {
    for (unsigned i = 0; i < OQ_NB_PARTS; i++)
        if (made[i] != NULL)
            oq_free(z->task.alloc, made[i], z->task.size[i]);
}

/* A weight whose scales are all below what float16 has with full precision would lose by it. */
static onq_code check_scales(const oq_nb_task *t, const uint8_t *scales, onq_error *err) {
    if (t->stored == t->real)
        return ONQ_OK;
    uint16_t most = 0;
    for (uint64_t i = 0; i < t->size[OQ_NB_SCALE]; i += 2) {
        uint16_t v;
        memcpy(&v, scales + i, sizeof v);
        most = (v & 0x7fff) > most ? v & 0x7fff : most;
    }
    return most == 0 || most >= 0x0400 /* 2^-14 */
               ? ONQ_OK
               : oq_fail(err, ONQ_E_INVALID,
                         "weight '%.*s' is too small for scales of float16 (--form blocks has "
                         "others; or leave its node out with --nodes_to_exclude)",
                         OQ_STR(t->name));
}

/* Makes all parts, part `mine` into `out`; the others wait. With OQ_NB_PARTS for `mine` all do. */
static onq_code make_all(oq_nb_lazy *z, unsigned mine, uint8_t *out, onq_error *err) {
    uint8_t *made[OQ_NB_PARTS] = {NULL};
    oq_nb_sink sink = {.task = &z->task};
    OQ_SCRATCH(scratch, z->task.alloc);
    uint8_t *wide = NULL;
    for (unsigned i = 0; i < OQ_NB_PARTS; i++) {
        if (i != mine && z->task.size[i] > 0) {
            made[i] = oq_calloc(z->task.alloc, z->task.size[i], 1);
            if (made[i] == NULL) {
                forget(z, made);
                return oq_fail_nomem(err);
            }
        }
        sink.part[i] = i == mine ? out : made[i];
    }
    if (out != NULL)
        memset(out, 0, z->task.size[mine]);
    uint8_t *const packed = sink.part[OQ_NB_Q];
    if (oq_nb_is_centred(&z->task))
        sink.part[OQ_NB_Q] = wide = OQ_NEW_ARRAY(&scratch, uint8_t, oq_nb_wide_size(&z->task));
    onq_code rc = oq_nb_is_centred(&z->task) && wide == NULL ? oq_fail_nomem(err) : ONQ_OK;
    if (rc == ONQ_OK)
        rc = z->task.method->quantize(&z->task, &sink, err);
    if (rc == ONQ_OK && wide != NULL)
        oq_nb_pack(wide, oq_nb_wide_size(&z->task), z->task.bits, packed);
    if (rc == ONQ_OK)
        rc = check_scales(&z->task, sink.part[OQ_NB_SCALE], err);
    if (rc != ONQ_OK) {
        forget(z, made);
        return rc;
    }
    pthread_mutex_lock(&z->lock);
    for (unsigned i = 0; i < OQ_NB_PARTS; i++)
        if (made[i] != NULL && z->parts[i].waiting == NULL) {
            z->parts[i].waiting = made[i];
            made[i] = NULL;
        }
    pthread_mutex_unlock(&z->lock);
    forget(z, made);
    return ONQ_OK;
}

static onq_code make_part(const oq_producer *self, uint8_t *out, onq_error *err) {
    part *p = self->ctx;
    oq_nb_lazy *z = p->owner;
    const unsigned mine = (unsigned)(p - z->parts);
    if (z->file.p != NULL) {
        memcpy(out, p->producer.ready, self->size);
        oq_file_drop(&z->file, 0, z->file.size); /* no more than one weight's pages stay */
        return ONQ_OK;
    }
    pthread_mutex_lock(&z->lock);
    uint8_t *waiting = p->waiting;
    if (!z->kept)
        p->waiting = NULL;
    pthread_mutex_unlock(&z->lock);
    if (waiting == NULL)
        return make_all(z, mine, out, err);
    memcpy(out, waiting, self->size);
    if (!z->kept)
        oq_free(z->task.alloc, waiting, self->size);
    return ONQ_OK;
}

onq_code oq_nb_lazy_new(oq_arena *a, const oq_nb_task *t, oq_nb_lazy **out, onq_error *err) {
    oq_nb_lazy *z = OQ_NEW(a, oq_nb_lazy);
    OQ_TRY_ALLOC(z != NULL, err);
    z->task = *t;
    OQ_TRY_ALLOC(pthread_mutex_init(&z->lock, NULL) == 0, err);
    for (unsigned i = 0; i < OQ_NB_PARTS; i++)
        z->parts[i] = (part){
            .producer = {.size = t->size[i], .make = make_part, .ctx = &z->parts[i]}, .owner = z};
    *out = z;
    return ONQ_OK;
}

const oq_nb_task *oq_nb_lazy_task(const oq_nb_lazy *z) {
    return &z->task;
}

/* ---- parts that are kept ---- */

static uint64_t size_of(const oq_nb_lazy *z) {
    uint64_t all = 0;
    for (unsigned i = 0; i < OQ_NB_PARTS; i++)
        all += z->parts[i].waiting != NULL ? z->task.size[i] : 0;
    return all;
}

/* Moves what waits into a file without a name, whose pages the system may take back. */
static onq_code move_to_file(oq_nb_lazy *z, onq_error *err) {
    oq_out out;
    OQ_TRY(oq_out_open_temp(&out, z->task.alloc, err));
    onq_code rc = ONQ_OK;
    for (unsigned i = 0; i < OQ_NB_PARTS && rc == ONQ_OK; i++)
        if (z->parts[i].waiting != NULL)
            rc = oq_out_write(&out, z->parts[i].waiting, z->task.size[i], err);
    if (rc == ONQ_OK)
        rc = oq_out_take(&out, &z->file, err);
    else
        oq_out_abort(&out);
    if (rc != ONQ_OK)
        z->file = (oq_file){0};
    const uint8_t *at = z->file.p;
    for (unsigned i = 0; i < OQ_NB_PARTS && rc == ONQ_OK; i++) {
        part *p = &z->parts[i];
        if (p->waiting == NULL)
            continue;
        oq_free(z->task.alloc, p->waiting, z->task.size[i]);
        p->waiting = NULL;
        p->producer.ready = at;
        at += z->task.size[i];
    }
    if (rc == ONQ_OK) { /* a model has more weights than a process may have open files */
        oq_file_let_go(&z->file);
        oq_file_drop(&z->file, 0, z->file.size);
    }
    return rc;
}

onq_code oq_nb_lazy_make(oq_nb_lazy *z, const struct oq_nb_learned *learned, onq_error *err) {
    z->task.learned = learned;
    const onq_code rc = make_all(z, OQ_NB_PARTS, NULL, err);
    z->task.learned = NULL;
    z->kept = rc == ONQ_OK;
    for (unsigned i = 0; i < OQ_NB_PARTS; i++)
        z->parts[i].producer.ready = z->kept ? z->parts[i].waiting : NULL;
    if (rc == ONQ_OK && size_of(z) >= LARGE)
        (void)move_to_file(z, NULL); /* where there is no room for it, memory serves */
    return rc;
}

void oq_nb_lazy_leads(oq_nb_lazy *z, unsigned leader) {
    for (unsigned i = 0; i < OQ_NB_PARTS; i++)
        z->parts[i].producer.follows = i != leader;
}

const oq_producer *oq_nb_lazy_part(const oq_nb_lazy *z, unsigned i) {
    return &z->parts[i].producer;
}

void oq_nb_lazy_release(oq_nb_lazy *z) {
    for (unsigned i = 0; i < OQ_NB_PARTS; i++)
        if (z->parts[i].waiting != NULL)
            oq_free(z->task.alloc, z->parts[i].waiting, z->task.size[i]);
    if (z->file.p != NULL)
        oq_file_close(&z->file);
    pthread_mutex_destroy(&z->lock);
}
