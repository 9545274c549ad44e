"""Batches and buffers. Import from the modules: kept empty so that importing it never loads torch."""
