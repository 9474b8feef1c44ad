/*
 * keep.c — see keep.h. Copies follow each other in large blocks; where the system has huge
 * pages it is asked for them, since most of the cost of fresh memory is its page faults.
 */
#include "calibrate/collect/keep.h"

#include "base/err.h"

#define BLOCK_BYTES ((size_t)16 << 20)
#define HUGE_PAGE   ((size_t)2 << 20)

typedef struct oq_keep_block {
    struct oq_keep_block *next;
    size_t size, used; /* of the bytes after this head */
} oq_keep_block;

static size_t whole_size(const oq_keep_block *b) {
    return sizeof *b + b->size;
}

onq_code oq_keep_init(oq_keep *k, const onq_allocator *a, size_t n_tensors, onq_error *err) {
    *k = (oq_keep){.alloc = a, .n_lists = n_tensors};
    oq_arena_init(&k->arena, a);
    k->lists = OQ_NEW_ARRAY(&k->arena, oq_kept_list, n_tensors > 0 ? n_tensors : 1);
    k->from_n = OQ_NEW_ARRAY(&k->arena, size_t, n_tensors > 0 ? n_tensors : 1);
    return k->lists != NULL && k->from_n != NULL ? ONQ_OK : oq_fail_nomem(err);
}

static void free_blocks(oq_keep *k, const oq_keep_block *last) {
    while (k->blocks != last) {
        oq_keep_block *b = k->blocks;
        k->blocks = b->next;
        oq_free(k->alloc, b, whole_size(b));
    }
}

void oq_keep_clear(oq_keep *k) {
    free_blocks(k, NULL);
    for (size_t i = 0; i < k->n_lists; i++)
        k->lists[i].n = 0;
    k->used = k->limit = 0;
}

void oq_keep_release(oq_keep *k) {
    if (k->alloc == NULL)
        return;
    free_blocks(k, NULL);
    oq_arena_release(&k->arena);
    *k = (oq_keep){0};
}

static void *room(oq_keep *k, size_t n) {
    oq_keep_block *b = k->blocks;
    n = (n + 63) & ~(size_t)63;
    if (b == NULL || b->size - b->used < n) {
        const size_t size = n > BLOCK_BYTES ? n : BLOCK_BYTES;
        b = oq_alloc(k->alloc, sizeof *b + size);
        if (b == NULL)
            return NULL;
        *b = (oq_keep_block){.next = k->blocks, .size = size};
        k->blocks = b;
        const uintptr_t from = ((uintptr_t)b + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
        const uintptr_t to = ((uintptr_t)b + whole_size(b)) & ~(HUGE_PAGE - 1);
        if (to > from)
            oq_os_want_large_pages((void *)from, to - from);
    }
    uint8_t *p = (uint8_t *)(b + 1) + b->used;
    b->used += n;
    return p;
}

void oq_keep_begin(oq_keep *k) {
    k->on = true;
    k->from = k->used;
    k->from_block = k->blocks;
    k->from_used = k->blocks != NULL ? k->blocks->used : 0;
    for (size_t i = 0; i < k->n_lists; i++)
        k->from_n[i] = k->lists[i].n;
}

/* As it was before the sample. */
static void undo(oq_keep *k) {
    free_blocks(k, k->from_block);
    if (k->blocks != NULL)
        k->blocks->used = k->from_used;
    k->used = k->from;
    for (size_t i = 0; i < k->n_lists; i++)
        k->lists[i].n = k->from_n[i];
    k->on = false;
}

void oq_keep_add(oq_keep *k, size_t tensor, const oq_datum *d) {
    assert(d->data != NULL || d->count == 0);
    if (!k->on)
        return;
    void *p = NULL;
    if (d->size_bytes > k->limit || k->used > k->limit - d->size_bytes ||
        (p = room(k, (size_t)d->size_bytes)) == NULL ||
        !OQ_PUSH(&k->arena, &k->lists[tensor], (oq_kept){p, (size_t)d->count})) {
        undo(k);
        return;
    }
    if (d->size_bytes > 0)
        memcpy(p, d->data, (size_t)d->size_bytes);
    k->used += d->size_bytes;
}

bool oq_keep_end(oq_keep *k) {
    const bool whole = k->on;
    k->on = false;
    return whole;
}
