"""The objects of the API, generated from its OpenAPI document by `sdk/generate`."""
