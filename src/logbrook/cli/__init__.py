"""The `logbrook` command.

`main` has one line of help per command and imports the command's module when it is called, because start-up time is
part of starting a broker. A command is a module with a Typer application:

- `serve` (also `config show`) with `settings_options`, which makes an option of every setting
- `topic`, `group`, `transaction`, `produce`, `consume` (reading in `consume_readers`), `context`, `top` (drawn by
  `top_screen`)
- `security`, `user`, `acl`, `quota`: certificates, SCRAM users, ACLs and client quotas
- `cluster` with its parts `cluster_status`, `cluster_moves`, `cluster_nodes`, `cluster_features`, `cluster_adopt` and
  `cluster_up`
- `log` for data directories: `log_data` opens one, `log_dump` prints files, `log_broker` calls a running broker
- `bench`: `bench_run` controls worker processes, `bench_load` is what they run
- `console`, `pipeline`, `table`, and `spark_jobs` (archive, replay, audit)

Shared by all: `connection` (which cluster, saved contexts), `arguments` and `records` (syntax of positions, times and
records), `terminal` (tables, JSON, progress, confirmation), `failures` (errors, exit codes, Ctrl-C). `reference`
generates docs/COMMANDS.md.

May import every other package; Spark, the console and the server only inside the commands that need them.
"""
