/*
 * fake_engine.h — an engine for tests that need no runtime.
 *
 *     fake_engine f;
 *     fake_engine_init(&f, env);
 *     oq_session_open(&f.base, &options, &session, &err);
 *
 * It runs the graph node by node with the operators of evaluate.h. Observers and initializers work
 * as with the real one. Any other operator is refused when the session is opened, as a runtime
 * would.
 */
#pragma once

#include "engine/engine.h"

typedef struct fake_engine {
    oq_engine base;
    long fail_at_run; /* the run, counted from 1 over all sessions, that fails; 0: none */
    long n_runs;
    long n_nodes;    /* run */
    long n_sessions; /* opened */
    long n_open;     /* opened and not closed */
} fake_engine;

void fake_engine_init(fake_engine *f, onq_env *env);
