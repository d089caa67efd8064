# Immediate calls: a part of sender.pyx, where what they read of handles and plans is in one module.

cdef enum:
    ARRAY = 97  # b"a": a handle, or None
    OPTION = 111  # b"o": anything that can be hashed, or a handle
    NUMBER = 110  # b"n": a number, or a handle
    CLASS_BITS = 6
    NUMPY = 1 << 5  # in the class of a number that is a NumPy scalar
    FEW = 16  # handles, up to which comparing each with each is the fastest


cdef int class_of(object value) except -1:
    """What the checks of a request can tell numbers apart by: type, sign, whether it is 0, 1, between, infinite, NaN,
    and how large an integer is.  0 for what no message holds."""
    cdef double d
    cdef int64_t n
    cdef int overflow = 0
    if isinstance(value, float):
        d = value
        return (1 if isnan(d) else 2 if d == -INFINITY else 3 if d < 0 else 4 if d == 0 else 5 if d < 1 else
                6 if d == 1 else 7 if d < INFINITY else 8)
    if type(value) is int:
        n = PyLong_AsLongLongAndOverflow(value, &overflow)
        return (0 if overflow else 9 if n < 0 else 10 if n == 0 else 11 if n == 1 else 12 if n < <int64_t>1 << 53 else
                13 if n < <int64_t>1 << 62 else 14)
    if type(value) is bool:
        return 15
    if isinstance(value, complex):
        return 16 if value == 0 else 17 if value == 1 else 18
    if isinstance(value, generic):
        return numpy_class(value)
    return 0


cdef int numpy_class(object value) except -1:
    """`class_of` for a NumPy scalar, apart from that of the Python number that it is."""
    cdef int found
    plain = value.item()
    if isinstance(plain, generic):  # that has no equal in Python
        return 0
    found = class_of(plain)
    return found | NUMPY if found else 0


cdef class CallForm:
    """What a call gives, by position: from it the call's structure is read.

    Parameters
    ----------
    unpack : callable
        From the values to the request, which checks itself.
    pack : callable
        From a request to its values.
    names : tuple of str
        The values of each call.
    kinds : bytes
        One letter for each: ``a`` an array or None, ``o`` an option, ``n`` a number (that may be an array).
    defaults : tuple
        What options are by themselves; None for arrays, and anything for numbers.
    rest : bytes
        The kind of further values; empty if there are none.
    """

    def __cinit__(self, object unpack, object pack, tuple names, bytes kinds, tuple defaults, bytes rest=b""):
        if not len(names) == len(kinds) == len(defaults) <= 64 or kinds.count(b"n") > 64 // CLASS_BITS:
            raise InvalidRequest(f"{len(names)} names, {len(kinds)} kinds and {len(defaults)} defaults; allowed: as many "
                                 f"of each, 64 at most, and {64 // CLASS_BITS} numbers at most")
        if rest not in (b"", b"a", b"n"):
            raise InvalidRequest(f"rest={rest!r}; allowed: b'', b'a', b'n'")
        self.unpack = unpack
        self.pack = pack
        self.names = names
        self.kinds = kinds
        self.defaults = defaults
        self.fixed = len(names)
        self.rest = rest[0] if rest else 0

    cdef list structure(self, tuple values):
        """Everything about a call but addresses and numbers; None if it cannot be said."""
        cdef list found = [self, None, None]
        cdef PyObject *refs[ATOMR_MAX_OPERANDS]
        cdef unsigned short places[ATOMR_MAX_OPERANDS]
        cdef const unsigned char *kinds = self.kinds
        cdef Py_ssize_t i, n = len(values)
        cdef unsigned n_refs = 0
        cdef uint64_t given = 0, classes = 0
        cdef int kind, number
        if n < self.fixed or (n > self.fixed and not self.rest):
            return None
        for i in range(n):
            value = <object>PyTuple_GET_ITEM(values, i)
            kind = kinds[i] if i < self.fixed else self.rest
            if i >= self.fixed:
                if value is None and kind == ARRAY:
                    found.append(None)
                    continue
            elif kind != NUMBER and value is <object>PyTuple_GET_ITEM(self.defaults, i):
                continue
            if isinstance(value, Ref):
                if n_refs == ATOMR_MAX_OPERANDS:
                    return None
                refs[n_refs] = <PyObject *>value
                places[n_refs] = <unsigned short>i
                n_refs += 1
                found.append((<Ref>value).layout)
                if i < self.fixed:
                    given |= <uint64_t>1 << i
            elif kind == NUMBER:
                number = class_of(value)
                if number == 0:
                    return None
                if i < self.fixed:
                    classes = classes << CLASS_BITS | <uint64_t>number
                else:
                    found.append(number)
            elif kind == ARRAY:
                return None
            else:
                given |= <uint64_t>1 << i
                if not add_option(found, value):
                    return None
        found[1] = given
        found[2] = classes
        if n_refs > 1:
            add_sharing(found, refs, places, n_refs, n_refs)
        return found


