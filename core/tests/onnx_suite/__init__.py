"""ONNX's backend test suite, run with byoc on chosen backends, and the ledger of its cases."""
