"""The options of `serve` and `config show`: one for each setting, made from its declaration.

Typer reads the options of a command from its signature, so the signature is what is made. All values arrive as text
and are read by `logbrook.config`, which reads the environment and the file by the same rules.
"""

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import typer

from logbrook.cli.help import metavar_of
from logbrook.config.catalogue import Declared, Kind, all_settings
from logbrook.config.errors import SettingsRefusedError
from logbrook.config.loading import Loaded, load_settings
from logbrook.config.sources import CONFIG_FLAG

# Flags that do not exist are told together with whatever else is wrong, so the parser lets them pass.
CONTEXT_SETTINGS = {"ignore_unknown_options": True, "allow_extra_args": True}

WRONG_SETTINGS = 2


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """`command(loaded, **own options)`, with an option for each setting besides its own."""
    own = list(inspect.signature(command).parameters.values())[1:]

    def with_loaded(context: typer.Context, **given: Any) -> None:
        own_values = {parameter.name: given.pop(parameter.name) for parameter in own}
        command(_load_or_exit(_flags(given), context.args), **own_values)

    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    parameters = [_CONTEXT, *_of_settings(), *keywords]
    with_loaded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_loaded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    with_loaded.__name__ = command.__name__
    with_loaded.__doc__ = command.__doc__
    return with_loaded


_CONTEXT = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)


def _of_settings() -> Iterator[inspect.Parameter]:
    yield _keyword(CONFIG_FLAG, Annotated[str | None, typer.Option(CONFIG_FLAG, metavar="FILE")])
    for setting in all_settings():
        yield _keyword(setting.flag, _annotation(setting))


def _keyword(flag: str, annotation: object) -> inspect.Parameter:
    return inspect.Parameter(_parameter(flag), inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _annotation(setting: Declared) -> object:
    if setting.form.kind is Kind.BOOLEAN:
        no = f"--no-{setting.flag.removeprefix('--')}"
        return Annotated[bool | None, typer.Option(f"{setting.flag}/{no}", help=setting.doc)]
    completion = (lambda: list(setting.form.choices)) if setting.form.choices else None
    option = typer.Option(setting.flag, metavar=metavar_of(setting), help=setting.doc, autocompletion=completion)
    return Annotated[str | None, option]


def _parameter(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def _flags(given: Mapping[str, Any]) -> dict[str, object]:
    return {f"--{name.replace('_', '-')}": value for name, value in given.items() if value is not None}


def _load_or_exit(flags: dict[str, object], others: list[str]) -> Loaded:
    try:
        return load_settings(flags | dict(_unknown(others)), os.environ)
    except SettingsRefusedError as error:
        for problem in error.problems:
            typer.echo(f"error: {problem}", err=True)
        raise typer.Exit(WRONG_SETTINGS) from None


def _unknown(arguments: list[str]) -> Iterator[tuple[str, object]]:
    """What no option took. What follows an unknown flag is most likely its value, and no problem of its own."""
    after_flag = False
    for argument in arguments:
        if argument.startswith("-"):
            yield argument.partition("=")[0], None
        elif not after_flag:
            yield argument, None
        after_flag = argument.startswith("-") and "=" not in argument