cdef bint add_option(list found, object value) except -1:
    """Add an option, so that equal ones of different types differ (True and 1); False if that cannot be."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        found.append(value)
        return True
    if kind is tuple:  # of names, in most calls
        kinds = types_in(<tuple>value)
        if kinds is None:
            return False
        found.append(kind)
        found.append(kinds)
        found.append(value)
        return True
    if kind in KINDS:
        raise InvalidRequest(f"{value!r} is given for an option that the plan is made with; allowed: a plain value, and "
                             f"recorded numbers for what messages carry")
    if isinstance(value, (float, complex)):  # 0.0 equals -0.0, and NaN nothing
        return False
    found.append(kind)
    if isinstance(value, tuple):
        kinds = types_in(<tuple>value)
        if kinds is None:
            return False
        found.append(kinds)
    found.append(value)
    return True


cdef object types_in(tuple values):
    """The types of what is in a tuple, str for nothing but text; None if an item cannot be compared by value and type."""
    cdef bint text = True
    cdef list found
    for item in values:
        if type(item) is not str:
            text = False
            break
    if text:
        return str
    found = []
    for item in values:
        if isinstance(item, (float, complex)):
            return None
        kinds = types_in(<tuple>item) if isinstance(item, tuple) else type(item)
        if kinds is None:
            return None
        found.append(kinds)
    return tuple(found)


def comparable(object value):
    """What equals that of another value if this one does, and all types in them are the same; None if that cannot be."""
    cdef list found = []
    return tuple(found) if add_option(found, value) else None


def are_aligned(list values not None, uint64_t alignment):
    """Whether those of the values that are handles start at multiples of so many bytes."""
    for value in values:
        if isinstance(value, Ref) and <uint64_t>(first_of(<Ref>value) + (<Ref>value).layout.low) % alignment:
            return False
    return True


cdef inline uint64_t space_of(Allocation a) noexcept:
    """`Allocation.space`."""
    return 0 if a.core.origins[a.block.segment] != NULL else <uint64_t>a.generation << 32 | a.slot


cdef inline int64_t first_of(Ref ref) noexcept:
    """Where a view's first element is in its space: see `Allocation.origin`."""
    cdef char *base = <char *>ref.allocation.core.origins[ref.allocation.block.segment]
    return <int64_t>(ref.offset + (0 if base == NULL else <uint64_t>(base + ref.allocation.block.offset)))


cdef int64_t reach_in(Layout layout, int64_t period) except -2:
    """How many bytes of each period a view touches, counted from its first element; -1 if that differs."""
    cdef int64_t reach = layout.dtype.itemsize, step
    for n, s in zip(layout.shape, layout.strides):
        step = s
        if n < 2 or step == 0 or step >= period and step % period == 0:
            continue
        if step < 0 or step >= period:
            return -1
        reach += (<int64_t>n - 1) * step
    return reach if reach <= period else -1


