"""The types that Kafka's tools know settings to have."""

from enum import StrEnum


class SettingKind(StrEnum):
    BOOLEAN = "boolean"
    STRING = "string"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    LIST = "list"
