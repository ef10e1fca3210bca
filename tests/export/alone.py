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
from importlib.util import find_spec
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


def spread(values: Any, filling: int) -> Any:
    """Rows with `filling` after each entry."""
    import torch

    return torch.stack((values, torch.full_like(values, filling)), 2).flatten(1)


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
    right_rows = (tokens * prompt_mask)[:, :longest], prompt_mask[:, :longest]
    first = tokens[:1, : int(prompts[0])], prompt_mask[:1, : int(prompts[0])], final_length[:1]

    def furthest(actual: Any, expected: Any, mask: Any) -> float:
        return float((actual - expected)[mask.bool()].abs().max())

    with torch.no_grad():
        right = model(tokens, attention_mask=mask, key=key, labels=labels)
        left = model(left_padded(tokens, mask), attention_mask=left_mask, key=key).logits
        given = model(tokens, attention_mask=mask, key=key, final_length=final_length).logits
        together = greedy(model, *rows, final_length, key=key)
        cached = greedy(model, *rows, final_length, key=key, use_cache=True)
        on_the_right = greedy(model, *right_rows, final_length, key=key)
        spread_rows = {"attention_mask": spread(mask, 0), "labels": spread(labels, -100)}
        between = model(spread(tokens, 0), **spread_rows, key=key).loss
        sevenths = model(
            tokens, mask, labels=labels, key=key, num_items_in_batch=torch.tensor(7)
        ).loss
        without_keys = greedy(model, *rows, final_length)  # of keys made from prompts
        alone = greedy(model, *first)
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    accumulated = loss * (labels[:, 1:] >= 0).sum() / 7
    answers = [[t for t in row if t >= 0] for row in case["answers"].tolist()]
    text, ids = tokenizer.decode(tokens[0][mask[0].bool()]), tokens[0][mask[0].bool()].tolist()
    special = [getattr(tokenizer, f"{name}_token_id") for name in ("pad", "unk", "bos", "eos")]
    return {
        "right": furthest(right.logits, logits, mask),
        "left": furthest(left, left_padded(logits, mask), left_mask),
        "given": furthest(given, logits, mask),
        "loss": abs(float(right.loss) - float(loss)),
        "between": abs(float(between) - float(loss)),
        "accumulated": abs(float(sevenths) - float(accumulated)),
        "answers": together == answers,
        "on_the_right": on_the_right == answers,
        "cached": cached == answers,
        "alone": alone[0] == without_keys[0],
        "missing": sorted(map(str, [*info["missing_keys"], *info["unexpected_keys"]])),
        "encoding": model.config.encoding,
        "text": text,
        "again": tokenizer(text)["input_ids"] == ids,
        "special": [*special, tokenizer("?")["input_ids"][0], len(tokenizer)],
        "imported": [name for name in sys.modules if name.split(".")[0] == "tape_arith"],
    }


def fine_tune(folder: Path) -> list[float]:
    """Return the loss before and after a fine-tuning with the Trainer of transformers, and that of
    the folder that it saved."""
    hub, out = import_module("transformers"), str(folder.with_name("tuned"))
    tokenizer = hub.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    texts = ["1+2=3", "99+1=001", "1+11=21", "31+1=41", "5+5=01"]
    rows = [{"input_ids": [*tokenizer(text)["input_ids"], 3]} for text in texts * 4]
    options = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 12}
    quiet = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True}
    trainer = hub.Trainer(
        hub.AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True),
        hub.TrainingArguments(out, learning_rate=1e-2, **options, **quiet),
        hub.DataCollatorForLanguageModeling(tokenizer, mlm=False),
        train_dataset=rows,
        eval_dataset=rows,
    )
    trainer.remove_callback(hub.PrinterCallback)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    after = trainer.evaluate()["eval_loss"]
    trainer.save_model(out)
    trainer.model = hub.AutoModelForCausalLM.from_pretrained(out, trust_remote_code=True)
    return [before, after, trainer.evaluate()["eval_loss"]]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.meta_path.insert(0, Blocked())
    cases = sorted(path for path in Path(sys.argv[1]).iterdir() if path.is_dir())
    report: dict[str, Any] = {case.name: check(case) for case in cases}
    if find_spec("accelerate"):
        report["fine_tuned"] = fine_tune(cases[0])
    print(json.dumps(report))
