"""How a command that runs on Spark ends: one code for each kind of failure, the same for pipelines and jobs."""

WRONG = 2
UNREACHABLE = 3
FAILED = 4
NO_SPARK = 5
