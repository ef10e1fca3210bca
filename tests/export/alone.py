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

BLOCKED = ("tape_arith",)


class Blocked:
    """Nothing of tape-arith is here, however it is installed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.split(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named '{name}'")


def greedy(model: Any, tokens: Any, mask: Any, case: dict[str, Any], **keys: Any) -> list[Any]:
    """Of each row what comes after its prompt, as far as its answer may go."""
    generated = model.generate(input_ids=tokens, attention_mask=mask, **keys)
    room = case["final_length"] - mask.sum(1)
    rows = [
        row[tokens.shape[1] :][:most].tolist() for row, most in zip(generated, room, strict=True)
    ]
    return [row[: row.index(3) + 1] if 3 in row else row for row in rows]


def left_padded(tokens: Any, mask: Any, values: Any) -> Any:
    """Right-padded rows as left-padded ones, or anything laid out like them."""
    import torch

    width = tokens.shape[1]
    order = (torch.arange(width) + mask.sum(1, keepdim=True)) % width
    return (
        values.gather(1, order)
        if values.ndim == 2
        else values.gather(1, order[..., None].expand(-1, -1, values.shape[-1]))
    )


def check(folder: Path) -> dict[str, Any]:
    import torch
    from safetensors.torch import load_file

    case = load_file(f"{folder}.safetensors")
    transformers = import_module("transformers")
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, trust_remote_code=True, output_loading_info=True
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    tokens, mask, key = case["tokens"], case["mask"], case["key"]
    left, left_mask = left_padded(tokens, mask, tokens), left_padded(tokens, mask, mask)

    def furthest(logits: Any, expected: Any, where: Any) -> float:
        return float((logits - expected)[where.bool()].abs().max())

    with torch.no_grad():
        right = model(tokens, attention_mask=mask, key=key).logits
        by_left = model(left, attention_mask=left_mask, key=key).logits
        given = model(tokens, attention_mask=mask, key=key, final_length=case["final_length"])
        loss = model(
            tokens, attention_mask=mask, key=key, labels=tokens.masked_fill(mask == 0, -100)
        )
        expected_loss = torch.nn.functional.cross_entropy(
            case["logits"][:, :-1].flatten(0, 1),
            tokens[:, 1:].masked_fill(mask[:, 1:] == 0, -100).flatten(),
        )
        prompts = case["prompts"]
        prompt_mask = (torch.arange(tokens.shape[1]) < prompts[:, None]).to(mask.dtype)
        prompt_tokens = tokens * prompt_mask
        padded_prompts = left_padded(prompt_tokens, prompt_mask, prompt_tokens)[
            :, -int(prompts.max()) :
        ]
        padded_mask = left_padded(prompt_tokens, prompt_mask, prompt_mask)[:, -int(prompts.max()) :]
        together = greedy(model, padded_prompts, padded_mask, case, key=key)
        cached = greedy(model, padded_prompts, padded_mask, case, key=key, use_cache=True)
        without_keys = greedy(model, padded_prompts, padded_mask, case)  # of keys made from prompts
        first = {**case, "final_length": case["final_length"][:1]}
        alone = greedy(
            model, tokens[:1, : int(prompts[0])], prompt_mask[:1, : int(prompts[0])], first
        )
    answers = [[t for t in row if t >= 0] for row in case["answers"].tolist()]
    text = tokenizer.decode(tokens[0][mask[0].bool()])
    return {
        "right": furthest(right, case["logits"], mask),
        "left": furthest(by_left, left_padded(tokens, mask, case["logits"]), left_mask),
        "given": furthest(given.logits, case["logits"], mask),
        "loss": abs(float(loss.loss) - float(expected_loss)),
        "answers": together == answers,
        "cached": cached == answers,
        "alone": alone[0] == without_keys[0],
        "missing": sorted(map(str, [*info["missing_keys"], *info["unexpected_keys"]])),
        "encoding": model.config.encoding,
        "text": text,
        "again": tokenizer(text)["input_ids"] == tokens[0][mask[0].bool()].tolist(),
        "special": [
            tokenizer.pad_token_id,
            tokenizer.unk_token_id,
            tokenizer.bos_token_id,
            tokenizer.eos_token_id,
            tokenizer("?")["input_ids"][0],
            len(tokenizer),
        ],
        "ours": [name for name in sys.modules if name.split(".")[0] in BLOCKED],
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.meta_path.insert(0, Blocked())
    cases = sorted(path for path in Path(sys.argv[1]).iterdir() if path.is_dir())
    print(json.dumps({case.name: check(case) for case in cases}))
