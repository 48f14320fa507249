"""Trains the digits network or a small GPT on several workers. A YAML file configures the sharding; the program stays.

Run it with `python -m gt.torch examples/parallel.py --config examples/sharding/digits_data.yaml`. Without
`--config` the daemon decides what to shard. The losses are the same in every configuration, and with `--workers 1`.
"""

import argparse
import tempfile

import numpy as np
import torch

import gt


def apply_signals(model):
    """Puts every module and parameter that the configuration names under the signal of that name."""
    for name, module in model.named_modules():
        if gt.get_config(name) is not None:
            module.forward = gt.signal.context(name)(module.forward)
    for name, parameter in model.named_parameters():
        if gt.get_config(name) is not None:
            parameter.data = gt.signal.tensor(parameter.data, name=name)


def digits():
    """Returns the model of `digits.py`, its batches, its loss function and an optimizer."""
    from digits import BATCH_SIZE, DigitReader, load

    pixels, _, labels, _ = load()
    rng = np.random.default_rng(0)
    model = DigitReader()

    def batches():
        while True:
            chosen = rng.permutation(len(labels))[:BATCH_SIZE]
            yield torch.from_numpy(pixels[chosen]), torch.from_numpy(labels[chosen])

    def loss_of(x, y):
        return torch.nn.functional.cross_entropy(model(x), y)

    return model, batches(), loss_of, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def gpt():
    """Returns a GPT of `gpt.py` with two blocks, its batches, its loss function and an optimizer."""
    from gpt import GPT, Config, get_batch, write_tokens

    config = Config(block_size=32, n_layer=2, n_head=4, n_embd=64)
    model = GPT(config)

    def batches():
        with tempfile.TemporaryDirectory() as folder:
            write_tokens(folder)
            while True:
                yield get_batch(folder, "train", config, 8, "cpu")

    def loss_of(x, y):
        return model(x, y)[1]

    return model, batches(), loss_of, model.configure_optimizer(weight_decay=0.1, learning_rate=1e-3, betas=(0.9, 0.99))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=["digits", "gpt"], default="digits")
    parser.add_argument("--config", help="YAML file that says how each signal is sharded")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()

    gt.gpu_workers(args.workers)
    if args.config:
        gt.load_config(args.config)
    gt.manual_seed(7)
    model, batches, loss_of, optimizer = {"digits": digits, "gpt": gpt}[args.model]()
    apply_signals(model)
    losses = []
    for _, (x, y) in zip(range(args.steps), batches, strict=False):
        x, y = gt.signal.tensor(x, name="batch"), gt.signal.tensor(y, name="batch")
        loss = loss_of(x, y)
        optimizer.zero_grad()
        loss.backward()
        with gt.signal.context("update"):
            optimizer.step()
        losses.append(loss.detach())
    # Everything above is asynchronous; `tolist()` waits for the workers.
    for step, loss in enumerate(torch.stack(losses).tolist()):
        print(f"step {step}  loss {loss:.6f}")
    for name, parameter in model.named_parameters():
        print(f"{name} lies {gt.debug.placement(parameter)}")


if __name__ == "__main__":
    main()
