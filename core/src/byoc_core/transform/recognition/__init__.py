"""The spellings of single ops that :class:`~byoc_core.transform.recognise_composites.RecogniseComposites` knows."""
