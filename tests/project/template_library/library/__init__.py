"""Weighted means of two arrays: ``device.blend``."""

from .._contract import Aliasing, Library, Operation

LIBRARY = Library(
    name="blend",
    summary="Weighted means of two arrays.",
    actor="actor:Blend",
    operations=(Operation("blend.mix", Aliasing.SAME_VIEW, "host:build_mix", "cuda:build_mix"),),
    exports={"Blend": "actor", "MixRequest": "request"},
)
