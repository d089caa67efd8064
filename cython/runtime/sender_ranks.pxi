# Messages that several devices run together: a part of sender.pyx, beside the sends to one device.

cdef extern from *:
    """
    #define atomr_begin_quick(counter) __atomic_fetch_add(counter, 1, __ATOMIC_SEQ_CST)
    #define atomr_end_quick(counter) __atomic_fetch_sub(counter, 1, __ATOMIC_SEQ_CST)
    #define atomr_count_quick(counter) __atomic_load_n(counter, __ATOMIC_SEQ_CST)
    """
    int atomr_begin_quick(int *)
    int atomr_end_quick(int *)
    int atomr_count_quick(int *)


cdef enum:
    QUICK_RANKS = 16
    QUICK_USES = 48
    QUICK_WORDS = 64


# Where the operands of the first rank lie in windows.
cdef struct Places:
    unsigned n
    bint windowed
    uint32_t windows[QUICK_USES]
    uint64_t offsets[QUICK_USES]


cdef inline bint agrees(Places *p, unsigned rank, unsigned k, bint first, Ref ref) noexcept:
    """Whether operand `k` of a rank is where that of the first rank is, or none of both is in a window.

    The library finds windows by address, and ranks that find different ones would wait for each other without end.
    """
    cdef uint32_t window = ref.allocation.core.windows[ref.allocation.block.segment]
    if first:
        p.windowed = window != 0
    if p.windowed != (window != 0):
        return False
    if not window:
        return True
    if rank == 0 and k < QUICK_USES:
        p.windows[k] = window
        p.offsets[k] = ref.allocation.block.offset + ref.offset
        p.n = k + 1
        return True
    return k < p.n and p.windows[k] == window and p.offsets[k] == ref.allocation.block.offset + ref.offset


def in_one_place(list operands not None):
    """Whether operands, a tuple of each rank, lie in one place of all ranks' windows, or in none.  False: look closer."""
    cdef Places places
    cdef unsigned i, k
    cdef bint first = True
    places.n = 0
    for i, mine in enumerate(operands):
        for k, ref in enumerate(mine):
            if not agrees(&places, i, k, first, ref):
                return False
            first = False
    return True


cdef class Sequence:
    """Counts the messages of one communicator, under the locks of its devices."""

    @property
    def busy(self):
        """Whether a quick send is under way, in another thread."""
        return atomr_count_quick(&self.under_way) != 0

    @property
    def last(self):
        """The number of the last message."""
        return self.number


