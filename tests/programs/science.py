"""Programs with libraries around training, and with models of graphs, functions, distributions and policies."""

from __future__ import annotations

import tempfile
from typing import Any

from tests.programs.catalogue import Training, Values, integers, normal, program


def _perceptron(inputs: int = 8, outputs: int = 1) -> Any:
    import torch

    return torch.nn.Sequential(torch.nn.Linear(inputs, 32), torch.nn.Tanh(), torch.nn.Linear(32, outputs))


def _from_the_start(model: Any, weights: dict[str, Any]) -> None:
    """Gives a model the weights that it had when this was first called."""
    if not weights:
        weights.update({name: value.clone() for name, value in model.state_dict().items()})
    model.load_state_dict(weights)


@program("accelerate with accumulation and clipping", "accelerate", quick=True)
def accelerated() -> Values:
    import accelerate
    import torch

    model, x, y = _perceptron(), normal(64, 8), normal(64, 1, seed=1)
    weights: dict[str, Any] = {}

    def compute() -> Any:
        _from_the_start(model, weights)
        accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 8)
        prepared, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        losses = []
        for inputs, targets in loader:
            with accelerator.accumulate(prepared):
                loss = torch.nn.functional.mse_loss(prepared(inputs), targets)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(prepared.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.item())
        return losses

    return Values(compute, model)


