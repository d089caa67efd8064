"""The demo, ``python -m atomr_native demo``: it trains a network by messages, and kills its worker half-way.

`data` has the data set, `model` the network as messages, `training` the loop, the fault and the recovery, `report` and
`figures` the output, and `cli` the command.
"""
