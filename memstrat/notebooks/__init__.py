"""The notebook series: one source, four editions.

* `source`: a `notebooks/src/NN_name.py` taken apart into cells, and put together as an edition.
* `build`: write, execute and compare the editions; stamp the repository's address.
* `first_cell`: what each notebook's first cell holds: find the package, or install it.

    python -m memstrat.notebooks build --repo owner/name@ref
    python -m memstrat.notebooks check

Does not cover what a notebook says (see `notebooks/src`), nor grading.
"""
