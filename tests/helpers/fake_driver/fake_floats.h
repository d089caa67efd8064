/* Conversions of floating-point types, as the processors of GPUs make them. */
#ifndef FAKE_FLOATS_H
#define FAKE_FLOATS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline __attribute__((unused)) float from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline __attribute__((unused)) uint32_t to_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline __attribute__((unused)) float half_float(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, a = h & 0x7fffu;
    if (a >= 0x7c00u) return from_bits(sign | 0x7f800000u | a << 13);
    return from_bits(sign | to_bits(from_bits(a << 13) * 0x1p112f));
}

static inline __attribute__((unused)) uint16_t float_half(float x) {
    const uint32_t sign = to_bits(x) >> 16 & 0x8000u;
    const float a = fabsf(x);
    if (a != a) return (uint16_t)(sign | 0x7e00u);
    if (a >= 65520.0f) return (uint16_t)(sign | 0x7c00u);
    if (a < 0x1p-14f) return (uint16_t)(sign | (to_bits(a + 0.5f) - to_bits(0.5f))); /* subnormals: units of 2**-24 */
    const uint32_t b = to_bits(a) - (112u << 23);
    return (uint16_t)(sign | (b + 0xfffu + (b >> 13 & 1u)) >> 13);
}

static inline __attribute__((unused)) uint16_t float_bfloat(float x) {
    const uint32_t b = to_bits(x);
    if (x != x) return (uint16_t)(b >> 16 | 0x40u);
    return (uint16_t)((b + 0x7fffu + (b >> 16 & 1u)) >> 16);
}

static inline __attribute__((unused)) float tensor_float(float x) { /* TF32: 10 bits of mantissa */
    const uint32_t b = to_bits(x);
    if ((b & 0x7f800000u) == 0x7f800000u) return x;
    return from_bits((b + 0xfffu + (b >> 13 & 1u)) & ~0x1fffu);
}

#endif
