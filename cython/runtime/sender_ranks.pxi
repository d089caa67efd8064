# Messages that several devices run together: a part of sender.pyx, beside the sends to one device.

cdef class Sequence:
    """Counts the messages of one communicator, under the locks of its devices."""

    @property
    def last(self):
        """The number of the last message."""
        return self.number


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
