"""Builders of sparse operations for GPUs."""
