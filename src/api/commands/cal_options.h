/*
 * cal_options.h — reading the options that say what is calibrated and how: OQ_ROWS_CALIBRATION,
 * which `onq calibrate` and `onq static` have, and those of `onq calibrate` alone.
 */
#pragma once

#include "api/options/command.h"
#include "calibrate/calibrate.h"

/* --calibration_method. */
oq_cal_method oq_cal_method_chosen(const onq_options *o);
/* The shared options, except for symmetry: its default is the command's. `c` holds defaults. */
void oq_cal_options_shared(const oq_job *job, oq_cal_options *c);
/* Reads and checks all those of `onq calibrate`; texts are those of the options. */
onq_code oq_cal_options_read(const oq_job *job, oq_cal_options *o, onq_error *err);
