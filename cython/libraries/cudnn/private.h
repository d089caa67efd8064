/* What the files of cuDNN share: handles, and how errors are written down. */
#ifndef ATOMR_CUDNN_PRIVATE_H
#define ATOMR_CUDNN_PRIVATE_H

#include <string.h>

#include "libraries/cudnn/plan.h"
#include "runtime/failure.h"

/* A cudnnHandle_t of each lane that runs plans, and one for the device, by which plans are built. */
extern const atomr_handle_kind atomr_cudnn_of_lane, atomr_cudnn_of_device;

/* Write down an error of the library's, with its own words; returns its atomr_code. */
int atomr_cudnn_fail(const atomr_cudnn_table *, cudnnStatus_t status, const char *what, atomr_failure *);

#endif