cdef bint are_interleaved(Layout one, int64_t first, Layout other, int64_t start) except -1:
    """Whether views lie side by side in each period of their strides, as the parts of one packed array do.

    `are_interleaved` of arrays/operands.py says the same of requests.
    """
    cdef int64_t period, between, reach, rest
    for n, s in zip(one.shape + other.shape, one.strides + other.strides):
        period = s
        if n < 2 or period <= 0:
            continue
        reach, rest = reach_in(one, period), reach_in(other, period)
        if reach < 0 or rest < 0:
            continue
        between = (start - first) % period
        if between < 0:
            between += period
        if between >= reach and between + rest <= period:
            return True
    return False


cdef int add_sharing(list found, PyObject **refs, unsigned short *places, unsigned n, unsigned firsts) except -1:
    """Add which arrays share memory, and how: overlapping, the same view, or one handle; usually nothing.

    Of each pair one is among the first `firsts`.  `places`: what to add for each array; NULL for its number.  With the layouts this is all that checks can know about where arrays are.
    """
    cdef uint64_t few_spaces[ATOMR_MAX_OPERANDS]
    cdef uint64_t *spaces = few_spaces
    cdef bytes room = None
    cdef unsigned i, j
    cdef int64_t first, start
    cdef int how
    cdef Ref x, y
    if n > ATOMR_MAX_OPERANDS:
        room = PyBytes_FromStringAndSize(NULL, n * sizeof(uint64_t))
        spaces = <uint64_t *>PyBytes_AS_STRING(room)
    for i in range(n):
        spaces[i] = space_of((<Ref>refs[i]).allocation)
    if n > FEW and len({spaces[i] for i in range(n)}) == n:
        return 0
    for j in range(1, n):
        for i in range(min(j, firsts)):
            if spaces[i] != spaces[j]:
                continue
            x, y = <Ref>refs[i], <Ref>refs[j]
            if x.allocation.core is not y.allocation.core:
                continue
            first, start = first_of(x), first_of(y)
            if x is y:
                how = 3
            elif first == start and (x.layout is y.layout or x.layout == y.layout):
                how = 2
            elif (first + x.layout.low < start + y.layout.high and start + y.layout.low < first + x.layout.high
                  and not are_interleaved(x.layout, first, y.layout, start)):
                how = 1
            else:
                continue
            if places == NULL:
                found.append((i, j, how))
            else:
                found.append((places[i], places[j], how))
    return 0


