"""`logbrook cluster features`: the feature levels of a cluster, and raising them after an upgrade."""

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from logbrook.cli.connection import Bootstrap, Json, connected_admin
from logbrook.cli.failures import fail, refuse
from logbrook.cli.terminal import Column, ParagraphCommand, Yes, confirm, print_json, print_rows
from logbrook.client.admin_features import FeatureInfo

_ARGUMENT = "FEATURE[=LEVEL]..."


def add_to(app: typer.Typer) -> None:
    app.command(cls=ParagraphCommand)(features)


def features(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar=_ARGUMENT, help="Only these features; with --upgrade, to these levels."),
    ] = None,
    upgrade: Annotated[
        bool, typer.Option("--upgrade", help="Raise the levels, by default to the highest that all nodes support.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Show the levels of features in force, and those that the nodes support; raise them with --upgrade.

    A cluster works at one level of each feature. When all nodes run a new version, raise the levels to use what it
    added. A level cannot be lowered again, and nodes of older versions then cannot start.

    Examples: logbrook cluster features; logbrook cluster features --upgrade

    JSON: a list of {"feature", "level", "supported", "nodes"}: the level in force, the first and last level that all
    live nodes support, null without any, and the same by node.
    """
    wanted = _parse(names or [])
    if not upgrade and any(level is not None for level in wanted.values()):
        refuse(_ARGUMENT, "a level is for --upgrade")
    with connected_admin(bootstrap) as admin:
        shown = _chosen(admin.features.all(), wanted)
        if upgrade:
            levels = _new_levels(shown, wanted)
            if levels:
                before = {feature.name: feature.level for feature in shown}
                changes = [f"{name} from {before[name]} to {level}" for name, level in levels.items()]
                confirm(f"Raise {', '.join(changes)}? It cannot be lowered again.", yes)
                admin.features.upgrade(levels)
                shown = _chosen(admin.features.all(), wanted)
            if not as_json:
                raised = ", ".join(f"{name} is now at level {level}" for name, level in levels.items())
                typer.echo(raised or "all features are at the highest level that all nodes support")
                return
        rows = [_feature_json(feature) for feature in shown]
        if as_json:
            print_json(rows)
            return
        supported: Column = ("supported", lambda row: _range_text(row["supported"]))
        columns: tuple[Column, ...] = ("feature", "level", supported, ("by node", _by_node))
        print_rows(rows, columns)
        if raisable := [feature.name for feature in shown if feature.can_be_raised_to is not None]:
            advice = "`logbrook cluster features --upgrade` does it, when no node has to go back to an older version"
            typer.echo(f"{', '.join(raisable)} can be raised: {advice}", err=True)


def _parse(arguments: Iterable[str]) -> dict[str, int | None]:
    wanted: dict[str, int | None] = {}
    for argument in arguments:
        name, equals, level = argument.partition("=")
        if equals and not (level.isascii() and level.isdecimal()):
            refuse(_ARGUMENT, f"{argument!r} is not FEATURE=LEVEL, such as logbrook.version=2")
        wanted[name] = int(level) if equals else None
    return wanted


def _chosen(existing: list[FeatureInfo], wanted: dict[str, int | None]) -> list[FeatureInfo]:
    names = [feature.name for feature in existing]
    for name in wanted:
        if name not in names:
            fail(f"there is no feature {name!r}; there are {', '.join(names)}")
    return [feature for feature in existing if not wanted or feature.name in wanted]


def _new_levels(shown: list[FeatureInfo], wanted: dict[str, int | None]) -> dict[str, int]:
    levels = {feature.name: wanted.get(feature.name) or feature.can_be_raised_to for feature in shown}
    before = {feature.name: feature.level for feature in shown}
    return {name: level for name, level in levels.items() if level is not None and level != before[name]}


def _feature_json(feature: FeatureInfo) -> dict[str, Any]:
    return {
        "feature": feature.name,
        "level": feature.level,
        "supported": None if feature.common is None else list(feature.common),
        "nodes": {str(node): list(levels) for node, levels in feature.nodes.items()},
    }


def _by_node(row: Any) -> str | None:
    """Return the ranges of the nodes, None if they are all the same."""
    if len({tuple(levels) for levels in row["nodes"].values()}) < 2:
        return None
    return ", ".join(f"{node}: {_range_text(levels)}" for node, levels in row["nodes"].items())


def _range_text(levels: list[int] | None) -> str:
    if levels is None:
        return "none by all"
    return str(levels[0]) if levels[0] == levels[1] else f"{levels[0]} to {levels[1]}"
