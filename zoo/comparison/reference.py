"""The reference: `transformers` in float32 on a CPU, with one block's weights in memory at a time.

The model is built without weights. Each block, and each other part that has weights of its own, gets them from the
checkpoint when it is called, by transformers' own renaming and conversion, and loses them afterwards. What its parts
return is recorded on the way; which part is the like of which of ours follows from the family's layout table.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from zoo.converters.family import family_of
from zoo.converters.hf_dir import open_hf_directory
from zoo.converters.load import load_parameters
from zoo.converters.plan import plan_conversion
from zoo.models.errors import ZooError

from .recording import IMPLEMENTATION, arranged, record, recorded, register_attention, to_numpy
from .side import Floats, Stage, Tokens

# The parameter, within a block, whose owner's output a value is; the first that a network has counts.
OWNERS: Mapping[str, tuple[str, ...]] = {
    "attn_norm": ("attn_norm.scale",),
    "attn_post_norm": ("attn_post_norm.scale",),
    "mlp_norm": ("mlp_norm.scale",),
    "mlp_post_norm": ("mlp_post_norm.scale",),
    "q": ("attn.q.kernel", "attn.q_up.kernel"),
    "k": ("attn.k.kernel",),
    "v": ("attn.v.kernel",),
    "q_norm": ("attn.q_norm.scale",),
    "k_norm": ("attn.k_norm.scale",),
    "q_latent": ("attn.q_norm.scale",),
    "kv_latent": ("attn.kv_norm.scale",),
    "gate": ("mlp.gate.kernel", "mlp.shared.gate.kernel"),
    "up": ("mlp.up.kernel", "mlp.shared.up.kernel"),
    "router": ("mlp.router.kernel", "beside.mlp.router.kernel"),
}
# Values that a part as a whole returns, by where its parameters begin.
PARTS = {"attn": "attn.", "mlp": "mlp."}
# Bytes of a large tensor that are read at a time.
READ_BYTES = 16 << 20


def need_torch() -> None:
    """Says what to install where the reference cannot run."""
    # Found, not imported: it takes as much memory as a small model.
    if find_spec("torch") is None or find_spec("safetensors") is None:
        raise ZooError(
            "comparing with transformers needs torch, which is not installed: pip install 'zoo-jax[parity]', "
            "or compare with another model by --against STORE"
        )


class Reference:
    """A Hugging Face directory, run by `transformers`."""

    def __init__(self, folder: Path):
        need_torch()
        os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
        import torch
        import transformers
        from transformers import AutoConfig, AutoModelForCausalLM

        transformers.utils.logging.disable_progress_bar()
        transformers.utils.logging.set_verbosity_error()
        register_attention()
        self._directory = open_hf_directory(folder)
        self._family = family_of(self._directory.config, str(folder / "config.json"))
        self._plan = plan_conversion(self._family, self._directory.config, self._directory)
        self._bindings = {native: binding for binding in self._plan.bindings for native in binding.natives}
        try:
            config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            with torch.device("meta"):
                model = AutoModelForCausalLM.from_config(
                    config, attn_implementation=IMPLEMENTATION, dtype=torch.float32, trust_remote_code=False
                )
        except Exception as error:  # the library raises what its many parts raise
            raise ZooError(f"{folder}: transformers cannot build the model: {type(error).__name__}: {error}") from error
        self._model: Any = model.eval().requires_grad_(False)
        _make_buffers(self._model)
        self._vocab: int = config.get_text_config().vocab_size
        self._embed: int = config.get_text_config().hidden_size
        self._targets = self._renamed()
        self._block_path, self._units = self._divide()
        # The part with the blocks; all of the model but its head.
        self._base_name = self._block_path.split(".")[0]
        self._base: Any = self._model.get_submodule(self._base_name)
        self.description = f"transformers {transformers.__version__}, float32: {folder}"

    @property
    def vocab(self) -> int:
        return self._vocab

    @property
    def blocks(self) -> int:
        return len(self._model.get_submodule(self._block_path))

    @property
    def embed(self) -> int:
        return self._embed

    def run(self, tokens: Tokens, watch: Callable[[Stage], None]) -> Floats:
        """See `Side`; documents begin at the left of their rows."""
        import torch

        ids, positions = (torch.from_numpy(array.astype(np.int64)) for array in (tokens.ids, tokens.positions))
        with torch.no_grad(), self._watched(watch):
            output = self._base(input_ids=ids, position_ids=positions, use_cache=False)
        self._last = output
        return to_numpy(output[0])

    def logits(self, hidden: Floats) -> Floats:
        """See `Side`: everything that the model does after its last block and the norm that follows it."""
        import torch

        self._fill("")
        output = type(self._last)(last_hidden_state=torch.from_numpy(np.ascontiguousarray(hidden)))
        ids = torch.zeros(hidden.shape[:2], dtype=torch.long)
        forward = self._base.forward
        try:
            self._base.forward = lambda *_, **__: output
            with torch.no_grad():
                return to_numpy(self._model(input_ids=ids, use_cache=False).logits)
        finally:
            self._base.forward = forward

    def named(self, path: str) -> tuple[str | None, str | None]:
        """See `Side`."""
        binding = self._bindings.get(path)
        if binding is None:
            return None, None
        pattern = binding.row.patterns[binding.natives.index(path)]
        return binding.sources[0] if len(binding.sources) == 1 else binding.row.source, pattern

    def parameter(self, path: str) -> Floats | None:
        """See `Side`; by our own table, so that it says whether bytes are the same and nothing more."""
        if path not in self._bindings:
            return None
        return np.asarray(load_parameters(self._plan, self._directory, None, None, [path])[path], np.float32)

    def close(self) -> None:
        self._empty("")

    # ------------------------------------------------------------------------------------------------- weights

    def _renamed(self) -> dict[str, str]:
        """What transformers calls each tensor of the checkpoint once it is loaded."""
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

        self._conversions: list[Any] = list(get_model_conversion_mapping(self._model))
        renamings = [entry for entry in self._conversions if isinstance(entry, WeightRenaming)]
        converters = [entry for entry in self._conversions if isinstance(entry, WeightConverter)]
        state: Any = self._model.state_dict()
        prefix = self._model.base_model_prefix
        result: dict[str, str] = {}
        for name in self._directory.headers:
            target, _ = rename_source_key(name, renamings, converters, prefix, state)
            if target not in state and name in state:
                target = name
            result[name] = target
        return result

    def _divide(self) -> tuple[str, dict[str, list[str]]]:
        """Where the blocks are, and the checkpoint's tensors by the part that they belong to, a block or another."""
        natives = {native: binding.sources[0] for binding in self._plan.bindings for native in binding.natives}
        first = next(self._targets[source] for native, source in natives.items() if native.startswith("layers.0."))
        path = first.split(".0.")[0]
        units: dict[str, list[str]] = defaultdict(list)
        for name, target in self._targets.items():
            if target.startswith(path + "."):
                units[".".join(target.split(".")[: path.count(".") + 2])].append(name)
            else:
                units[target.rpartition(".")[0]].append(name)
        return path, dict(units)

    def _fill(self, unit: str) -> None:
        """Gives a part its weights; all that come after the blocks where none is named."""
        import torch
        from transformers.core_model_loading import convert_and_load_state_dict_in_model
        from transformers.modeling_utils import LoadStateDictConfig

        wanted = [unit] if unit else self._after_blocks()
        for part in wanted:
            module = self._model.get_submodule(part)
            if not any(weight.is_meta for weight in _weights(module).values()):
                continue
            tied = None if part in self._units else self._tied(part)
            if tied:
                weight = _parameter(self._float(tied))
                for owner, name in _owners(module):
                    owner._parameters[name] = weight
            else:
                config = LoadStateDictConfig(dtype=torch.float32, weight_mapping=list(self._conversions))
                with self._tensors(self._units.get(part, ())) as sources:
                    convert_and_load_state_dict_in_model(self._model, sources, config)
            empty = [name for name, weight in _weights(module).items() if weight.is_meta]
            if empty:
                raise ZooError(
                    f"{self._directory.path}: transformers finds no tensors for "
                    + ", ".join(f"{part}.{name}" for name in empty[:3])
                )

    def _after_blocks(self) -> list[str]:
        """Parts of the whole model that are none of its base: the head."""
        inside = self._base_name + "."
        return [
            name
            for name, module in self._model.named_modules()
            if name and not (name + ".").startswith(inside) and next(_owners(module, recurse=False), None)
        ]

    def _before_blocks(self) -> list[str]:
        """Parts that some models read without calling them: those of the language model's base outside of blocks."""
        text = self._block_path.rpartition(".")[0] + "."
        return [part for part in self._units if part.startswith(text) and not part.startswith(self._block_path + ".")]

    def _tied(self, part: str) -> str | None:
        """The tensor of the checkpoint that a part without any shares."""
        sources = {target: name for name, target in self._targets.items()}
        for target, source in self._model.all_tied_weights_keys.items():
            if target.rpartition(".")[0] == part:
                return sources.get(source)
        return None

    @contextmanager
    def _tensors(self, names: Iterable[str]) -> Generator[dict[str, Any]]:
        """Tensors of the checkpoint, to be read while the context lasts: pages of an open file count as memory."""
        from safetensors import safe_open

        with ExitStack() as stack:
            paths = {name: self._directory.where(name) for name in names}
            files = {path: stack.enter_context(safe_open(path, framework="pt")) for path in set(paths.values())}
            yield {name: files[path].get_slice(name) for name, path in paths.items()}

    def _float(self, name: str) -> Any:
        """A tensor of the checkpoint in float32, read by parts, so that it is never there in two forms."""
        import torch

        with self._tensors([name]) as sources:
            shape = sources[name].get_shape()
        result = torch.empty(shape, dtype=torch.float32)
        step = max(1, READ_BYTES * shape[0] // max(1, 4 * result.numel()))
        for start in range(0, shape[0], step):
            # Opened anew, since pages of an open file count as memory.
            with self._tensors([name]) as sources:
                result[start : start + step] = sources[name][start : start + step]
        return result

    def _empty(self, unit: str) -> None:
        """Takes a part's weights away again."""
        for owner, name in list(_owners(self._model.get_submodule(unit))):
            held = owner._parameters if name in owner._parameters else owner._buffers
            weight = held[name]
            held[name] = _parameter(weight.to("meta")) if held is owner._parameters else weight.to("meta")

    # ------------------------------------------------------------------------------------------------ watching

    @contextmanager
    def _watched(self, watch: Callable[[Stage], None]) -> Generator[None]:
        """Within it, parts are given their weights as they are called, and blocks are watched."""
        handles: list[Any] = []
        blocks = {f"{self._block_path}.{i}": i for i in range(self.blocks)}

        for name, module in self._model.named_modules():
            if name in blocks:
                before, after = self._of_block(blocks[name], name, watch)
                handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
                handles.append(module.register_forward_hook(after, with_kwargs=True))
                handles += self._recorders(blocks[name])
            elif not name.startswith(self._block_path + ".") and next(_owners(module, recurse=False), None):
                handles.append(module.register_forward_pre_hook(lambda *_, unit=name: self._fill(unit)))
        token = recorded.set({})
        for part in self._before_blocks():
            self._fill(part)
        try:
            yield
        finally:
            recorded.reset(token)
            for handle in handles:
                handle.remove()
            self._empty(self._base_name)

    def _of_block(
        self, index: int, unit: str, watch: Callable[[Stage], None]
    ) -> tuple[Callable[..., None], Callable[..., None]]:
        """What happens before and after a block: weights come and go, and the block is watched."""
        inputs: list[Floats] = []

        def before(_: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
            hidden = to_numpy(args[0] if args else kwargs["hidden_states"])
            if index == 0:
                watch(Stage(None, None, hidden, {}))
                for part in self._before_blocks():
                    self._empty(part)
            inputs.append(hidden)
            recorded.get().clear()
            self._fill(unit)

        def after(_: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
            self._empty(unit)
            hidden = to_numpy(output[0] if isinstance(output, tuple) else output)
            batch = hidden.shape[:2]
            every = {name: arranged(value, *batch) for name, value in recorded.get().items()}
            values = {name: value for name, value in every.items() if value is not None}
            watch(Stage(index, inputs.pop(), hidden, values))

        return before, after

    def _recorders(self, index: int) -> list[Any]:
        """Hooks that record what the parts of a block return."""
        handles: list[Any] = []
        for name, path in self._parts_of(index).items():
            handles.append(self._model.get_submodule(path).register_forward_hook(partial(record, name)))
        return handles

    def _parts_of(self, index: int) -> dict[str, str]:
        """The modules of transformers whose outputs are our values."""
        prefix = f"layers.{index}."
        single: dict[str, str] = {}
        every: dict[str, list[str]] = defaultdict(list)
        for binding in self._plan.bindings:
            for native in binding.natives:
                if not native.startswith(prefix):
                    continue
                inner = native.removeprefix(prefix)
                every[inner.split(".")[0]] += [self._targets[source] for source in binding.sources]
                if len(binding.natives) == len(binding.sources) == 1:
                    single[inner] = self._targets[binding.sources[0]].rpartition(".")[0]
        modules = dict(self._model.named_modules())
        block = f"{self._block_path}.{index}"
        found = {name: next((single[path] for path in paths if path in single), "") for name, paths in OWNERS.items()}
        found |= {name: _common_parent(every[part.rstrip(".")]) for name, part in PARTS.items()}
        if "beside" in every:
            # What follows is their sum, which no module of transformers returns.
            del found["mlp"]
        return {name: path for name, path in found.items() if path in modules and path.startswith(block + ".")}


def _make_buffers(model: Any) -> None:
    """Fills the buffers that no checkpoint has, such as rotary frequencies, as transformers does after loading."""
    import torch

    for name, buffer in model.named_non_persistent_buffers():
        owner, _, last = name.rpartition(".")
        model.get_submodule(owner)._buffers[last] = torch.empty_like(buffer, device="cpu")
    model.initialize_weights()


def _weights(module: Any) -> dict[str, Any]:
    """The parameters and saved buffers in a module, by name."""
    return dict(module.state_dict(keep_vars=True))


def _owners(module: Any, recurse: bool = True) -> Iterator[tuple[Any, str]]:
    """Every module in this one, or this one alone, with the names of its own parameters and saved buffers."""
    for owner in module.modules() if recurse else [module]:
        for name, parameter in owner._parameters.items():
            if parameter is not None:
                yield owner, name
        for name, buffer in owner._buffers.items():
            if buffer is not None and name not in owner._non_persistent_buffers_set:
                yield owner, name


def _parameter(weight: Any) -> Any:
    import torch

    return torch.nn.Parameter(weight, requires_grad=False)


def _common_parent(names: Iterable[str]) -> str:
    """The module that all of these parameters are in."""
    split = [name.split(".")[:-1] for name in names]
    if not split:
        return ""
    length = next(
        (index for index, parts in enumerate(zip(*split, strict=False)) if len(set(parts)) > 1),
        min(map(len, split)),
    )
    return ".".join(split[0][:length])
