"""Where model and data come from: a folder, a hub's cache, a hub, or a bundled config.

`locate_model` and `find_problems` answer without loading weights, so that a stage can refuse
first. `build_model` and `make_inputs` do the work.

Does not cover models whose code lies in their repository (custom code is never run), or
quantised weights.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import huggingface_hub
import torch
from huggingface_hub.constants import HF_HUB_OFFLINE
from huggingface_hub.errors import HFValidationError
from safetensors import SafetensorError, safe_open
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PretrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.utils import logging as transformers_logging

from memstrat.errors import DataError, ModelError
from memstrat.experiment import WEIGHT_FILES
from memstrat.workload import Workload, find_in_checkout

_CONFIGS = Path(__file__).parent / "configs"
BUNDLED_CONFIGS: dict[str, Path] = {
    "memstrat/tiny-qwen2": _CONFIGS / "tiny-qwen2.json",
    "Qwen/Qwen2.5-0.5B-Instruct": _CONFIGS / "qwen2.5-0.5b-instruct.json",
}
_UNPUBLISHED = ("memstrat/tiny-qwen2",)
_TOKENIZERS = ("tokenizer*", "*.model", "vocab.*", "merges.txt", "special_tokens_map.json", "added_tokens.json")
_KERNELS = {"math": SDPBackend.MATH, "efficient": SDPBackend.EFFICIENT_ATTENTION,
            "flash": SDPBackend.FLASH_ATTENTION}

Place = Literal["bundled", "local", "huggingface", "modelscope"]


@dataclass(frozen=True)
class ModelLocation:
    """What would be loaded for a workload, and whether it is there. Nothing was loaded to tell."""

    model_id: str
    weights: str
    place: Place
    path: Path | None
    """Folder, or config file, on this machine; None while it would have to be downloaded."""
    problems: tuple[str, ...] = ()

    @property
    def needs_download(self) -> bool:
        return self.path is None and not self.problems

    @property
    def is_ready(self) -> bool:
        return self.path is not None and not self.problems

    def describe(self) -> str:
        """One line for people."""
        if self.problems:
            return self.problems[0]
        what = "config with seeded random weights" if self.weights == "random" else "pretrained weights"
        where = {"bundled": "bundled with memstrat", "local": str(self.path)}.get(
            self.place, f"{self.place} cache" if self.path else f"to be downloaded from {self.place}")
        return f"{self.model_id}: {what}, {where}"


def locate_model(workload: Workload) -> ModelLocation:
    """Find the workload's model: its path, a bundled config, a cache, else a hub it would come from.

    Looks at files only; no network. HF_HOME, HF_HUB_CACHE, HF_ENDPOINT and MODELSCOPE_CACHE are
    honoured. `problems` says what stands in the way; `find_problems` looks further.
    """
    def found(place: Place, path: Path | None, *problems: str) -> ModelLocation:
        return ModelLocation(workload.model_id, workload.weights, place, path, problems)

    if workload.model_path is not None:
        path = find_in_checkout(workload.model_path)
        return found("local", path, *_folder_problems(path, workload))
    if workload.weights == "random" and workload.model_id in BUNDLED_CONFIGS:
        return found("bundled", BUNDLED_CONFIGS[workload.model_id])
    if workload.model_id in _UNPUBLISHED:
        return found("bundled", None, f"weights: must be 'random' for {workload.model_id!r}, whose weights nobody "
                                      "publishes, got 'pretrained'. Use --weights random, or another --model.")
    if workload.model_source == "local":
        return found("local", None, f"model_path: must be a folder with a config.json where model_source is 'local', "
                                    f"got nothing for {workload.model_id!r}. Give --model FOLDER, or another "
                                    "--model-source.")
    sources = ("huggingface", "modelscope") if workload.model_source == "auto" else (workload.model_source,)
    for source in sources:
        folder = _cached_folder(source, workload)
        if folder is not None:
            return found(source, folder)
    if sources == ("modelscope",):
        missing = not importlib.util.find_spec("modelscope")
        return found("modelscope", None, *[
            "model_source: must be 'huggingface' or 'local' where the package modelscope is not installed, "
            "got 'modelscope'. Install it, or choose another --model-source."] * missing)
    offline = [f"model_id: must be in the local cache while HF_HUB_OFFLINE is set, got {workload.model_id!r}, which "
               "is not. Unset HF_HUB_OFFLINE, or give --model FOLDER."] * HF_HUB_OFFLINE
    return found("huggingface", None, *offline)


def load_config(workload: Workload) -> PretrainedConfig:
    """The model's config, downloaded if it has to be. Loads no weights.

    Raises:
        ModelError: if there is none, or transformers cannot build a causal language model from it.
    """
    location = locate_model(workload)
    return _read_config(_fetch(location, workload), workload)


def find_problems(workload: Workload) -> list[str]:
    """Everything that would stop `build_model` or `make_inputs`, as far as this machine's files tell.

    Loads neither weights nor anything from a network; a text is tokenised to count it.
    """
    location = locate_model(workload)
    if not location.is_ready:
        return list(location.problems)
    try:
        config = _read_config(location.path, workload)
        problems = _config_problems(config, workload)
        if workload.data != "random":
            _text_ids(workload, config, location.path)
    except (ModelError, DataError) as error:
        return [str(error)]
    return problems


def build_model(workload: Workload, device: str) -> nn.Module:
    """The model on the device: float32, train mode, cache off, attention as transformers picks it.

    Random weights are drawn on the device from the workload's seed.

    Raises:
        ModelError: if it cannot be found, built or trained at this length.
    """
    source = _fetch(locate_model(workload), workload)
    config = _read_config(source, workload)
    problems = _config_problems(config, workload)
    if problems:
        raise ModelError("\n".join(problems))
    torch.manual_seed(workload.seed)
    if workload.weights == "random":
        with torch.device(device):
            model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    else:
        model = _load_pretrained(source if source.is_dir() else source.parent, config, workload).to(device)
    model.config.use_cache = False
    return model.float().train()


def make_inputs(workload: Workload, config: PretrainedConfig, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Training ids and eval ids, each (micro-batch, sequence). Labels are the ids themselves.

    Random ids come from one CPU generator seeded with seed + length, so every device sees the
    same. A text is cut from its beginning: first the training ids, then the eval ids.

    Raises:
        DataError: if the text is too short, not UTF-8, or has no tokenizer.
    """
    shape = (workload.micro_batch, workload.seq_len)
    if workload.data == "random":
        generator = torch.Generator("cpu").manual_seed(workload.seed + workload.seq_len)
        vocab_size = config.get_text_config().vocab_size
        train_ids, eval_ids = (torch.randint(0, vocab_size, shape, generator=generator) for _ in range(2))
    else:
        ids = _text_ids(workload, config, _fetch(locate_model(workload), workload))
        train_ids, eval_ids = ids.view(2, *shape)
    return train_ids.to(device), eval_ids.to(device)


