/*
 * cal_options.h — the options of `onq calibrate` that say what is calibrated and how.
 */
#ifndef OQ_API_CAL_OPTIONS_H
#define OQ_API_CAL_OPTIONS_H

#include "api/options/command.h"
#include "calibrate/calibrate.h"

/* Reads and checks them; texts are those of the options. */
onq_code oq_cal_options_read(const oq_job *job, oq_cal_options *o, onq_error *err);

#endif
