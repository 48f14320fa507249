"""`make parity`: GT beside PyTorch, on the sample inputs of PyTorch's own tests of its operations.

`names` finds GT's form of an operation, `convert` converts arguments and results, `compare` finds differences between
two results, `checks` runs one operation in all its forms, `curve` trains the same GPT in both frameworks, and
`__main__` runs everything and reports.
"""
