/*
 * limits.h — how deep things may be nested, and how many axes a tensor may have.
 *
 * Whatever goes into nested things calls itself, so that a hostile file must not decide how deep.
 * An axis takes two bytes in a file and hundreds in memory.
 * Past a limit the job fails with ONQ_E_LIMIT, or what lies deeper counts as unknown.
 */
#pragma once

#define OQ_MAX_MESSAGE_DEPTH 100 /* messages of a protobuf file */
#define OQ_MAX_GROUP_DEPTH   100 /* groups among its unknown fields */
#define OQ_MAX_GRAPH_DEPTH   100 /* graphs inside nodes */
#define OQ_MAX_SHAPE_DEPTH   48  /* the same and function calls, in shape inference */
#define OQ_MAX_TYPE_DEPTH    16  /* types: a sequence of maps of ... */
#define OQ_MAX_VALUE_DEPTH   16  /* values of these types */
#define OQ_MAX_JSON_DEPTH    64  /* objects and lists */
#define OQ_MAX_FOLDER_DEPTH  64  /* folders on the way to a file of external data */

#define OQ_MAX_AXES 8192 /* that a type declares */