cdef class CallTemplate:
    """How calls of one structure become messages.

    Parameters
    ----------
    plan : PlanRef
    handle : type
        Of the arrays that are allocated.
    operands : tuple of (int or (Layout, Layout or None))
        In message order: the place among the call's values, or the layout of what is allocated and the view of it
        that is the operand, if that is another.
    numbers : tuple of int
        Places of the numbers that travel, in the order of the plan's scalars, or of `convert`'s parameters.
    convert : callable or None
        From those numbers to the plan's scalars, where they differ.
    result : tuple of (int or None)
        What the caller gets: places among the call's values, or -1 for the first operand, and so on; None for None.
    kind : type or None
        The kind of tuple or list that this is; None for a single array.
    unsent : tuple of int
        Places of the handles that are no operands, which the send does not check.
    """

    def __cinit__(self, PlanRef plan not None, type handle, tuple operands, tuple numbers, object convert,
                  tuple result, object kind, tuple unsent=()):
        cdef Py_ssize_t i
        self.plan = plan
        self.handle = handle
        self.fresh = operands
        self.n_operands = len(operands)
        self.n_numbers = len(numbers)
        self.convert = convert
        self.result = result
        self.first = result[0] if kind is None else 0
        self.kind = kind
        self.is_list = kind is list
        self.unsent = unsent
        self.n_unsent = len(unsent)
        self.places = <int *>calloc(self.n_operands + self.n_numbers + 1, sizeof(int))
        if self.places == NULL:
            raise MemoryError
        for i in range(self.n_operands):
            self.places[i] = operands[i] if type(operands[i]) is int else -1
        for i in range(self.n_numbers):
            self.places[self.n_operands + i] = numbers[i]

    def __dealloc__(self):
        free(self.places)

    cpdef object run(self, tuple values, bint want_reply):
        """Allocate what is missing, send; the result, or the reply that has it."""
        cdef tuple refs = PyTuple_New(self.n_operands)
        cdef tuple scalars = ()
        cdef tuple layouts
        cdef Ref ref
        cdef ReplyBase reply
        cdef Py_ssize_t i
        if self.n_unsent:
            for place in self.unsent:
                refuse_gone((<Ref?>values[place]).allocation)
        for i in range(self.n_operands):
            if self.places[i] >= 0:
                value = values[self.places[i]]
            else:
                layouts = <tuple>self.fresh[i]
                ref = self.plan.core.make(self.handle, <Layout>layouts[0], 0)
                value = ref if layouts[1] is None else ref.view_of(self.handle, <Layout>layouts[1], 0)
            Py_INCREF(value)
            PyTuple_SET_ITEM(refs, i, value)
        if self.n_numbers:
            scalars = PyTuple_New(self.n_numbers)
            for i in range(self.n_numbers):
                value = values[self.places[self.n_operands + i]]
                kind = type(value)
                if kind is not float and kind is not int and isinstance(value, generic):
                    value = value.item()
                Py_INCREF(value)
                PyTuple_SET_ITEM(scalars, i, value)
            if self.convert is not None:
                scalars = <tuple?>(self.convert(*scalars) if self.plan.core.recorders is None else
                                   converted(self.convert, scalars))
        reply = self.plan.dispatch(items_of(refs), self.n_operands, None, None, scalars, want_reply, True)
        if self.kind is None:
            result = values[self.first] if self.first >= 0 else refs[-1 - self.first]
        else:
            result = self.gather(values, refs)
        if reply is None:
            return result
        reply.value = result
        return reply

    cdef object gather(self, tuple values, tuple refs):
        """A result of several parts."""
        cdef Py_ssize_t i
        cdef list found = []
        for item in self.result:
            if item is None:
                found.append(None)
            else:
                i = item
                found.append(values[i] if i >= 0 else refs[-1 - i])
        if self.is_list:
            return found
        return tuple(found) if self.kind is tuple else tuple.__new__(self.kind, found)


cdef class CallCache:
    """The templates of an actor's immediate calls, by structure.  Reading takes no lock; `keep` and `drop` want one.

    Parameters
    ----------
    limit : int
        How many are kept; the oldest goes first.
    """

    def __cinit__(self, unsigned limit):
        self.known = {}
        self.limit = limit

    def __len__(self):
        return len(self.known)

    def send(self, object actor, CallForm form not None, tuple values not None, bint want_reply=False):
        """Send a call and return its result at once, or with `want_reply` its reply.

        ``actor._template(form, values, key)`` makes the template of a structure that is new; its key is None where it
        cannot be remembered.
        """
        cdef tuple key = None
        cdef CallTemplate template = None
        found = form.structure(values)
        if found is not None:
            key = tuple(found)
            try:
                template = <CallTemplate>self.known.get(key)
            except (TypeError, ValueError):  # an option that cannot be hashed or compared
                key = None
        if template is None:
            for value in values:  # before the checks of a request, which know nothing of stale handles
                if isinstance(value, Ref):
                    refuse_gone((<Ref>value).allocation)
            template = <CallTemplate?>actor._template(form, tuple([plain(value) for value in values]), key)
        return template.run(values, want_reply)

    def keep(self, tuple key not None, CallTemplate template not None):
        """Remember a template."""
        if len(self.known) >= self.limit:
            del self.known[next(iter(self.known))]
        self.known[key] = template

    def drop(self, PlanRef plan not None):
        """Forget the templates of a plan."""
        for key in [key for key, template in self.known.items() if (<CallTemplate>template).plan is plan]:
            del self.known[key]

    @property
    def plans(self):
        """The plans of the templates, in the order in which these were made."""
        return [(<CallTemplate>template).plan for template in self.known.values()]