cdef class RanksMessage:
    """The native part of a collective plan: a message of all ranks whose operands are of known layouts.

    `tell` sends it in C, and leaves everything out of the ordinary to `_tell_slowly`, which a subclass has.
    """

    def __cinit__(self, *args, **kwargs):
        self.is_quick = False

    def arm(self, Sequence sequence not None, uint64_t meeting, list plans not None, list places not None,
            tuple numbers not None, tuple lists not None, bint apart, int root, type handle not None):
        """Have `tell` send by itself, where that is possible.

        Parameters
        ----------
        sequence, meeting, plans, numbers
            As `send_ranks` takes them.
        places : list of list of (int, Layout)
            Of each rank's operands: 0 for the arrays and 1 for the outputs, from which it comes, and its layout.
        lists : tuple of bool
            Whether arrays, and outputs, are one a rank.
        apart : bool
            Whether a rank's two operands are never the same array.
        root : int
            Of a broadcast, the rank whose output may be the array itself; else -1.
        handle : type
            Of the arrays.
        """
        cdef unsigned i, k, at = 0
        cdef PlanRef plan
        self.n = len(plans)
        self.n_uses = sum([len(mine) for mine in places])
        self.n_words = 2 + len(numbers)
        if self.n > QUICK_RANKS or self.n_uses > QUICK_USES or self.n_words > QUICK_WORDS:
            return
        self.sources = <unsigned char *>calloc(self.n_uses + 1, 1)
        self.counts = <unsigned *>calloc(self.n, sizeof(unsigned))
        self.words = <uint64_t *>calloc(self.n_words, sizeof(uint64_t))
        if self.sources == NULL or self.counts == NULL or self.words == NULL:
            raise MemoryError
        self.layouts = []
        for i in range(self.n):
            plan = plans[i]
            if plan.modes or plan.apart or plan.fixed is not None or plan.n_scalars != self.n_words:
                return
            self.counts[i] = len(places[i])
            for source, layout in places[i]:
                self.sources[at] = source
                self.layouts.append(layout)
                at += 1
        plan = plans[0]
        self.words[0] = meeting
        for k in range(2, self.n_words):
            self.words[k] = plan.convert(k, numbers[k - 2])
        self.sequence, self.meeting, self.plans, self.handle = sequence, meeting, plans, handle
        self.lists[0], self.lists[1] = lists
        self.apart, self.root = apart, root
        self.is_quick = True

    def __dealloc__(self):
        free(self.sources)
        free(self.counts)
        free(self.words)

    def tell(self, arrays=(), *, out=None):
        """Send to all ranks, and keep no reply; arrays and outputs as the method takes them.

        Raises
        ------
        InvalidRequest, GpuRefStale, MailboxFull, DeviceLost
            Before anything is enqueued on any rank.
        """
        if not self.is_quick or not self.send_quickly(arrays, out):
            self._tell_slowly(arrays, out)

    cdef int send_quickly(self, object arrays, object out) except -1:
        """Send; 0, with nothing sent, if the message needs a longer look."""
        cdef atomr_rank_send ranks[QUICK_RANKS]
        cdef atomr_use uses[QUICK_USES]
        cdef uint64_t words[QUICK_RANKS * QUICK_WORDS]
        cdef PyObject *first
        cdef PyObject *found
        cdef unsigned i, k, at = 0, which = 0
        cdef object given
        cdef PlanRef plan
        cdef Ref ref
        cdef int result
        cdef Places places
        places.n = 0
        if observer is not None or self.sequence.groups:
            return 0
        for k in range(2):
            given = out if k else arrays
            if given is None:
                continue
            if self.lists[k] and (type(given) is not list and type(given) is not tuple or <unsigned>len(given) != self.n):
                return 0
        for i in range(self.n):
            plan = <PlanRef>PyList_GET_ITEM(self.plans, i)
            if plan.core.recorders is not None or plan.core.abandoned or \
                    plan.ready_epoch != atomr_sender_epoch(plan.core.sender):
                return 0
            first = NULL
            ranks[i].uses = &uses[at]
            for k in range(self.counts[i]):
                given = out if self.sources[at] else arrays
                if given is None:
                    return 0
                if self.lists[self.sources[at]]:
                    found = <PyObject *>(PyList_GET_ITEM(given, i) if type(given) is list else PyTuple_GET_ITEM(given, i))
                else:
                    found = <PyObject *>given
                if type(<object>found) is not self.handle:
                    return 0
                ref = <Ref>found
                if <PyObject *>ref.layout != <PyObject *>PyList_GET_ITEM(self.layouts, at) or \
                        ref.allocation.core is not plan.core or ref.allocation.freed or \
                        ref.allocation.readonly and plan.access[k] & ATOMR_WRITE:
                    return 0
                if first != NULL and ref.allocation is (<Ref>first).allocation and (self.apart or found != first):
                    return 0
                if not agrees(&places, i, k, at == 0, ref):
                    return 0
                first = found
                uses[at].slot = ref.allocation.slot
                uses[at].generation = ref.allocation.generation
                uses[at].offset = ref.offset
                uses[at].access = plan.access[k]
                uses[at].whole = ref.whole
                at += 1
            if <int>i == self.root and self.lists[1] and out is not None:
                found = <PyObject *>(PyList_GET_ITEM(out, i) if type(out) is list else PyTuple_GET_ITEM(out, i))
                if (found == <PyObject *>arrays) != (self.counts[i] == 1):
                    return 0
            ranks[i].sender = plan.core.sender
            ranks[i].epoch = plan.ready_epoch
            ranks[i].lane = plan.lane
            ranks[i].plan = plan.index
            ranks[i].n_uses = self.counts[i]
            ranks[i].scalars = &words[i * self.n_words]
            ranks[i].n_scalars = self.n_words
            ranks[i].reply = NULL
            memcpy(&words[i * self.n_words], self.words, self.n_words * sizeof(uint64_t))
        atomr_begin_quick(&self.sequence.under_way)
        result = ATOMR_REFUSED if self.sequence.closed else atomr_send_ranks(ranks, self.n, &self.sequence.number, &which)
        if result == ATOMR_DONE:
            for i in range(self.n):
                (<PlanRef>PyList_GET_ITEM(self.plans, i)).last_ticket = ranks[i].ticket
        atomr_end_quick(&self.sequence.under_way)
        return result == ATOMR_DONE


