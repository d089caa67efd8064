/* What cuDSS says about its last error: a status alone names no cause. */
#ifndef ATOMR_CUDSS_MESSAGES_H
#define ATOMR_CUDSS_MESSAGES_H

#include "libraries/cudss/table.h"

/* Hear errors from now on; once in a process.  Levels and files that the environment names for the log stay as they are. */
void atomr_cudss_listen(const atomr_cudss_table *);
/* Forget what this thread heard. */
void atomr_cudss_forget(void);
/* The last error that this thread heard since; empty if there was none. */
const char *atomr_cudss_heard(void);

#endif
