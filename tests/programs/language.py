"""Programs with models of text and sound, most of them by transformers."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tests.programs.catalogue import Training, Values, add_program, integers, normal, program

WORDS = 120
BATCH, LENGTH = 4, 24
SMALL = {
    "vocab_size": WORDS,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
GROUPED = SMALL | {"num_key_value_heads": 2}
# The configuration, the class of the model and the arguments of each causal model.
CAUSAL: dict[str, tuple[str, str, dict[str, Any]]] = {
    "GPT-2": (
        "GPT2Config",
        "GPT2LMHeadModel",
        {"vocab_size": WORDS, "n_positions": 64, "n_embd": 64, "n_layer": 2, "n_head": 4},
    ),
    "GPT-NeoX": ("GPTNeoXConfig", "GPTNeoXForCausalLM", SMALL),
    "OPT": ("OPTConfig", "OPTForCausalLM", SMALL | {"ffn_dim": 128, "word_embed_proj_dim": 64}),
    "Llama": ("LlamaConfig", "LlamaForCausalLM", GROUPED),
    "Mistral": ("MistralConfig", "MistralForCausalLM", GROUPED | {"sliding_window": 8}),
    "Mixtral": ("MixtralConfig", "MixtralForCausalLM", GROUPED | {"num_local_experts": 4}),
    "Qwen2": ("Qwen2Config", "Qwen2ForCausalLM", GROUPED),
    "Qwen3": ("Qwen3Config", "Qwen3ForCausalLM", GROUPED | {"head_dim": 16}),
    "Gemma 2": ("Gemma2Config", "Gemma2ForCausalLM", GROUPED | {"head_dim": 16}),
    "Phi": ("PhiConfig", "PhiForCausalLM", SMALL),
    "Mamba": (
        "MambaConfig",
        "MambaForCausalLM",
        {"vocab_size": WORDS, "hidden_size": 64, "num_hidden_layers": 2, "state_size": 8},
    ),
}
MASKED = {
    "BERT": ("BertConfig", "BertForMaskedLM"),
    "RoBERTa": ("RobertaConfig", "RobertaForMaskedLM"),
    "ELECTRA": ("ElectraConfig", "ElectraForMaskedLM"),
    "DeBERTa v2": ("DebertaV2Config", "DebertaV2ForMaskedLM"),
}


def _causal(kind: str) -> Any:
    """Makes a causal model with random weights."""
    import transformers

    configuration, model, arguments = CAUSAL[kind]
    ends = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return getattr(transformers, model)(getattr(transformers, configuration)(**arguments, **ends))


def _next_tokens(kind: str) -> Training:
    model, tokens = _causal(kind), integers(BATCH, LENGTH, below=WORDS)

    def loss() -> Any:
        found = model(input_ids=tokens, labels=tokens)
        return found.loss, found.logits

    return Training(model, loss)


for kind in CAUSAL:
    add_program(f"transformers {kind}", "transformers", _next_tokens, kind, quick=kind in ("GPT-2", "Llama"))


def _masked_tokens(kind: str) -> Training:
    import torch
    import transformers

    configuration, model = MASKED[kind]
    made = getattr(transformers, model)(getattr(transformers, configuration)(**SMALL))
    tokens, mask = integers(BATCH, LENGTH, below=WORDS), torch.ones(BATCH, LENGTH, dtype=torch.long)
    mask[0, 15:] = 0

    def loss() -> Any:
        found = made(input_ids=tokens, attention_mask=mask, labels=tokens)
        return found.loss, found.logits

    return Training(made, loss)


for kind in MASKED:
    add_program(f"transformers {kind}", "transformers", _masked_tokens, kind, quick=kind == "BERT")


@program("transformers T5", "transformers")
def t5() -> Training:
    import transformers

    configuration = transformers.T5Config(
        vocab_size=WORDS, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, decoder_start_token_id=0
    )
    model = transformers.T5ForConditionalGeneration(configuration)
    tokens = integers(BATCH, LENGTH, below=WORDS)
    return Training(model, lambda: model(input_ids=tokens, labels=tokens[:, :9].contiguous()).loss)


@program("transformers BART", "transformers")
def bart() -> Training:
    import transformers

    sizes = {
        f"{part}_{what}": size
        for part in ("encoder", "decoder")
        for what, size in (("layers", 2), ("ffn_dim", 128), ("attention_heads", 4))
    }
    configuration = transformers.BartConfig(vocab_size=WORDS, d_model=64, max_position_embeddings=64, **sizes)
    model = transformers.BartForConditionalGeneration(configuration)
    tokens = integers(BATCH, LENGTH, below=WORDS)
    return Training(model, lambda: model(input_ids=tokens, labels=tokens).loss)


@program("transformers ViT", "transformers")
def image_classes() -> Training:
    import transformers

    sizes = {name: size for name, size in SMALL.items() if name not in ("vocab_size", "max_position_embeddings")}
    configuration = transformers.ViTConfig(**sizes, image_size=32, patch_size=8, num_labels=10)
    model = transformers.ViTForImageClassification(configuration)
    images, labels = normal(BATCH, 3, 32, 32), integers(BATCH, below=10)
    return Training(model, lambda: model(pixel_values=images, labels=labels).loss)


@program("transformers CLIP", "transformers")
def clip() -> Training:
    import transformers

    sizes = {name: size for name, size in SMALL.items() if name != "vocab_size"}
    configuration = transformers.CLIPConfig(
        text_config=sizes | {"vocab_size": WORDS, "eos_token_id": 2},
        vision_config={name: size for name, size in sizes.items() if name != "max_position_embeddings"}
        | {"image_size": 32, "patch_size": 8},
        projection_dim=32,
    )
    model = transformers.CLIPModel(configuration)
    tokens, images = integers(BATCH, LENGTH, below=WORDS), normal(BATCH, 3, 32, 32)
    return Training(model, lambda: model(input_ids=tokens, pixel_values=images, return_loss=True).loss)


@program("transformers Whisper", "transformers")
def whisper() -> Training:
    import transformers

    sizes = {
        f"{part}_{what}": size
        for part in ("encoder", "decoder")
        for what, size in (("layers", 2), ("ffn_dim", 128), ("attention_heads", 4))
    }
    configuration = transformers.WhisperConfig(
        vocab_size=WORDS,
        d_model=64,
        num_mel_bins=16,
        max_source_positions=50,
        max_target_positions=32,
        decoder_start_token_id=1,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        **sizes,
    )
    model = transformers.WhisperForConditionalGeneration(configuration)
    sound, tokens = normal(2, 16, 100), integers(2, 12, below=WORDS)
    return Training(model, lambda: model(input_features=sound, labels=tokens).loss)


@program("transformers Whisper's features of a sound", "transformers")
def features_of_a_sound() -> Values:
    import numpy as np
    import transformers

    extractor, sound = transformers.WhisperFeatureExtractor(), np.sin(np.arange(16_000, dtype=np.float32) ** 1.2 / 9)
    return Values(lambda: extractor(sound, sampling_rate=16_000, return_tensors="pt").input_features)


@program("transformers generate", "transformers")
def generated() -> Values:
    import torch

    model, start = _causal("Llama").eval(), integers(2, 5, below=WORDS - 3) + 3
    mask = torch.ones_like(start)

    def compute() -> Any:
        greedy = model.generate(start, attention_mask=mask, max_new_tokens=12, do_sample=False)
        beams = model.generate(start, attention_mask=mask, max_new_tokens=8, num_beams=3, do_sample=False)
        return {"greedy": greedy, "beams": beams}

    return Values(compute, model)


@program("transformers Trainer", "transformers")
def trainer() -> Values:
    import transformers

    model, tokens = _causal("GPT-2"), integers(16, LENGTH, below=WORDS)
    rows = [{"input_ids": row, "labels": row} for row in tokens]
    weights: dict[str, Any] = {}

    def compute() -> Any:
        if not weights:
            weights.update({name: value.clone() for name, value in model.state_dict().items()})
        model.load_state_dict(weights)
        with tempfile.TemporaryDirectory() as folder:
            arguments = transformers.TrainingArguments(
                folder,
                num_train_epochs=2,
                per_device_train_batch_size=4,
                logging_steps=1,
                report_to=[],
                save_strategy="no",
                disable_tqdm=True,
                use_cpu=True,
                learning_rate=1e-3,
                train_sampling_strategy="sequential",
            )
            training = transformers.Trainer(model, arguments, train_dataset=rows)
            training.train()
        return [line["loss"] for line in training.state.log_history if "loss" in line]

    return Values(compute, model)


@program("transformers save_pretrained, from_pretrained", "transformers")
def saved() -> Values:
    import transformers

    model, tokens = _causal("Llama").eval(), integers(2, 8, below=WORDS)

    def compute() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            again = transformers.AutoModelForCausalLM.from_pretrained(folder)
        return again(tokens).logits

    return Values(compute, model)


@program("peft LoRA on GPT-2", "peft")
def lora() -> Training:
    import peft

    model = peft.get_peft_model(
        _causal("GPT-2"),
        peft.LoraConfig(r=4, lora_alpha=8, target_modules=["c_attn"], fan_in_fan_out=True, init_lora_weights=False),
    )
    tokens = integers(BATCH, LENGTH, below=WORDS)
    return Training(model, lambda: model(input_ids=tokens, labels=tokens).loss)


@program("peft IA3 on Llama", "peft")
def ia3() -> Training:
    import peft

    model = peft.get_peft_model(
        _causal("Llama"),
        peft.IA3Config(
            target_modules=["k_proj", "v_proj", "down_proj"], feedforward_modules=["down_proj"], init_ia3_weights=False
        ),
    )
    tokens = integers(BATCH, LENGTH, below=WORDS)
    return Training(model, lambda: model(input_ids=tokens, labels=tokens).loss)


@program("sentence-transformers with MultipleNegativesRankingLoss", "sentence_transformers", "sentence-transformers")
def sentences() -> Training:
    import sentence_transformers
    import transformers
    from sentence_transformers import losses, models

    with tempfile.TemporaryDirectory() as folder:
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{index}" for index in range(WORDS - 5))]
        Path(folder, "vocab.txt").write_text("\n".join(words))
        transformers.BertTokenizer(str(Path(folder, "vocab.txt"))).save_pretrained(folder)
        transformers.BertModel(transformers.BertConfig(**SMALL)).save_pretrained(folder)
        encoder = models.Transformer(folder, max_seq_length=32)
    model = sentence_transformers.SentenceTransformer(modules=[encoder, models.Pooling(64, "mean")], device="cpu")
    loss = losses.MultipleNegativesRankingLoss(model)
    texts = [" ".join(f"w{index}" for index in row) for row in integers(8, 10, below=WORDS - 5).tolist()]
    anchors, positives = model.tokenize(texts[:4]), model.tokenize(texts[4:])
    return Training(model, lambda: loss([dict(anchors), dict(positives)], None))
