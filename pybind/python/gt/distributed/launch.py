"""`python -m torch.distributed.launch`: as `torch.distributed.run`, but the script gets `--local-rank=0`."""

from gt.distributed.run import main

if __name__ == "__main__":
    main(module="launch")
