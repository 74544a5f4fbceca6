"""`logbrook transaction`: list and describe transactions, and abort open ones."""

from typing import Annotated, Any

import typer

from logbrook.cli.arguments import iso_time
from logbrook.cli.connection import Bootstrap, Json, connected_admin, transactional_ids
from logbrook.cli.failures import fail
from logbrook.cli.terminal import (
    Column,
    ParagraphCommand,
    Row,
    Yes,
    confirm,
    plural,
    print_fields,
    print_json,
    print_rows,
    print_title,
)
from logbrook.client.admin_results import TransactionInfo
from logbrook.client.admin_transactions import ONGOING, is_unfinished

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)

TransactionalId = Annotated[
    str, typer.Argument(metavar="ID", help="The transactional id.", autocompletion=transactional_ids)
]


def _started(row: Row) -> str | None:
    return None if row["started_ms"] is None else iso_time(row["started_ms"])


_STARTED: Column = ("started", _started)


@app.command("list", cls=ParagraphCommand)
def show_all(
    only_open: Annotated[
        bool, typer.Option("--open", help="Only ids with a transaction that is open or being completed.")
    ] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """List all transactional ids with the state of their newest transaction.

    Consumers of committed records wait for the oldest open transaction of a partition, until it is completed or its
    timeout has passed.

    JSON: a list of {"transactional_id", "state", "producer_id", "producer_epoch", "coordinator", "timeout_ms",
    "started_ms", "partitions"}; started_ms is null if no transaction is open, partitions is a list of {"topic",
    "partition"}.
    """
    with connected_admin(bootstrap) as admin:
        every = admin.transactions.all()
        rows = [_transaction_json(transaction) for transaction in every if is_unfinished(transaction) or not only_open]
        producer = (("producer", "producer_id"), ("epoch", "producer_epoch"))
        count: Column = ("partitions", lambda row: len(row["partitions"]))
        print_rows(rows, (("id", "transactional_id"), "state", *producer, _STARTED, count), as_json=as_json)
        if not rows and not as_json:
            reason = "no transaction is open" if every else "there are no transactional ids"
            typer.echo(reason, err=True)


@app.command(cls=ParagraphCommand)
def describe(transactional_id: TransactionalId, as_json: Json = False, bootstrap: Bootstrap = None) -> None:
    """Show the newest transaction of a transactional id, and the partitions that it has written to.

    JSON: an object as in the list of `logbrook transaction list`.
    """
    with connected_admin(bootstrap) as admin:
        row = _transaction_json(admin.transactions.describe(transactional_id))
        if as_json:
            print_json(row)
            return
        names = ("transactional_id", "state", "producer_id", "producer_epoch", "coordinator", "timeout_ms")
        fields = [(name.replace("_", " "), row[name]) for name in names]
        print_fields([*fields, ("started", _started(row))])
        if row["partitions"]:
            print_title("Partitions")
            print_rows(row["partitions"], ("topic", "partition"))


@app.command(cls=ParagraphCommand)
def abort(transactional_id: TransactionalId, yes: Yes = False, bootstrap: Bootstrap = None) -> None:
    """Abort the open transaction of a transactional id, so that consumers of committed records go on.

    Its records are not read by them. Its producer is fenced, and cannot go on without starting anew: stop it first, if
    it still runs.

    Example: logbrook transaction abort billing-1
    """
    with connected_admin(bootstrap) as admin:
        transaction = admin.transactions.describe(transactional_id)
        if transaction.state != ONGOING:
            state = "is already being completed" if is_unfinished(transaction) else "has no open transaction"
            fail(f"{transactional_id} {state}: its state is {transaction.state}")
        count = plural(len(transaction.partitions), "partition")
        confirm(f"Abort the transaction of {transactional_id} in {count}, and fence its producer?", yes)
        admin.transactions.abort(transactional_id)
        typer.echo(f"aborted the transaction of {transactional_id}; its producer is fenced")


def _transaction_json(transaction: TransactionInfo) -> dict[str, Any]:
    return {
        "transactional_id": transaction.transactional_id,
        "state": transaction.state,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "coordinator": transaction.coordinator_id,
        "timeout_ms": transaction.timeout_ms,
        "started_ms": transaction.started_ms,
        "partitions": [partition._asdict() for partition in transaction.partitions],
    }
