/* What the tests of ranks share: a page for their votes. */
#ifndef ATOMR_TESTS_PAGE_RIG_H
#define ATOMR_TESTS_PAGE_RIG_H

#include "check.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/meeting.h"

/* Return a page for `free`, whose ranks have said nothing yet. */
static atomr_page *page_new(unsigned n_ranks) {
    atomr_page *const page = aligned_alloc(4096, (atomr_page_bytes(n_ranks) + 4095) & ~(size_t)4095);
    CHECK(page);
    memset(page, 0, sizeof *page);
    atomr_page_init(page, n_ranks);
    return page;
}

#endif