def attention_context(workload: Workload) -> AbstractContextManager[Any]:
    """The context that holds scaled-dot-product attention to the workload's kernel; `auto` leaves it alone."""
    return nullcontext() if workload.attention == "auto" else sdpa_kernel(_KERNELS[workload.attention])


def check_attention(workload: Workload, config: PretrainedConfig, device: str) -> None:
    """Run the workload's attention kernel once on a few tokens of the model's head size; `auto` always passes.

    Cheap, so it comes before a model is loaded. Does not cover masks and grouped queries, which
    a kernel may refuse too (see `explain_kernel_error`).

    Raises:
        ModelError: if the kernel does not run on this device with this dtype and head size.
    """
    if workload.attention == "auto":
        return
    text = config.get_text_config()
    head_size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    dtype = torch.bfloat16 if workload.dtype_mode == "bf16" else torch.float32
    query = torch.zeros(1, 2, 16, head_size, device=device, dtype=dtype, requires_grad=True)
    try:
        with attention_context(workload):
            nn.functional.scaled_dot_product_attention(query, query, query, is_causal=True).sum().backward()
    except RuntimeError as error:
        raise _kernel_error(workload, error, f"on {device} in {dtype} with head size {head_size}") from None


def explain_kernel_error(workload: Workload, error: RuntimeError) -> Exception:
    """A refusal of the workload's attention kernel as a `ModelError`; any other error as it is."""
    is_refusal = workload.attention != "auto" and any(
        text in str(error) for text in ("No available kernel", "No viable backend"))
    return _kernel_error(workload, error, "in this model") if is_refusal else error


