"""Collectives of GPUs, by NCCL."""
