/* Results as one JSON object on standard output. */
#ifndef RINGMQ_LOAD_REPORT_H
#define RINGMQ_LOAD_REPORT_H

#include <stdio.h>

#include "check.h"
#include "engine.h"

/* Writes `text` as a JSON string, quotes included. */
void report_text(FILE *out, const char *text);

/* Writes `"name":{...}` with count, mean, min, percentiles and max in us. */
void report_latency(FILE *out, const char *name, const struct hist *h);

/* Writes the fields of a run, each followed by a comma. */
void report_run(FILE *out, const struct engine_result *r);

/* Writes `"check":{...}`, or `"check":null`. */
void report_check(FILE *out, const struct check *k, const struct send_scenario *sent);

/* Writes `"watched":{"PID":{"user_s":..,"system_s":..},...},`. */
void report_watch(FILE *out, const struct watch *w);

/* True when nothing was refused, lost or malformed. */
int report_clean(const struct engine_result *r);

#endif
