# cython: language_level=3, boundscheck=False, wraparound=False
"""What the modules of all libraries share: opening a library, and the errors, structs and constants of its C code.

Contract.  Opening a library releases the GIL.  A missing, old or incomplete library is Unsupported, whose message names
the package that brings it.
"""

from libc.stdint cimport int64_t

from .lanes cimport ATOMR_INVALID_REQUEST, ATOMR_OUT_OF_MEMORY, ATOMR_UNSUPPORTED

from ..errors import InvalidRequest, LibraryError, OutOfMemory, Unsupported


cdef size_t load_library(atomr_library *library, str path) except? 0:
    cdef char why[2048]
    cdef bytes raw = path.encode()
    cdef const char *name = raw
    cdef const void *table
    with nogil:
        table = atomr_library_open(library, name, why, sizeof(why))
    if table == NULL:
        raise Unsupported((<bytes>why).decode(errors="replace"))
    return library.version


cdef int raise_failure(int code, atomr_failure *failure, str what) except -1:
    text = (<bytes>(<char *>failure.text)).decode(errors="replace")
    if code == ATOMR_UNSUPPORTED:
        rule = (<bytes>(<char *>failure.name)).decode(errors="replace")
        if rule:
            rule = f"{(<bytes>(<char *>failure.lib)).decode(errors='replace')}.{rule}"
        raise Unsupported(text or what, rule=rule)
    if code == ATOMR_INVALID_REQUEST:
        raise InvalidRequest(text or what)
    if code == ATOMR_OUT_OF_MEMORY:
        raise OutOfMemory(text or what)
    raise LibraryError((<bytes>(<char *>failure.lib)).decode(errors="replace"), failure.status,
                       (<bytes>(<char *>failure.name)).decode(errors="replace"), what, text)


cdef int fill(str title, const atomr_field *fields, void *struct, dict values) except -1:
    cdef int64_t *into = <int64_t *>struct
    cdef const atomr_field *field = fields
    cdef unsigned i
    names = []
    while field.name != NULL:
        name = field.name.decode()
        names.append(name)
        if name in values:
            value = values[name]
            if field.count == 1:
                into[0] = value
            elif len(value) != field.count:
                raise InvalidRequest(f"{title}: {name} has {len(value)} numbers instead of {field.count}")
            else:
                for i in range(field.count):
                    into[i] = value[i]
        into += field.count
        field += 1
    if values.keys() != set(names):
        missing, unknown = [n for n in names if n not in values], sorted(values.keys() - set(names))
        raise InvalidRequest(f"{title}: missing {missing or 'nothing'}, unknown {unknown or 'nothing'}; its members are "
                             f"{', '.join(names)}")
    return 0


cdef dict constants_of(const atomr_constant *constants):
    cdef const atomr_constant *constant = constants
    found = {}
    while constant.name != NULL:
        found[constant.name.decode()] = constant.value
        constant += 1
    return found
