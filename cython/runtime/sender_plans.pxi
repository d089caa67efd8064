# Replies, and plans, which send: a part of sender.pyx, where all that a send reads is in one module.

cdef enum:
    VIEWS_MAY_BE_ONE = 2  # of PlanRef.apart: what is written may be the very view of what is read
    MODE_LOCATED = 1   # of PlanRef.modes: the place in the program that sends each message is noted
    MODE_BLOCKING = 2  # each send waits for its completion, and raises its error
    MODE_SETTLING = 4  # such a send raises the first cause, as reading an array does

LOCATED, BLOCKING, SETTLING = MODE_LOCATED, MODE_BLOCKING, MODE_SETTLING


cdef tuple describe(atomr_verdict *v):
    cdef atomr_error *e = &v.error
    return (e.code, e.status, (<bytes>(<char *>e.lib)).decode(errors="replace"),
            (<bytes>(<char *>e.name)).decode(errors="replace"), (<bytes>(<char *>e.text)).decode(errors="replace"),
            bool(e.inherited), v.lane, e.ticket, e.plan, e.cause_lane, e.cause_ticket, e.cause_plan, v.fault)


cdef int refuse_write(str name) except -1:
    """Raise for a message that would write memory which may only be read."""
    raise InvalidRequest(f"operand {name!r} is written, and is memory of another library that is read-only, or not known "
                         f"to be writable; device.asarray(x, copy=True) makes an array that may be written")


cdef object no_handle(object value):
    """A number as it is; not a handle, whose conversion would wait for the device, nor a recorded number."""
    if isinstance(value, Ref) or type(value) in KINDS:
        raise TypeError
    return value


cdef int64_t nanoseconds(object timeout) except -2:
    """A user's timeout, in seconds, as nanoseconds; -1 for None, which is for ever.  InvalidRequest for another value."""
    cdef double seconds
    if timeout is None:
        return -1
    if type(timeout) is float and <double>timeout >= 0:
        seconds = timeout
    else:
        seconds = seconds_of(timeout)
    return <int64_t>(min(seconds, 9e9) * 1e9)


@cython.no_gc_clear  # its end needs the Core
cdef class ReplyBase:
    """The native part of a reply: which ticket, and what came of it."""

    def __dealloc__(self):
        if self.core is not None and not self.core.abandoned:
            atomr_reply_drop(self.core.sender, &self.node)

    @property
    def lane(self):
        return self.node.lane

    @property
    def ticket(self):
        return self.node.ticket

    def done(self):
        """Whether the message is resolved, in whatever way.  Does not wait."""
        if self.failure is not None:
            return True
        self.core.alive()
        return bool(atomr_reply_settle(self.core.sender, &self.node))

    def wait(self, timeout=None):
        """Wait until the message is resolved; False when `timeout` seconds pass first."""
        cdef int64_t ns = nanoseconds(timeout)
        if self.failure is not None:
            return True
        self.core.alive()
        if self.core.recorders is not None and self.core.recorder() is not None:
            raise InvalidRequest("waiting for a reply inside a recording; a recording only lists messages: wait before it")
        if self.core.wait(self.node.lane, self.node.ticket, ns) is False:
            return False
        atomr_reply_settle(self.core.sender, &self.node)
        return True

    def result(self, timeout=None):
        """Wait for the reply and return its value.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None waits for as long as it takes.

        Returns
        -------
        object
            What the message wrote (a `GpuRef`, or a tuple of them), or None.

        Raises
        ------
        AskTimeout
            When `timeout` passes; the message goes on.
        AtomrError
            What went wrong with the message, typed.
        """
        if not self.wait(timeout):
            raise AskTimeout(f"no reply within {timeout} s; the message itself goes on")
        error = self.exception()
        if error is not None:
            raise error
        return self.value

    def exception(self):
        """The error of a resolved message, or None.  A fresh object each time, so it pins no frames."""
        if not self.done():
            raise InvalidRequest("the message is not resolved; wait for it first")
        if self.failure is not None:
            return self.failure
        if self.node.verdict == NULL:
            return None
        return self.core.errors(*describe(self.node.verdict))


