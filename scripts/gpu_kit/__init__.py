"""The kit that tests and measures GT on a machine with a GPU: `make gpu-kit` packs this package with what it runs.

It needs Python and PyTorch there, and no network, compiler or package manager. `machine` says what the machine has,
`groups` what is run, `runner` runs it, `results` reads what was printed, and `report` makes a page of a run. Nothing
here imports GT or PyTorch, except `on_device` and `plugin`, which the programs that are run import.
"""
