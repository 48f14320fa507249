"""Programs with models of images."""

from __future__ import annotations

from typing import Any

from tests.programs.catalogue import Training, Values, add_program, integers, normal, program

CLASSES = 10


def _classifier(model: Any, images: Any) -> Training:
    """Trains a model of images to name one of ten classes."""
    import torch

    labels = integers(len(images), below=CLASSES, seed=1)

    def loss() -> Any:
        found = model(images)
        outputs = found if isinstance(found, torch.Tensor) else found[0]
        return torch.nn.functional.cross_entropy(outputs, labels), outputs

    return Training(model, loss)


# Models whose gradients in float32 hang on rounding, as at ties of maximum pools: both frameworks compute in float64.
DOUBLE = (
    *("resnet50", "vgg11_bn", "densenet121", "squeezenet1_1", "regnet_y_400mf", "googlenet", "shufflenet_v2_x0_5"),
    *("fasterrcnn_mobilenet_v3_large_320_fpn", "efficientnet_lite0"),
)


def _torchvision(name: str, size: int, arguments: dict[str, Any]) -> Training:
    import torchvision

    model = getattr(torchvision.models, name)(weights=None, num_classes=CLASSES, **arguments)
    images = normal(4, 3, size, size)
    return _classifier(model.double(), images.double()) if name in DOUBLE else _classifier(model, images)


def _titled(library: str, name: str) -> str:
    return f"{library} {name}{' in float64' if name in DOUBLE else ''}"


for name, size, arguments in (
    ("resnet18", 64, {}),
    ("resnet50", 64, {}),
    ("vgg11_bn", 32, {}),
    ("mobilenet_v3_small", 64, {}),
    ("densenet121", 64, {}),
    ("efficientnet_b0", 64, {}),
    ("shufflenet_v2_x0_5", 64, {}),
    ("squeezenet1_1", 64, {}),
    ("regnet_y_400mf", 64, {}),
    ("convnext_tiny", 64, {}),
    ("swin_t", 64, {}),
    ("vit_b_32", 64, {"image_size": 64}),
    ("googlenet", 64, {"init_weights": False, "aux_logits": False}),
):
    add_program(
        _titled("torchvision", name),
        "torchvision",
        _torchvision,
        name,
        size,
        arguments,
        quick=name == "mobilenet_v3_small",
    )


@program("torchvision lraspp_mobilenet_v3_large", "torchvision")
def segmentation() -> Training:
    import torch
    import torchvision

    model = torchvision.models.segmentation.lraspp_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=5
    )
    images, labels = normal(2, 3, 64, 64), integers(2, 64, 64, below=5)
    return Training(model, lambda: torch.nn.functional.cross_entropy(model(images)["out"], labels))


@program("torchvision r3d_18", "torchvision")
def video() -> Training:
    import torchvision

    return _classifier(torchvision.models.video.r3d_18(weights=None, num_classes=CLASSES), normal(1, 3, 4, 32, 32))


@program(_titled("torchvision", "fasterrcnn_mobilenet_v3_large_320_fpn"), "torchvision")
def detection() -> Training:
    import torch
    import torchvision

    model = torchvision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(
        weights=None,
        weights_backbone=None,
        num_classes=5,
        # More than there are, so that none is chosen at random.
        box_batch_size_per_image=20000,
        rpn_batch_size_per_image=20000,
    ).double()
    images = [normal(3, 96, 96).double(), normal(3, 80, 112, seed=1).double()]
    boxes = torch.tensor([[4.0, 8.0, 40.0, 60.0], [30.0, 20.0, 70.0, 78.0]]).double()
    targets = [{"boxes": boxes, "labels": torch.tensor([1, 3])}] * 2
    return Training(model, lambda: sum(model(images, targets).values()))


@program("torchvision transforms v2", "torchvision", quick=True)
def transforms() -> Values:
    import torch
    from torchvision import tv_tensors
    from torchvision.transforms import v2

    image = tv_tensors.Image(integers(3, 96, 128, below=256).to(torch.uint8))
    boxes = tv_tensors.BoundingBoxes(torch.tensor([[4.0, 8.0, 40.0, 60.0]]), format="XYXY", canvas_size=(96, 128))
    pipeline = v2.Compose(
        [
            v2.Resize(64, antialias=True),
            v2.CenterCrop(56),
            v2.RandomHorizontalFlip(1.0),
            v2.Grayscale(3),
            v2.GaussianBlur(3, 1.0),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.5] * 3, [0.25] * 3),
        ]
    )
    return Values(lambda: [part.as_subclass(torch.Tensor) for part in pipeline(image, boxes)])