# -- inside ---------------------------------------------------------------------------------


def _kernel_error(workload: Workload, error: RuntimeError, where: str) -> ModelError:
    return ModelError(f"attention: must be a kernel that runs {where}, got {workload.attention!r}: "
                      f"{str(error).splitlines()[0].strip()} Choose --attention auto or math.")


def _folder_problems(path: Path, workload: Workload) -> list[str]:
    config = path / "config.json" if path.is_dir() else path
    if not config.is_file():
        return [f"model_path: must be a folder with a config.json, got {str(workload.model_path)!r} without one. "
                "Give --model the folder that save_pretrained wrote."]
    if workload.weights == "pretrained" and not _has_any(config.parent, WEIGHT_FILES):
        return [f"model_path: must hold weights (*.safetensors) with weights 'pretrained', got "
                f"{str(workload.model_path)!r} without any. Complete the folder, or use --weights random."]
    files = sorted(config.parent.glob("*.safetensors")) if workload.weights == "pretrained" else []
    return [f"model_path: must hold whole weights, got {file.name} with: {error}. Fetch the folder again."
            for file in files if (error := _header_error(file))]


def _header_error(file: Path) -> str | None:
    """What is wrong with a safetensors file's header or size; None if nothing is. Reads no tensor."""
    try:
        with safe_open(file, framework="pt"):
            return None
    except (OSError, ValueError, SafetensorError) as error:
        return _first_line(error)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _has_any(folder: Path, patterns: Iterable[str]) -> bool:
    return any(next(folder.glob(pattern), None) for pattern in patterns)


def _cached_folder(source: str, workload: Workload) -> Path | None:
    """The folder of a finished download, if it holds what this workload needs."""
    if source == "huggingface":
        try:
            config = huggingface_hub.try_to_load_from_cache(workload.model_id, "config.json")
        except HFValidationError:  # no name the hub could know; the attempt to fetch it will say so
            config = None
        folder = Path(config).parent if isinstance(config, str) else None
    else:
        root = Path(os.environ.get("MODELSCOPE_CACHE") or Path.home() / ".cache" / "modelscope" / "hub")
        # Newer versions of modelscope keep dots out of folder names, and models below models/.
        names = (workload.model_id, workload.model_id.replace(".", "___"))
        folders = [root / below / name for below in ("models", "") for name in names]
        folder = next((folder for folder in folders if (folder / "config.json").is_file()), None)
    if folder is None or (workload.weights == "pretrained" and not _has_any(folder, WEIGHT_FILES)):
        return None
    return folder if workload.data == "random" or _has_any(folder, _TOKENIZERS) else None


def _fetch(location: ModelLocation, workload: Workload) -> Path:
    """The folder or config file on this machine, after a download where one is needed."""
    if location.problems:
        raise ModelError("\n".join(location.problems))
    if location.path is not None:
        return location.path
    patterns = ["config.json"]
    if workload.data != "random":
        patterns += _TOKENIZERS
    if workload.weights == "pretrained":
        patterns += ["generation_config.json", "*.safetensors", "*.safetensors.index.json"]
    try:
        if location.place == "modelscope":
            from modelscope import snapshot_download
            return Path(snapshot_download(workload.model_id, allow_patterns=patterns))
        return Path(huggingface_hub.snapshot_download(workload.model_id, allow_patterns=patterns))
    except Exception as error:  # each hub has errors of its own, and all of them mean the same here
        raise ModelError(
            f"model_id: must be on this machine or within reach, got {workload.model_id!r}, which {location.place} "
            f"does not give: {_first_line(error)} Check the name and the network (HF_ENDPOINT names a mirror), "
            "or give --model FOLDER.") from error


