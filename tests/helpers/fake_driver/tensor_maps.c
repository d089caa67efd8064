/* Tensor maps: checked as the real driver's documentation says, and written down so that a kernel can look at them. */
#include "fake_driver.h"

#include <string.h>

enum { AXES = 5, MOST_BOX = 256, MOST_STEP = 8, NONE = 0, B16 = 1, B32 = 2, NAN_FILL = 1 };

/* What a map holds; tests read it as this. */
typedef struct {
    uint64_t address, extents[AXES], strides[AXES - 1];
    uint16_t box[AXES];
    uint8_t steps[AXES], type, axes, interleave, swizzle, promotion, fill;
} record;

_Static_assert(sizeof(record) <= sizeof(CUtensorMap), "a record fits into a map");

/* Bytes of an element, by CUtensorMapDataType; the packed types are not known here. */
static const uint8_t SIZES[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
static const uint8_t FLOATS[] = {0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1};
/* Bytes within which a mode swizzles. */
static const uint16_t SPANS[] = {0, 32, 64, 128, 128, 128, 128};

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t axes, void *address,
                                const cuuint64_t *extents, const cuuint64_t *strides, const cuuint32_t *box,
                                const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    MAY_REFUSE();
    CUcontext c;
    const CUresult r = fake_enter(&c);
    if (r) return r;
    if (!map || (uintptr_t)map % 64 || !address || !extents || !box || !steps || (axes > 1 && !strides))
        return ERROR_INVALID_VALUE;
    if (type < 0 || (size_t)type >= sizeof SIZES || interleave < 0 || interleave > B32 || swizzle < 0 ||
        (size_t)swizzle >= sizeof SPANS / sizeof *SPANS || promotion < 0 || promotion > 3 || fill < 0 || fill > NAN_FILL)
        return ERROR_INVALID_VALUE;
    const unsigned unit = interleave == B32 ? 32 : 16, inner = box[0] * SIZES[type];
    if (!axes || axes > AXES || (interleave != NONE && axes < 3) || (uintptr_t)address % unit) return ERROR_INVALID_VALUE;
    if (interleave == NONE && (inner % 16 || (swizzle && inner > SPANS[swizzle]))) return ERROR_INVALID_VALUE;
    if ((interleave == B32 && SPANS[swizzle] != 32) || (fill == NAN_FILL && !FLOATS[type])) return ERROR_INVALID_VALUE;
    record made = {.address = (uintptr_t)address, .type = (uint8_t)type, .axes = (uint8_t)axes,
                   .interleave = (uint8_t)interleave, .swizzle = (uint8_t)swizzle, .promotion = (uint8_t)promotion,
                   .fill = (uint8_t)fill};
    for (unsigned i = 0; i < axes; i++) {
        if (!extents[i] || extents[i] > 1ull << 32 || !box[i] || box[i] > MOST_BOX || !steps[i] || steps[i] > MOST_STEP)
            return ERROR_INVALID_VALUE;
        made.extents[i] = extents[i], made.box[i] = (uint16_t)box[i], made.steps[i] = (uint8_t)steps[i];
        if (i + 1 == axes) break;
        if (strides[i] % unit || strides[i] >= 1ull << 40) return ERROR_INVALID_VALUE;
        made.strides[i] = strides[i];
    }
    memset(map, 0, sizeof *map);
    memcpy(map, &made, sizeof made);
    return CUDA_SUCCESS;
}
