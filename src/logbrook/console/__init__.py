"""The web console and the HTTP API: a process of its own, that speaks Kafka's protocol to any cluster.

`cluster` asks the cluster, on threads of its own; `sampling` keeps the last minutes of it for the charts; `messages`
reads what a page shows of a topic. `pages/` draws that, `api` answers it as JSON, `guard` says who may ask, and `app`
puts all of it together.
"""
