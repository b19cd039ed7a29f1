"""From a folder of submissions to a gradebook: rebuild, run, score, report; and the audit of records.

Needs the `test` and `notebooks` extras for running notebooks; scoring, reports and the audit do
without. POSIX only: children are forked and limited (see `sandbox`).
"""