cdef object no_reply():
    """What the reply of a recorded message raises."""
    return InvalidRequest("waiting or reading inside a recording: a recorded message has no reply of its own; the plan's "
                          "messages have")


cdef uint64_t word_of(object value, bint integral) except? 0xFFFFFFFFFFFFFFFF:
    cdef double d
    cdef int64_t i
    if integral:
        i = value if type(value) is int else PyNumber_Index(no_handle(value))  # a float would lose its fraction
        return <uint64_t>i
    d = value if type(value) is float else no_handle(value)
    return (<uint64_t *>&d)[0]


cdef unsigned cells_of(unsigned operands) noexcept:
    """Cells that a message of so many operands may take; at least those of the smallest mailbox."""
    cdef unsigned words = ATOMR_HEAD_WORDS + ATOMR_LANES + 3 * operands + ATOMR_MAX_SCALARS
    return max(ATOMR_MIN_CELLS, (words + ATOMR_CELL_WORDS - 1) // ATOMR_CELL_WORDS)


cdef class PlanRef:
    """The native part of a plan: everything that a send needs, checked and ready.

    Parameters
    ----------
    core, lane, index
        Whose plan, which mailbox, and its number in the worker.
    operands : tuple of (str, Layout, int)
        Name, layout (None: any) and access of each operand, in message order.
    scalars : tuple of (str, str, object)
        Name, kind (``"float64"`` or ``"int64"``) and default of each scalar; None: a call must name it.
    """

    def __cinit__(self, Core core not None, unsigned lane, uint32_t index, tuple operands, tuple scalars,
                  *args, **kwargs):
        cdef unsigned i
        self.core = core
        self.lane = lane
        self.index = index
        self.n_operands = self.n_given = len(operands)  # `fix` says which of them callers give
        self.n_scalars = len(scalars)
        if self.n_operands > ATOMR_MESSAGE_OPERANDS or self.n_scalars > ATOMR_MAX_SCALARS:
            raise InvalidRequest(f"{self.n_operands} operands and {self.n_scalars} scalars; a message holds at most "
                                 f"{ATOMR_MAX_OPERANDS}, {ATOMR_MAX_BOUND} bound arrays and {ATOMR_MAX_SCALARS}")
        self.access = <uint32_t *>calloc(self.n_operands + 1, sizeof(uint32_t))
        self.defaults = <uint64_t *>calloc(self.n_scalars + 1, sizeof(uint64_t))
        self.integral = <bint *>calloc(self.n_scalars + 1, sizeof(bint))
        self.required = <bint *>calloc(self.n_scalars + 1, sizeof(bint))
        if self.access == NULL or self.defaults == NULL or self.integral == NULL or self.required == NULL:
            raise MemoryError
        self.names = tuple([name for name, _, _ in operands])
        self.layouts = tuple([layout for _, layout, _ in operands])
        self.scalar_names = tuple([name for name, _, _ in scalars])
        self.places = {name: i for i, name in enumerate(self.names)}
        for i in range(self.n_operands):
            self.access[i] = operands[i][2]
        for i in range(self.n_scalars):
            name, kind, default = scalars[i]
            self.places[name] = -1 - <int>i
            self.integral[i] = kind == "int64"
            self.required[i] = default is None
            if is_recorded(default):
                raise InvalidRequest(f"scalar {name!r} of a plan has {default!r} as its default; allowed: numbers. Send the "
                                     f"recorded number with the message: plan.tell(..., {name}={default.name})")
            if default is not None:
                self.defaults[i] = word_of(default, self.integral[i])
        self.out_place = self.places.get("out", -1)

    def __dealloc__(self):
        free(self.access)
        free(self.defaults)
        free(self.integral)
        free(self.required)
        free(self.fixed_uses)
        free(self.fixed_slots)

    def access_of(self, unsigned i):
        return self.access[i]

    def fix(self, tuple refs not None, list unsent not None):
        """Give the last operands once, for all messages; callers give the others.

        `unsent` are the allocations of a recording that the first message makes known to others.
        """
        cdef unsigned i
        self.n_given = self.n_operands - <unsigned>len(refs)
        for i in range(self.n_given, self.n_operands):
            self.places.pop(self.names[i], None)
        use_bound(self, refs)
        self.unsent = unsent or None

    def put_in_place(self, unsigned at, Ref ref not None):
        """Replace a fixed operand, for later messages."""
        use_bound(self, self.fixed[:at] + (ref,) + self.fixed[at + 1:])

    cdef int publish(self) except -1:
        """A message that writes what was made in its recording has been sent: others may use it now."""
        cdef list unsent = self.unsent
        self.unsent = None
        for allocation in unsent:
            if (<Allocation>allocation).freed == RECORDED:
                (<Allocation>allocation).freed = 0
        return 0

    def check_apart(self, tuple given not None):
        """Refuse arrays for a message that share memory where the operation does not allow it."""
        cdef tuple every = given + self.fixed
        cdef PyObject **refs = <PyObject **>items_of(every)
        if self.may_share(refs):
            self.keep_apart(refs)

    def name_fixed(self, unsigned at, error):
        """Return the error about a fixed operand with its name (overridden)."""
        return error

    cdef int refuse_use(self, unsigned i, Ref ref) except -1:
        """Raise for an allocation that is freed, or of a recording which is not this thread's or this plan's."""
        cdef object recorder
        if ref.allocation.freed == RECORDED:
            if i >= self.n_given:
                return 0
            recorder = self.core.recorder()
            if recorder is not None and recorder.owns(ref.allocation):
                return 0
        error = self.core.stale(ref.allocation, ref.allocation.status())
        raise error if i < self.n_given else self.name_fixed(i - self.n_given, error)

    cdef ReplyBase hand_over(self, object recorder, PyObject **refs, uint64_t *scalars, bint want_reply):
        """Hand a message that was checked to a recorder; a reply says that there is none."""
        cdef ReplyBase reply = None
        cdef unsigned i
        recorder.take(self, tuple([<object>refs[i] for i in range(self.n_operands)]),
                      [(<int64_t *>scalars)[i] for i in range(self.n_scalars)])
        if want_reply:
            reply = <ReplyBase>self.reply_type.__new__(self.reply_type)
            reply.core = self.core
            reply.failure = no_reply()
        return reply

    def prepare(self):
        """Make the worker's half ready (overridden); returns when a send may name it."""
        self.ready_epoch = atomr_sender_epoch(self.core.sender)

    def tell(self, *operands, out=None, **named):
        """Send, and keep no reply.  Enqueues; waits only for room in a full mailbox, or for the plan.

        Parameters
        ----------
        *operands : GpuRef
            The operands in the order of `names`; any may be given by keyword instead.
        out : GpuRef, optional
            The operand of that name.
        **named
            Operands and scalars by name.

        Raises
        ------
        InvalidRequest, GpuRefStale, MailboxFull, DeviceLost
            Before anything is enqueued.
        """
        self.dispatch(items_of(operands), len(operands), out, named, None, False, True)

    def ask(self, *operands, out=None, **named):
        """Send like `tell`, and return the `Reply`.

        Parameters
        ----------
        *operands, out, **named
            As for `tell`; and `retry`, unless the plan has an operand of that name.
        retry : int, optional
            How often the message is sent again when a death of the worker catches it, as soon as the device is back.
            By default 0: a message is run at most once.  It is sent again only with operands that are intact: a handle
            that the death has made stale ends the reply with `GpuRefStale`, and a plan that has killed its worker twice
            with `PlanQuarantined`.  It then runs after the messages sent meanwhile.
        """
        if named and "retry" in named and "retry" not in self.places:
            return self._ask_again(operands, out, named, named.pop("retry"))
        return self.dispatch(items_of(operands), len(operands), out, named, None, True, True)

    def offer(self, *operands, out=None, **named):
        """Send like `ask` if the mailbox has room now, else return None: never waits for room."""
        return self.dispatch(items_of(operands), len(operands), out, named, None, True, False)

    def send(self, tuple refs, tuple scalars, bint want_reply, object value=None):
        """Send with operands and scalars in message order; `value` becomes that of the reply."""
        cdef ReplyBase reply = self.dispatch(items_of(refs), len(refs), None, None, scalars, want_reply, True)
        if reply is not None and value is not None:
            reply.value = value
        return reply

    cdef ReplyBase dispatch(self, PyObject *const *operands, Py_ssize_t given, object out, dict named, tuple ordered,
                            bint want_reply, bint may_wait):
        cdef atomr_use few_uses[ATOMR_MAX_OPERANDS]
        cdef PyObject *few_refs[ATOMR_MAX_OPERANDS]
        cdef uint64_t scalars[ATOMR_MAX_SCALARS]
        cdef atomr_use *uses = few_uses
        cdef PyObject **refs = few_refs
        cdef bytes room = None
        cdef unsigned i, bad = 0
        cdef unsigned n = 0, total = self.n_operands, given_operands = self.n_given
        cdef int result
        cdef object recorder = None
        cdef tuple fixed  # which another thread may replace
        cdef uint64_t ticket = 0, named_scalars = 0
        cdef ReplyBase reply = None
        cdef atomr_reply *node = NULL
        self.core.alive()
        if self.core.recorders is not None:
            recorder = self.core.recorder()
            if recorder is not None:
                recorder.begin()
        while self.ready_epoch != atomr_sender_epoch(self.core.sender):
            if recorder is None:
                self.prepare()
            else:
                recorder.aside(self.prepare)
        if given > given_operands:
            raise InvalidRequest(f"{given} operands given; this plan takes {given_operands}: "
                                 f"{', '.join(self.names[:given_operands])}")
        if total > ATOMR_MAX_OPERANDS:
            room = PyBytes_FromStringAndSize(NULL, total * (sizeof(atomr_use) + sizeof(PyObject *)))
            uses = <atomr_use *>PyBytes_AS_STRING(room)
            refs = <PyObject **>(uses + total)
        fixed = self.fixed
        n = <unsigned>given
        for i in range(n):
            self.fill(&uses[i], &refs[i], i, <object>operands[i])
        for i in range(n, given_operands):
            refs[i] = NULL
        if fixed is not None:
            memcpy(refs + given_operands, items_of(fixed), (total - given_operands) * sizeof(PyObject *))
            memcpy(uses + given_operands, self.fixed_uses, (total - given_operands) * sizeof(atomr_use))
            if self.unsent is not None or recorder is not None:  # later sends leave the check to the sender's core
                for i in range(given_operands, total):
                    self.fill(&uses[i], &refs[i], i, <object>refs[i])
        for i in range(self.n_scalars):
            scalars[i] = self.defaults[i]
        if out is not None:
            if 0 <= self.out_place and refs[self.out_place] == NULL:
                self.fill(&uses[self.out_place], &refs[self.out_place], self.out_place, out)
            else:
                self.place("out", out, uses, refs, scalars, &named_scalars)
        if ordered is not None:
            if <unsigned>len(ordered) != self.n_scalars:
                raise InvalidRequest(f"{len(ordered)} scalars given; this plan takes {self.n_scalars}: "
                                     f"{', '.join(self.scalar_names)}")
            for i in range(self.n_scalars):
                scalars[i] = self.convert(i, ordered[i])
        elif self.n_scalars or named:
            if self.expansion is not None:
                named, computed = self.expansion(named)
                for i in range(self.n_scalars):
                    scalars[i] = self.convert(i, computed[i])
                    named_scalars |= <uint64_t>1 << i
            if named:
                for name, value in named.items():
                    self.place(name, value, uses, refs, scalars, &named_scalars)
            for i in range(self.n_scalars):
                if self.required[i] and not named_scalars >> i & 1:
                    raise InvalidRequest(f"scalar {self.scalar_names[i]!r} is missing; this plan takes "
                                         f"{', '.join(self.scalar_names)}")
        for i in range(n, given_operands):
            if refs[i] == NULL:
                raise InvalidRequest(f"operand {self.names[i]!r} is missing; this plan takes "
                                     f"{', '.join(self.names[:given_operands])}")
        if self.apart and ordered is None and self.may_share(refs):  # who sends with scalars in order has seen to it
            self.keep_apart(refs)
        if recorder is not None:
            return self.hand_over(recorder, refs, scalars, want_reply)
        if want_reply or self.modes & MODE_BLOCKING:  # a failure that is raised here is no dead letter
            reply = <ReplyBase>self.reply_type.__new__(self.reply_type)
            reply.core = self.core
            reply.node.lane = self.lane
            reply.value = self.written(refs)
            node = &reply.node
        result = atomr_send_in(self.core.sender, self.ready_epoch, self.lane, self.index, uses, total, scalars,
                               self.n_scalars, self.group, node, &ticket, &bad)
        if result != ATOMR_DONE:
            sent = tuple([<object>refs[i] for i in range(total)])
            if self.send_slowly(result, uses, scalars, node, &ticket, bad, sent, may_wait) is False:
                return None
        self.last_ticket = ticket
        if self.unsent is not None:
            self.publish()
        if observer is not None:
            self.note(reply, ticket)
        if self.modes:
            self.follow(reply, ticket)
            if not want_reply:
                return None
        return reply

    cdef int follow(self, ReplyBase reply, uint64_t ticket) except -1:
        """Do what the System's options ask for after each send."""
        if self.modes & MODE_LOCATED:
            self.core.sent_from(self.lane, ticket)
        if self.modes & MODE_BLOCKING and reply is not None:
            self.core.wait(self.lane, ticket, -1)
            error = reply.exception()
            if error is not None:
                if self.modes & MODE_SETTLING and isinstance(error, DependencyFailed):
                    error = error.cause
                raise error
        return 0

    cdef int note(self, ReplyBase reply, uint64_t ticket) except -1:
        hook = observer  # which another thread may take away
        if hook is not None:
            hook(self, reply, ticket)
        return 0

    cdef int place(self, str name, object value, atomr_use *uses, PyObject **refs, uint64_t *scalars,
                   uint64_t *given) except -1:
        """Put an operand or scalar that came by name where it belongs."""
        cdef int at
        if self.complexes is not None:
            found = self.complexes.get(name)
            if found is not None:
                return self.place_complex(name, value, found[0], found[1], scalars, given)
        found = self.places.get(name)
        if found is None:
            numbers = self.scalar_names if self.expansion is None else self.expansion.names
            known = dict.fromkeys(self.names[:self.n_given] + numbers + tuple(self.complexes or ()) + ("out",))
            if name != "retry":  # an option of `ask` alone
                known["retry"] = None
            raise unknown_option(f"{name!r} is no operand or option of this plan", name, tuple(known))
        at = found
        if at < 0:
            scalars[-1 - at] = self.convert(-1 - at, value)
            given[0] |= <uint64_t>1 << (-1 - at)
        elif refs[at] != NULL:
            raise InvalidRequest(f"operand {name!r} is given twice, by position and by name")
        else:
            self.fill(&uses[at], &refs[at], at, value)
        return 0

    cdef int place_complex(self, str name, object value, int real, int imaginary, uint64_t *scalars,
                           uint64_t *given) except -1:
        """Put both parts of a number where they belong; an imaginary part that came by its own name stays."""
        if is_recorded(value):
            raise InvalidRequest(f"scalar {name!r} is complex, and is given {value!r}; allowed: a number, or a recorded "
                                 f"number for each part: {self.scalar_names[real]!r}, {self.scalar_names[imaginary]!r}")
        try:
            number = complex(value) if isinstance(value, (complex, complexfloating)) else complex(<double>no_handle(value))
        except (TypeError, ValueError, OverflowError):
            raise InvalidRequest(f"scalar {name!r} must be a complex or real number, not {value!r}") from None
        if self.scalar_names[real] == name or not given[0] >> real & 1:
            scalars[real] = word_of(number.real, False)
        if not given[0] >> imaginary & 1:
            scalars[imaginary] = word_of(number.imag, False)
        given[0] |= <uint64_t>1 << real | <uint64_t>1 << imaginary
        return 0

    cdef bint may_share(self, PyObject **refs) noexcept:
        """Whether something that is written may share memory with another operand: hardly ever, and quickly told."""
        cdef unsigned i, j, n = self.n_operands
        cdef void **origins = self.core.origins
        cdef bint foreign
        if self.n_given < n:
            if may_share_bound(self, refs):
                return True
            n = self.n_given
        if n > FEW:
            return True
        for i in range(n):
            if not self.access[i] & ATOMR_WRITE:
                continue
            foreign = origins[(<Ref>refs[i]).allocation.block.segment] != NULL
            for j in range(n):
                if j != i and ((<Ref>refs[j]).allocation.slot == (<Ref>refs[i]).allocation.slot or
                               foreign and origins[(<Ref>refs[j]).allocation.block.segment] != NULL):
                    return True
        return False

    cdef int keep_apart(self, PyObject **refs) except -1:
        """Refuse an operand that is written and shares memory with another one."""
        cdef list found = []
        add_sharing(found, refs, NULL, self.n_operands, self.n_given)  # bound ones are ordered by the recording
        for x, y, how in found:
            one, other = self.access[x] & ATOMR_WRITE, self.access[y] & ATOMR_WRITE
            if not one and not other or how >= 2 and self.apart == VIEWS_MAY_BE_ONE and not (one and other):
                continue
            first, second = (x, y) if one else (y, x)
            for at in (x, y):
                refuse_gone((<Ref>refs[<unsigned>at]).allocation)
            same = self.apart == VIEWS_MAY_BE_ONE
            raise InvalidRequest(f"operand {self.names[first]!r} is written and overlaps {self.names[second]!r}: they "
                                 f"are parts of one allocation; allowed: memory of its own"
                                 f"{', or the very view of one that is only read' if same else ''}")
        return 0

    cdef object written(self, PyObject **refs):
        cdef unsigned i
        cdef list out = []
        for i in range(self.n_given):
            if self.access[i] & ATOMR_WRITE:
                out.append(<object>refs[i])
        return None if not out else out[0] if len(out) == 1 else tuple(out)

    cdef uint64_t convert(self, int i, object value) except? 0xFFFFFFFFFFFFFFFF:
        if self.core.recorders is not None and type(value) in KINDS:
            recorder = self.core.recorder()
            if recorder is not None:
                recorder.note_number(i, value, self.integral[i])
                value = plain(value)
        try:
            return word_of(value, self.integral[i])
        except (TypeError, ValueError, OverflowError):
            kind = "an integer of 64 bits" if self.integral[i] else "a real number"
            raise InvalidRequest(f"scalar {self.scalar_names[i]!r} must be {kind}, not {value!r}") from None

    cdef int fill(self, atomr_use *use, PyObject **ref_at, unsigned i, object operand) except -1:
        cdef Ref ref
        cdef Layout expected
        if not isinstance(operand, Ref):
            raise InvalidRequest(f"operand {self.names[i]!r} must be a GpuRef, not {type(operand).__name__}; "
                                 f"device.put() makes one from an array")
        ref = <Ref>operand
        if ref.allocation.core is not self.core:
            raise InvalidRequest(f"operand {self.names[i]!r} lives on another device or in another System; "
                                 f"device.copy(ref) takes it from another device of this System, ref.numpy() from any")
        expected = <Layout>self.layouts[i]
        if ref.layout is not expected and expected is not None and ref.layout != expected:
            raise InvalidRequest(f"operand {self.names[i]!r} is {ref.layout!r}; this plan takes {expected!r}")
        if ref.allocation.freed:
            self.refuse_use(i, ref)
        if ref.allocation.readonly and self.access[i] & ATOMR_WRITE:
            refuse_write(self.names[i])
        use.slot = ref.allocation.slot
        use.generation = ref.allocation.generation
        use.offset = ref.offset
        use.access = self.access[i]
        use.whole = ref.whole
        ref_at[0] = <PyObject *>operand
        return 0

    cdef int refuse_send(self, int result, object allocation) except -1:
        """Raise for a message that cannot be sent; return if it can later, or after `prepare`."""
        if result == ATOMR_STALE or result == ATOMR_TORN or result == ATOMR_BACK:
            error = self.core.stale(allocation, (<Allocation>allocation).status() or "torn")
            if self.fixed is not None:
                for at, ref in enumerate(self.fixed):
                    if (<Ref>ref).allocation is allocation:
                        raise self.name_fixed(at, error)
            raise error
        if result == ATOMR_REFUSED:
            raise self.core.stale(None, "device closed" if self.core.state == CLOSED else "device lost")
        if result == ATOMR_TOO_LARGE:
            raise InvalidRequest(f"this message needs more room than the whole mailbox of {self.core.cells} cells")
        if result != ATOMR_FULL and result != ATOMR_MOVED:
            raise MemoryError("no memory to stamp the operands of a message")
        return 0

    cdef object send_slowly(self, int result, atomr_use *uses, uint64_t *scalars, atomr_reply *node,
                            uint64_t *ticket, unsigned bad, tuple refs, bint may_wait):
        """The send could not be done at once: wait for room, or say why not; False when it may not wait."""
        cdef int64_t left = self.core.timeout_ns, slice_ns
        cdef uint64_t room, began = 0
        cdef unsigned cells = cells_of(self.n_operands)
        while True:
            if result == ATOMR_DONE:
                return True
            self.refuse_send(result, (<Ref>refs[bad]).allocation if bad < <unsigned>len(refs) else None)
            if result == ATOMR_MOVED:  # the device has just restarted, and its worker does not know this plan
                self.prepare()
                result = atomr_send_in(self.core.sender, self.ready_epoch, self.lane, self.index, uses,
                                       self.n_operands, scalars, self.n_scalars, self.group, node, ticket, &bad)
                continue
            if not may_wait:
                return False
            if left == 0:
                name = self.core.lane_names.get(self.lane, str(self.lane))
                raise MailboxFull(f"the mailbox of {name!r} ({self.core.cells} cells) had no room within "
                                  f"{self.core.timeout_ns / 1e9:g} s; nothing was sent", name, self.core.cells)
            if began == 0:
                began = atomr_now_ns()
            room = atomr_room_ticket(self.core.sender, self.lane, cells)
            slice_ns = 100_000_000 if left < 0 or left > 100_000_000 else left
            if room:
                self.core.wait(self.lane, room, slice_ns)
            else:  # others took it, or the worker is about to give it
                with nogil:
                    usleep(50)
                PyErr_CheckSignals()
                self.core.alive()
            if left > 0:
                left = max(0, self.core.timeout_ns - <int64_t>(atomr_now_ns() - began))
            result = atomr_send_in(self.core.sender, self.ready_epoch, self.lane, self.index, uses,
                                   self.n_operands, scalars, self.n_scalars, self.group, node, ticket, &bad)


cdef enum:
    WANTS_REPLY = 1
    MAY_WAIT = 2


cdef object send_quickly(object plan, PyObject *const *operands, Py_ssize_t n, PyObject *out, int kind):
    """Send as `PlanRef.tell`, `ask` and `offer` do."""
    if not isinstance(plan, PlanRef):
        raise TypeError(f"a method of plans is called with {type(plan).__name__!r} for its plan")
    return (<PlanRef>plan).dispatch(operands, n, None if out == NULL else <object>out, None, None,
                                    kind & WANTS_REPLY, kind & MAY_WAIT)


cdef object QuickSend = quick_send_type()

#: `PlanRef.tell` and so on, for calls whose arguments are by position, but for `out`.
QUICK_SENDS = {
    "tell": quick_send_new(QuickSend, PlanRef.tell, send_quickly, MAY_WAIT),
    "ask": quick_send_new(QuickSend, PlanRef.ask, send_quickly, WANTS_REPLY | MAY_WAIT),
    "offer": quick_send_new(QuickSend, PlanRef.offer, send_quickly, WANTS_REPLY),
}
