"""The version of Logbrook. The package takes its own from here."""

VERSION = "0.1.0.dev0"
