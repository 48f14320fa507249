"""`make parity`: GT beside PyTorch, on the sample inputs that PyTorch tests its own operations with.

`names` finds what GT has of an operation, `convert` carries arguments over and results back, `compare` says where two
results differ, `checks` runs one operation in all its forms, `curve` trains the same GPT in both, and `__main__` runs
everything and reports.
"""