def _read_config(source: Path, workload: Workload) -> PretrainedConfig:
    try:
        config = AutoConfig.from_pretrained(source)
    except Exception as error:  # whatever is wrong with the file, transformers stumbles over it in its own way
        raise ModelError(f"model: must have a config.json that transformers can read without custom code, got "
                         f"{workload.model_id!r} with: {_first_line(error)} "
                         "Choose a model of a type that transformers has.") from error
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ModelError(f"model: must be a causal language model, got model_type {config.model_type!r}. "
                         "Choose a model that AutoModelForCausalLM can build.")
    return config


def _config_problems(config: PretrainedConfig, workload: Workload) -> list[str]:
    model_class, problems = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)], []
    if {"checkpoint", "hybrid"} & set(workload.strategies) and not model_class.supports_gradient_checkpointing:
        problems.append(f"model: must support activation checkpointing, got {model_class.__name__} without it. "
                        "Choose another model, or --strategies baseline,offload.")
    longest = getattr(config.get_text_config(), "max_position_embeddings", None)
    if isinstance(longest, int) and 0 < longest < workload.seq_len:
        problems.append(f"seq_len: must be at most {longest} (the model's max_position_embeddings), got "
                        f"{workload.seq_len}. Choose a shorter length, in the ladder too.")
    if workload.attention != "auto" and not model_class._supports_sdpa:
        problems.append(f"attention: must be 'auto' for {model_class.__name__}, which does not use PyTorch's "
                        f"attention kernels, got {workload.attention!r}. Leave --attention out.")
    return problems


def _load_pretrained(folder: Path, config: PretrainedConfig, workload: Workload) -> nn.Module:
    transformers_logging.disable_progress_bar()
    try:
        model, info = AutoModelForCausalLM.from_pretrained(
            folder, config=config, dtype=torch.float32, output_loading_info=True)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"model: must have weights that transformers can load, got {workload.model_id!r} with: "
                         f"{_first_line(error)} Fetch the folder again.") from error
    if info["missing_keys"] or info.get("mismatched_keys"):
        # transformers would fill them with random numbers and only warn.
        broken = sorted(map(str, [*info["missing_keys"], *info.get("mismatched_keys", ())]))
        raise ModelError(f"model: must bring every weight of its config, got {workload.model_id!r} without "
                         f"{len(broken)}, such as {broken[0]}. Fetch the folder again.")
    return model


def _text_ids(workload: Workload, config: PretrainedConfig, source: Path) -> torch.Tensor:
    """The first 2 x micro-batch x length token ids of the workload's text."""
    needed = 2 * workload.micro_batch * workload.seq_len
    folder = source if source.is_dir() else source.parent
    if not _has_any(folder, _TOKENIZERS):
        raise DataError(f"data: must be 'random' for a model without a tokenizer, got {workload.data!r} with "
                        f"{workload.model_id!r}. Use --data random, or a folder that holds the tokenizer.")
    path = find_in_checkout(workload.data)
    try:
        raw = path.read_bytes()
        if hashlib.sha256(raw).hexdigest() != workload.data_sha256:
            raise DataError(f"data: must stay as it is while an experiment runs, got {path.name!r} with other content "
                            "than when this stage began. Restore it, or measure under another label.")
        text = raw.decode()
        tokenizer = AutoTokenizer.from_pretrained(folder)
        ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    except UnicodeDecodeError as error:
        raise DataError(f"data: must be a UTF-8 text, got {path.name!r} with: {error}. Convert it.") from None
    except DataError:
        raise
    except Exception as error:  # tokenizers raises bare exceptions
        raise DataError(f"data: must be a text that the model's tokenizer can read, got {path.name!r} with: "
                        f"{_first_line(error)} Check both files.") from error
    if len(ids) < needed:
        raise DataError(f"data: must hold at least {needed} tokens (2 x micro-batch x seq_len), got {len(ids)} in "
                        f"{path.name!r}. Use a longer text or a shorter --seq-len.")
    vocab_size = config.get_text_config().vocab_size
    if max(ids[:needed]) >= vocab_size:
        raise DataError(f"data: must give token ids below the model's vocabulary of {vocab_size}, got "
                        f"{max(ids[:needed])}. Use the tokenizer that belongs to the model.")
    return torch.tensor(ids[:needed])