def send_ranks(Sequence sequence not None, uint64_t meeting, list plans not None, list operands not None,
               object numbers, bint want_reply, bint may_wait):
    """Send one message to several devices, or to none; inside a recording of all of them, list it.

    Parameters
    ----------
    sequence, meeting
        The communicator's count and number.
    plans : list of PlanRef
        Of each rank; their scalars begin with the words of meeting.h.
    operands : list of tuple of GpuRef
        Of each rank, in message order; a plan adds those that are fixed.
    numbers : tuple, or list of tuple
        The scalars after the key: the same for each rank, or those of each.
    want_reply : bool
    may_wait : bool
        Whether to wait for room in a full mailbox; otherwise the answer is None when there is none.

    Returns
    -------
    list of Reply, or True
        One reply for each rank, if wanted.
    """
    cdef unsigned n = len(plans), i, k, which = 0, total = 0, n_words = 0
    cdef atomr_rank_send *ranks
    cdef atomr_use *uses
    cdef uint64_t *words
    cdef PyObject **found
    cdef PlanRef plan
    cdef object recorder
    cdef tuple mine
    cdef list every = numbers if isinstance(numbers, list) else [numbers] * n
    cdef ReplyBase reply
    cdef int result
    cdef uint64_t began = 0, room
    cdef int64_t left, slice_ns
    cdef list replies = []
    cdef tuple refs
    for i in range(n):
        plan = plans[i]
        plan.core.alive()
        if <unsigned>len(operands[i]) != plan.n_given or <unsigned>len(every[i]) + 2 != plan.n_scalars:
            raise InvalidRequest(f"{len(operands[i])} operands and {len(every[i])} numbers for rank {i}; "
                                 f"allowed: {plan.n_given} and {plan.n_scalars - 2}")
        total += plan.n_operands
        n_words += plan.n_scalars
    for plan in plans:
        recorder = plan.core.recorder() if plan.core.recorders is not None else None
        if recorder is not None:
            return record_ranks(recorder, meeting, plans, operands, every, want_reply)
    for plan in plans:
        while plan.ready_epoch != atomr_sender_epoch(plan.core.sender):
            plan.prepare()
    ranks = <atomr_rank_send *>calloc(n, sizeof(atomr_rank_send))
    uses = <atomr_use *>calloc(total + 1, sizeof(atomr_use))
    words = <uint64_t *>calloc(n_words + 1, sizeof(uint64_t))
    found = <PyObject **>calloc(total + 1, sizeof(PyObject *))
    cdef list sent = []
    try:
        if ranks == NULL or uses == NULL or words == NULL or found == NULL:
            raise MemoryError
        total = n_words = 0
        for i in range(n):
            plan = plans[i]
            refs = operands[i]
            mine = every[i]
            if plan.fixed is not None:
                refs += plan.fixed
            sent.append(refs)
            ranks[i].sender = plan.core.sender
            ranks[i].epoch = plan.ready_epoch
            ranks[i].lane = plan.lane
            ranks[i].plan = plan.index
            ranks[i].uses = &uses[total]
            ranks[i].n_uses = plan.n_operands
            ranks[i].scalars = &words[n_words]
            ranks[i].n_scalars = plan.n_scalars
            for k in range(plan.n_operands):
                plan.fill(&uses[total + k], &found[total + k], k, refs[k])
            if plan.apart and plan.may_share(&found[total]):
                plan.keep_apart(&found[total])
            total += plan.n_operands
            n_words += plan.n_scalars
            ranks[i].scalars[0] = meeting
            for k in range(<unsigned>len(mine)):
                ranks[i].scalars[2 + k] = plan.convert(2 + k, mine[k])
            if want_reply:
                reply = <ReplyBase>plan.reply_type.__new__(plan.reply_type)
                reply.core = plan.core
                reply.node.lane = plan.lane
                replies.append(reply)
                ranks[i].reply = &reply.node
        plan = plans[0]
        left = plan.core.timeout_ns
        while True:
            result = atomr_send_ranks(ranks, n, &sequence.number, &which)
            if result == ATOMR_DONE:
                break
            plan = plans[which]
            refs = sent[which]
            plan.refuse_send(result, (<Ref>refs[ranks[which].bad]).allocation if ranks[which].bad < <unsigned>len(refs)
                             else None)
            if result == ATOMR_MOVED:  # it has just restarted
                plan.prepare()
                ranks[which].epoch = plan.ready_epoch
                continue
            if not may_wait:
                return None
            if left == 0:
                name = plan.core.lane_names.get(plan.lane, str(plan.lane))
                raise MailboxFull(f"the mailbox of {name!r} of rank {which} ({plan.core.cells} cells) had no room "
                                  f"within {plan.core.timeout_ns / 1e9:g} s; nothing was sent to any rank", name,
                                  plan.core.cells)
            if began == 0:
                began = atomr_now_ns()
            room = atomr_room_ticket(plan.core.sender, plan.lane, ATOMR_MIN_CELLS)
            slice_ns = 100_000_000 if left < 0 or left > 100_000_000 else left
            if room:
                plan.core.wait(plan.lane, room, slice_ns)
            else:  # others took it, or the worker is about to give it
                with nogil:
                    usleep(50)
                PyErr_CheckSignals()
            for plan in plans:
                plan.core.alive()
            if left > 0:
                left = max(0, (<PlanRef>plans[0]).core.timeout_ns - <int64_t>(atomr_now_ns() - began))
        for i in range(n):
            plan = plans[i]
            plan.last_ticket = ranks[i].ticket
            if plan.unsent is not None:
                plan.publish()
            if observer is not None:
                plan.note(<ReplyBase>replies[i] if want_reply else None, ranks[i].ticket)
        return replies if want_reply else True
    finally:
        free(ranks)
        free(uses)
        free(words)
        free(found)


cdef object record_ranks(object recorder, uint64_t meeting, list plans, list operands, list numbers, bint want_reply):
    """Hand a message of several devices to a recorder of one of them; replies say that there is none."""
    cdef PlanRef plan
    cdef ReplyBase reply
    cdef list replies = []
    recorder.take_ranks(meeting, plans, [refs if plan.fixed is None else refs + plan.fixed
                                         for plan, refs in zip(plans, operands)], numbers)
    if not want_reply:
        return True
    for plan in plans:
        reply = <ReplyBase>plan.reply_type.__new__(plan.reply_type)
        reply.core = plan.core
        reply.failure = no_reply()
        replies.append(reply)
    return replies
