/* Transforms of a CUDA device: a cuFFT plan each, prepared once, run without the GIL.
 *
 * A plan of cuFFT has a stream and a work area as its state, so each of ours has its own, and belongs to one lane.  The
 * work area is a part of the lane's workspace; the library allocates none.  Making a plan waits for the device.
 */
#ifndef ATOMR_FFT_PLAN_H
#define ATOMR_FFT_PLAN_H

#include "cuda/cuda_backend.h"
#include "libraries/cufft/table.h"

enum { ATOMR_FFT_AXES = 3, ATOMR_FFT_LOOPS = 2 };

/* Element (i, j, k) of transform b is at b * dist + ((i * embed[1] + j) * embed[2] + k) * stride, in elements. */
#define ATOMR_FFT_FIELDS(F, A)                                                                                        \
    F(rank) A(n, 3)                                                                                                   \
    A(embed_in, 3) F(stride_in) F(dist_in)                                                                            \
    A(embed_out, 3) F(stride_out) F(dist_out)                                                                         \
    F(batch)                                                                                                          \
    F(type_in) F(type_out) F(type_exec)           /* cudaDataType */                                                  \
    F(direction)                                  /* CUFFT_FORWARD, CUFFT_INVERSE */                                  \
    A(loop, 2) A(step_in, 2) A(step_out, 2)       /* how often, and bytes from each call to the next */               \
    F(input) F(output) F(n_operands)              /* operands of a message */                                         \
    F(alignment)                                  /* bytes, a power of two, of both addresses */                      \
    F(scratch)                                    /* where the work area is in the lane's workspace, bytes */

typedef struct {
    ATOMR_FFT_FIELDS(ATOMR_MEMBER, ATOMR_ARRAY)
} atomr_fft_spec;
extern const atomr_field atomr_fft_fields[];

/* The constants of names.h, by name. */
extern const atomr_constant atomr_fft_constants[];

/* A function that the library calls for each element that it loads or stores: LTO-IR, which it links into its kernels. */
typedef struct {
    int type;           /* cufftXtCallbackType */
    const char *symbol; /* of the function in the code */
    const void *code;
    size_t nbytes;
    void *info;         /* device memory that the function gets the address of */
} atomr_fft_callback;

typedef struct atomr_fft atomr_fft;

/* Make the plan of cuFFT, which must be open, with `n` functions.  The context must be current in this thread.  Returns an
 * atomr_code: ATOMR_UNSUPPORTED if the library has no such functions, or refuses these. */
int atomr_fft_new(atomr_cuda *, const atomr_fft_spec *, const atomr_fft_callback *, unsigned n, atomr_fft **made,
                  atomr_failure *failure);
/* Bytes of the work area. */
uint64_t atomr_fft_work(const atomr_fft *);
void atomr_fft_delete(atomr_fft *); /* while no lane runs it; NULL passes */
/* An atomr_run; context: atomr_fft.  Enqueues on the lane's stream. */
int atomr_fft_run(void *context, const atomr_call *call, atomr_failure *failure);

#endif
