"""Live numbers of a cluster for `logbrook top` and the web console.

- `metrics` scrapes and parses the metrics page of a Logbrook broker into `BrokerMetrics`.
- `sampling.observe` reads the state of any Kafka cluster through `Admin`; `ClusterSampler` turns consecutive
  observations into rates and latencies, a `ClusterSample` each.

Nothing here starts threads or tasks: `top` calls `observe` on a thread of its own, the console on an executor. May
import `client` and the packages below it.
"""
