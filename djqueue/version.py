"""The version of djqueue."""

VERSION = "0.1.0"
