"""The web console and the HTTP API: a separate process that is a Kafka client of any cluster.

- `cluster.ClusterAccess` runs blocking client calls on threads; `describe_error` turns errors into messages.
- `sampling.ConsoleSampler` keeps the recent state of the cluster for charts and tables.
- `messages` reads and searches pages of a topic's messages, and writes messages; `filters` are conditions on fields.
- `decoding` makes keys and values readable, with `schema_values` for those with a registered schema.
- `pages/` are the web pages (nicegui); `message_query` is the address of a view of messages.
- `api` is the HTTP API (FastAPI): `api_messages` its messages, `api_inputs` and `api_models` the bodies of requests and
  responses, `api_errors` its errors, `api_docs` its documentation.
- `guard.Guard` is the access control in front of both, `gates` are the kinds of logins: none, a token for everybody, or
  users of the cluster (`sign_in`, `login_page`, `oidc`), who each have a `workspace`. `app` composes everything.

May import `client`, `monitoring`, `pipelines` and the packages below them.
"""
