"""Programs for PyTorch, unmodified, beside PyTorch: `make test-programs`.

`catalogue.py` lists them, `vision.py`, `language.py`, `science.py` and `scripts.py` define them, `side.py` runs one in
either framework, and `runner.py` compares the two. Start with `catalogue.py`.
"""
