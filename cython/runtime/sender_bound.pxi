# Operands that a plan adds to each of its messages, as tables: a part of sender.pyx.
#
# They are checked when they are bound.  A send copies their uses, and the sender's core checks the generation of each.


cdef int use_bound(PlanRef plan, tuple refs) except -1:
    """Make refs the last operands of a plan's messages."""
    cdef unsigned i, at, n = <unsigned>len(refs)
    cdef atomr_use *uses
    cdef uint32_t *slots
    cdef Ref ref
    cdef list every, written
    uses = <atomr_use *>calloc(n + 1, sizeof(atomr_use))
    slots = <uint32_t *>calloc(2 * n + 1, sizeof(uint32_t))
    if uses == NULL or slots == NULL:
        free(uses)
        free(slots)
        raise MemoryError
    every, written = [], []
    plan.fixed_foreign = False
    for i in range(n):
        ref = <Ref>refs[i]
        at = plan.n_operands - n + i
        uses[i].slot = ref.allocation.slot
        uses[i].generation = ref.allocation.generation
        uses[i].offset = ref.offset
        uses[i].access = plan.access[at]
        uses[i].whole = ref.whole
        every.append(ref.allocation.slot)
        if plan.access[at] & ATOMR_WRITE:
            written.append(ref.allocation.slot)
        plan.fixed_foreign |= plan.core.origins[ref.allocation.block.segment] != NULL
    every.sort()
    written.sort()
    plan.n_fixed_written = <unsigned>len(written)
    for i, at in enumerate(every + written):
        slots[i] = at
    free(plan.fixed_uses)
    free(plan.fixed_slots)
    plan.fixed_uses, plan.fixed_slots, plan.fixed = uses, slots, refs
    return 0


cdef inline bint has_slot(const uint32_t *slots, unsigned n, uint32_t slot) noexcept:
    """Whether a slot is among sorted ones."""
    cdef unsigned low = 0, high = n, middle
    while low < high:
        middle = (low + high) // 2
        if slots[middle] < slot:
            low = middle + 1
        else:
            high = middle
    return low < n and slots[low] == slot


cdef bint may_share_bound(PlanRef plan, PyObject **refs) noexcept:
    """Whether an operand that a caller has given may share memory with a bound one, where one of the two is written."""
    cdef unsigned i, n = plan.n_operands - plan.n_given
    cdef Allocation given
    for i in range(plan.n_given):
        given = (<Ref>refs[i]).allocation
        if plan.fixed_foreign and plan.core.origins[given.block.segment] != NULL:
            return True
        if plan.access[i] & ATOMR_WRITE:
            if has_slot(plan.fixed_slots, n, given.slot):
                return True
        elif has_slot(plan.fixed_slots + n, plan.n_fixed_written, given.slot):
            return True
    return False
