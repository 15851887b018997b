"""The decomposed forms of ops known to :class:`~byoc_core.transform.recognise_composites.RecogniseComposites`."""
