"""Benchmarks that come with the package: manifests of presets with references, their runs, tables, plots and bands."""
