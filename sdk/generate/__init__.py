"""Writes the models of both SDKs and the reference pages from `api/openapi.json`."""
