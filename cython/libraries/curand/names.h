/* The parts of curand.h that names.toml lists; written by `make tables`. */
#ifndef ATOMR_LIBRARIES_CURAND_NAMES_H
#define ATOMR_LIBRARIES_CURAND_NAMES_H

#include "cuda/fields.h"

typedef struct curandGenerator_st *curandGenerator_t;
typedef int curandRngType_t;
typedef int curandStatus_t;
typedef int libraryPropertyType;
typedef struct CUstream_st *cudaStream_t;
typedef int curandOrdering_t;

#define ATOMR_CURAND_CONSTANTS(C)                                                                                     \
    C(MAJOR_VERSION, 0)                                                                                               \
    C(MINOR_VERSION, 1)                                                                                               \
    C(PATCH_LEVEL, 2)                                                                                                 \
    C(CURAND_STATUS_SUCCESS, 0)                                                                                       \
    C(CURAND_STATUS_VERSION_MISMATCH, 100)                                                                            \
    C(CURAND_STATUS_NOT_INITIALIZED, 101)                                                                             \
    C(CURAND_STATUS_ALLOCATION_FAILED, 102)                                                                           \
    C(CURAND_STATUS_TYPE_ERROR, 103)                                                                                  \
    C(CURAND_STATUS_OUT_OF_RANGE, 104)                                                                                \
    C(CURAND_STATUS_LENGTH_NOT_MULTIPLE, 105)                                                                         \
    C(CURAND_STATUS_DOUBLE_PRECISION_REQUIRED, 106)                                                                   \
    C(CURAND_STATUS_LAUNCH_FAILURE, 201)                                                                              \
    C(CURAND_STATUS_PREEXISTING_FAILURE, 202)                                                                         \
    C(CURAND_STATUS_INITIALIZATION_FAILED, 203)                                                                       \
    C(CURAND_STATUS_ARCH_MISMATCH, 204)                                                                               \
    C(CURAND_STATUS_INTERNAL_ERROR, 999)                                                                              \
    C(CURAND_RNG_PSEUDO_XORWOW, 101)                                                                                  \
    C(CURAND_RNG_PSEUDO_MRG32K3A, 121)                                                                                \
    C(CURAND_RNG_PSEUDO_MTGP32, 141)                                                                                  \
    C(CURAND_RNG_PSEUDO_MT19937, 142)                                                                                 \
    C(CURAND_RNG_QUASI_SOBOL32, 201)                                                                                  \
    C(CURAND_RNG_QUASI_SCRAMBLED_SOBOL32, 202)                                                                        \
    C(CURAND_RNG_QUASI_SOBOL64, 203)                                                                                  \
    C(CURAND_RNG_QUASI_SCRAMBLED_SOBOL64, 204)                                                                        \
    C(CURAND_ORDERING_PSEUDO_BEST, 100)                                                                               \
    C(CURAND_ORDERING_PSEUDO_DEFAULT, 101)                                                                            \
    C(CURAND_ORDERING_PSEUDO_SEEDED, 102)                                                                             \
    C(CURAND_ORDERING_PSEUDO_LEGACY, 103)                                                                             \
    C(CURAND_ORDERING_PSEUDO_DYNAMIC, 104)

enum { ATOMR_CURAND_CONSTANTS(ATOMR_ENUMERATOR) };

#define ATOMR_CURAND_FUNCTIONS(F)                                                                                     \
    F(curandStatus_t, curandCreateGenerator, (curandGenerator_t *generator, curandRngType_t rng_type))                \
    F(curandStatus_t, curandCreateGeneratorHost, (curandGenerator_t *generator, curandRngType_t rng_type))            \
    F(curandStatus_t, curandDestroyGenerator, (curandGenerator_t generator))                                          \
    F(curandStatus_t, curandGetProperty, (libraryPropertyType type, int *value))                                      \
    F(curandStatus_t, curandSetStream, (curandGenerator_t generator, cudaStream_t stream))                            \
    F(curandStatus_t, curandSetPseudoRandomGeneratorSeed, (curandGenerator_t generator, unsigned long long seed))     \
    F(curandStatus_t, curandSetGeneratorOffset, (curandGenerator_t generator, unsigned long long offset))             \
    F(curandStatus_t, curandSetGeneratorOrdering, (curandGenerator_t generator, curandOrdering_t order))              \
    F(curandStatus_t, curandSetQuasiRandomGeneratorDimensions,                                                        \
      (curandGenerator_t generator, unsigned int num_dimensions))                                                     \
    F(curandStatus_t, curandGenerate, (curandGenerator_t generator, unsigned int *outputPtr, size_t num))             \
    F(curandStatus_t, curandGenerateSeeds, (curandGenerator_t generator))                                             \
    F(curandStatus_t, curandGenerateLongLong,                                                                         \
      (curandGenerator_t generator, unsigned long long *outputPtr, size_t num))                                       \
    F(curandStatus_t, curandGenerateUniform, (curandGenerator_t generator, float *outputPtr, size_t num))             \
    F(curandStatus_t, curandGenerateUniformDouble, (curandGenerator_t generator, double *outputPtr, size_t num))      \
    F(curandStatus_t, curandGenerateNormal,                                                                           \
      (curandGenerator_t generator, float *outputPtr, size_t n, float mean, float stddev))                            \
    F(curandStatus_t, curandGenerateNormalDouble,                                                                     \
      (curandGenerator_t generator, double *outputPtr, size_t n, double mean, double stddev))                         \
    F(curandStatus_t, curandGenerateLogNormal,                                                                        \
      (curandGenerator_t generator, float *outputPtr, size_t n, float mean, float stddev))                            \
    F(curandStatus_t, curandGenerateLogNormalDouble,                                                                  \
      (curandGenerator_t generator, double *outputPtr, size_t n, double mean, double stddev))                         \
    F(curandStatus_t, curandGeneratePoisson,                                                                          \
      (curandGenerator_t generator, unsigned int *outputPtr, size_t n, double lambda))

#endif
