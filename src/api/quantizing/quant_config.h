/*
 * quant_config.h — from a command's options to the quantizers' configuration.
 */
#pragma once

#include "api/options/command.h"
#include "quantize/choose/config.h"

/* Fills the configuration from whatever of its options the command has; the rest keeps the
 * defaults of oq_qconfig_init. Release it in any case. */
onq_code oq_quant_config(const oq_job *job, oq_qconfig *c, onq_error *err);

/* Warns of every name in the configuration's lists that no node of the graph has, and of every
 * operator type that is neither in the graph nor known; errors with --strict. */
onq_code oq_quant_report_names(const oq_job *job, oq_qconfig *c, oq_graph *g, onq_error *err);

/* A list option as names and patterns; nothing where the command has no such option. */
onq_code oq_opt_picks(const onq_options *o, const char *name, oq_pick *out, onq_error *err);
