"""The worker's side: start-up, the control loop, and the builds of plans.

User-facing modules import this package only through `atomr_native.runtime.placement`.
"""
