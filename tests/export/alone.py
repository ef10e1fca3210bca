"""Run as a program, by `test_hub_folder.py`: loads exported folders where tape-arith cannot be
imported, and says how far what they compute is from what they should.

    python -I alone.py FOLDER_OF_CASES

A case is a folder NAME (what was exported) and NAME.safetensors: `tokens`, `mask`, `final_length`,
`key` and `logits` of right-padded rows, and `answers`, as greedy decoding gives them (PAD after the
end).
"""

import json
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any


class Blocked:
    """Refuse to import tape-arith, however it is installed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.split(".")[0] == "tape_arith":
            raise ModuleNotFoundError(f"No module named '{name}'")


def greedy(model: Any, tokens: Any, mask: Any, final_length: Any, **keys: Any) -> list[Any]:
    """Return what comes after the prompt of each row, as far as its answer may go."""
    generated = model.generate(input_ids=tokens, attention_mask=mask, **keys)
    room = final_length - mask.sum(1)
    rows = [
        row[tokens.shape[1] :][:most].tolist() for row, most in zip(generated, room, strict=True)
    ]
    return [row[: row.index(3) + 1] if 3 in row else row for row in rows]


def left_padded(values: Any, mask: Any) -> Any:
    """Right-padded rows, or anything laid out like them, as left-padded ones."""
    import torch

    order = (torch.arange(mask.shape[1]) + mask.sum(1, keepdim=True)) % mask.shape[1]
    if values.ndim == 3:
        order = order[..., None].expand(-1, -1, values.shape[-1])
    return values.gather(1, order)


def check(folder: Path) -> dict[str, Any]:
    import torch
    from safetensors.torch import load_file

    case = load_file(f"{folder}.safetensors")
    transformers = import_module("transformers")
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, trust_remote_code=True, output_loading_info=True
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    names = ("tokens", "mask", "key", "prompts", "logits", "final_length")
    tokens, mask, key, prompts, logits, final_length = (case[name] for name in names)
    left_mask, labels = left_padded(mask, mask), tokens.masked_fill(mask == 0, -100)
    longest = int(prompts.max())
    prompt_mask = (torch.arange(tokens.shape[1]) < prompts[:, None]).to(mask.dtype)
    padded = left_padded(tokens * prompt_mask, prompt_mask), left_padded(prompt_mask, prompt_mask)
    rows = padded[0][:, -longest:], padded[1][:, -longest:]
    first = tokens[:1, : int(prompts[0])], prompt_mask[:1, : int(prompts[0])], final_length[:1]

    def furthest(actual: Any, expected: Any, mask: Any) -> float:
        return float((actual - expected)[mask.bool()].abs().max())

    with torch.no_grad():
        right = model(tokens, attention_mask=mask, key=key, labels=labels)
        left = model(left_padded(tokens, mask), attention_mask=left_mask, key=key).logits
        given = model(tokens, attention_mask=mask, key=key, final_length=final_length).logits
        together = greedy(model, *rows, final_length, key=key)
        cached = greedy(model, *rows, final_length, key=key, use_cache=True)
        without_keys = greedy(model, *rows, final_length)  # of keys made from prompts
        alone = greedy(model, *first)
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    answers = [[t for t in row if t >= 0] for row in case["answers"].tolist()]
    text, ids = tokenizer.decode(tokens[0][mask[0].bool()]), tokens[0][mask[0].bool()].tolist()
    special = [getattr(tokenizer, f"{name}_token_id") for name in ("pad", "unk", "bos", "eos")]
    return {
        "right": furthest(right.logits, logits, mask),
        "left": furthest(left, left_padded(logits, mask), left_mask),
        "given": furthest(given, logits, mask),
        "loss": abs(float(right.loss) - float(loss)),
        "answers": together == answers,
        "cached": cached == answers,
        "alone": alone[0] == without_keys[0],
        "missing": sorted(map(str, [*info["missing_keys"], *info["unexpected_keys"]])),
        "encoding": model.config.encoding,
        "text": text,
        "again": tokenizer(text)["input_ids"] == ids,
        "special": [*special, tokenizer("?")["input_ids"][0], len(tokenizer)],
        "imported": [name for name in sys.modules if name.split(".")[0] == "tape_arith"],
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.meta_path.insert(0, Blocked())
    cases = sorted(path for path in Path(sys.argv[1]).iterdir() if path.is_dir())
    print(json.dumps({case.name: check(case) for case in cases}))
