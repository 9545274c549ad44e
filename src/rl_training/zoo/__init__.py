"""The packaged benchmarks: manifests with references, runs over seeds, tables, plots and bands."""
