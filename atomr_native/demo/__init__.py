"""The demo, ``python -m atomr_native demo``: a network trained by messages, whose worker is killed half-way.

`data` is what it learns, `model` the network as messages, `training` the loop, the fault and the way back, `report` and
`figures` what is shown, `cli` the command.
"""
