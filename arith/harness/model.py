"""A model of lm-evaluation-harness: of Hugging Face, vLLM, or a server of OpenAI's protocol."""

import os
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tape_arith.arith.errors import Failure, UsageError, describe_error, unknown
from tape_arith.arith.harness.prompts import Question
from tape_arith.arith.origin import without_secrets


class LanguageModel:
    """A model that continues text; it is loaded when it is first asked.

    api, arguments  as in `lm_eval --model API --model_args ARGUMENTS`
    name            as in "hf:EleutherAI/pythia-70m"
    facts           API and arguments without secrets

    Raises UsageError if lm-evaluation-harness is missing, or knows no such kind of model.
    """

    def __init__(self, api: str, arguments: str) -> None:
        try:
            self.library = version("lm_eval")
        except PackageNotFoundError:
            raise UsageError(
                "language models need lm-eval: pip install 'tape-arith[harness]'"
            ) from None
        os.environ.setdefault("TQDM_DISABLE", "1")  # progress is shown by a bar of ours
        from lm_eval.models import MODEL_MAPPING

        if api not in MODEL_MAPPING:
            raise unknown("--model-api", api, MODEL_MAPPING)
        self.facts = {"model_api": api, "model_args": without_secrets(arguments) or "none"}
        named = dict(part.partition("=")[::2] for part in arguments.split(","))
        name = named.get("pretrained") or named.get("model") or "model"
        self.name = f"{api}:{Path(name).name if Path(name).is_dir() else name}"
        self._api, self._arguments = api, arguments
        self._loaded: Any = None

    def ask(
        self, questions: Sequence[Question], most_tokens: int, keep: Callable[[str, str], None]
    ) -> None:
        """Give `keep` each problem of different questions, and its answer as soon as there is one.

        It may get them again at the end. An answer is greedy; it ends with its line, with the end
        token or after `most_tokens`. Raises Failure if the model cannot be loaded or fails.
        """
        from lm_eval.api.instance import Instance
        from lm_eval.api.registry import get_model

        from tape_arith.models.hardware import detect

        problems = {each.prompt: each.problem for each in questions}
        options = {"until": ["\n"], "max_gen_toks": most_tokens, "do_sample": False}
        requests = [
            Instance("generate_until", {}, (prompt, {**options}), number)
            for number, prompt in enumerate(problems)
        ]

        def listen(method: str, request: Sequence[Any], text: str) -> None:
            keep(problems[request[0]], text)

        try:
            if self._loaded is None:
                device = {} if "device=" in self._arguments else {"device": detect().device}
                self._loaded = get_model(self._api).create_from_arg_string(self._arguments, device)
            # Its own cache would be unpickled.
            self._loaded.set_cache_hook(SimpleNamespace(add_partial=listen))
            generate = self._loaded.generate_until
            has_bar = "disable_tqdm" in signature(generate).parameters
            texts = generate(requests, **({"disable_tqdm": True} if has_bar else {}))
        except Failure:
            raise
        except Exception as error:  # packages, servers and models of others may raise anything
            reason = describe_error(error)[:500]
            raise Failure(f"{self.name} failed, its answers are kept: {reason}") from error
        for problem, text in zip(problems.values(), texts, strict=True):
            keep(problem, text)  # of a model that calls no `add_partial`
