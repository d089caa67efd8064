"""What runs beside the device: start-up, the control loop, and the plan builders.

Nothing here is imported by user-facing modules except through `atomr_native.placement`.
"""