@program("torchvision ops", "torchvision", quick=True)
def operations() -> Values:
    import torch
    from torchvision import ops

    corners = normal(60, 2).abs() * 20
    boxes = torch.cat([corners, corners + normal(60, 2, seed=1).abs() * 10 + 1], 1)
    scores, features = normal(60, seed=2), normal(1, 8, 32, 32, seed=3)

    def compute() -> Any:
        kept = ops.nms(boxes, scores, 0.5)
        regions = torch.cat([torch.zeros(len(kept), 1), boxes[kept]], 1)
        return {
            "nms": kept,
            "batched_nms": ops.batched_nms(boxes, scores, (scores > 0).long(), 0.5),
            "roi_align": ops.roi_align(features, regions, (3, 3), 0.5),
            "box_iou": ops.box_iou(boxes, boxes),
            "giou": ops.generalized_box_iou_loss(boxes, boxes.flip(0)),
            "focal": ops.sigmoid_focal_loss(scores, (scores > 0).float()),
        }

    return Values(compute)


@program("torchvision FakeData with two workers", "torchvision")
def fake_data() -> Values:
    import torch
    from torchvision import datasets
    from torchvision.transforms import v2

    to_tensor = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])

    class Counting(datasets.FakeData):
        """Images that follow from their index alone, since PyTorch's random numbers are its own."""

        def __getitem__(self, index: int) -> Any:
            from PIL import Image

            return to_tensor(Image.new("RGB", (32, 32), (index, 2 * index, 3 * index))), index % CLASSES

    def compute() -> Any:
        loader = torch.utils.data.DataLoader(Counting(size=64), batch_size=16, num_workers=2)
        return [(images.mean((2, 3)), labels) for images, labels in loader]

    return Values(compute)


def _timm(name: str, arguments: dict[str, Any]) -> Training:
    import timm

    model, images = timm.create_model(name, pretrained=False, num_classes=CLASSES, **arguments), normal(4, 3, 64, 64)
    return _classifier(model.double(), images.double()) if name in DOUBLE else _classifier(model, images)


for name, arguments in (
    ("resnet10t", {}),
    ("vit_tiny_patch16_224", {"img_size": 64}),
    ("deit_tiny_patch16_224", {"img_size": 64}),
    ("convnext_atto", {}),
    ("efficientnet_lite0", {}),
    ("mobilenetv4_conv_small", {}),
    ("swin_tiny_patch4_window7_224", {"img_size": 64, "window_size": 4}),
    ("mixer_s32_224", {"img_size": 64}),
    ("regnetx_002", {}),
):
    add_program(_titled("timm", name), "timm", _timm, name, arguments, quick=name == "resnet10t")


def _segments(kind: str) -> Training:
    import segmentation_models_pytorch
    import torch

    # In float64, as the models of `DOUBLE`.
    model = getattr(segmentation_models_pytorch, kind)("resnet18", encoder_weights=None, classes=3).double()
    images, labels = normal(2, 3, 64, 64).double(), integers(2, 64, 64, below=3)
    dice = segmentation_models_pytorch.losses.DiceLoss("multiclass")

    def loss() -> Any:
        outputs = model(images)
        return torch.nn.functional.cross_entropy(outputs, labels) + dice(outputs, labels), outputs

    return Training(model, loss)


for kind in ("Unet", "FPN", "DeepLabV3Plus"):
    add_program(
        f"segmentation_models {kind} in float64",
        "segmentation_models_pytorch",
        _segments,
        kind,
        distribution="segmentation-models-pytorch",
    )


@program("vit-pytorch ViT", "vit_pytorch", "vit-pytorch")
def vit() -> Training:
    import vit_pytorch

    model = vit_pytorch.ViT(image_size=64, patch_size=8, num_classes=CLASSES, dim=128, depth=4, heads=4, mlp_dim=256)
    return _classifier(model, normal(8, 3, 64, 64))


@program("vit-pytorch SimpleViT", "vit_pytorch", "vit-pytorch")
def simple_vit() -> Training:
    import vit_pytorch

    model = vit_pytorch.SimpleViT(
        image_size=64, patch_size=8, num_classes=CLASSES, dim=128, depth=4, heads=4, mlp_dim=256
    )
    return _classifier(model, normal(8, 3, 64, 64))


@program("kornia filters and geometry", "kornia")
def filters() -> Values:
    import kornia
    import torch

    images = normal(2, 3, 48, 64).sigmoid()

    def compute() -> Any:
        x = images.clone().requires_grad_()
        results = {
            "blur": kornia.filters.gaussian_blur2d(x, (5, 5), (1.5, 1.5)),
            "sobel": kornia.filters.sobel(x),
            "canny": kornia.filters.canny(x)[0],
            "hsv": kornia.color.rgb_to_hsv(x),
            "lab": kornia.color.rgb_to_lab(x),
            "rotated": kornia.geometry.rotate(x, torch.tensor([20.0, -35.0])),
            "warped": kornia.geometry.warp_perspective(x, torch.eye(3).repeat(2, 1, 1), (40, 40)),
            "ssim": kornia.metrics.ssim(x, x.flip(0), 5),
        }
        sum(value.mean() for value in results.values()).backward()
        return results | {"gradient": x.grad}

    return Values(compute)
