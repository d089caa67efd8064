# cython: language_level=3
"""Slots over memory that others own, as declared in sender_core.h."""

from libc.stdint cimport uint32_t, uint64_t

from .sender cimport atomr_sender


cdef extern from "runtime/sender_core.h" nogil:
    ctypedef struct atomr_member:
        uint32_t slot
        uint32_t generation
        uint64_t writer
    int atomr_adopt(atomr_sender *, uint32_t epoch, uint32_t segment, uint64_t offset, uint64_t nbytes, uint32_t *slot, uint32_t *generation)
    int atomr_adopted_uses(atomr_sender *, uint32_t slot, uint64_t *out)
    int atomr_let_go(atomr_sender *, uint32_t slot, uint32_t generation, int named, uint64_t *out)
    void atomr_disown(atomr_sender *, uint32_t slot)
    void atomr_sender_drop_foreign(atomr_sender *, uint32_t segment)
    int atomr_unite(atomr_sender *, const atomr_member *, unsigned n, int covers)
