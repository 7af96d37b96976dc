"""OpenAI's Python package as a client of the server, whose address is the argument."""

import json
import math
import sys

import openai
from openai import OpenAI

client = OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
checks = 0


def check(holds, what):
    global checks
    checks += 1
    if not holds:
        sys.exit(f"openai: {what}")


models = [model.id for model in client.models.list()]
check(models == ["made-up"], f"models: {models}")
model = models[0]
check(client.models.retrieve(model).id == model, "a model by its name")

messages = [{"role": "system", "content": "be short"}, {"role": "user", "content": "hello"}]
usual = {"model": model, "messages": messages, "max_completion_tokens": 12, "temperature": 0, "logit_bias": {"257": -100}}
whole = client.chat.completions.create(**usual)
text = whole.choices[0].message.content
check(whole.choices[0].finish_reason == "length" and whole.usage.completion_tokens == 12, f"chat: {whole}")
check(whole.usage.prompt_tokens + 12 == whole.usage.total_tokens, f"usage: {whole.usage}")

parts = list(client.chat.completions.create(**usual, stream=True, stream_options={"include_usage": True}))
joined = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
check(joined == text and parts[-1].usage.completion_tokens == 12, f"streamed chat: {joined!r}, not {text!r}")

several = client.chat.completions.create(**usual, n=3, seed=1)
check([choice.message.content for choice in several.choices] == [text] * 3, "three answers")
stopped = client.chat.completions.create(**usual, stop=[text[4:6]])
check(stopped.choices[0].message.content == text[: text.index(text[4:6])], "a stop string")

completion = client.completions.create(model=model, prompt=["one", "two"], max_tokens=5, temperature=0)
check([choice.index for choice in completion.choices] == [0, 1], f"completions: {completion}")
streamed = client.completions.create(model=model, prompt="one", max_tokens=5, temperature=0, stream=True)
check("".join(part.choices[0].text for part in streamed) == completion.choices[0].text, "a streamed completion")

for form in ["float", "base64"]:
    embeddings = client.embeddings.create(model=model, input=["a text", "another"], encoding_format=form)
    check(len(embeddings.data) == 2, f"embeddings: {embeddings}")
plain = client.embeddings.create(model=model, input="a text").data[0].embedding
check(abs(math.hypot(*plain) - 1) < 1e-3, f"an embedding of length {math.hypot(*plain)}")

schema = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}, "kind": {"enum": ["cat", "dog"]}},
    "required": ["name", "kind"],
    "additionalProperties": False,
}
form = {"type": "json_schema", "json_schema": {"name": "pet", "strict": True, "schema": schema}}
for seed in range(5):
    answer = client.chat.completions.create(
        model=model, messages=messages, max_completion_tokens=300, temperature=1, seed=seed, response_format=form
    )
    pet = json.loads(answer.choices[0].message.content)
    check(pet.keys() == {"name", "kind"} and pet["kind"] in ("cat", "dog") and len(pet["name"]) <= 6, f"a schema: {pet}")

for kind, request in [
    (openai.NotFoundError, {"model": "gpt-4", "messages": messages}),
    (openai.BadRequestError, {"model": model, "messages": []}),
    (openai.BadRequestError, {"model": model, "messages": messages, "temperature": -1}),
    (openai.BadRequestError, {"model": model, "messages": messages, "logprobs": True}),
    (openai.BadRequestError, {"model": model, "messages": messages, "tools": [{"type": "function", "function": {"name": "f"}}]}),
]:
    try:
        client.chat.completions.create(**request)
    except kind as error:
        check(bool(error.body and error.body.get("message")), f"an error's message: {error}")
    else:
        check(False, f"{kind.__name__} for {request}")

print(f"serve-check: openai={openai.__version__} checks={checks}")
