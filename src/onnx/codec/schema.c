/*
 * schema.c — the codec's tables, made from schema.def.
 */
#include "onnx/codec/schema.h"

#define OQ_MESSAGE(name, proto) static const oq_field fields_##name[] = {
#define OQ_ROW(msg, kind, number, field, sub, group)                                               \
    {#field, number, (uint16_t)offsetof(struct oq_##msg, field), OQ_K_##kind, sub, group},
#define OQ_F(msg, kind, number, field)       OQ_ROW(msg, kind, number, field, 0, 0)
#define OQ_M(msg, kind, number, field, sub)  OQ_ROW(msg, kind, number, field, OQ_SCHEMA_##sub, 0)
#define OQ_FO(msg, kind, number, field)      OQ_ROW(msg, kind, number, field, 0, 1)
#define OQ_MO(msg, kind, number, field, sub) OQ_ROW(msg, kind, number, field, OQ_SCHEMA_##sub, 1)
#define OQ_X(msg, type, field)
#define OQ_END(name)                                                                               \
    }                                                                                              \
    ;
#include "onnx/codec/schema.def"

const oq_schema oq_schemas[OQ_SCHEMA_COUNT] = {
#define OQ_MESSAGE(name, proto)                                                                    \
    {#proto, fields_##name, (uint16_t)OQ_COUNT(fields_##name), (uint16_t)sizeof(struct oq_##name)},
#define OQ_F(msg, kind, number, field)
#define OQ_M(msg, kind, number, field, sub)
#define OQ_X(msg, type, field)
#define OQ_END(name)
#include "onnx/codec/schema.def"
};
