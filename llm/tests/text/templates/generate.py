"""Renders the templates of this folder with Jinja2, the engine of Python's transformers, set up as it is there.

    python3 generate.py > expected.json

The test compares ggml_llm's results with the file.
"""

import datetime
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = datetime.datetime(2025, 3, 9, 14, 5, 7, tzinfo=datetime.timezone.utc)

CHATS = {
    "question": [("user", "What is 2 + 2?")],
    "system": [("system", "  Answer briefly.\n"), ("user", "Why is the sky blue?  ")],
    "dialogue": [
        ("system", "You are a café owner."),
        ("user", "Hello, who are you?"),
        ("assistant", " I own a café. \n"),
        ("user", "naïve “quotes” & <tags> 日本語 🎉 'x' \"y\" \\n {{ no }} {% raw %}"),
    ],
    "thought": [
        ("user", "Think!"),
        ("assistant", "<think>\nfirst, this\n</think>\n\nDone."),
        ("user", "Again\n"),
        ("assistant", "<think>\n\n second \n</think>\n\nDone again."),
    ],
    "answer last": [("user", "a"), ("assistant", "b")],
    "twice": [("user", "one"), ("user", "two")],
    "tool": [("user", "call it"), ("assistant", "called"), ("tool", "{\"x\": [1, 2]}"), ("user", "42")],
    "empty": [("user", "")],
    "spaces": [("system", " "), ("user", "\n\n a  b\tc \n"), ("assistant", "\n")],
    "channel": [("user", "x"), ("assistant", "<|channel|>final<|message|>y"), ("user", "z")],
    "none": [],
}


# Each is a template of its own, with the messages of "dialogue". Those that fail must fail in both engines.
SNIPPETS = (pathlib.Path(__file__).parent / "snippets.txt").read_text().split("\n====\n")


def refuse(message):
    raise jinja2.exceptions.TemplateError(message)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = lambda value, ensure_ascii=False, indent=None, sort_keys=False: json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, sort_keys=sort_keys
    )
    env.globals["raise_exception"] = refuse
    env.globals["strftime_now"] = NOW.strftime
    return env


def main():
    env = environment()
    cases = []
    for path in sorted(pathlib.Path(__file__).parent.glob("*.jinja")):
        template = env.from_string(path.read_text())
        for chat, messages in CHATS.items():
            for prompt in (False, True):
                case = {"template": path.name, "chat": chat, "messages": messages, "add_generation_prompt": prompt}
                try:
                    case["text"] = template.render(
                        messages=[{"role": role, "content": content} for role, content in messages],
                        add_generation_prompt=prompt,
                        bos_token="<s>",
                        eos_token="</s>",
                        tools=None,
                        documents=None,
                    )
                except jinja2.exceptions.TemplateError as error:
                    case["error"] = str(error)
                cases.append(case)
    snippets = []
    for source in SNIPPETS:
        case = {"template": source}
        try:
            case["text"] = env.from_string(source).render(
                messages=[{"role": role, "content": content} for role, content in CHATS["dialogue"]],
                add_generation_prompt=True,
                bos_token="<s>",
                eos_token="</s>",
                tools=None,
                documents=None,
            )
        except Exception as error:
            case["error"] = str(error)
        snippets.append(case)
    result = {"jinja2": jinja2.__version__, "now": int(NOW.timestamp()), "cases": cases, "snippets": snippets}
    print(json.dumps(result, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