@program("lightning Trainer with a checkpoint", "lightning", quick=True)
def lightning_training() -> Values:
    import lightning
    import torch

    network, x, y = _perceptron(), normal(64, 8), normal(64, 1, seed=1)
    weights: dict[str, Any] = {}

    class Regression(lightning.LightningModule):
        """A regression with an optimizer and a schedule."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network
            self.losses: list[float] = []

        def training_step(self, batch: Any, _: int) -> Any:
            loss = torch.nn.functional.mse_loss(self.network(batch[0]), batch[1])
            self.log("loss", loss)
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), 1e-2)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]

    def compute() -> Any:
        _from_the_start(network, weights)
        module = Regression()
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 16)
        with tempfile.TemporaryDirectory() as folder:
            trainer = lightning.Trainer(
                max_epochs=2,
                accelerator="cpu",
                default_root_dir=folder,
                logger=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                gradient_clip_val=1.0,
            )
            trainer.fit(module, loader)
            trainer.save_checkpoint(f"{folder}/end.ckpt")
            again = Regression.load_from_checkpoint(f"{folder}/end.ckpt", weights_only=False)
        return module.losses, again.network(x)

    return Values(compute, network)


@program("ignite trainer and metrics", "ignite", "pytorch-ignite")
def ignite_training() -> Values:
    import torch
    from ignite import engine, metrics

    model, x, y = _perceptron(outputs=3), normal(64, 8), integers(64, below=3, seed=1)
    weights: dict[str, Any] = {}
    data = [(x[i : i + 16], y[i : i + 16]) for i in range(0, 64, 16)]

    def compute() -> Any:
        _from_the_start(model, weights)
        loss = torch.nn.CrossEntropyLoss()
        trainer = engine.create_supervised_trainer(model, torch.optim.SGD(model.parameters(), 0.1), loss)
        judge = engine.create_supervised_evaluator(model, {"accuracy": metrics.Accuracy(), "loss": metrics.Loss(loss)})
        trainer.run(data, max_epochs=2)
        return judge.run(data).metrics

    return Values(compute, model)


@program("torchmetrics", "torchmetrics", quick=True)
def metric_values() -> Values:
    import torchmetrics

    scores, labels = normal(200, 5).softmax(-1), integers(200, below=5, seed=1)
    x, y = normal(200, seed=2), normal(200, seed=3)

    def compute() -> Any:
        classes = {
            name: getattr(torchmetrics, name)(task="multiclass", num_classes=5)(scores, labels)
            for name in (
                "Accuracy",
                "F1Score",
                "AUROC",
                "ConfusionMatrix",
                "CalibrationError",
                "AveragePrecision",
                "CohenKappa",
            )
        }
        numbers = {
            name: getattr(torchmetrics, name)()(x, y)
            for name in ("MeanSquaredError", "PearsonCorrCoef", "SpearmanCorrCoef", "R2Score", "ExplainedVariance")
        }
        images = normal(2, 3, 48, 48).sigmoid()
        similar = torchmetrics.image.StructuralSimilarityIndexMeasure(data_range=1.0)(images, images.flip(0))
        return classes | numbers | {"ssim": similar}

    return Values(compute)


@program("captum attributions", "captum")
def attributions() -> Values:
    from captum import attr

    model, x = _perceptron(outputs=3), normal(4, 8)

    def compute() -> Any:
        return {
            "integrated gradients": attr.IntegratedGradients(model).attribute(x, target=1),
            "saliency": attr.Saliency(model).attribute(x, target=1),
            "DeepLift": attr.DeepLift(model).attribute(x, target=1),
            "occlusion": attr.Occlusion(model).attribute(x, target=1, sliding_window_shapes=(2,)),
            "layer": attr.LayerActivation(model, model[0]).attribute(x),
        }

    return Values(compute, model)


@program("pyro SVI with AutoDelta", "pyro", "pyro-ppl")
def inference() -> Values:
    import pyro
    import torch
    from pyro import distributions, infer

    x, y = normal(100, 3), normal(100, seed=1)

    def model() -> None:
        slopes = pyro.sample("slopes", distributions.Normal(torch.zeros(3), 1.0).to_event(1))
        scale = pyro.sample("scale", distributions.LogNormal(0.0, 1.0))
        with pyro.plate("data", 100):
            pyro.sample("y", distributions.Normal(x @ slopes, scale), obs=y)

    def compute() -> Any:
        pyro.clear_param_store()
        guide = infer.autoguide.AutoDelta(model, init_loc_fn=infer.autoguide.initialization.init_to_mean)
        svi = infer.SVI(model, guide, pyro.optim.Adam({"lr": 0.02}), infer.Trace_ELBO())
        losses = [svi.step() for _ in range(20)]
        return losses, guide.median()

    return Values(compute)


@program("gpytorch exact Gaussian process", "gpytorch")
def gaussian_process() -> Training:
    import gpytorch
    import torch

    x = torch.linspace(0, 1, 60)
    y = torch.sin(6 * x) + 0.1 * normal(60)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()

    class Process(gpytorch.models.ExactGP):
        """An exact Gaussian process with a squared exponential kernel."""

        def __init__(self) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, points: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(points), self.covar_module(points))

    model = Process().train()
    likelihood.train()
    marginal = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    return Training(model, lambda: -marginal(model(x), y))


def _graph() -> tuple[Any, Any, Any]:
    """Returns 40 nodes with 16 features, 160 edges, and the class of each node."""
    return normal(40, 16), integers(2, 160, below=40, seed=1), integers(40, below=4, seed=2)


@program("torch_geometric GCN", "torch_geometric", "torch-geometric")
def gcn() -> Training:
    return _graph_network("GCN")


@program("torch_geometric GAT", "torch_geometric", "torch-geometric")
def gat() -> Training:
    return _graph_network("GAT")


@program("torch_geometric GraphSAGE", "torch_geometric", "torch-geometric")
def sage() -> Training:
    return _graph_network("GraphSAGE")


def _graph_network(kind: str) -> Training:
    import torch
    from torch_geometric import nn

    features, edges, classes = _graph()
    model = getattr(nn, kind)(16, 32, 2, 4)

    def loss() -> Any:
        outputs = model(features, edges)
        return torch.nn.functional.cross_entropy(outputs, classes), outputs

    return Training(model, loss)


@program("torch_geometric batches with pooling", "torch_geometric", "torch-geometric")
def graph_batches() -> Training:
    import torch
    from torch_geometric import data, loader, nn

    graphs = [
        data.Data(x=normal(10, 16, seed=i), edge_index=integers(2, 30, below=10, seed=i), y=torch.tensor([i % 4]))
        for i in range(8)
    ]
    model = nn.GIN(16, 32, 2, 4)
    batch = next(iter(loader.DataLoader(graphs, batch_size=8)))

    def loss() -> Any:
        outputs = nn.global_mean_pool(model(batch.x, batch.edge_index), batch.batch)
        return torch.nn.functional.cross_entropy(outputs, batch.y), outputs

    return Training(model, loss)


@program("torch_geometric GCN on a sparse adjacency", "torch_geometric", "torch-geometric")
def sparse_gcn() -> Training:
    import torch
    from torch_geometric import nn, utils

    features, edges, classes = _graph()
    adjacency = utils.to_torch_csr_tensor(utils.coalesce(edges), size=(40, 40))
    model = nn.GCNConv(16, 4)
    return Training(model, lambda: torch.nn.functional.cross_entropy(model(features, adjacency), classes))


@program("graph convolution by sparse.mm", "torch")
def sparse_mm() -> Training:
    import torch

    features, edges, classes = _graph()
    adjacency = torch.sparse_coo_tensor(edges, torch.ones(160), (40, 40)).coalesce()
    model = torch.nn.Linear(16, 4)
    return Training(
        model, lambda: torch.nn.functional.cross_entropy(torch.sparse.mm(adjacency, model(features)), classes)
    )


@program("stable-baselines3 PPO policy", "stable_baselines3", "stable-baselines3")
def policy() -> Training:
    import gymnasium
    import numpy
    import stable_baselines3

    class Line(gymnasium.Env):
        """A point on a line that is to come to 0."""

        observation_space = gymnasium.spaces.Box(-9, 9, (3,), numpy.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, **_: Any) -> Any:
            self.place = numpy.ones(3, numpy.float32)
            return self.place, {}

        def step(self, action: Any) -> Any:
            self.place = self.place + (0.1 if action else -0.1)
            return self.place.astype(numpy.float32), -float(abs(self.place[0])), False, False, {}

    agent = stable_baselines3.PPO("MlpPolicy", Line(), n_steps=32, batch_size=16, n_epochs=1, device="cpu")
    agent.learn(64)
    observations, actions = normal(32, 3), integers(32, below=2)

    def loss() -> Any:
        values, likelihoods, entropy = agent.policy.evaluate_actions(observations, actions)
        return (values.square().mean() - likelihoods.mean() - 0.01 * entropy.mean()), likelihoods

    return Training(agent.policy, loss)


@program("e3nn equivariant network", "e3nn")
def equivariant() -> Training:
    import torch
    from e3nn import o3

    tensor_product = o3.FullyConnectedTensorProduct("4x0e + 4x1o", "1x0e + 1x1o + 1x2e", "8x0e + 4x1o")
    linear = o3.Linear("8x0e + 4x1o", "1x0e")
    model = torch.nn.ModuleList([tensor_product, linear])
    features, places = normal(30, 16), normal(30, 3, seed=1)

    def loss() -> Any:
        harmonics = o3.spherical_harmonics("1x0e + 1x1o + 1x2e", places, normalize=True)
        outputs = linear(tensor_product(features, harmonics))
        return outputs.square().mean(), outputs

    return Training(model, loss)
