"""nvJitLink: its errors, and the end of its handles."""

from __future__ import annotations

import pytest
import scripts

import atomr_native as an
from atomr_native.compile import linking, nvrtc
from atomr_native.compile.link_parts import LinkPart

SOURCE = 'extern "C" __global__ void scale(float *x) { x[threadIdx.x] *= 2.0f; }'

#: The next link ended the program with SIGSEGV where the garbage collector ended a failed one in another thread.
FAILURES = f"""
import gc, threading
import atomr_native as an
from atomr_native.compile import linking, nvrtc
from atomr_native.compile.link_parts import LinkPart

gc.disable()
part = LinkPart("ltoir", nvrtc.compile_program({SOURCE!r}, "sm_90", output="ltoir").code)
failures = []
for registers, wrong in enumerate(([part, part], [LinkPart("ltoir", b"none")]), 40):
    try:
        linking.link(wrong, "sm_90")
    except an.LibraryError as error:
        failures.append(error)
    assert len(failures) == 1
    thread = threading.Thread(target=lambda: (failures.clear(), gc.collect()))
    thread.start()
    thread.join()
    assert linking.link([part], "sm_90", max_registers=registers)
"""


@pytest.fixture
def part() -> LinkPart:
    try:
        return LinkPart("ltoir", nvrtc.compile_program(SOURCE, "sm_90", output="ltoir").code)
    except an.Unsupported as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("compiler_cache", "part")
def test_a_failed_link_ends_in_its_thread() -> None:
    scripts.run(FAILURES)


def test_the_log_of_a_failed_link_is_in_the_error(part: LinkPart) -> None:
    with pytest.raises(an.LibraryError, match=r"(?s)linking with -arch=sm_80 -lto.*LTOIR arch newer") as caught:
        linking.link([part], "sm_80")
    assert (caught.value.lib, caught.value.name) == ("nvjitlink", "ERROR_ARCH_MISMATCH")
    with pytest.raises(an.LibraryError, match=r"linking with -arch=nothing") as caught:
        linking.link([part], "nothing")
    assert caught.value.status
