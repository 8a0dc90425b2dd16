"""The API server: connection as kubectl finds it, requests, and reading as far as the user's rights go.

Exports: `api` (Api, one request), `connection` (from flags and kubeconfig to Api), `kinds` (paths), `reading` (Reader:
lists, with a note of each right that is missing), `operator` (where the product's own objects are), `node_scan` (a
pod that scans a node).
Imports only `errors` and the contract.
"""
