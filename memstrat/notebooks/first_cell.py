# @title First cell: find memstrat, or install it (an installed torch stays as it is)
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

REPOSITORY, REF, LANGUAGE = "OWNER/memstrat", "main", "en"


def say(en, zh):
    return zh if LANGUAGE == "zh" else en


def platform_name():
    """Where this kernel runs: colab, modelscope or jupyter."""
    if "google.colab" in sys.modules or "COLAB_RELEASE_TAG" in os.environ:
        return "colab"
    return "modelscope" if Path("/mnt/workspace").is_dir() or "MODELSCOPE_ENVIRONMENT" in os.environ else "jupyter"


def has_module(name):
    importlib.invalidate_caches()
    return importlib.util.find_spec(name) is not None


def find_source(here):
    """What pip is given: the checkout around this notebook, else an archive of its repository."""
    for folder in (here, *here.parents):
        if (folder / "memstrat" / "__init__.py").is_file() and (folder / "pyproject.toml").is_file():
            return str(folder)
    if REPOSITORY.startswith("OWNER/"):
        raise RuntimeError(say(
            "memstrat: must be installed, or this notebook must lie in its checkout; got neither, and this copy "
            "does not know its repository. Open the notebook from a checkout of memstrat.",
            "没有找到 memstrat：当前环境没有安装，本笔记本也不在它的代码仓库里，而这份副本又不知道仓库地址。"
            "请从 memstrat 的代码仓库里打开本笔记本。"))
    return f"https://github.com/{REPOSITORY}/archive/{REF}.zip"


def pip_install(*arguments):
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or [""]
        raise RuntimeError(say(
            f"{arguments[-1]}: must be reachable for pip, got: {reason[0]} Check the network (or pip's index-url "
            "for a mirror) and run this cell again; offline, open the notebook from a checkout of memstrat in an "
            "environment where `pip install .` was run.",
            f"pip 装不上 {arguments[-1]}：{reason[0]} 请检查网络（或在 pip 的 index-url 里换一个镜像）后重新运行。"
            "离线时，请在已经执行过 `pip install .` 的环境里，从 memstrat 的代码仓库打开本笔记本。"))


def missing_requirements():
    """What memstrat needs and this environment lacks; never torch."""
    missing = []
    for requirement in importlib.metadata.requires("memstrat") or []:
        name = re.match(r"[A-Za-z0-9_.-]+", requirement)[0]
        if "extra ==" not in requirement and name != "torch":
            try:
                importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                missing.append(requirement)
    return missing


def ensure_memstrat(here):
    """Make `import memstrat` work in this kernel and say what was done."""
    if sys.version_info < (3, 11):  # noqa: UP036 (this runs before pip could refuse)
        raise RuntimeError(say("Python: must be 3.11 to 3.13, got an older one. Choose a newer image or kernel.",
                               "需要 Python 3.11 到 3.13，当前版本太旧。请换一个较新的镜像或内核。"))
    os.environ["MEMSTRAT_LANGUAGE"] = LANGUAGE
    done = say("found", "已就绪")
    if not has_module("memstrat"):
        source = find_source(here)
        if has_module("torch"):
            pip_install("--no-deps", source)
            missing = missing_requirements()
            if missing:
                pip_install(*missing)
        else:
            pip_install(source)
        done = say("installed", "安装完成")
    version = importlib.metadata.version
    return f"memstrat {version('memstrat')} {done} · torch {version('torch')} · {platform_name()}"
