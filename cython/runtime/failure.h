/* How a native function writes down why it failed: for the lane, and for whoever makes a plan. */
#ifndef ATOMR_FAILURE_H
#define ATOMR_FAILURE_H

#include "runtime/lane_core.h"

/* An error of a library: its name, its status, and the status's name.  Returns `code`, an atomr_code. */
__attribute__((format(printf, 6, 7))) int atomr_failed(atomr_failure *, int code, const char *lib, int status,
                                                       const char *name, const char *format, ...);
/* What a rule of a library, or of ours, does not allow: users see `lib`.`rule`.  Returns ATOMR_UNSUPPORTED. */
__attribute__((format(printf, 4, 5))) int atomr_unsupported(atomr_failure *, const char *lib, const char *rule,
                                                            const char *format, ...);
/* What this project refuses by itself.  Returns `code`, an atomr_code. */
__attribute__((format(printf, 3, 4))) int atomr_refused(atomr_failure *, int code, const char *format, ...);

#endif
